"""Worker processes of one test, the files that they share, and ways to wait for what they do."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from headway.app.wiring import open_parts
from headway.core.event import Event
from headway.runtime import envelope
from tests.crash.account import Sent, faults, read
from tests.crash.log import Log
from tests.crash.worker import ASKED, FOLLOWED

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PATIENCE = 40.0
"""How long to wait for what must happen, in seconds: only a fault, or a machine that stands still, takes so long."""

LEASE = 1.0
# Each is one statement: between two of them, work could pass unseen from what is read second to what was read first.
UNDER_WAY = """
SELECT (SELECT count(*) FROM headway_item WHERE carrier <> 'leader' AND state IN ('waiting', 'running', 'in_doubt'))
     + (SELECT count(*) FROM headway_outbox) + (SELECT count(*) FROM headway_unrouted) AS number
"""
CARRIED = "SELECT (SELECT count(*) FROM headway_message) + (SELECT count(*) FROM headway_unrouted) AS number"


class Fleet:
    """Processes that work on one ledger, and on a broker in a file of its own where `two_files` says so."""

    def __init__(self, folder: Path, *, two_files: bool) -> None:
        """Make the files; nobody works yet."""
        self.folder = folder
        self.ledger = folder / "ledger.db"
        self.broker = folder / "broker.db" if two_files else None
        self.log = Log(folder / "log")
        self.sent: list[Sent] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._ledger_url = f"sqlite:///{self.ledger}"
        self._broker_url = None if self.broker is None else f"sqlite:///{self.broker}"
        asyncio.run(self._publish([]))
        with closing(sqlite3.connect(self.ledger)) as db:
            db.execute("CREATE TABLE effect (stage, origin, attempt, epoch, pid)")
            db.commit()

    def send(self, *events: Sent, again: tuple[Sent, ...] = ()) -> None:
        """Send events, and some of them again."""
        self.sent += events
        asyncio.run(self._publish([*events, *again]))

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start a worker; options are those of its command line."""
        options = {"ledger": self._ledger_url, "broker": self._broker_url, "log": self.log.path, **options}
        command = [sys.executable, "-m", "tests.crash.worker"]
        for name, value in options.items():
            if value is True:
                command.append(f"--{name.replace('_', '-')}")
            elif value is not None:
                command += [f"--{name.replace('_', '-')}", str(value)]
        with (self.folder / f"worker-{len(self.workers)}.err").open("wb") as errors:
            worker = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=errors, stderr=errors)
        self.workers.append(worker)
        return worker

    def start_up(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start a worker, and wait until it has opened its files."""
        worker = self.start(**options)
        self.wait(lambda: self.log.lines("up", pid=worker.pid), "the worker is up")
        return worker

    # -- what is seen from outside

    def item(self, event: str, stage: str = ASKED) -> sqlite3.Row:
        """What the ledger says of an event at a stage."""
        return read(self.ledger, "SELECT * FROM headway_item WHERE event_id = ? AND stage = ?", (event, stage))[0]

    def moves(self, event: str, stage: str = ASKED) -> list[str]:
        """The moves of an event that were settled, oldest first."""
        item = self.item(event, stage)["id"]
        return [
            row["move"]
            for row in read(self.ledger, "SELECT move FROM headway_audit WHERE item = ? ORDER BY epoch", (item,))
        ]

    def failures(self, event: str, stage: str = ASKED) -> list[sqlite3.Row]:
        """The attempts of an event that were charged, oldest first."""
        item = self.item(event, stage)["id"]
        return read(self.ledger, "SELECT * FROM headway_attempt WHERE item = ? ORDER BY round, number", (item,))

    def starts(self, event: str, **wanted: Any) -> list[dict[str, Any]]:
        """The executions of an event so far."""
        return self.log.lines("start", event=event, **wanted)

    def faults(self) -> list[str]:
        """What does not add up."""
        return faults(self.ledger, self.broker, self.sent, self.log, next_stage=FOLLOWED)

    def quiet(self) -> bool:
        """Whether everything that was sent has come to rest.

        Work goes from the broker to the ledger to the outbox to the broker. If no epoch was used between two looks at
        the ledger, no work has left the broker meanwhile, so what the two files said was true at once.
        """
        epoch = self._epoch()
        if read(self.ledger, UNDER_WAY)[0]["number"]:
            return False
        if self.broker is not None and read(self.broker, CARRIED)[0]["number"]:
            return False
        return epoch == self._epoch()

    # -- waiting

    def wait(self, condition: Callable[[], T], what: str, *, patience: float = PATIENCE) -> T:
        """Wait until something is true, and return it; fail with all that is known when it does not come true."""
        deadline = time.monotonic() + patience
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not in {patience:g} s: {what}\n{self._evidence()}")
            failed = [worker.returncode for worker in self.workers if worker.poll() not in {None, 0, -signal.SIGKILL}]
            if failed:
                raise AssertionError(f"a worker ended by itself: {failed}\n{self._evidence()}")
            time.sleep(0.02)
        return found

    def wait_until_quiet(self) -> None:
        """Wait until everything that was sent has come to rest."""
        self.wait(self.quiet, "everything has come to rest")

    def wait_for_death(self, worker: subprocess.Popen[bytes]) -> float:
        """Wait until a worker is gone, by whatever killed it; return when that was seen."""
        self.wait(lambda: worker.poll() is not None, "the worker is dead")
        return time.monotonic()

    def wait_for_start(self, event: str, **wanted: Any) -> dict[str, Any]:
        """Wait until an event is being worked on; return the line that says so."""
        return self.wait(lambda: self.starts(event, **wanted), f"{event} is being worked on")[-1]

    def stop(self, worker: subprocess.Popen[bytes]) -> float:
        """Ask a worker to stop, and see it exit with 0; return how long that took."""
        asked = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        self.wait_for_death(worker)
        assert worker.returncode == 0, self._evidence()
        return time.monotonic() - asked

    def close(self) -> None:
        """Kill who is left."""
        for worker in self.workers:
            worker.kill()
            worker.communicate()

    async def _publish(self, events: list[Sent]) -> None:
        async with open_parts(self._ledger_url, self._broker_url, make=True) as parts:
            for event in events:
                envelope_of: Event[object] = Event(
                    event_type=event.stage.rpartition(".")[2],
                    data=event.data,
                    event_id=event.event_id,
                    timestamp="2026-01-01T00:00:00.000Z",
                )
                await parts.publisher.publish(envelope.encode(envelope_of))

    def _epoch(self) -> int:
        return int(read(self.ledger, "SELECT value FROM headway_sequence")[0]["value"])

    def _evidence(self) -> str:
        items = read(
            self.ledger, "SELECT event_id, stage, state, carrier, attempts, crashes, strikes, reason FROM headway_item"
        )
        errors = [f"-- {file.name}\n{file.read_text()[-3000:]}" for file in sorted(self.folder.glob("worker-*.err"))]
        log = self.log.path.read_text()[-3000:] if self.log.path.exists() else ""
        return "\n".join([*(str(tuple(row)) for row in items), log, *errors])
