"""Leases held by this process, and the thread that keeps them.

The thread has an event loop of its own, so that a handler that blocks the service's loop does not lose its lease.
What a lease is good for is judged here by the local clock, from before the last renewal was *sent*: when it may have
run out at the store, it has run out here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from headway.core.item import Item
from headway.errors import HeadwayError
from headway.ports.ledger import Ledger, Renewal

log = logging.getLogger("headway.lease")

RENEWALS_PER_LEASE = 3
MARGIN = 0.1
"""The part of a lease that is left unused, for what clocks and answers take."""


class Lease:
    """The right to work on an item, as far as this process can know."""

    def __init__(self, item: Item, *, seconds: float, asked_at: float) -> None:
        """A lease that was asked for at `asked_at`, by this process's monotonic clock."""
        self.item = item
        self.seconds = seconds
        self._until = asked_at + seconds * (1 - MARGIN)
        self._on_loss: Callable[[], None] | None = None
        self.lost = False
        self.settling = False
        """From here on the settle says whether the work was ours; a refused renewal may only have come after it."""

    @property
    def live(self) -> bool:
        """Whether nobody else can have been given this work."""
        return not self.lost and time.monotonic() < self._until

    @property
    def longest_block(self) -> float:
        """How long everybody else may be kept from writing, renewals included, without any lease running out."""
        return self.seconds * (1 - 1 / RENEWALS_PER_LEASE - MARGIN)

    def extend(self, asked_at: float) -> None:
        """A renewal that was sent at `asked_at` was granted."""
        self._until = asked_at + self.seconds * (1 - MARGIN)

    def lose(self) -> None:
        """The work has passed to somebody else."""
        self.lost = True
        if self._on_loss is not None:
            self._on_loss()

    def when_lost(self, callback: Callable[[], None] | None) -> None:
        """Call this when the lease is lost, from the heartbeat's thread; at once, if it was lost already."""
        self._on_loss = callback
        if self.lost and callback is not None:
            callback()


class Heartbeat:
    """Renews all leases of this process together, from a thread of its own."""

    def __init__(self, ledger: Ledger, *, seconds: float) -> None:
        """Renew through `ledger`, which must be safe to use from a second event loop."""
        self._ledger = ledger
        self._seconds = seconds
        self._leases: dict[tuple[str, int], Lease] = {}
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headway-heartbeat", daemon=True)
        self.healthy = True
        """False while renewals fail: then this process should take nothing new."""

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more; leases run out by themselves."""
        self._stop.set()
        self._thread.join()

    def hold(self, item: Item, *, asked_at: float) -> Lease:
        """Keep the lease of this claim until it is released."""
        lease = Lease(item, seconds=self._seconds, asked_at=asked_at)
        with self._guard:
            self._leases[item.id, item.epoch] = lease
        return lease

    def release(self, lease: Lease) -> None:
        """Renew this one no more: whatever still runs under it, a handler's thread for one, is refused from here on."""
        with self._guard:
            self._leases.pop((lease.item.id, lease.item.epoch), None)
        lease.lost = True

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._stop.wait(self._seconds / RENEWALS_PER_LEASE):
                try:
                    runner.run(self._beat())
                    self.healthy = True
                except HeadwayError as error:
                    self.healthy = False
                    log.warning("leases could not be renewed, nothing new is taken: %s", error)
                except Exception:
                    self.healthy = False
                    log.exception("leases could not be renewed, nothing new is taken")

    async def _beat(self) -> None:
        with self._guard:
            held = list(self._leases.values())
        if not held:
            return
        asked_at = time.monotonic()
        renewals = [Renewal(id=lease.item.id, epoch=lease.item.epoch, lease=lease.seconds) for lease in held]
        for lease, granted in zip(held, await self._ledger.renew(renewals), strict=True):
            if granted:
                lease.extend(asked_at)
            elif not lease.settling:
                self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        with self._guard:
            still_held = self._leases.pop((lease.item.id, lease.item.epoch), None)
        if still_held is not None:
            log.warning("the lease on item %s has passed to somebody else", lease.item.id)
            lease.lose()
