"""The outbox relay: one leader a ledger and broker publishes what was committed, in order within an order key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid

from headway.core import claims, keys, settlements
from headway.core.backoff import nominal_delay
from headway.core.failure import storable
from headway.core.states import Carrier
from headway.errors import HeadwayError, ServiceUnavailable
from headway.ports.broker import Broker
from headway.ports.ledger import OutboxRow, OutboxRows
from headway.ports.points import Point
from headway.runtime.lease import Lease
from headway.runtime.worker import Worker

log = logging.getLogger("headway.relay")

STAGE, KEY = "headway.relay", "outbox"
BATCH = 100
STANDBY = 1.0
"""How often who stands by looks whether the leader has stepped down, in seconds."""


class Relay:
    """Publishes the outbox while it leads; while another process leads, it stands by."""

    def __init__(self, worker: Worker, outbox: OutboxRows, broker: Broker) -> None:
        """A ledger has one broker beside it, so there is one leader a ledger."""
        self._worker = worker
        self._outbox = outbox
        self._broker = broker

    async def run(self) -> None:
        """Lead, or stand by, until the service stops."""
        while not self._worker.stopping.asked.is_set():
            try:
                wait = await self._lead_once()
            except ServiceUnavailable as error:
                log.warning("the outbox cannot be relayed now, asking again: %s", error)
                wait = 1.0
            await self._worker.stopping.pause(wait)

    async def _lead_once(self) -> float:
        """Try to lead; return how long to wait before the next try."""
        lease_seconds = self._worker.settings.lease
        wanted = claims.Wanted(
            id=keys.item_id("", STAGE, KEY),
            stage=STAGE,
            key=KEY,
            holder=uuid.uuid4().hex,
            carrier=Carrier.LEADER,
            lease=lease_seconds,
        )
        asked_at = time.monotonic()
        # Asked until it is answered, by the same holder: a claim whose answer was lost is won by asking again.
        answer = await self._worker.surely(lambda: self._worker.ledger.claim(wanted), "claim the relay's lead")
        if not isinstance(answer, claims.Won):
            return max(0.05, min(answer.item.free_in, STANDBY))
        lease = self._worker.heartbeat.hold(answer.item, asked_at=asked_at)
        try:
            await self._publish_while(lease)
        finally:
            with contextlib.suppress(HeadwayError):  # a leader that cannot step down is replaced when its lease ends
                await self._worker.settle(answer.item, settlements.GiveBack())
            self._worker.heartbeat.release(lease)
        return 0.0

    async def _publish_while(self, lease: Lease) -> None:
        while lease.live and not self._worker.stopping.asked.is_set():
            rows = await self._outbox.heads(BATCH)
            if rows:
                self._worker.probe(Point.HEADS_TAKEN)
            sent = [row.id for row in rows if await self._publish(row, lease)]
            if sent:
                self._worker.probe(Point.PUBLISHED)
                await self._outbox.sent(sent)
                self._worker.probe(Point.SENT)
            else:
                await self._worker.stopping.pause(self._worker.settings.poll)

    async def _publish(self, row: OutboxRow, lease: Lease) -> bool:
        """Hand a row to the broker; one that is refused waits, and only its own order key waits with it."""
        if not lease.live:
            return False
        try:
            await self._broker.publish(row.letter)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            delay = nominal_delay(row.tries + 1, base=0.25, factor=2.0, cap=60.0)
            log.warning("event %s was not published, again in %.2f s: %s", row.letter.event_id, delay, error)
            await self._outbox.refused(row.id, error=storable(f"{type(error).__name__}: {error}"), delay=delay)
            return False
        return True
