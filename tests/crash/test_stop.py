"""SIGTERM: what ends in time is done, all else is handed back uncharged and at once, and the process goes."""

from __future__ import annotations

import pytest

from tests.crash.account import Sent
from tests.crash.fleet import Fleet
from tests.crash.worker import ASKED, ASKED_SYNC

GRACE = 0.5
SOON = 5.0
"""What a process may take to go, beyond its grace, on a machine that has much to do."""


def test_a_handler_that_ends_within_the_grace_is_done(fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=ASKED, data={"act": "linger", "seconds": 0.4}))
    worker = fleet.start(grace=10.0)
    fleet.wait_for_start("e")
    assert fleet.stop(worker) < SOON
    assert fleet.moves("e") == ["Done"]
    assert fleet.faults() == []


@pytest.mark.parametrize("stage", [ASKED, ASKED_SYNC])
def test_a_handler_that_does_not_end_within_the_grace_is_handed_back_uncharged(stage: str, fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=stage, data={"act": "linger", "seconds": 60.0}))
    worker = fleet.start(grace=GRACE, lease=30.0, session=30.0)
    fleet.wait_for_start("e")
    assert GRACE <= fleet.stop(worker) < GRACE + SOON
    item = fleet.item("e", stage)
    assert (item["state"], item["attempts"], item["crashes"]) == ("waiting", 0, 0)
    assert fleet.moves("e", stage) == ["GiveBack"]


@pytest.mark.parametrize("stage", [ASKED, ASKED_SYNC])
def test_work_that_was_handed_back_is_done_by_the_next_worker_at_once(stage: str, fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=stage, data={"act": "linger", "seconds": 60.0}))
    worker = fleet.start(grace=0.0, lease=30.0, session=30.0)
    fleet.wait_for_start("e")
    fleet.stop(worker)
    fleet.start()
    fleet.wait(fleet.quiet, "the next worker has done it, long before the lease of the first one ends", patience=15.0)
    assert fleet.moves("e", stage) == ["GiveBack", "Done"]
    assert (fleet.item("e", stage)["attempts"], fleet.item("e", stage)["crashes"]) == (0, 0)
    assert fleet.faults() == []


def test_a_retry_that_sleeps_in_place_is_handed_back_at_once(fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=ASKED, data={"act": "fail later", "seconds": 50.0}))
    worker = fleet.start(in_place=60.0, grace=30.0, lease=30.0, session=30.0)
    fleet.wait(lambda: fleet.log.lines("start") and fleet.failures("e"), "it has failed and sleeps")
    assert fleet.stop(worker) < SOON
    assert (fleet.item("e")["state"], fleet.moves("e")) == ("waiting", ["GiveBack"])


def test_a_retry_that_is_handed_back_while_it_sleeps_keeps_what_it_was_charged(fleet: Fleet) -> None:
    fleet.send(Sent(event_id="e", stage=ASKED, data={"act": "fail later", "seconds": 50.0}))
    worker = fleet.start(in_place=60.0, grace=30.0, lease=30.0, session=30.0)
    fleet.wait(lambda: fleet.log.lines("start") and fleet.failures("e"), "it has failed and sleeps")
    fleet.stop(worker)
    assert (fleet.item("e")["attempts"], fleet.item("e")["crashes"]) == (1, 0)
    fleet.start()
    fleet.wait_until_quiet()
    assert [line["attempt"] for line in fleet.starts("e")] == [1, 2]
    assert fleet.faults() == []
