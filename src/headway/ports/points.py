"""The moments between two durable steps, by name.

Each is a place where a process may die, and what it leaves behind then. The crash tests kill a process at every one of
them, and the table of the documentation is made from this list. A probe is called at each; in use nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Point(Enum):
    """A moment; its value says what is durable when a process dies right there, and who goes on."""

    RECEIVED = "the broker redelivers it: nothing was written"
    CLAIMED = "the lease runs out; a redelivery takes it over and charges a crash"
    TAKEN = "the lease runs out; `due` takes it over and charges a crash"
    STARTED = "the same: the handler was about to run"
    RETURNED = "the same: the handler ran and its result is lost, so it runs again"
    FAILED = "the same: the failure is not charged as an attempt, the crash is"
    NOTED = "the failed attempt is charged; the lease runs out, and the rest of the budget is kept"
    WRITTEN = "inside a transaction of the ledger, before its commit: as if it had not begun"
    SETTLED = "the outcome is durable; the broker redelivers, and the claim's answer acknowledges it"
    ACKNOWLEDGED = "nothing is left to do"
    HEADS_TAKEN = "the event is still in the outbox: the next leader publishes it"
    PUBLISHED = "the event is with the broker and still in the outbox: it is published again under the same id"
    SENT = "nothing is left to do: the outbox has forgotten the event"


Probe = Callable[[Point], None]


def unwatched(_: Point) -> None:
    """The probe of a process that nobody watches."""
