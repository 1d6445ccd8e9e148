"""Says what is wrong with a ledger that has come to rest: was anything lost, done twice, or left behind?

It reads the files with plain SQL and shares no code with what it judges.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.log import Log

ENDS = ("done", "dead", "discarded")
STATES = (*ENDS, "waiting", "running", "in_doubt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An event that was sent, and what must have become of it in the end."""

    event_id: str
    stage: str
    data: dict[str, Any] = field(default_factory=dict)
    ends: str = "done"
    reason: str | None = None

    @property
    def effects(self) -> int:
        """How often its transactional effect must be there."""
        return int(self.ends == "done" and self.data.get("write", True))

    @property
    def follows(self) -> bool:
        """Whether its success sends an event to the next stage."""
        return bool(self.ends == "done" and self.data.get("follow"))


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that the checks need, read once."""

    items: list[sqlite3.Row]
    audit: list[sqlite3.Row]
    letters: list[sqlite3.Row]
    attempts: Counter[str]
    effects: Counter[tuple[str, str]]
    outbox: int
    queues: dict[str, int]


def read(file: Path, statement: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
    """Ask a file something, on a connection of its own."""
    with closing(sqlite3.connect(file, timeout=30.0)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(statement, values).fetchall()


def open_books(ledger: Path, broker: Path | None) -> Books:
    """Read what is to be judged."""
    queues = (
        [] if broker is None else read(broker, "SELECT queue, count(*) AS number FROM headway_message GROUP BY queue")
    )
    return Books(
        items=read(ledger, "SELECT * FROM headway_item WHERE carrier <> 'leader'"),
        audit=read(ledger, "SELECT * FROM headway_audit"),
        letters=read(ledger, "SELECT * FROM headway_dead_letter"),
        attempts=Counter(row["item"] for row in read(ledger, "SELECT item FROM headway_attempt")),
        effects=Counter((row["stage"], row["origin"]) for row in read(ledger, "SELECT stage, origin FROM effect")),
        outbox=read(ledger, "SELECT count(*) AS number FROM headway_outbox")[0]["number"],
        queues={row["queue"]: row["number"] for row in queues},
    )


def faults(ledger: Path, broker: Path | None, sent: Iterable[Sent], log: Log, *, next_stage: str) -> list[str]:
    """Every way in which the record does not add up; an empty list when it does.

    `sent` has each event once, however often it was sent.
    """
    books = open_books(ledger, broker)
    events = list(sent)
    return [
        *_lost(books, events, next_stage),
        *_records_of_success(books),
        *_effects(books, events, next_stage),
        *_conservation(books, events, next_stage),
        *_free_runs(books, log),
        *_left_behind(books),
    ]


def _lost(books: Books, sent: list[Sent], next_stage: str) -> Iterator[str]:
    """Each event has one item, which has ended as it must; what is abandoned says why."""
    for event in sent:
        items = [row for row in books.items if (row["stage"], row["event_id"]) == (event.stage, event.event_id)]
        if len(items) != 1:
            yield f"{event.event_id} has {len(items)} items at {event.stage}"
        for row in items:
            if (row["state"], row["reason"]) != (event.ends, event.reason):
                yield f"{event.event_id} is {row['state']} ({row['reason']}), not {event.ends} ({event.reason})"
    for row in books.items:
        letters = [
            one
            for one in books.letters
            if one["item"] == row["id"] and one["reason"] and one["reason"] == row["reason"]
        ]
        if (row["state"] == "dead") != (len(letters) == 1):
            yield f"item {row['id'][:8]} is {row['state']} with {len(letters)} dead letters that say why"
        if row["stage"] == next_stage and row["state"] != "done":
            yield f"item {row['id'][:8]} of the next stage is {row['state']}"


def _records_of_success(books: Books) -> Iterator[str]:
    """No item has two records of success in a round, and its counter says the same as its history."""
    won = Counter((row["item"], row["round"]) for row in books.audit if row["to_state"] == "done")
    yield from (
        f"item {item[:8]} was done {times} times in round {no}" for (item, no), times in won.items() if times > 1
    )
    for row in books.items:
        recorded = sum(times for (item, _), times in won.items() if item == row["id"])
        if row["successes"] != recorded or row["successes"] != int(row["state"] == "done"):
            yield f"item {row['id'][:8]} is {row['state']}: {row['successes']} successes, {recorded} on record"


def _effects(books: Books, sent: list[Sent], next_stage: str) -> Iterator[str]:
    """Each effect in a transaction of the ledger happened exactly once, and none of work that was abandoned."""
    due = {(event.stage, event.event_id): event.effects for event in sent}
    due |= {(next_stage, event.event_id): 1 for event in sent if event.follows}
    for key in sorted(due.keys() | books.effects.keys()):
        if books.effects[key] != due.get(key, 0):
            yield f"the effect of {key[1]} at {key[0]} is there {books.effects[key]} times, not {due.get(key, 0)}"


def _conservation(books: Books, sent: list[Sent], next_stage: str) -> Iterator[str]:
    """What a stage has accepted is in exactly one of its states."""
    accepted = Counter(event.stage for event in sent)
    accepted[next_stage] += sum(event.follows for event in sent)
    states = Counter((row["stage"], row["state"]) for row in books.items)
    for stage in sorted(accepted.keys() | {row["stage"] for row in books.items}):
        shown = {state: states[stage, state] for state in STATES if states[stage, state]}
        if sum(shown.values()) != accepted[stage]:
            yield f"{stage} has accepted {accepted[stage]}, and has {shown}"


def _free_runs(books: Books, log: Log) -> Iterator[str]:
    """Each execution succeeded, was charged, crashed, or was handed back: none is free."""
    runs = Counter(line["item"] for line in log.lines("start"))
    returned = Counter(row["item"] for row in books.audit if row["move"] == "GiveBack")
    for row in books.items:
        known = row["successes"] + books.attempts[row["id"]] + row["crashes"] + returned[row["id"]]
        if runs[row["id"]] > known:
            yield f"item {row['id'][:8]} was run {runs[row['id']]} times, and {known} of them are accounted for"


def _left_behind(books: Books) -> Iterator[str]:
    """Nothing is under way any more."""
    yield from (f"item {row['id'][:8]} is still {row['state']}" for row in books.items if row["state"] not in ENDS)
    if books.outbox:
        yield f"{books.outbox} events are still in the outbox"
    yield from (f"{number} messages are still in {queue}" for queue, number in books.queues.items())
