"""A service at work: takes deliveries and what is due; a delivery is let go when its work is accounted for."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from headway.core import claims, keys, settlements
from headway.core.decide import Reason
from headway.core.event import Event
from headway.core.item import Item
from headway.core.settlements import Lost, Settled, Settlement
from headway.core.states import Carrier
from headway.errors import CodecError, HeadwayError, ServiceUnavailable
from headway.ports.broker import Broker, Delivery
from headway.ports.points import Point
from headway.runtime import envelope
from headway.runtime.service import Service, Stage
from headway.runtime.worker import Worker

log = logging.getLogger("headway.consumer")


async def together(*loops: Coroutine[Any, Any, None]) -> None:
    """Run them until all have ended; when one fails, end the others before its error goes up."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Fate(Enum):
    """What becomes of a delivery."""

    ACCOUNTED = auto()
    """Its work is in the ledger's hands or done: acknowledge."""
    RETURNED = auto()
    """Somebody else should have it: give it back."""
    NOT_OURS = auto()
    """The work was taken over, and the delivery with it: touch nothing."""


Act = Callable[[Item, float], Awaitable[tuple[Settled | Lost, bool]]]


class Consumer:
    """Runs one service until it is told to stop."""

    def __init__(self, service: Service, worker: Worker, broker: Broker | None) -> None:
        """`broker` is None where the ledger is the broker too: then everything comes from `due`."""
        self._service = service
        self._stages = {stage.name: stage for stage in service.stages}
        self._quarantine = keys.quarantine_stage(service.name)
        self._worker = worker
        self._ledger = worker.ledger
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take work until the service stops, then let what runs come to an end."""
        loops = [self._from_ledger()]
        if self._broker is not None:
            loops.append(self._from_broker(self._broker))
        try:
            await together(*loops)
            await self._drain()
        finally:  # cancelled, or one of the loops failed: what runs is left to its lease
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drain(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._worker.settings.grace)
            if late:
                log.warning("%d handlers did not end in time: they are cut off and handed back", len(late))
                self._worker.stopping.cut_off.set()
                await asyncio.wait(late)

    # -- where work comes from

    async def _from_ledger(self) -> None:
        names = [*self._stages, self._quarantine]
        settings = self._worker.settings

        async def due(room: int) -> int:
            asked_at = time.monotonic()
            items = await self._ledger.due(names, limit=room, lease=settings.lease, holder=uuid.uuid4().hex)
            for item in items:
                self._start(self._carried(item, asked_at))
            return len(items)

        await self._poll(due)

    async def _from_broker(self, broker: Broker) -> None:
        async def receive(room: int) -> int:
            deliveries = await broker.receive(self._service.name, room)
            for delivery in deliveries:
                self._start(self._delivered(broker, delivery))
            return len(deliveries)

        await self._poll(receive)

    async def _poll(self, take: Callable[[int], Awaitable[int]]) -> None:
        """Take as much as fits; ask again at once while there is more, after a pause when there is none."""
        stopping = self._worker.stopping
        while not stopping.asked.is_set():
            room = 2 * self._worker.settings.concurrency - len(self._tasks)
            if not self._worker.takes_more:  # others can have it meanwhile
                room = 0
            try:
                taken = await take(max(room, 0))
            except ServiceUnavailable as error:
                log.warning("no work can be taken now, asking again: %s", error)
                await stopping.pause(1.0)
                continue
            if not taken or taken >= room:
                await stopping.pause(self._worker.settings.poll)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        """A fault of our own leaves its item to its lease, and its delivery to the broker; the service goes on."""
        try:
            await work
        except HeadwayError as error:
            log.error("an item is left to its lease: %s", error)  # noqa: TRY400 - the message says it all
        except Exception:
            log.exception("an item is left to its lease")

    # -- what the ledger carries

    async def _carried(self, item: Item, asked_at: float) -> None:
        self._worker.probe(Point.TAKEN)
        if item.stage == self._quarantine:
            await self._settle_held(item, asked_at, self._released(item))
        elif item.body is not None:
            await self._work(self._stages[item.stage], item, item.body, asked_at)

    def _released(self, item: Item) -> Settlement:
        """A quarantined letter was requeued: send its event out, if it is one by now and somebody here takes it."""
        raw = item.body or b""
        try:
            event = envelope.decode(raw)
            stages = self._stages_for(event)
            for stage in stages:
                stage.identity(event)
        except CodecError as error:
            return settlements.DeadLetter(reason=Reason.POISON, message=str(error))
        except ValueError as error:
            return settlements.DeadLetter(reason=Reason.NON_RETRYABLE, message=str(error))
        if not stages:
            return self._no_handler(event)
        released = f'"released as event {event.event_id}"'.encode()
        return settlements.Done(value=released, emits=(envelope.encode(event),))

    # -- what the broker carries

    async def _delivered(self, broker: Broker, delivery: Delivery) -> None:
        self._worker.probe(Point.RECEIVED)
        try:
            fate = await self._fate(delivery)
        except Exception:
            log.exception("a delivery is kept for the time of a lease, then given back")
            await self._worker.stopping.pause(self._worker.settings.lease)
            fate = Fate.RETURNED
        # Our session lives on: a message that is neither let go nor worked on would be nobody's while we run.
        if fate is Fate.ACCOUNTED:
            await self._worker.surely(lambda: broker.acknowledge(delivery), "acknowledge a delivery")
            self._worker.probe(Point.ACKNOWLEDGED)
        elif fate is Fate.RETURNED:
            await self._worker.surely(lambda: broker.give_back(delivery), "give a delivery back")

    async def _fate(self, delivery: Delivery) -> Fate:
        try:
            event = envelope.decode(delivery.body)
        except CodecError as error:
            return await self._quarantined(
                delivery.body, settlements.DeadLetter(reason=Reason.POISON, message=str(error))
            )
        stages = self._stages_for(event)
        if not stages:
            return await self._quarantined(delivery.body, self._no_handler(event))
        fates = await asyncio.gather(*(self._at_stage(stage, event, delivery.body) for stage in stages))
        return max(fates, key=[Fate.ACCOUNTED, Fate.RETURNED, Fate.NOT_OURS].index)

    async def _at_stage(self, stage: Stage, event: Event[Any], body: bytes) -> Fate:
        try:
            key, payload = stage.identity(event)
        except ValueError as error:
            dead = settlements.DeadLetter(reason=Reason.NON_RETRYABLE, message=str(error))
            return await self._quarantined(body, dead)
        wanted = claims.Wanted(
            id=keys.item_id("", stage.name, key),
            stage=stage.name,
            key=key,
            holder="",
            carrier=Carrier.BROKER,
            lease=self._worker.settings.lease,
            event_id=event.event_id,
            event_type=event.event_type,
            fingerprint=payload,
            not_after=envelope.not_after(event),
        )

        async def work(item: Item, asked_at: float) -> tuple[Settled | Lost, bool]:
            return await self._work(stage, item, body, asked_at)

        fate = await self._claimed(wanted, work)
        if isinstance(fate, claims.Mismatch):
            return await self._quarantined(body, settlements.key_reused(key, wanted.id))
        return fate if isinstance(fate, Fate) else Fate.ACCOUNTED

    async def _claimed(self, wanted: claims.Wanted, act: Act) -> Fate | claims.Answer:
        """Claim until it is clear what becomes of the delivery, or that somebody accounts for its work already."""
        seen: tuple[int, float] | None = None
        while True:
            asked_at = time.monotonic()
            answer = await self._claim(replace(wanted, holder=uuid.uuid4().hex))
            match answer:
                case claims.Won(item):
                    self._worker.probe(Point.CLAIMED)
                    settled, lease_good = await act(item, asked_at)
                    if isinstance(settled, Lost):
                        return Fate.NOT_OURS
                    if lease_good:
                        return Fate.ACCOUNTED
                    # Written, but too late to know whose the delivery is: the next answer says what it is worth.
                case claims.Busy(item) if item.carrier is not Carrier.LEDGER:
                    if seen is not None and seen[0] == item.epoch:
                        return Fate.RETURNED  # its holder has renewed meanwhile, and is well
                    seen = (item.epoch, item.free_in)
                    if await self._worker.stopping.pause(max(item.free_in, 0.0) + self._worker.settings.poll):
                        return Fate.RETURNED
                case _:
                    return answer

    async def _claim(self, wanted: claims.Wanted) -> claims.Answer:
        async def ask() -> claims.Answer:
            return await self._ledger.claim(wanted)

        return await self._worker.surely(ask, f"claim item {wanted.id}")

    async def _quarantined(self, raw: bytes, dead: settlements.DeadLetter) -> Fate:
        """Put bytes that cannot become work in front of a person, as they came."""
        key = keys.quarantine_key(dead.reason, raw)
        wanted = claims.Wanted(
            id=keys.item_id("", self._quarantine, key),
            stage=self._quarantine,
            key=key,
            holder="",
            carrier=Carrier.BROKER,
            lease=self._worker.settings.lease,
        )

        async def bury(item: Item, asked_at: float) -> tuple[Settled | Lost, bool]:
            return await self._settle_held(replace(item, body=raw), asked_at, dead)

        fate = await self._claimed(wanted, bury)
        if isinstance(fate, claims.Done):  # it was released once, and is back: a new round finds out why
            await self._worker.settle(fate.item, settlements.Reprocess(reason=dead.message, body=raw))
        return fate if isinstance(fate, Fate) else Fate.ACCOUNTED

    # -- to the outcome

    async def _work(self, stage: Stage, item: Item, body: bytes, asked_at: float) -> tuple[Settled | Lost, bool]:
        return await self._worker.run(stage, replace(item, body=body), body, asked_at=asked_at)

    async def _settle_held(self, item: Item, asked_at: float, settlement: Settlement) -> tuple[Settled | Lost, bool]:
        lease = self._worker.heartbeat.hold(item, asked_at=asked_at)
        try:
            return await self._worker.settle(item, settlement), lease.live
        finally:
            self._worker.heartbeat.release(lease)

    def _stages_for(self, event: Event[Any]) -> Sequence[Stage]:
        return [stage for stage in self._stages.values() if stage.event_type == event.event_type]

    def _no_handler(self, event: Event[Any]) -> settlements.DeadLetter:
        handled = ", ".join(sorted({stage.event_type for stage in self._stages.values()})) or "nothing"
        message = f"{self._service.name} handles {handled}, and no {event.event_type}"
        return settlements.DeadLetter(reason=Reason.NO_HANDLER, message=message)
