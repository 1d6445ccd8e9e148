"""Removes what has ended long ago, a little at a time. Any number of processes may do it."""

from __future__ import annotations

import logging

from headway.errors import ServiceUnavailable
from headway.ports.ledger import Upkeep
from headway.runtime.worker import Stopping

log = logging.getLogger("headway.upkeep")

EVERY = 600.0
BATCH = 500
BREATH = 0.1
"""How long to let others write between two batches, in seconds."""


async def clean(upkeep: Upkeep, stopping: Stopping, *, keep: float) -> None:
    """Until the service stops, remove records that ended more than `keep` seconds ago."""
    while not stopping.asked.is_set():
        try:
            removed = await upkeep.clean(older_than=keep, limit=BATCH)
        except ServiceUnavailable as error:
            log.warning("old records cannot be removed now, trying again later: %s", error)
            removed = 0
        await stopping.pause(BREATH if removed >= BATCH else EVERY)
