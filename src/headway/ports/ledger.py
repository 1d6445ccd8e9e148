"""The durable store of where all work is.

What every implementation owes: each method is one atomic step; the time is read from the store's own clock inside the
step, never passed in; what cannot be reached now raises `ServiceUnavailable`, and the same call may be made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headway.core import claims
from headway.core.event import Letter
from headway.core.item import Attempt, Effect, Item
from headway.core.settlements import Lost, Settled, Settlement
from headway.core.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """A lease to extend, with what there is to note: each field that is not None replaces what the item has."""

    id: str
    epoch: int
    lease: float
    alone: bool | None = None
    attempt: Attempt | None = None
    effects: Mapping[str, Effect] | None = None


class Transaction(Protocol):
    """A transaction of the ledger's database that a handler writes into; the settle commits it, nothing else does."""

    @property
    def connection(self) -> Any:
        """The driver's connection; raises `TransactionExpired` once the block was open for too long."""
        ...

    async def roll_back(self) -> None:
        """Undo everything; harmless when it is over already, or while a handler's thread still writes with it."""
        ...


class Ledger(Protocol):
    """The write port: the right to work, and what came of it."""

    async def claim(self, wanted: claims.Wanted) -> claims.Answer:
        """Take the work if it is new or free, and always say which of the answers holds.

        Work that the ledger carries is never won here, only by `due`. A repeated claim of the same holder is Won.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> Sequence[bool]:
        """Extend leases, each from now on and with its notes; False for one whose epoch is no longer the item's."""
        ...

    async def settle(
        self, seen: Item, settlement: Settlement, *, by: str, token: str, within: Transaction | None = None
    ) -> Settled | Lost:
        """Write everything that this outcome means, if the item is still as it was seen.

        With `within`, the user's writes are committed by the same commit, or not at all. A call that is repeated with
        the same token, because its answer was lost, is told what it did.
        """
        ...

    async def due(self, stages: Sequence[str], *, limit: int, lease: float, holder: str) -> Sequence[Item]:
        """Take what the ledger carries for these stages and what may run now, longest due first."""
        ...

    async def wake(self, items: Sequence[str]) -> int:
        """Make waiting items due now: somebody should look again. A wake too many is harmless."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which items to find; a field that is None does not matter. `identity` is an item's, event's or key's name."""

    identity: str | None = None
    stage: str | None = None
    state: State | None = None
    reason: str | None = None
    limit: int = 100
    after: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many items of a stage are in a state, how many of them are overdue or stranded, and since when."""

    stage: str
    state: State
    count: int
    free: int
    oldest_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of an item's history: a move, a failed attempt, or a dead letter."""

    at: float
    what: str
    round: int
    by: str = ""
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


class LedgerReads(Protocol):
    """The read port. Reads never wait for writers."""

    async def get(self, item_id: str) -> Item | None:
        """The item of this id."""
        ...

    async def find(self, query: Query) -> Sequence[Item]:
        """A page of items in the order of their ids, from after `query.after` on."""
        ...

    async def count(self) -> Sequence[Tally]:
        """Everything in the ledger, by stage and state; leaders are not work and are left out."""
        ...

    async def history(self, item_id: str) -> Sequence[Record]:
        """What happened to an item, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An event that was committed and is yet to be published."""

    id: int
    letter: Letter
    tries: int


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How much is yet to be published, since when, and the last refusal."""

    pending: int
    oldest_at: float | None
    last_error: str | None


class OutboxRows(Protocol):
    """Events on their way out, in the order of their commits within an order key."""

    async def heads(self, limit: int) -> Sequence[OutboxRow]:
        """The first row of each order key, and every row without one, if its time has come."""
        ...

    async def sent(self, rows: Sequence[int]) -> None:
        """These are with the broker."""
        ...

    async def refused(self, row: int, *, error: str, delay: float) -> None:
        """The broker did not take it: try again after `delay` seconds; only its own order key waits for it."""
        ...

    async def pending(self) -> OutboxState:
        """What is still to be published."""
        ...


class Upkeep(Protocol):
    """What keeps a ledger in shape."""

    async def migrate(self) -> None:
        """Bring the store's schema to the version of this code; safe to do twice, and by two at once."""
        ...

    async def clean(self, *, older_than: float, limit: int = 500, dead_letters: bool = False) -> int:
        """Remove records that ended more than `older_than` seconds ago, in one small batch; say how many.

        A dead letter waits for a person: it goes only where `dead_letters` says so.
        """
        ...


class Transactions(Protocol):
    """Opens transactions of the ledger's own database for handlers."""

    async def begin(self, *, bound: float) -> Transaction:
        """Open one that is rolled back by itself when it is not settled within `bound` seconds."""
        ...


class WholeLedger(Ledger, LedgerReads, OutboxRows, Upkeep, Protocol):
    """All ports of a ledger in one object, as the wiring hands it around; each part asks for the port it needs."""
