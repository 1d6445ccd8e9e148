"""Fixtures: fleets of worker processes, which do not outlive their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.fleet import Fleet

Mode = str
EMBEDDED, TWO_FILES = "embedded", "two files"


@pytest.fixture
def fleet_on(tmp_path: Path) -> Iterator[Callable[[Mode], Fleet]]:
    """Makes the fleet of a test, in the mode that it asks for."""
    fleets: list[Fleet] = []

    def make(mode: Mode) -> Fleet:
        fleets.append(Fleet(tmp_path, two_files=mode == TWO_FILES))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


@pytest.fixture(params=[EMBEDDED, TWO_FILES])
def fleet(request: pytest.FixtureRequest, fleet_on: Callable[[Mode], Fleet]) -> Fleet:
    """A fleet, in each of the modes."""
    return fleet_on(request.param)


@pytest.fixture
def embedded(fleet_on: Callable[[Mode], Fleet]) -> Fleet:
    """A fleet on one file that is ledger and broker."""
    return fleet_on(EMBEDDED)


@pytest.fixture
def two_files(fleet_on: Callable[[Mode], Fleet]) -> Fleet:
    """A fleet on a ledger and a broker in a file of its own."""
    return fleet_on(TWO_FILES)
