"""The states of an item and every move between them. No store can write a move that is not in this table.

Each store enforces it where it can be got round: on SQLite a trigger is generated from `MOVES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a piece of work is; it is in exactly one of these."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    DEAD = "dead"
    IN_DOUBT = "in_doubt"
    DISCARDED = "discarded"


class Carrier(StrEnum):
    """Who would bring the work back if its worker died now."""

    CALLER = "caller"
    BROKER = "broker"
    LEDGER = "ledger"
    LEADER = "leader"
    """A singleton such as the relay: taken like a caller's work, but it counts no crashes and is in no sum."""


@dataclass(frozen=True, slots=True)
class Move:
    """One way from a state to another. `source` None is a birth, `target` None the end of the record."""

    source: State | None
    target: State | None
    by: tuple[str, ...]
    note: str


_R, _W, _D, _X, _Q, _T = (
    State.RUNNING,
    State.WAITING,
    State.DONE,
    State.DEAD,
    State.IN_DOUBT,
    State.DISCARDED,
)

MOVES: tuple[Move, ...] = (
    Move(None, _R, ("claim",), "first delivery, or a call"),
    Move(None, _W, ("publish",), "where broker and ledger are one database"),
    Move(_R, _D, ("Done",), "the value is kept"),
    Move(_R, _W, ("Retry", "Park", "Hold"), "its bytes and its due time are written here"),
    Move(_R, _W, ("GiveBack",), "shutdown: uncharged, due at once"),
    Move(_R, _X, ("DeadLetter",), "abandoned, with its reason"),
    Move(_R, _Q, ("Doubt",), "an unsafe effect is open"),
    Move(_R, _R, ("claim", "due"), "the lease ran out: taken over"),
    Move(_R, _T, ("Discard",), "stranded: the lease ran out and nobody came"),
    Move(_W, _R, ("claim", "due"), "once due"),
    Move(_W, _W, ("wake", "Postpone", "Edit"), "another due time, or another payload"),
    Move(_W, _T, ("Discard",), "cancelled by a person"),
    Move(_X, _W, ("Redrive",), "a new round"),
    Move(_X, _T, ("Discard",), "given up by a person"),
    Move(_T, _W, ("Restore",), "the discard is undone"),
    Move(_T, _X, ("Restore",), "the discard is undone"),
    Move(_Q, _W, ("Resolve",), "every open effect is answered; same round"),
    Move(_Q, _D, ("Resolve",), "settled by a person, with its value"),
    Move(_Q, _X, ("Resolve",), "abandoned by a person"),
    Move(_D, _W, ("Reprocess",), "a new round, with its own bytes"),
    Move(_D, None, ("clean",), "after the horizon"),
    Move(_X, None, ("clean",), "after the horizon"),
    Move(_T, None, ("clean",), "after the horizon"),
)

FINAL = frozenset({State.DONE, State.DEAD, State.DISCARDED})
"""States that a record may end in."""


def allows(source: State | None, target: State | None, by: str) -> bool:
    """Whether `by` may bring an item from `source` to `target`."""
    return any(move.source is source and move.target is target and by in move.by for move in MOVES)
