"""The relay's leader may die or leave: what was committed goes out under the same id, from whoever leads next."""

from __future__ import annotations

import time

import pytest

from tests.crash.account import Sent, read
from tests.crash.fleet import LEASE, Fleet
from tests.crash.worker import ASKED, FOLLOWED

pytestmark = pytest.mark.crash

LONG = 12.0
"""A lease that a test does not want to wait for."""


def outbox(fleet: Fleet) -> list[str]:
    """The events that are yet to be published."""
    return [row["event_id"] for row in read(fleet.ledger, "SELECT event_id FROM headway_outbox")]


def leads(fleet: Fleet) -> bool:
    """Whether somebody leads."""
    rows = read(fleet.ledger, "SELECT 1 FROM headway_item WHERE carrier = 'leader' AND state = 'running'")
    return bool(rows)


def follow(event: str) -> Sent:
    """Work that sends an event on."""
    return Sent(event_id=event, stage=ASKED, data={"follow": True})


@pytest.mark.slow
def test_an_event_whose_leader_dies_before_it_is_marked_goes_out_again_under_its_id_and_is_processed_once(
    two_files: Fleet,
) -> None:
    fleet = two_files
    fleet.send(follow("e"))
    leader = fleet.start(die_at="PUBLISHED")
    fleet.wait_for_death(leader)
    (event,) = outbox(fleet)
    heir = fleet.start()
    fleet.wait_until_quiet()
    published = [(line["pid"], line["event"]) for line in fleet.log.lines("publish")]
    assert published == [(leader.pid, event), (heir.pid, event)]
    assert [line["event"] for line in fleet.log.lines("end", stage=FOLLOWED)] == [event]
    assert fleet.faults() == []


@pytest.mark.slow
def test_a_leader_that_was_killed_is_followed_when_its_lease_ends(two_files: Fleet) -> None:
    fleet = two_files
    leader = fleet.start_up()
    fleet.wait(lambda: leads(fleet), "it leads")
    heir = fleet.start_up()
    leader.kill()
    died_at = fleet.wait_for_death(leader)
    fleet.send(follow("e"))
    fleet.wait_until_quiet()
    published = fleet.log.lines("publish")
    print(f"relay: {published[0]['at'] - died_at:.2f} s after the kill, with a lease of {LEASE:g} s")
    assert [line["pid"] for line in published] == [heir.pid]
    assert published[0]["at"] < died_at + LEASE + 3.0
    assert fleet.faults() == []


def test_a_leader_that_stops_leaves_the_lead_to_who_comes_next_at_once(two_files: Fleet) -> None:
    fleet = two_files
    leader = fleet.start_up(lease=LONG)
    fleet.wait(lambda: leads(fleet), "it leads")
    fleet.stop(leader)
    assert not leads(fleet)
    fleet.send(follow("e"))
    fleet.start(lease=LONG)
    fleet.wait(fleet.quiet, "its successor publishes, long before its lease would have ended", patience=LONG / 2)
    assert fleet.faults() == []


@pytest.mark.slow
def test_a_leader_that_stops_leaves_the_lead_to_who_stands_by_at_once(two_files: Fleet) -> None:
    fleet = two_files
    leader = fleet.start_up(lease=LONG, concurrency=1)
    fleet.wait(lambda: leads(fleet), "it leads")
    heir = fleet.start_up(lease=LONG)
    fleet.send(*(Sent(event_id=f"first-{number}", stage=ASKED) for number in range(30)))
    fleet.wait(lambda: fleet.log.lines("end", pid=heir.pid), "the heir works, so it has asked for the lead")
    fleet.wait_until_quiet()
    fleet.stop(leader)
    left_at = time.monotonic()
    fleet.send(follow("e"))
    fleet.wait(lambda: fleet.log.lines("publish", pid=heir.pid), "the heir publishes")
    taken_at = fleet.log.lines("publish", pid=heir.pid)[0]["at"]
    print(f"relay: {taken_at - left_at:.2f} s after the leader left, with a lease of {LONG:g} s")
    assert taken_at < left_at + LONG / 4
