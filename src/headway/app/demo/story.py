"""What happens in the demonstration: it sends, breaks things, mends one of them, and adds up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from headway.app.demo.account import Account, account
from headway.app.wiring import Parts, open_parts
from headway.core.event import Letter
from headway.core.item import Item
from headway.core.settlements import Redrive
from headway.core.states import State
from headway.errors import ServiceUnavailable
from headway.ops import dead_letters
from headway.ops.why import times
from headway.ports.ledger import Query
from headway.runtime.envelope import new_letter

LEASE = 2.0
WORKERS = 2
PATIENCE = 60.0
LATE, BROKEN, POISON = 17, 23, 31
FLAKY_EVERY = 10
TWICE = 5
"""Which archives are in trouble."""

Say = Callable[[str], None]


class Workers:
    """`headway run` processes, replaced when they die, as any supervisor would."""

    def __init__(self, scene: Path, url: str) -> None:
        """Workers on this ledger."""
        self._command = [sys.executable, "-c", "from headway.app.cli import main; main()", "run"]
        self._command += ["headway.app.demo.pipeline:app", "--ledger", url, "--lease", str(LEASE)]
        self._environment = {**os.environ, "HEADWAY_DEMO_SCENE": str(scene)}
        self._log = scene / "workers.log"
        self.running: list[subprocess.Popen[bytes]] = []
        self.deaths = 0

    def keep(self, count: int) -> None:
        """Replace the dead, up to this many."""
        alive = [worker for worker in self.running if worker.poll() is None]
        self.deaths += len(self.running) - len(alive)
        with self._log.open("ab") as log:
            while len(alive) < count:
                alive.append(subprocess.Popen(self._command, env=self._environment, stderr=log, stdout=log))  # noqa: S603 - ours
        self.running = alive

    def stop(self) -> None:
        """End them as a deployment would, and see that they went."""
        for worker in self.running:
            worker.terminate()
        for worker in self.running:
            worker.wait(timeout=PATIENCE)


class Story:
    """One run of the demonstration, in a directory of its own."""

    def __init__(self, scene: Path, *, events: int, say: Say) -> None:
        """Set the scene."""
        self.path = scene / "headway.db"
        self.url = f"sqlite:///{self.path}"
        self._scene = scene
        self._say = say
        self._events = events
        self._workers = Workers(scene, self.url)
        self._sent: dict[str, int] = {}
        (scene / "documents").mkdir(parents=True, exist_ok=True)

    async def tell(self) -> Account:
        """All of it."""
        async with open_parts(self.url, make=True) as parts:
            with self._working():
                return await self._tell(parts)

    async def _tell(self, parts: Parts) -> Account:
        self._say(f"{WORKERS} workers run a service of two stages on one SQLite file, with leases of {LEASE:g} s")
        await self._until(lambda: self._declared(parts))
        await self._send_and_kill(parts)
        await self._late(parts)
        await self._poison(parts)
        await self._mend(parts)
        results = await self._rows(parts, "SELECT archive FROM demo_result")
        return account(self._sent, await self._items(parts), results)

    async def _send_and_kill(self, parts: Parts) -> None:
        letters = [self._letter(archive) for archive in range(1, self._events + 1) if archive != POISON]
        flaky = sum(_trouble(archive) == "flaky" for archive in self._sent.values())
        self._say(
            f"{len(letters)} events are sent, one of them twice: {flaky} meet a call that fails at first, "
            "one waits for a document that is late, one meets a bug"
        )
        started = time.monotonic()
        await asyncio.gather(*(parts.publisher.publish(letter) for letter in [*letters, letters[TWICE]]))
        await self._until(lambda: self._done(parts, self._events))
        self._say(f"{self._events} items are done, {self._events / (time.monotonic() - started):.0f} a second")
        victim = self._workers.running[0]
        victim.send_signal(signal.SIGKILL)
        self._say(f"worker {victim.pid} is killed (SIGKILL) in the middle of its work; another takes its place")
        await self._until(lambda: self._done(parts, 2 * (self._events - 3)))
        self._say(f"{2 * (self._events - 3)} items are done: what the dead worker held was taken over")

    async def _poison(self, parts: Parts) -> None:
        await parts.publisher.publish(self._letter(POISON))
        self._say("an event is sent that kills every worker that runs it")
        before = self._workers.deaths
        await self._until(lambda: self._dead(parts, "crash_loop"))
        self._say(f"it has killed {self._workers.deaths - before} workers, and was stopped when it ran alone")

    async def _late(self, parts: Parts) -> None:
        (self._scene / "documents" / str(LATE)).touch()
        self._say("the late document arrives; its event has been waiting for it without holding a worker")
        await self._until(lambda: self._settled(parts))

    async def _mend(self, parts: Parts) -> None:
        for item in await dead_letters.find(parts.ledger, stage=None, reason=None, limit=100):
            self._say(f"dead letter {item.id[:12]}: {item.reason}, {times(item.attempts, 'failed attempt')}")
        (self._scene / "mended").touch()
        for item in await dead_letters.find(parts.ledger, stage=None, reason="non_retryable", limit=100):
            act = Redrive(reason="the bug is mended")
            outcome = await dead_letters.act_on(parts.ledger, item, act, by="demo")
            self._say(f"the bug is mended, and dead letter {item.id[:12]} is {outcome.message}")
        await self._until(lambda: self._settled(parts))
        for item in await self._items(parts):
            if item.round > 1:
                self._say(f"item {item.id[:12]} is {item.state} in round {item.round}")

    def _letter(self, archive: int) -> Letter:
        letter = new_letter("ArchiveIngested", {"archive": archive, "trouble": _trouble(archive)})
        self._sent[letter.event_id] = archive
        return letter

    # -- what the conditions ask

    async def _declared(self, parts: Parts) -> bool:
        return len(await self._rows(parts, "SELECT stage FROM headway_subscription")) == 2

    async def _done(self, parts: Parts, count: int) -> bool:
        tallies = await parts.ledger.count()
        return sum(tally.count for tally in tallies if tally.state is State.DONE) >= count

    async def _dead(self, parts: Parts, reason: str) -> bool:
        return bool(await dead_letters.find(parts.ledger, stage=None, reason=reason, limit=1))

    async def _settled(self, parts: Parts) -> bool:
        tallies = await parts.ledger.count()
        return all(tally.state in {State.DONE, State.DEAD} for tally in tallies)

    async def _items(self, parts: Parts) -> list[Item]:
        items: list[Item] = []
        while page := await parts.ledger.find(Query(limit=100, after=items[-1].id if items else "")):
            items += page
        return items

    async def _rows(self, parts: Parts, query: str) -> Sequence[int]:
        """Read what the handlers wrote: it is in the ledger's own database."""
        transaction = await parts.transactions.begin(bound=LEASE)
        try:
            return [row[0] for row in transaction.connection.execute(query)]
        finally:
            await transaction.roll_back()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        self._workers.keep(WORKERS)
        try:
            yield
        finally:
            self._workers.stop()

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            self._workers.keep(WORKERS)
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"the demonstration did not get on within {PATIENCE:g} s: see {self._scene / 'workers.log'}, "
                    f"and `headway status --ledger {self.url}`"
                )
            await asyncio.sleep(0.05)


def _trouble(archive: int) -> str:
    special = {LATE: "late", BROKEN: "broken", POISON: "poison"}
    return special.get(archive, "flaky" if archive % FLAKY_EVERY == 0 else "")
