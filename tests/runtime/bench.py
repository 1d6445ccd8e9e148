"""A bench for services: both modes on real files, ways to look at what they left behind, and parts that fail on cue."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.adapters.sqlite.broker import SQLiteBroker
from headway.adapters.sqlite.store import Store
from headway.app.serve import serve
from headway.app.wiring import Parts
from headway.core import keys
from headway.core.event import Letter
from headway.core.item import Item
from headway.core.states import State
from headway.errors import ServiceUnavailable
from headway.ports.ledger import Query, Record
from headway.ports.points import Probe, unwatched
from headway.runtime.service import Service
from headway.runtime.worker import Settings, Stopping
from tests.world import World, open_world

PATIENCE = float(os.environ.get("HEADWAY_TEST_PATIENCE", "15"))
"""How long a test waits for what must happen. Only a failing test waits so long."""

MODES = ("embedded", "two files")
SWIFT = Settings(poll=0.005, in_place=0.0, grace=2.0)
"""Every wait goes through the ledger, so that tests move its clock instead of sleeping."""


def swift(**changes: Any) -> Settings:
    """The settings of the bench, with some changed."""
    return replace(SWIFT, **changes)


async def until(condition: Callable[[], Any], *, patience: float = PATIENCE) -> Any:
    """Wait until the condition holds; return what it says then."""
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        assert time.monotonic() < deadline, f"it did not happen within {patience:g} s: {inspect.getsource(condition)}"
        await asyncio.sleep(0.005)


class Unreliable:
    """A part whose calls fail on cue: `fails(name, arguments)` says "before" or "after" the real call, or None."""

    def __init__(self, real: Any, fails: Callable[[str, tuple[Any, ...]], str | None]) -> None:
        self._real = real
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if not inspect.iscoroutinefunction(real):
            return real

        async def call(*arguments: Any, **named: Any) -> Any:
            when = self._fails(name, arguments)
            if when == "before":
                raise ServiceUnavailable(f"{name} fails on cue, before it is done")
            answer = await real(*arguments, **named)
            if when == "after":
                raise ServiceUnavailable(f"the answer of {name} is lost on cue")
            return answer

        return call


class Times:
    """Fails the first `count` calls of one method, in one way."""

    def __init__(self, method: str, count: int, when: str = "before") -> None:
        self.method = method
        self.left = count
        self.when = when
        self.calls = 0

    def __call__(self, name: str, _: tuple[Any, ...]) -> str | None:
        if name != self.method:
            return None
        self.calls += 1
        if self.left <= 0:
            return None
        self.left -= 1
        return self.when


@dataclass
class Running:
    """Services at work."""

    stopping: Stopping
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """Ask to stop, and wait for the end."""
        self.stopping.asked.set()
        await asyncio.wait_for(asyncio.shield(self.task), PATIENCE)


@dataclass
class Bench:
    """One ledger, with or without a broker's file beside it."""

    mode: str
    path: Path
    world: World
    broker: SQLiteBroker | None
    spoil_ledger: Callable[[Any], Any] = field(default=lambda real: real)
    spoil_broker: Callable[[Any], Any] = field(default=lambda real: real)

    @property
    def embedded(self) -> bool:
        return self.mode == "embedded"

    @property
    def broker_file(self) -> Path:
        return self.path / "broker.db"

    @asynccontextmanager
    async def running(
        self,
        *services: Service,
        settings: Settings = SWIFT,
        probe: Probe = unwatched,
    ) -> AsyncIterator[Running]:
        """Run these services until the block ends; a fault of theirs is the test's."""
        stopping = Stopping()
        broker: SQLiteBroker | None = None
        parts = self.parts(None)
        if not self.embedded:
            broker = SQLiteBroker(Store(self.broker_file), timeout=settings.lease)
            parts = self.parts(self.spoil_broker(broker))
        task = asyncio.ensure_future(serve(services, parts, settings, stopping, probe=probe))
        running = Running(stopping, task)
        try:
            yield running
            await running.stop()
        finally:
            stopping.asked.set()
            stopping.cut_off.set()
            with suppress(Exception):
                await asyncio.wait_for(task, PATIENCE)
            if broker is not None:
                await broker.close()

    def parts(self, broker: Any) -> Parts:
        ledger = self.spoil_ledger(self.world.ledger)
        carrier: Any = ledger if broker is None else broker
        return Parts(ledger, self.world.transactions, carrier, carrier, broker)

    async def declare(self, *services: Service) -> None:
        """Subscribe services without running them."""
        topology: Any = self.broker or self.world.ledger
        await topology.declare({service.name: [stage.subscription for stage in service.stages] for service in services})

    async def send(self, letter: Letter) -> None:
        publisher: Any = self.broker or self.world.ledger
        await publisher.publish(letter)

    async def item(self, stage: str, key: str) -> Item | None:
        return await self.world.ledger.get(keys.item_id("", stage, key))

    async def there(self, stage: str, key: str, state: State) -> Item:
        """Wait until the item of this key is in this state."""

        async def found() -> Item | None:
            item = await self.item(stage, key)
            return item if item is not None and item.state is state else None

        item: Item = await until(found)
        return item

    async def done(self, stage: str, key: str) -> Item:
        return await self.there(stage, key, State.DONE)

    async def dead(self, stage: str, key: str) -> Item:
        return await self.there(stage, key, State.DEAD)

    async def waiting(self, stage: str, key: str, *, attempts: int = 1) -> Item:
        """Wait until the item waits after so many failed attempts."""

        async def found() -> Item | None:
            item = await self.item(stage, key)
            return item if item is not None and (item.state, item.attempts) == (State.WAITING, attempts) else None

        item: Item = await until(found)
        return item

    async def ended(self, stage: str, key: str) -> Item:
        """Wait until the item is done or dead."""

        async def found() -> Item | None:
            item = await self.item(stage, key)
            return item if item is not None and item.state in {State.DONE, State.DEAD} else None

        item: Item = await until(found)
        return item

    async def items(self, **query: Any) -> Sequence[Item]:
        return await self.world.ledger.find(Query(**query))

    async def quarantined(self, service: str, count: int = 1, *, state: State = State.DEAD) -> Sequence[Item]:
        """Wait until the service has so many quarantined letters in this state."""

        async def found() -> Sequence[Item]:
            items = await self.items(stage=keys.quarantine_stage(service), state=state)
            return items if len(items) >= count else ()

        items: Sequence[Item] = await until(found)
        return items

    async def history(self, item: Item, what: str = "") -> list[Record]:
        return [r for r in await self.world.ledger.history(item.id) if what in ("", r.what)]

    async def drained(self) -> None:
        """Wait until the broker holds nothing and the outbox is empty."""

        async def empty() -> bool:
            depths = {} if self.broker is None else await self.broker.depths()
            return not depths and (await self.world.ledger.pending()).pending == 0

        await until(empty)

    def raw(self, statement: str, *values: object, file: str = "ledger.db") -> list[Any]:
        """Do something behind everybody's back."""
        with closing(sqlite3.connect(self.path / file, isolation_level=None, timeout=10)) as db:
            db.create_function("mono", 0, self.world.store.mono)
            db.create_function("wall", 0, self.world.store.wall)
            return db.execute(statement, values).fetchall()

    async def deliver(self, service: Service, body: bytes) -> None:
        """Put bytes where the service finds them, past everything that looks at them."""
        if self.embedded:
            stage = service.stages[0]
            await self.send(_blank(stage.event_type))
            self.raw("UPDATE headway_item SET body = ? WHERE stage = ? AND event_id = 'blank'", body, stage.name)
        else:
            self.raw(
                "INSERT INTO headway_message (queue, body, born_date) VALUES (?, ?, 0)",
                service.name,
                body,
                file="broker.db",
            )

    def outbox(self) -> list[tuple[str, str]]:
        """Event types and ids that wait to be published, in their order."""
        return [(row[0], row[1]) for row in self.raw("SELECT event_type, event_id FROM headway_outbox ORDER BY id")]


def _blank(event_type: str) -> Letter:
    body = json.dumps({"event_id": "blank", "event_type": event_type, "data": {}}).encode()
    return Letter("blank", event_type, body)


@asynccontextmanager
async def open_bench(path: Path, mode: str) -> AsyncIterator[Bench]:
    """A bench with its files in this directory."""
    async with open_world(path / "ledger.db", embedded=mode == "embedded") as world:
        if mode == "embedded":
            yield Bench(mode, path, world, None)
            return
        broker = SQLiteBroker(Store(path / "broker.db"), timeout=30.0)
        await broker.migrate()
        try:
            yield Bench(mode, path, world, broker)
        finally:
            await broker.close()
