"""Whose work it is: a paused worker loses it, a blocked one keeps it, a dead one is followed soon."""

from __future__ import annotations

import signal

import pytest

from tests.crash.account import Sent
from tests.crash.fleet import LEASE, Fleet
from tests.crash.worker import ASKED, ASKED_SYNC

pytestmark = pytest.mark.crash


def touched(fleet: Fleet, pid: int) -> list[tuple[str, str]]:
    """What a worker has done at the broker about its deliveries."""
    lines = [*fleet.log.lines("acknowledge", pid=pid), *fleet.log.lines("give back", pid=pid)]
    return [(line["what"], line["event"]) for line in lines]


def test_work_of_a_killed_worker_is_taken_over_when_its_lease_ends(fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=ASKED, data={"act": "linger", "seconds": 60.0}))
    victim = fleet.start_up()
    fleet.wait_for_start("e")
    heir = fleet.start_up()
    kept_until = fleet.item("e")["free_at"]
    victim.kill()
    died_at = fleet.wait_for_death(victim)
    taken_at = fleet.wait_for_start("e", pid=heir.pid)["at"]
    fleet.wait_until_quiet()
    print(f"recovery: {taken_at - died_at:.2f} s after the kill, with a lease of {LEASE:g} s")
    assert taken_at > kept_until, "it was taken from a worker that had it still"
    assert taken_at < died_at + 2 * LEASE + 2.0
    assert (fleet.item("e")["crashes"], fleet.item("e")["attempts"]) == (1, 0)
    assert fleet.faults() == []


@pytest.mark.slow
def test_a_worker_that_was_paused_past_its_lease_cannot_settle_and_touches_no_delivery(two_files: Fleet) -> None:
    fleet = two_files
    fleet.send(Sent(event_id="e", stage=ASKED, data={"write": False, "follow": True}))
    paused = fleet.start(die_at="RETURNED", signal="SIGSTOP")  # stands still when its handler has returned
    fleet.wait(lambda: fleet.log.lines("dies", pid=paused.pid), "the worker stands still")
    other = fleet.start_up()
    fleet.wait_until_quiet()
    paused.send_signal(signal.SIGCONT)
    fleet.stop(paused)
    runs = [(line["pid"], line["epoch"]) for line in fleet.log.lines("end", stage=ASKED)]
    assert [pid for pid, _ in runs] == [paused.pid, other.pid], "both handlers came to their end"
    assert fleet.moves("e") == ["Done"]
    assert touched(fleet, paused.pid) == []
    assert touched(fleet, other.pid).count(("acknowledge", "e")) == 1
    assert fleet.faults() == []


@pytest.mark.slow
@pytest.mark.parametrize("stage", [ASKED, ASKED_SYNC])
def test_a_handler_that_was_paused_past_its_lease_gets_no_transaction(stage: str, fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=stage, data={"act": "pause"}))
    paused = fleet.start_up()
    fleet.wait_for_start("e")
    other = fleet.start_up()
    fleet.wait_until_quiet()
    paused.send_signal(signal.SIGCONT)
    fleet.wait(lambda: [*fleet.log.lines("refused"), *fleet.log.lines("end", pid=paused.pid)], "its handler goes on")
    fleet.stop(paused)
    assert [line["pid"] for line in fleet.log.lines("refused")] == [paused.pid]
    assert [line["pid"] for line in fleet.log.lines("end")] == [other.pid]
    assert touched(fleet, paused.pid) == []
    assert fleet.faults() == []


@pytest.mark.slow
def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=ASKED, data={"act": "block", "seconds": 6.0}))
    blocked = fleet.start_up(lease=2.0)
    fleet.wait_for_start("e")
    fleet.start_up(lease=2.0)
    fleet.wait_until_quiet()
    assert [line["pid"] for line in fleet.starts("e")] == [blocked.pid]
    assert fleet.moves("e") == ["Done"]
    assert (fleet.item("e")["crashes"], fleet.item("e")["attempts"]) == (0, 0)
    assert fleet.faults() == []


@pytest.mark.slow
def test_a_message_that_comes_again_while_its_work_runs_is_kept_and_acknowledged_when_it_is_done(
    two_files: Fleet,
) -> None:
    fleet = two_files
    fleet.send(Sent(event_id="e", stage=ASKED, data={"act": "block until it comes again", "seconds": 30.0}))
    # Its session ends, for it receives nothing while it is blocked; its lease is kept.
    blocked = fleet.start_up(session=0.5, lease=2.0)
    fleet.wait_for_start("e")
    other = fleet.start_up(lease=2.0)
    fleet.wait_until_quiet()
    (again,) = fleet.log.lines("receive", pid=other.pid)
    (done,) = fleet.log.lines("end")
    assert (done["pid"], len(fleet.starts("e"))) == (blocked.pid, 1)
    assert again["at"] < done["at"]
    assert touched(fleet, other.pid) == [("acknowledge", "e")], "it was given back while its work was under way"
    assert fleet.log.lines("acknowledge", pid=other.pid)[0]["at"] > done["at"]
    assert fleet.faults() == []
