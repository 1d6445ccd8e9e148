"""Guards that no other test would miss: what is done to one message or event is done to no other, and in its order."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headway import Event, Service
from headway.core import settlements
from headway.core.settlements import Settlement
from headway.core.states import State
from headway.errors import TransactionExpired
from headway.ports.broker import Subscription
from headway.ports.points import Point
from headway.runtime import relay
from tests.runtime.bench import Unreliable, open_bench, swift, until
from tests.world import World, letter, open_broker

WANTS = Subscription("JSONParsed", "chunking.JSONParsed", "chunking")


async def test_acknowledging_one_message_keeps_the_others_of_the_session(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "broker.db") as broker:
        await broker.declare({"chunking": [WANTS]})
        await broker.publish(letter("a"))
        await broker.publish(letter("b"))
        first, _ = await broker.receive("chunking", 2)
        await broker.acknowledge(first)
        assert await broker.depths() == {"chunking": 1}


async def test_giving_one_message_back_keeps_hold_of_the_others(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "broker.db") as broker, open_broker(tmp_path / "broker.db") as other:
        await broker.declare({"chunking": [WANTS]})
        await broker.publish(letter("a"))
        await broker.publish(letter("b"))
        first, _ = await broker.receive("chunking", 2)
        await broker.give_back(first)
        assert [delivery.tag for delivery in await other.receive("chunking", 2)] == [first.tag]


async def test_a_stage_that_moves_to_another_service_takes_its_events_along(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "broker.db") as broker:
        await broker.declare({"chunking": [WANTS]})
        await broker.declare({"splitting": [Subscription("JSONParsed", "chunking.JSONParsed", "splitting")]})
        await broker.publish(letter("a"))
        assert await broker.depths() == {"splitting": 1}


@pytest.mark.parametrize("wanted", ["JSONParsed", "ChunksPrepared"])
async def test_events_kept_for_others_stay_when_one_type_is_wanted(world: World, wanted: str) -> None:
    await world.ledger.publish(letter("a"))
    await world.ledger.publish(letter("b", event_type="ChunksPrepared"))
    await world.ledger.declare({"chunking": [Subscription(wanted, "stage", "chunking")]})
    assert await world.ledger.unrouted() == 1
    assert [item.event_type for item in await world.due("stage")] == [wanted]


async def test_events_kept_for_others_grow_old_whatever_is_declared(world: World) -> None:
    await world.ledger.publish(letter("a", event_type="ChunksPrepared"))
    world.pass_time(1000.0)
    await world.ledger.declare({"chunking": [WANTS]})
    await world.ledger.clean(older_than=500.0)
    assert await world.ledger.unrouted() == 0


async def test_work_that_is_settled_after_the_end_of_its_lease_is_asked_for_again_before_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    app, lease = Service("chunking"), 0.3
    calls: list[str] = []

    @app.on("JSONParsed")
    def handle(event: Event[Any]) -> None:
        """It succeeds at once."""

    def slow(name: str, arguments: tuple[Any, ...]) -> str | None:
        if name == "renew":
            return "before"
        if name in {"claim", "settle"} and arguments[0].stage != relay.STAGE:
            calls.append(name)
            if name == "settle":
                time.sleep(lease)  # the loop and all: nothing else happens meanwhile
        return None

    def watched(name: str, _: tuple[Any, ...]) -> str | None:
        if name == "acknowledge":
            calls.append(name)
        return "before" if name == "receive" and "settle" in calls else None  # so that it is not delivered again

    async with open_bench(tmp_path, "two files") as bench:
        bench.spoil_ledger = lambda real: Unreliable(real, slow)
        bench.spoil_broker = lambda real: Unreliable(real, watched)
        await bench.declare(app)
        await bench.send(letter("a"))
        async with bench.running(app, settings=swift(lease=lease)):
            await bench.done("chunking.JSONParsed", "a")
            await bench.drained()
    assert calls == ["claim", "settle", "claim", "acknowledge"]


async def test_a_success_that_the_store_refuses_for_no_known_reason_is_no_failure_of_the_handler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Service("chunking")
    settled: list[Settlement] = []

    @app.on("JSONParsed")
    def handle(event: Event[Any]) -> None:
        """It succeeds at once."""

    def refuse(name: str, arguments: tuple[Any, ...]) -> str | None:
        if name == "settle":
            settled.append(arguments[1])
            if len(settled) == 1:
                raise RuntimeError("the disk says something new")
        return None

    async with open_bench(tmp_path, "embedded") as bench:
        bench.spoil_ledger = lambda real: Unreliable(real, refuse)
        await bench.declare(app)
        await bench.send(letter("a"))
        async with bench.running(app):
            await until(lambda: "left to its lease" in caplog.text or len(settled) > 1)
        item = await bench.item("chunking.JSONParsed", "a")
    assert settled == [settlements.Done()]
    assert item is not None
    assert (item.state, item.attempts) == (State.RUNNING, 0)


async def test_work_that_crashed_a_worker_waits_until_nothing_runs_beside_it(tmp_path: Path) -> None:
    app = Service("chunking")
    inside: set[str] = set()
    beside: dict[str, set[str]] = {}
    go = asyncio.Event()

    @app.on("JSONParsed")
    async def handle(event: Event[Any]) -> None:
        beside[event.event_id] = set(inside)
        inside.add(event.event_id)
        if event.event_id == "innocent":
            await go.wait()
        inside.discard(event.event_id)

    async with open_bench(tmp_path, "embedded") as bench:
        await bench.declare(app)
        await bench.send(letter("crashed"))
        await bench.world.due(lease=1000.0)
        await bench.send(letter("innocent"))
        async with bench.running(app):
            await until(lambda: "innocent" in inside)
            bench.raw("UPDATE headway_item SET free_at = mono() WHERE event_id = 'crashed'")
            with suppress(AssertionError):
                await until(lambda: "crashed" in beside, patience=0.3)
            go.set()
            item = await bench.done("chunking.JSONParsed", "crashed")
    assert item.crashes == 1
    assert beside["crashed"] == set()


async def test_a_crash_of_work_that_ran_alone_is_its_own_doing(tmp_path: Path) -> None:
    app = Service("chunking")
    begun, go = asyncio.Event(), asyncio.Event()

    @app.on("JSONParsed")
    async def handle(event: Event[Any]) -> None:
        begun.set()
        await go.wait()

    async with open_bench(tmp_path, "embedded") as bench:
        await bench.declare(app)
        await bench.send(letter("a"))
        await bench.world.due(lease=0.0)
        async with bench.running(app):
            await until(begun.is_set)
            bench.raw("UPDATE headway_item SET free_at = mono()")
            await bench.world.due(lease=1000.0)
            taken = await bench.item("chunking.JSONParsed", "a")
            go.set()
    assert taken is not None
    assert (taken.crashes, taken.strikes) == (2, 1)


async def test_a_handler_is_stopped_when_its_lease_is_lost_and_not_only_when_the_service_stops(tmp_path: Path) -> None:
    app = Service("chunking")
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.on("JSONParsed")
    async def handle(event: Event[Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with open_bench(tmp_path, "embedded") as bench:
        await bench.declare(app)
        await bench.send(letter("a"))
        async with bench.running(app, settings=swift(lease=0.6)):
            await until(begun.is_set)
            bench.raw("UPDATE headway_item SET epoch = epoch + 1000, free_at = mono() + 1000")
            await until(stopped.is_set)


async def test_nobody_learns_an_answer_before_the_commit_that_holds_it(world: World) -> None:
    commit = threading.Event()

    def before_commit(_: Point) -> None:
        commit.wait(10.0)

    world.store.probe = before_commit
    claim = asyncio.ensure_future(world.won("a"))
    answered, _ = await asyncio.wait({claim}, timeout=0.1)
    commit.set()
    assert not answered
    assert (await claim).key == "a"


async def test_a_step_that_fails_leaves_nothing_and_takes_no_other_with_it(world: World) -> None:
    def fails(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO mine VALUES (1)")
        raise ValueError("half way")

    await world.store.write(lambda db: db.execute("CREATE TABLE mine (x)"))
    steps = [world.store.write(lambda db: db.execute("INSERT INTO mine VALUES (2)")), world.store.write(fails)]
    _, failed = await asyncio.gather(*steps, return_exceptions=True)
    assert isinstance(failed, ValueError)
    rows = await world.store.read(lambda db: db.execute("SELECT x FROM mine").fetchall())
    assert [row["x"] for row in rows] == [2]


async def test_a_thread_that_writes_on_after_its_transaction_was_rolled_back_writes_nothing(world: World) -> None:
    await world.store.write(lambda db: db.execute("CREATE TABLE mine (x)"))
    transaction = await world.transactions.begin(bound=10.0)
    db = transaction.connection
    await transaction.roll_back()
    with suppress(sqlite3.Error, TransactionExpired):
        db.execute("INSERT INTO mine VALUES (1)")
    rows = await world.store.read(lambda db: db.execute("SELECT x FROM mine").fetchall())
    await transaction.roll_back()
    assert not rows
