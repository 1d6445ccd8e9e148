"""Handlers' transactions keep everybody else from writing: within their bound nobody is harmed, beyond it they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.crash.account import Sent, read
from tests.crash.fleet import Fleet
from tests.crash.worker import ASKED

pytestmark = pytest.mark.slow

LEASE = 3.0
LEGAL, TOO_LONG = 0.9, 2.2
"""Below and above the bound of a block, which is a lease without a renewal's interval and a margin: 1.7 s."""

OTHERS = tuple(f"other-{number:03}" for number in range(63))
MANY = tuple(f"other-{number:03}" for number in range(127))


def other(event: str) -> Sent:
    """Short work; every second one writes in a transaction. To emit, it needs its lease still."""
    writes = event[-1] in "02468"
    return Sent(event_id=event, stage=ASKED, data={"act": "work", "seconds": 0.01, "write": writes, "follow": True})


def load(act: str, seconds: float, others: Sequence[str]) -> list[Sent]:
    """One that holds its transaction, in the middle of others."""
    slow = Sent(event_id="slow", stage=ASKED, data={"act": act, "seconds": seconds})
    events = [other(event) for event in others]
    return [*events[:10], slow, *events[10:]]


def harmed(fleet: Fleet, others: Sequence[str]) -> dict[str, list[str]]:
    """Those of the others that did not run exactly once, with what happened to them."""
    runs = Counter(line["event"] for line in fleet.log.lines("start", stage=ASKED))
    blamed = read(
        fleet.ledger, "SELECT event_id FROM headway_item WHERE event_id <> 'slow' AND (attempts > 0 OR crashes > 0)"
    )
    found = {row["event_id"] for row in blamed} | {event for event in others if runs[event] != 1}
    return {event: [line["what"] for line in fleet.log.all(event=event)] for event in sorted(found)}


def test_a_slow_transaction_within_its_bound_harms_nobody(embedded: Fleet) -> None:
    fleet = embedded
    fleet.send(*load("hold", LEGAL, OTHERS))
    fleet.start(concurrency=64, lease=LEASE)
    fleet.wait_until_quiet()
    assert (len(fleet.starts("slow")), fleet.failures("slow")) == (1, [])
    assert harmed(fleet, OTHERS) == {}
    assert fleet.faults() == []


def test_a_queue_of_transactions_longer_than_a_lease_keeps_nobody_from_renewing(embedded: Fleet) -> None:
    fleet = embedded
    block = 1.5 * LEASE / len(OTHERS)
    data = {"act": "hold", "seconds": block, "follow": True}  # to emit, it needs its lease still
    fleet.send(*(Sent(event_id=event, stage=ASKED, data=data) for event in OTHERS))
    fleet.start(concurrency=64, lease=LEASE)
    fleet.wait_until_quiet()
    assert harmed(fleet, OTHERS) == {}
    assert fleet.faults() == []


@pytest.mark.parametrize("act", ["hold", "hold and go on"])
def test_a_transaction_beyond_its_bound_is_rolled_back_and_its_attempt_fails_as_transient(
    act: str, embedded: Fleet
) -> None:
    fleet = embedded
    fleet.send(*load(act, TOO_LONG, OTHERS))
    fleet.start(concurrency=64, lease=LEASE)
    fleet.wait_until_quiet()
    failures = [(row["kind"], row["error_type"]) for row in fleet.failures("slow")]
    assert failures == [("transient", "TransactionExpired")]
    assert fleet.item("slow")["crashes"] == 0
    assert harmed(fleet, OTHERS) == {}
    assert fleet.faults() == []


def test_a_slow_transaction_harms_nobody_in_another_process_either(embedded: Fleet) -> None:
    fleet = embedded
    workers = [fleet.start_up(concurrency=64, lease=LEASE) for _ in range(2)]
    fleet.send(*load("hold", LEGAL, MANY))
    fleet.wait_until_quiet()
    assert {line["pid"] for line in fleet.log.lines("start")} == {worker.pid for worker in workers}
    assert (len(fleet.starts("slow")), fleet.failures("slow")) == (1, [])
    assert harmed(fleet, MANY) == {}
    assert fleet.faults() == []


def test_a_transaction_beyond_its_bound_costs_nobody_in_another_process_an_attempt(embedded: Fleet) -> None:
    fleet = embedded
    for _ in range(2):
        fleet.start_up(concurrency=64, lease=LEASE)
    fleet.send(*load("hold", TOO_LONG, MANY))
    fleet.wait_until_quiet()
    # Who races another process for the file after so long a block may come too late to renew, and is then taken over:
    # that is safe, and costs no attempt.
    charged = read(
        fleet.ledger,
        "SELECT DISTINCT event_id FROM headway_item JOIN headway_attempt ON headway_attempt.item = headway_item.id",
    )
    assert [row["event_id"] for row in charged] == ["slow"]
    assert fleet.faults() == []
