"""What a handler is given beside the event: who it is, what it sends out, and a transaction that is settled with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from headway.core.event import Event, Letter
from headway.core.item import Item
from headway.core.keys import digest
from headway.errors import CodecError, HeadwayError, LeaseLost, PayloadError, TransactionExpired
from headway.ports.ledger import Transaction, Transactions
from headway.runtime import envelope
from headway.runtime.lease import Lease


class Scope:
    """What one attempt collects: its emits and its transaction. Handlers see it through a context of their colour."""

    def __init__(self, event: Event[Any], lease: Lease, transactions: Transactions, *, attempt: int) -> None:
        """A scope for one run of a handler."""
        self.event = event
        self.lease = lease
        self.attempt = attempt
        self.emits: list[Letter] = []
        self.transaction: Transaction | None = None
        self._transactions = transactions
        self._spoiled_by: BaseException | None = None
        self._kept_blocks = 0
        self._beginning = asyncio.Lock()
        self._ended = False

    @property
    def item(self) -> Item:
        """The work, as it was claimed."""
        return self.lease.item

    def check(self) -> None:
        """Refuse to go on for a worker that may no longer be the only one."""
        if not self.lease.live:
            raise LeaseLost(
                f"the lease on item {self.item.id} has run out here, so somebody else may be working on it: "
                "nothing more is done under it"
            )
        if self._ended:
            raise LeaseLost(
                f"the handler's attempt on item {self.item.id} is over: what it left running does nothing more under it"
            )

    def end(self) -> None:
        """The handler has returned: whatever it left running is refused from here on.

        Raises what has undone writes that the handler takes for kept.
        """
        self._ended = True
        if self._spoiled_by is not None:
            raise self._spoiled_by

    def cause_of(self, error: BaseException) -> BaseException:
        """Why the attempt failed: where its transaction had run out before, that is why, whatever came of it."""
        if self.transaction is None:
            return self._spoiled_by or error
        if isinstance(error, HeadwayError):
            return error
        try:
            self.transaction.connection  # noqa: B018 - it raises where the block was open for too long
        except TransactionExpired as expired:
            return expired
        return error

    def emit(self, event: str | object, data: object, order_key: str | None) -> None:
        """Keep an event that goes out if this attempt succeeds, and only then."""
        self.check()
        if isinstance(event, str):
            event_type, payload = event, envelope.plain({} if data is None else data)
        elif data is not None or isinstance(event, type):
            raise TypeError('emit an object, or a name and its data: ctx.emit("ChunksPrepared", {"chunk_ids": ids})')
        else:
            event_type, payload = type(event).__name__, envelope.plain(event)
        # The same success sends the same ids, so that an event that goes out twice is known to be one.
        identity = digest("emit", self.item.id, self.item.successes, len(self.emits))
        headers = {"causation_id": self.event.event_id}
        headers["correlation_id"] = self.event.headers.get("correlation_id", self.event.event_id)
        if order_key is not None:
            if not isinstance(order_key, str):
                raise TypeError(f"order_key={order_key!r}: a string, as in order_key=str({order_key!r})")
            headers["order_key"] = order_key
        out: Event[object] = Event(
            event_type=event_type,
            data=payload,
            event_id=str(uuid.UUID(hex=identity[:32])),
            timestamp=envelope.timestamp(time.time()),
            headers=headers,
        )
        letter = envelope.encode(out)
        try:
            envelope.decode(letter.body)
        except CodecError as error:  # what no service could read is refused here, by its sender
            raise PayloadError(f"nobody could read the event {event_type[:50]!r}: {error}") from error
        self.emits.append(letter)

    async def begin(self) -> Any:
        """The connection of this attempt's transaction, which is begun when it is first asked for."""
        self.check()
        async with self._beginning:
            if self.transaction is None:
                self.transaction = await self._transactions.begin(bound=self.lease.longest_block)
            return self.transaction.connection

    def block_left(self) -> None:
        """A block ended well: what it wrote is this attempt's."""
        self._kept_blocks += 1

    async def block_failed(self, error: BaseException) -> None:
        """Undo the transaction. Where an earlier block's writes go with it, the attempt can succeed no more."""
        why = self.cause_of(error)
        if self._kept_blocks or why is not error:
            self._spoiled_by = why
        await self.roll_back()

    async def roll_back(self) -> None:
        """Undo what was written in the transaction and not committed, if there is one; nothing more is begun."""
        if self.transaction is not None:
            await self.transaction.roll_back()
            self.transaction = None


class _Handle:
    """What both colours of a context show."""

    def __init__(self, scope: Scope) -> None:
        """Show this scope."""
        self._scope = scope

    @property
    def item_id(self) -> str:
        """The identity of this work: what `headway why` takes."""
        return self._scope.item.id

    @property
    def attempt(self) -> int:
        """Which execution this is, counted from 1."""
        return self._scope.attempt

    @property
    def epoch(self) -> int:
        """The fencing token: a receiver that keeps the largest it has seen can refuse a worker that was replaced."""
        return self._scope.item.epoch

    def emit(self, event: str | object, data: object = None, *, order_key: str | None = None) -> None:
        """Send an event out if this attempt succeeds: an object, or a name and its data.

        Where a broker stands beside the ledger, events with the same order key are published to it one after the
        other. They are handled side by side, as all events are.
        """
        self._scope.emit(event, data, order_key)


class Context(_Handle):
    """The context of an async handler."""

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection of the ledger's database: what is written with it is committed with this work's success.

        Nobody else can write to an embedded ledger while the block is open, so keep it short: past a bound below the
        lease it is rolled back and the attempt fails.
        """
        connection = await self._scope.begin()
        try:
            yield connection
        except BaseException as error:
            await self._scope.block_failed(error)
            raise
        self._scope.block_left()


class SyncContext(_Handle):
    """The context of a handler that is not async; the handler runs on a thread of its own."""

    def __init__(self, scope: Scope, loop: asyncio.AbstractEventLoop) -> None:
        """Show this scope to a thread that is not the loop's."""
        super().__init__(scope)
        self._loop = loop

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """The same as `Context.transaction`, without `async`."""
        connection = asyncio.run_coroutine_threadsafe(self._scope.begin(), self._loop).result()
        try:
            yield connection
        except BaseException as error:
            asyncio.run_coroutine_threadsafe(self._scope.block_failed(error), self._loop).result()
            raise
        self._scope.block_left()
