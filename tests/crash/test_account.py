"""The account that the crash tests rely on is not fooled: each way of cooking the books is found."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.account import Sent, faults
from tests.crash.fleet import Fleet
from tests.crash.log import Log
from tests.crash.worker import ASKED, FOLLOWED

EVENTS = (
    Sent(event_id="good", stage=ASKED, data={"follow": True}),
    Sent(event_id="bad", stage=ASKED, data={"act": "refuse"}, ends="dead", reason="non_retryable"),
    Sent(event_id="slow", stage=ASKED, data={"act": "fail", "write": False}),
)
GOOD = "(SELECT id FROM headway_item WHERE event_id = 'good')"
BAD = "(SELECT id FROM headway_item WHERE event_id = 'bad')"

COOKED = {
    "an item is gone": f"DELETE FROM headway_item WHERE id = {GOOD}",
    "an item of the next stage is gone": f"DELETE FROM headway_item WHERE stage = '{FOLLOWED}'",
    "an item was accepted twice": "INSERT INTO headway_item SELECT 'twin', tenant, stage, 'twin', event_id, "
    "event_type, fingerprint, state, carrier, epoch, holder, round, attempts, crashes, strikes, alone, deliveries, 0, "
    "free_at, free_date, round_at, round_date, not_after, body, outcome, reason, waiting_for, effects, "
    f"discarded_from, format, born_date, moved_date FROM headway_item WHERE stage = '{FOLLOWED}'",
    "work still runs": f"UPDATE headway_item SET state = 'running' WHERE id = {GOOD}",
    "work still waits": f"UPDATE headway_item SET state = 'waiting' WHERE id = {BAD}",
    "work is in doubt": f"UPDATE headway_item SET state = 'in_doubt' WHERE id = {BAD}",
    "it was done twice by its counter": f"UPDATE headway_item SET successes = 2 WHERE id = {GOOD}",
    "it was done twice by its history": "INSERT INTO headway_audit SELECT item, left_epoch + 1000, token, at, move, "
    f"from_state, to_state, epoch, round, actor, note FROM headway_audit WHERE item = {GOOD}",
    "its success is not in its history": f"DELETE FROM headway_audit WHERE item = {GOOD}",
    "an effect is there twice": "INSERT INTO effect SELECT * FROM effect WHERE origin = 'good' LIMIT 1",
    "an effect is missing": f"DELETE FROM effect WHERE stage = '{FOLLOWED}'",
    "an effect of abandoned work is there": f"INSERT INTO effect VALUES ('{ASKED}', 'bad', 1, 1, 1)",
    "an effect of work that asked for none is there": f"INSERT INTO effect VALUES ('{ASKED}', 'slow', 1, 1, 1)",
    "it is dead for another reason": f"UPDATE headway_item SET reason = 'crash_loop' WHERE id = {BAD}",
    "it is dead without a reason": f"UPDATE headway_item SET reason = NULL WHERE id = {BAD}",
    "it is dead without a dead letter": f"DELETE FROM headway_dead_letter WHERE item = {BAD}",
    "it is done with a dead letter": "UPDATE headway_item SET reason = 'non_retryable', state = 'done' "
    f"WHERE id = {BAD}",
    "an execution was free of charge": "DELETE FROM headway_attempt WHERE error_type = 'ConnectionError'",
    "an event is in the outbox": "INSERT INTO headway_outbox (event_id, event_type, body, free_at, born_date) "
    "VALUES ('x', 'X', x'00', 0, 0)",
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of a run in which everything went well."""
    fleet = Fleet(tmp_path_factory.mktemp("honest"), two_files=True)
    try:
        fleet.send(*EVENTS)
        fleet.start()
        fleet.wait_until_quiet()
        fleet.stop(fleet.workers[0])
        yield fleet.folder
    finally:
        fleet.close()


@pytest.fixture
def judge(honest: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    """Changes a copy of the ledger as told, and says what the account finds."""

    def judge(change: str) -> list[str]:
        ledger = Path(shutil.copy(honest / "ledger.db", tmp_path))
        with closing(sqlite3.connect(ledger)) as db:
            triggers = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name <> 'item_gone'")
            for (name,) in triggers.fetchall():
                db.execute(f"DROP TRIGGER {name}")
            assert db.execute(change).rowcount != 0, "the doctored ledger is as it was"
            db.commit()
        return faults(ledger, honest / "broker.db", EVENTS, Log(honest / "log"), next_stage=FOLLOWED)

    return judge


def test_an_honest_ledger_has_no_faults(judge: Callable[[str], list[str]]) -> None:
    assert judge("UPDATE headway_item SET holder = NULL") == []


@pytest.mark.parametrize("change", COOKED.values(), ids=COOKED)
def test_a_doctored_ledger_is_found_out(change: str, judge: Callable[[str], list[str]]) -> None:
    assert judge(change) != []


def test_an_event_that_nobody_sent_is_found_out(honest: Path) -> None:
    found = faults(honest / "ledger.db", None, EVENTS[1:], Log(honest / "log"), next_stage=FOLLOWED)
    assert any("has accepted" in fault for fault in found)


def test_an_event_that_never_arrived_is_found_out(honest: Path) -> None:
    sent = (*EVENTS, replace(EVENTS[0], event_id="never"))
    found = faults(honest / "ledger.db", None, sent, Log(honest / "log"), next_stage=FOLLOWED)
    assert "never has 0 items at pipeline.Asked" in found


def test_a_message_that_is_left_in_a_queue_is_found_out(honest: Path, tmp_path: Path) -> None:
    broker = Path(shutil.copy(honest / "broker.db", tmp_path))
    with closing(sqlite3.connect(broker)) as db:
        db.execute("INSERT INTO headway_message (queue, body, born_date) VALUES ('pipeline', x'00', 0)")
        db.commit()
    found = faults(honest / "ledger.db", broker, EVENTS, Log(honest / "log"), next_stage=FOLLOWED)
    assert found == ["1 messages are still in pipeline"]
