"""Fixtures: everything is a real file in a directory of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world import World, open_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A ledger that is the broker too."""
    async with open_world(tmp_path / "ledger.db") as world:
        yield world
