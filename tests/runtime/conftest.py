"""Fixtures: one bench in each mode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.bench import MODES, Bench, open_bench


@pytest.fixture(params=MODES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Broker and ledger in one file, then in two."""
    async with open_bench(tmp_path, request.param) as bench:
        yield bench


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Bench]:
    """Broker and ledger in two files."""
    async with open_bench(tmp_path, "two files") as bench:
        yield bench


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Bench]:
    """Broker and ledger in one file."""
    async with open_bench(tmp_path, "embedded") as bench:
        yield bench


@pytest.fixture
def running(bench: Bench) -> Any:
    """Runs services on the bench: `async with running(service):`."""
    return bench.running
