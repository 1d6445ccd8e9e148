"""Work that kills its worker is stopped, and work beside it is not."""

from __future__ import annotations

import signal

import pytest

from tests.crash.account import Sent
from tests.crash.fleet import Fleet
from tests.crash.worker import ASKED

INNOCENTS = tuple(f"innocent-{number}" for number in range(4))


@pytest.mark.crash
@pytest.mark.slow
def test_poison_ends_dead_after_its_crashes_alone_and_innocents_are_done_unblamed(fleet: Fleet) -> None:
    fleet.send(
        Sent(
            event_id="poison",
            stage=ASKED,
            data={"act": "poison", "beside": INNOCENTS},
            ends="dead",
            reason="crash_loop",
        ),
        *(Sent(event_id=event, stage=ASKED, data={"act": "innocent"}) for event in INNOCENTS),
    )
    fleet.start()

    def restarted_until_quiet() -> bool:
        if fleet.workers[-1].poll() == -signal.SIGKILL:
            fleet.start()
        return fleet.quiet()

    fleet.wait(restarted_until_quiet, "the poison is stopped and all else is done")
    poison = fleet.item("poison")
    assert (poison["strikes"], poison["crashes"], poison["attempts"]) == (3, 4, 0)
    assert len(fleet.starts("poison")) == 4, "one run beside others, three alone"
    assert len(fleet.workers) == 5, "somebody else's death is charged to it"
    assert [fleet.item(event)["strikes"] for event in INNOCENTS] == [0] * len(INNOCENTS)
    assert all(fleet.item(event)["crashes"] > 0 for event in INNOCENTS), "they were to be there when it died"
    assert fleet.faults() == []
