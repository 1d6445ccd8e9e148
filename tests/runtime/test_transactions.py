"""A handler's own writes in the ledger's file: with its success, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from typing import Any

import pytest

from headway import Context, Event, LeaseLost, RetryPolicy, Service, SyncContext
from headway.core.backoff import Jitter
from headway.core.states import State
from tests.runtime.bench import Bench, swift, until
from tests.world import letter, open_world

STAGE = "shop.Ordered"
ONCE = RetryPolicy(max_attempts=1)
TWICE = RetryPolicy(max_attempts=2, base_delay=0.0)


@pytest.fixture(autouse=True)
def tables(bench: Bench) -> None:
    bench.raw("CREATE TABLE stock (id TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0))")
    bench.raw("CREATE TABLE owner (id TEXT PRIMARY KEY)")
    bench.raw("CREATE TABLE bill (owner TEXT REFERENCES owner (id) DEFERRABLE INITIALLY DEFERRED)")


def stock(bench: Bench) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in bench.raw("SELECT id, n FROM stock ORDER BY id")]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_what_is_written_is_committed_with_the_success(bench: Bench, colour: str) -> None:
    app, before = Service("shop"), []

    async def later(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', 1)")
        before.append(stock(bench))

    def now(event: Event[Any], ctx: SyncContext) -> None:
        with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', 1)")
        before.append(stock(bench))

    app.on("Ordered")(later if colour == "async" else now)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done(STAGE, "e1")
    assert before == [[]]
    assert stock(bench) == [("a", 1)]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_what_is_written_is_rolled_back_with_the_failure(bench: Bench, colour: str) -> None:
    app = Service("shop")

    async def later(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', 1)")
        raise ConnectionError("after the block")

    def now(event: Event[Any], ctx: SyncContext) -> None:
        with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', 1)")
        raise ConnectionError("after the block")

    app.on("Ordered", policy=TWICE)(later if colour == "async" else now)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert (item.reason, item.attempts) == ("max_attempts_exceeded", 2)
    assert stock(bench) == []


async def test_emits_and_writes_go_together(bench: Bench) -> None:
    app, got = Service("shop"), []

    @app.on("Ordered", policy=TWICE)
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', ?)", (ctx.attempt,))
        ctx.emit("Counted", {"attempt": ctx.attempt})
        if ctx.attempt == 1:
            raise ConnectionError("first")

    @app.on("Counted")
    async def counted(event: Event[Any]) -> None:
        got.append(event.data["attempt"])

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await until(lambda: got)
    assert (got, stock(bench)) == ([2], [("a", 2)])


async def test_a_constraint_that_fails_at_the_write_is_the_attempts_failure(bench: Bench) -> None:
    app = Service("shop")

    @app.on("Ordered", policy=TWICE)
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', -1)")

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert "CHECK constraint failed" in (await bench.history(item, "dead letter"))[0].note
    assert stock(bench) == []


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_constraint_that_fails_at_the_settle_is_the_attempts_failure(bench: Bench, colour: str) -> None:
    app, attempts = Service("shop"), []

    def write(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO bill VALUES ('nobody')")
        db.execute("INSERT INTO stock VALUES ('a', 1)")

    def check(ctx: Any) -> None:
        attempts.append(ctx.attempt)

    async def later(event: Event[Any], ctx: Context) -> None:
        check(ctx)
        async with ctx.transaction() as db:
            write(db)

    def now(event: Event[Any], ctx: SyncContext) -> None:
        check(ctx)
        with ctx.transaction() as db:
            write(db)

    app.on("Ordered", policy=TWICE)(later if colour == "async" else now)
    bench.world.store._writer.execute("PRAGMA foreign_keys = ON")
    foreign_keys(bench)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert attempts == [1, 2]
    assert "FOREIGN KEY" in (await bench.history(item, "dead letter"))[0].note
    assert stock(bench) == []


def foreign_keys(bench: Bench) -> None:
    """Let handlers' connections check foreign keys, which SQLite leaves to each connection."""
    connect = bench.world.store.connect

    def checked(*arguments: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    bench.world.store.connect = checked  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_second_block_of_an_attempt_is_the_same_transaction(bench: Bench, colour: str) -> None:
    app, same = Service("shop"), []

    async def later(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as first:
            first.execute("INSERT INTO stock VALUES ('a', 1)")
        async with ctx.transaction() as second:
            same.append((first is second, second.execute("SELECT count(*) FROM stock").fetchone()[0]))

    def now(event: Event[Any], ctx: SyncContext) -> None:
        with ctx.transaction() as first:
            first.execute("INSERT INTO stock VALUES ('a', 1)")
        with ctx.transaction() as second:
            same.append((first is second, second.execute("SELECT count(*) FROM stock").fetchone()[0]))

    app.on("Ordered")(later if colour == "async" else now)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done(STAGE, "e1")
    assert same == [(True, 1)]


async def test_each_attempt_has_a_transaction_of_its_own(bench: Bench) -> None:
    app, counts = Service("shop"), []

    @app.on("Ordered", policy=RetryPolicy(base_delay=0.01, jitter=Jitter.NONE))
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            counts.append(db.execute("SELECT count(*) FROM stock").fetchone()[0])
            db.execute("INSERT INTO stock VALUES ('a', 1)")
        if ctx.attempt == 1:
            raise ConnectionError("first")

    async with bench.running(app, settings=swift(in_place=1.0)):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done(STAGE, "e1")
    assert counts == [0, 0]
    assert stock(bench) == [("a", 1)]


async def test_a_block_that_fails_and_is_caught_takes_no_earlier_block_with_it(bench: Bench) -> None:
    """Whatever a handler wrote in a block that it left well is there when its success is."""
    app = Service("shop")

    @app.on("Ordered", policy=ONCE)
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('kept', 1)")
        try:
            async with ctx.transaction() as db:
                db.execute("INSERT INTO stock VALUES ('refused', -1)")
        except sqlite3.IntegrityError:
            pass

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.ended(STAGE, "e1")
    assert stock(bench) == ([("kept", 1)] if item.state is State.DONE else [])


async def test_two_blocks_at_once_do_not_wait_for_each_other(bench: Bench) -> None:
    app, took = Service("shop"), []

    @app.on("Ordered", policy=ONCE)
    async def handle(event: Event[Any], ctx: Context) -> None:
        async def put(name: str) -> None:
            async with ctx.transaction() as db:
                await asyncio.sleep(0)
                db.execute("INSERT INTO stock VALUES (?, 1)", (name,))

        began = time.monotonic()
        await asyncio.gather(put("a"), put("b"))
        took.append(time.monotonic() - began)

    async with bench.running(app, settings=swift(lease=5.0)):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.ended(STAGE, "e1")
    assert item.state is State.DONE
    assert stock(bench) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_block_that_is_open_for_too_long_is_a_transient_failure(bench: Bench, colour: str) -> None:
    app, attempts = Service("shop"), []

    async def later(event: Event[Any], ctx: Context) -> None:
        attempts.append(ctx.attempt)
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', ?)", (ctx.attempt,))
            await asyncio.sleep(0.35 if ctx.attempt == 1 else 0)

    def now(event: Event[Any], ctx: SyncContext) -> None:
        attempts.append(ctx.attempt)
        with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', ?)", (ctx.attempt,))
            time.sleep(0.35 if ctx.attempt == 1 else 0)

    app.on("Ordered", policy=RetryPolicy(base_delay=0.01))(later if colour == "async" else now)
    async with bench.running(app, settings=swift(lease=0.45, in_place=1.0)):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.done(STAGE, "e1")
    first = (await bench.history(item, "attempt"))[0]
    assert first.details["kind"] == "transient"
    assert "open for more than" in first.note
    assert stock(bench) == [("a", 2)]


async def test_a_write_after_the_block_was_open_for_too_long_says_that_it_was(bench: Bench) -> None:
    app = Service("shop")

    @app.on("Ordered", policy=ONCE)
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            await asyncio.sleep(0.35)
            db.execute("INSERT INTO stock VALUES ('a', 1)")

    async with bench.running(app, settings=swift(lease=0.45)):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    first = (await bench.history(item, "attempt"))[0]
    assert "open for more than" in first.note
    assert first.details["kind"] == "transient"


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_handler_cannot_end_the_transaction(bench: Bench, statement: str) -> None:
    app = Service("shop")

    @app.on("Ordered", policy=ONCE)
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', 1)")
            db.execute(statement)

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.dead(STAGE, "e1")
    assert stock(bench) == []


async def test_a_loser_with_a_transaction_writes_nothing_and_keeps_nobody_waiting(bench: Bench) -> None:
    """Somebody else took the work over before the block began: the settle is lost, and the block ends with it."""
    app, begun, took = Service("shop"), asyncio.Event(), []

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with open_world(bench.path / "ledger.db", embedded=bench.embedded, skew=1000.0) as other:
            if bench.embedded:
                assert await other.due(STAGE)
            else:
                await other.won("e1", stage=STAGE, id=ctx.item_id)
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a', 1)")
        begun.set()

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await asyncio.wait_for(begun.wait(), 10)
        began = time.monotonic()
        await bench.send(letter("e2", event_type="Unwanted"))  # the broker is free, where it has its own file
        await bench.world.ledger.wake(["nothing"])
        took.append(time.monotonic() - began)
    assert stock(bench) == []
    assert took[0] < 5.0


async def test_a_thread_that_was_cut_off_cannot_begin_a_transaction(bench: Bench) -> None:
    """Its work is in other hands by then, and nobody would ever end what it began."""
    app, cut, outcome = Service("shop"), threading.Event(), []
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.on("Ordered")
    def handle(event: Event[Any], ctx: SyncContext) -> None:
        loop.call_soon_threadsafe(started.set)
        cut.wait(10)
        try:
            with ctx.transaction() as db:
                db.execute("INSERT INTO stock VALUES ('zombie', 1)")
            outcome.append("wrote")
        except LeaseLost:
            outcome.append("refused")
        try:
            ctx.emit("Paid")
            outcome.append("emitted")
        except LeaseLost:
            outcome.append("refused")

    async with bench.running(app, settings=swift(grace=0.0)) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await asyncio.wait_for(started.wait(), 10)
        await service.stop()
        cut.set()
        await until(lambda: len(outcome) == 2)
    assert outcome == ["refused", "refused"]
    assert stock(bench) == []
