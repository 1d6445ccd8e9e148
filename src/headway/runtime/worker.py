"""From a claim to its outcome: runs the handler, asks `decide`, and settles.

Rules of this file: success is recorded outside of the `try` around the work, and work whose success cannot be
recorded is not run again here; a settle that was lost is final; every wait ends at once when the service stops.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from headway.core import decide as decisions
from headway.core import settlements
from headway.core.decide import History, decide
from headway.core.failure import UNCHARGED, Failure, Kind, classify, storable
from headway.core.item import Attempt, Item
from headway.core.settlements import Lost, Settled, Settlement
from headway.errors import Conflict, LeaseLost, ServiceUnavailable, TransactionExpired
from headway.ports.ledger import Ledger, Renewal, Transaction, Transactions
from headway.ports.points import Point, Probe, unwatched
from headway.runtime import handler
from headway.runtime.context import Scope
from headway.runtime.lease import Heartbeat, Lease
from headway.runtime.room import Room
from headway.runtime.service import Stage

log = logging.getLogger("headway.worker")

T = TypeVar("T")
ERROR_TEXT = 4000
"""How much of an error's text is kept, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a service runs. Times are seconds."""

    lease: float = 30.0
    concurrency: int = 16
    in_place: float = 1.0
    poll: float = 0.02
    grace: float = 10.0
    keep: float = 30 * 86400.0
    name: str = "headway"

    def __post_init__(self) -> None:
        """Refuse what could never work."""
        times = (self.lease, self.poll, self.in_place, self.grace, self.keep)
        if not all(map(math.isfinite, times)) or min(self.lease, self.poll, self.keep) <= 0 or min(times) < 0:
            raise ValueError("lease, poll and keep must be more than 0, in_place and grace at least 0, all finite")
        if self.concurrency < 1:
            raise ValueError(f"concurrency={self.concurrency}: at least 1")


@dataclass(slots=True)
class Stopping:
    """Whether the service is stopping, and whether running handlers are to be cut off."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    cut_off: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> bool:
        """Wait; True if the service stops meanwhile."""
        if seconds <= 0:
            return self.asked.is_set()
        try:
            await asyncio.wait_for(self.asked.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Worker:
    """Runs claimed work, up to `settings.concurrency` handlers at once."""

    def __init__(
        self,
        ledger: Ledger,
        transactions: Transactions,
        heartbeat: Heartbeat,
        settings: Settings,
        stopping: Stopping,
        *,
        probe: Probe = unwatched,
    ) -> None:
        """Run work of this ledger."""
        self.ledger = ledger
        self.heartbeat = heartbeat
        self.settings = settings
        self.stopping = stopping
        self.probe = probe
        self._transactions = transactions
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._room = Room()

    async def run(self, stage: Stage, item: Item, body: bytes, *, asked_at: float) -> tuple[Settled | Lost, bool]:
        """Bring a claimed item to its outcome; say what became of it, and whether the lease was still good then."""
        if item.crashes:
            log.warning("item %s at %s was taken over: crash %d of its worker", item.id, item.stage, item.crashes)
        lease = self.heartbeat.hold(item, asked_at=asked_at)
        try:
            answer = await _Run(self, stage, item, body, lease).to_the_end()
            return answer, lease.live
        finally:
            self.heartbeat.release(lease)

    async def settle(self, item: Item, settlement: Settlement, *, within: Transaction | None = None) -> Settled | Lost:
        """Write the outcome, asking again while the store cannot be reached: the work itself is not run again."""
        token = f"{item.holder}:{item.epoch}"

        async def ask() -> Settled | Lost:
            return await self.ledger.settle(item, settlement, by=self.settings.name, token=token, within=within)

        answer = await self.surely(ask, f"settle item {item.id}")
        if isinstance(answer, Lost):
            log.warning("item %s was taken over before it was settled: nothing was written", item.id)
        else:
            self.probe(Point.SETTLED)
            if isinstance(settlement, settlements.DeadLetter):
                why = settlement.message or (settlement.attempt and settlement.attempt.message) or ""
                log.warning("item %s at %s is dead (%s): %s", item.id, item.stage, settlement.reason, why)
        return answer

    async def surely(self, ask: Callable[[], Awaitable[T]], what: str) -> T:
        """Ask until the store answers; a service that stops asks once more and then leaves it to the lease."""
        pause = 0.05
        while True:
            try:
                return await ask()
            except ServiceUnavailable as error:
                if self.stopping.asked.is_set():
                    raise
                log.warning("cannot %s now, asking again: %s", what, error)
                await self.stopping.pause(pause)
                pause = min(pause * 2, 1.0)

    @property
    def takes_more(self) -> bool:
        """Whether new work should be taken: not while renewals fail, nor while something is to run alone here."""
        return self.heartbeat.healthy and not self._room.wanted_alone

    def beside_others(self, item: Item) -> AbstractAsyncContextManager[None]:
        """Work that has crashed a worker runs with nothing beside it; everything else runs together."""
        return self._room.alone() if item.crashes else self._room.shared()

    def slot(self) -> AbstractAsyncContextManager[None]:
        """One of the places for running handlers."""
        return self._slots

    def scope(self, stage: Stage, body: bytes, lease: Lease, attempt: int) -> Scope:
        """What one attempt needs."""
        return Scope(stage.event_in(body), lease, self._transactions, attempt=attempt)


class _Run:
    """One claim's way to its outcome."""

    def __init__(self, worker: Worker, stage: Stage, item: Item, body: bytes, lease: Lease) -> None:
        self.worker = worker
        self.stage = stage
        self.item = item
        self.body = body
        self.lease = lease
        self.attempts = item.attempts
        self._traceback = ""
        now = time.monotonic()
        self.started = now - item.elapsed
        self.not_after = None if item.not_after_in is None else now + item.not_after_in

    async def _settle(self, settlement: Settlement, *, within: Transaction | None = None) -> Settled | Lost:
        self.lease.settling = True
        try:
            return await self.worker.settle(self.item, settlement, within=within)
        except BaseException:
            self.lease.settling = False  # nothing is settled: a refused renewal means that the work was taken over
            raise

    async def to_the_end(self) -> Settled | Lost:
        decision: decisions.Decision = decide(self.stage.policy, None, self._history(), time.monotonic())
        attempt: Attempt | None = None
        while isinstance(decision, decisions.Retry) and decision.delay <= self.worker.settings.in_place:
            if attempt is not None and not await self._note(attempt):
                return Lost(None)
            if await self.worker.stopping.pause(decision.delay):
                return await self._settle(settlements.GiveBack())
            outcome = await self._attempt()
            if not isinstance(outcome, Failure):
                return outcome
            attempt = self._charge(outcome)
            decision = decide(self.stage.policy, outcome, self._history(), time.monotonic())
        return await self._settle(self._settlement(decision, attempt))

    async def _attempt(self) -> Settled | Lost | Failure:
        async with self.worker.slot(), self.worker.beside_others(self.item):
            if self.worker.stopping.cut_off.is_set():  # it waited for its slot until it was too late to begin
                return self._failure(handler.CutOff())
            if self.item.crashes and not await self._renew(alone=True):
                return Lost(None)
            scope: Scope | None = None
            try:
                scope = self.worker.scope(self.stage, self.body, self.lease, self.attempts + 1)
                self.worker.probe(Point.STARTED)
                await handler.call(self.stage, scope, self.worker.stopping.cut_off)
                self.worker.probe(Point.RETURNED)
                scope.end()
            except (KeyboardInterrupt, SystemExit, asyncio.CancelledError) as error:
                if scope is not None:  # this process ends: the work is left to its lease
                    await self._undone(scope, error)
                raise
            except BaseException as error:
                return self._failure(error if scope is None else await self._undone(scope, error))
            return await self._succeed(scope)

    async def _undone(self, scope: Scope, error: BaseException) -> BaseException:
        """Undo what a failed handler has written; say why it failed."""
        why = scope.cause_of(error)
        await scope.roll_back()
        return why

    async def _succeed(self, scope: Scope) -> Settled | Lost | Failure:
        done = settlements.Done(emits=tuple(scope.emits))
        try:
            return await self._settle(done, within=scope.transaction)
        except (TransactionExpired, Conflict) as error:
            if scope.transaction is None:
                raise
            # The store refused to commit what the handler wrote: that is the attempt's own failure, and undone.
            return self._failure(error)
        finally:
            # What was not committed by now never will be, and nobody else can write while it is open.
            await scope.roll_back()

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, handler.CutOff):
            return Failure(Kind.CANCELLED, "stopping", "", "the service stops")
        if isinstance(error, LeaseLost) or self.lease.lost:
            return Failure(Kind.LEASE_LOST, "lease", type(error).__name__, str(error))
        self.worker.probe(Point.FAILED)
        failure = classify(error)
        if failure.kind is Kind.CANCELLED:
            # Nobody here cancelled it: were this free of charge, such a handler would run for ever.
            failure = Failure(Kind.UNKNOWN, "nobody cancelled it", failure.error_type, failure.message)
        self._traceback = storable("".join(traceback.format_exception(error)))
        return failure

    def _charge(self, failure: Failure) -> Attempt | None:
        if failure.kind in UNCHARGED:
            return None
        self.attempts += 1
        return Attempt(
            number=self.attempts,
            kind=failure.kind.value,
            error_type=failure.error_type,
            message=failure.message[:ERROR_TEXT],
            traceback=self._traceback[-ERROR_TEXT:],
        )

    def _history(self) -> History:
        return History(
            key=self.item.id,
            attempts=self.attempts,
            strikes=self.item.strikes,
            started=self.started,
            not_after=self.not_after,
            open_effects=self.item.open_effects,
        )

    def _settlement(self, decision: decisions.Decision, attempt: Attempt | None) -> Settlement:
        match decision:
            case decisions.Retry(delay):
                return settlements.Retry(delay=delay, attempt=attempt)
            case decisions.DeadLetter(reason):
                return settlements.DeadLetter(reason=reason, attempt=attempt)
            case decisions.Doubt():
                return settlements.Doubt(attempt=attempt)
            case decisions.GiveBack():
                return settlements.GiveBack()

    async def _note(self, attempt: Attempt) -> bool:
        """Charge an attempt made in place, so that a crash during the next one does not forget it."""
        self.item = settlements.charged(self.item, attempt)  # so that no later settle takes the charge back
        noted = await self._renew(attempt=attempt, alone=False)
        self.worker.probe(Point.NOTED)
        return noted

    async def _renew(self, *, alone: bool, attempt: Attempt | None = None) -> bool:
        renewal = Renewal(
            id=self.item.id,
            epoch=self.item.epoch,
            lease=self.lease.seconds,
            alone=alone,
            attempt=attempt,
            effects=self.item.effects or None,
        )

        async def ask() -> bool:
            asked_at = time.monotonic()
            granted = (await self.worker.ledger.renew([renewal]))[0]
            if granted:
                self.lease.extend(asked_at)
            return granted

        return await self.worker.surely(ask, f"renew the lease on item {self.item.id}")
