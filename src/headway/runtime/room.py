"""Who may run beside whom: most work runs together, work that has crashed a worker runs with nothing beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Shared by all, or taken by one. While somebody waits to be alone, nobody new comes in."""

    def __init__(self) -> None:
        """An empty room."""
        self._change = asyncio.Condition()
        self._inside = 0
        self._waiting_alone = 0
        self._alone = False

    @property
    def wanted_alone(self) -> bool:
        """Whether somebody is alone in here, or waits to be."""
        return self._alone or self._waiting_alone > 0

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be in the room with others."""
        async with self._change:
            await self._change.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._inside += 1
        try:
            yield
        finally:
            async with self._change:
                self._inside -= 1
                self._change.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be in the room with nobody else."""
        async with self._change:
            self._waiting_alone += 1
            try:
                await self._change.wait_for(lambda: not self._alone and not self._inside)
                self._alone = True
            finally:
                self._waiting_alone -= 1
                self._change.notify_all()
        try:
            yield
        finally:
            async with self._change:
                self._alone = False
                self._change.notify_all()
