"""What asking for the right to work can be answered. Used by module: `claims.Done`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.core.item import Item
from headway.core.states import Carrier, State


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim asks for. `holder` is new for each claim, so that a claim whose answer was lost can be repeated."""

    id: str
    stage: str
    key: str
    holder: str
    carrier: Carrier
    lease: float
    event_id: str = ""
    event_type: str = ""
    tenant: str = ""
    fingerprint: str | None = None
    not_after: float | None = None


@dataclass(frozen=True, slots=True)
class Won:
    """The work is yours, until the lease ends, under the item's epoch."""

    item: Item


@dataclass(frozen=True, slots=True)
class Done:
    """It was done before."""

    item: Item


@dataclass(frozen=True, slots=True)
class Waiting:
    """It waits in the ledger, or for its caller until it is due."""

    item: Item


@dataclass(frozen=True, slots=True)
class Dead:
    """It was abandoned."""

    item: Item


@dataclass(frozen=True, slots=True)
class Discarded:
    """A person discarded it."""

    item: Item


@dataclass(frozen=True, slots=True)
class InDoubt:
    """An unsafe effect of it may or may not have happened."""

    item: Item


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else works on it, at least until `item.free_in`."""

    item: Item


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The key is known with another payload; nothing was run and nothing was changed."""

    item: Item


Answer = Won | Done | Waiting | Dead | Discarded | InDoubt | Busy | Mismatch

_BY_STATE: dict[State, Callable[[Item], Answer]] = {
    State.RUNNING: Busy,
    State.WAITING: Waiting,
    State.DONE: Done,
    State.DEAD: Dead,
    State.DISCARDED: Discarded,
    State.IN_DOUBT: InDoubt,
}


def answer(item: Item, wanted: Wanted) -> Answer:
    """What a claim is told that could not take the item as it is."""
    if item.fingerprint != wanted.fingerprint:
        return Mismatch(item)
    if item.state is State.RUNNING and item.holder == wanted.holder:
        return Won(item)  # by an earlier try of the same claim, whose answer was lost
    return _BY_STATE[item.state](item)
