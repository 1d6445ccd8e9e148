"""A process may die at any named point, in either mode: nothing is lost, nothing is done twice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from headway.ports.points import Point
from tests.crash.account import Sent, read
from tests.crash.conftest import EMBEDDED, TWO_FILES
from tests.crash.fleet import Fleet
from tests.crash.worker import ASKED

NO_BROKER = "there is no broker beside the ledger: everything comes from `due`"
NO_OUTBOX = "an event that goes out becomes items in the same commit: there is no outbox to relay"

NEVER: dict[str, dict[Point, str]] = {
    EMBEDDED: {
        Point.RECEIVED: NO_BROKER,
        Point.CLAIMED: NO_BROKER,
        Point.ACKNOWLEDGED: NO_BROKER,
        Point.HEADS_TAKEN: NO_OUTBOX,
        Point.PUBLISHED: NO_OUTBOX,
        Point.SENT: NO_OUTBOX,
    },
    TWO_FILES: {},
}
"""Which points a mode never comes to, and why. Every other one is killed at, below."""

REACHED = [(mode, point) for mode, never in NEVER.items() for point in Point if point not in never]

RARE = {Point.FAILED, Point.NOTED, Point.TAKEN, Point.HEADS_TAKEN, Point.PUBLISHED, Point.SENT}
"""Points that a process may come to only once in this load."""

QUICK = [
    (EMBEDDED, Point.RETURNED),
    (EMBEDDED, Point.WRITTEN),
    (TWO_FILES, Point.SETTLED),
    (TWO_FILES, Point.PUBLISHED),
]
"""A handful for the fast tests; the rest is slow."""


def load() -> list[Sent]:
    """Twelve events: most just work, some fail and are retried in place or by the ledger, one is refused."""
    acts: dict[str, dict[str, Any]] = {
        "e03": {"act": "fail"},
        "e04": {"act": "fail", "write": False},
        "e05": {"act": "fail later", "seconds": 0.3},
        "e06": {"act": "fail later", "seconds": 0.3, "write": False},
    }
    events = [
        Sent(
            event_id=event,
            stage=ASKED,
            data={"act": "work", "seconds": 0.02, "write": number % 2 == 0, "follow": True, **acts.get(event, {})},
        )
        for number, event in enumerate(f"e{number:02}" for number in range(11))
    ]
    return [*events, Sent(event_id="e11", stage=ASKED, data={"act": "refuse"}, ends="dead", reason="non_retryable")]


def kill_at(fleet: Fleet, point: Point, *, deaths: int) -> None:
    """Let two workers go at the load until as many as told have died at the point; then send in a replacement."""
    doom = {
        "die_at": point.name,
        "deaths": deaths,
        "on": 1 if point in RARE or deaths == 1 else 3,
        # Commits are many; those that matter here come after work.
        "after": Point.RETURNED.name if point is Point.WRITTEN else None,
    }
    events = load()
    fleet.send(*events, again=(events[1], events[2]))
    doomed = [fleet.start(**doom), fleet.start(**doom)]

    def dead() -> int:
        return sum(worker.poll() == -signal.SIGKILL for worker in doomed)

    fleet.wait(lambda: dead() == deaths or fleet.quiet(), f"{deaths} died at {point.name}")
    fleet.start()
    fleet.wait_until_quiet()
    fleet.close()
    died_at = [line["point"] for line in fleet.log.lines("dies")]
    assert died_at, f"nobody came to {point.name}"
    assert set(died_at) == {point.name}


def marked(mode: str, point: Point) -> list[pytest.MarkDecorator]:
    return [pytest.mark.crash] if (mode, point) in QUICK else [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize(
    ("mode", "point"),
    [pytest.param(mode, point, marks=marked(mode, point), id=f"{mode}-{point.name}") for mode, point in REACHED],
)
def test_a_death_at_any_point_loses_nothing_and_doubles_nothing(
    mode: str, point: Point, fleet_on: Callable[[str], Fleet]
) -> None:
    fleet = fleet_on(mode)
    kill_at(fleet, point, deaths=1)
    assert fleet.faults() == []


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "point"), [pytest.param(mode, point, id=f"{mode}-{point.name}") for mode, point in REACHED]
)
def test_the_death_of_everybody_at_any_point_loses_nothing_and_doubles_nothing(
    mode: str, point: Point, fleet_on: Callable[[str], Fleet]
) -> None:
    fleet = fleet_on(mode)
    kill_at(fleet, point, deaths=2)
    assert fleet.faults() == []


@pytest.mark.crash
@pytest.mark.slow
def test_a_death_inside_of_a_handlers_transaction_leaves_nothing_of_it(fleet: Fleet) -> None:
    events = [
        Sent(event_id=f"e{number}", stage=ASKED, data={"act": "die writing", "follow": True}) for number in range(3)
    ]
    fleet.send(*events)
    doomed = fleet.start()
    fleet.wait_for_death(doomed)
    fleet.start()
    fleet.wait_until_quiet()
    fleet.close()
    assert [line["point"] for line in fleet.log.lines("dies")] == ["WRITING"]
    assert fleet.faults() == []


@pytest.mark.crash
@pytest.mark.slow
def test_a_death_before_the_commit_of_a_handlers_transaction_leaves_nothing_of_it(fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=ASKED))
    # While its transaction is open nobody else of its process commits: the next commit is its own.
    doomed = fleet.start(die_at="WRITTEN", after="RETURNED")
    fleet.wait_for_death(doomed)
    assert (fleet.item("e")["state"], read(fleet.ledger, "SELECT * FROM effect")) == ("running", [])
    fleet.start()
    fleet.wait_until_quiet()
    assert fleet.faults() == []


@pytest.mark.parametrize("mode", NEVER)
def test_a_mode_comes_to_every_point_but_those_of_which_the_table_says_why_not(
    mode: str, fleet_on: Callable[[str], Fleet]
) -> None:
    fleet = fleet_on(mode)
    fleet.send(*load())
    fleet.start(trace=True)
    fleet.wait_until_quiet()
    fleet.wait(lambda: fleet.log.lines("point", point="SETTLED"), "an outcome is durable")
    fleet.close()
    reached = {line["point"] for line in fleet.log.lines("point")}
    assert reached == {point.name for point in Point if point not in NEVER[mode]}
    assert fleet.faults() == []
