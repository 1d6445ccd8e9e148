"""Stores and brokers that fail for a while, answers that are lost, workers that are slower than their leases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway import Context, Event, RetryPolicy, Service
from headway.core import keys
from headway.core.backoff import Jitter
from headway.core.settlements import Done
from headway.core.states import State
from headway.ports.ledger import Renewal
from tests.runtime.bench import Bench, Times, Unreliable, swift, until
from tests.world import letter, open_world

STAGE = "shop.Ordered"
ITEM = keys.item_id("", STAGE, "e1")


def shop() -> tuple[Service, list[Any]]:
    app, runs = Service("shop"), []

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        runs.append(event.event_id)
        ctx.emit("Paid", {})

    return app, runs


def spoil(bench: Bench, fails: Times) -> None:
    def wrap(real: Any) -> Any:
        return Unreliable(real, fails)

    if fails.method in {"receive", "acknowledge", "give_back", "publish"}:
        bench.spoil_broker = wrap
    else:
        bench.spoil_ledger = wrap


async def paid(bench: Bench) -> int:
    """How many Paid events have arrived where nobody wants them."""
    return await (bench.broker or bench.world.ledger).unrouted()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_settle_that_fails_for_a_while_reruns_nothing(bench: Bench, when: str) -> None:
    app, runs = shop()
    fails = Times("settle", 2, when)
    spoil(bench, fails)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.done(STAGE, "e1")
        await bench.drained()
        await until(lambda: fails.calls >= 3)
        assert await paid(bench) == 1
    assert runs == ["e1"]
    assert (item.successes, item.crashes) == (1, 0)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_settle_with_a_transaction_that_fails_for_a_while_reruns_nothing(bench: Bench, when: str) -> None:
    bench.raw("CREATE TABLE stock (id TEXT)")
    app, runs = Service("shop"), []

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        runs.append(event.event_id)
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a')")

    spoil(bench, Times("settle", 2, when))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done(STAGE, "e1")
    assert runs == ["e1"]
    assert bench.raw("SELECT count(*) FROM stock") == [(1,)]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_claim_that_fails_for_a_while_loses_nothing(two: Bench, when: str) -> None:
    app, runs = shop()
    left = [when] * 3

    def fails(name: str, arguments: tuple[Any, ...]) -> str | None:
        return left.pop() if name == "claim" and arguments[0].stage == STAGE and left else None

    two.spoil_ledger = lambda real: Unreliable(real, fails)
    async with two.running(app):
        await two.send(letter("e1", event_type="Ordered"))
        item = await two.done(STAGE, "e1")
        await two.drained()
    assert runs == ["e1"]
    assert item.crashes == 0


async def test_a_due_that_fails_for_a_while_loses_nothing(one: Bench) -> None:
    app, attempts = Service("shop"), []

    @app.on("Ordered", policy=RetryPolicy(base_delay=0.05, jitter=Jitter.NONE))
    async def handle(event: Event[Any], ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("first")

    spoil(one, Times("due", 1))
    async with one.running(app):
        await one.send(letter("e1", event_type="Ordered"))
        await one.done(STAGE, "e1")
    assert attempts == [1, 2]


async def test_a_receive_that_fails_for_a_while_loses_nothing(two: Bench) -> None:
    app, runs = shop()
    spoil(two, Times("receive", 1))
    async with two.running(app):
        await two.send(letter("e1", event_type="Ordered"))
        await two.done(STAGE, "e1")
        await two.drained()
    assert runs == ["e1"]


async def test_an_acknowledgement_that_fails_is_made_again(two: Bench) -> None:
    """The session lives on, so the broker would keep the message for us for as long as the process runs."""
    app, runs = shop()
    spoil(two, Times("acknowledge", 1))
    async with two.running(app):
        await two.send(letter("e1", event_type="Ordered"))
        await two.done(STAGE, "e1")
        await two.drained()
    assert runs == ["e1"]


async def test_a_give_back_that_fails_is_made_again(two: Bench) -> None:
    """A message that we neither work on nor give back is lost to everybody while this process runs."""
    app, runs = shop()
    await two.declare(app)
    async with open_world(two.path / "ledger.db", embedded=False) as other:
        held = await other.won("e1", stage=STAGE, id=ITEM, lease=0.3, event_type="Ordered")
        spoil(two, Times("give_back", 1))
        await two.send(letter("e1", event_type="Ordered"))
        async with two.running(app):

            async def asked_twice() -> bool:  # its holder is well meanwhile, so the delivery is given back
                await other.ledger.renew([Renewal(id=held.id, epoch=held.epoch, lease=0.3)])
                item = await two.item(STAGE, "e1")
                return item is not None and item.deliveries > 2

            await until(asked_twice)
            await two.done(STAGE, "e1")
            await two.drained()
    assert runs == ["e1"]


async def test_a_busy_item_is_run_by_who_waits_for_it_once_its_lease_is_over(two: Bench) -> None:
    app, runs = shop()
    await two.declare(app)
    async with open_world(two.path / "ledger.db", embedded=False) as other:
        await other.won("e1", stage=STAGE, id=ITEM, lease=0.3, event_type="Ordered")
    await two.send(letter("e1", event_type="Ordered"))
    async with two.running(app):
        item = await two.done(STAGE, "e1")
        await two.drained()
    assert runs == ["e1"]
    assert (item.crashes, item.attempts) == (1, 0)


async def test_a_busy_item_that_its_holder_ends_is_acknowledged(two: Bench) -> None:
    app, runs = shop()
    await two.declare(app)
    async with open_world(two.path / "ledger.db", embedded=False) as other:
        held = await other.won("e1", stage=STAGE, id=ITEM, lease=0.5, event_type="Ordered")
        await two.send(letter("e1", event_type="Ordered"))
        async with two.running(app):

            async def asked() -> bool:
                item = await two.item(STAGE, "e1")
                return item is not None and item.deliveries > 1

            await until(asked)
            await other.settle(held, Done())
            await two.drained()
    assert runs == []


async def test_a_service_that_stops_gives_back_what_waits_for_a_busy_item(two: Bench) -> None:
    app, runs = shop()
    await two.declare(app)
    async with open_world(two.path / "ledger.db", embedded=False) as other:
        await other.won("e1", stage=STAGE, id=ITEM, lease=60.0, event_type="Ordered")
        await two.send(letter("e1", event_type="Ordered"))
        async with two.running(app) as service:

            async def asked() -> bool:
                item = await two.item(STAGE, "e1")
                return item is not None and item.deliveries > 1

            await until(asked)
            await service.stop()
    rows = two.raw("SELECT session FROM headway_message", file="broker.db")
    assert rows == [(None,)]
    assert runs == []


@pytest.mark.parametrize("outcome", ["success", "failure"])
async def test_a_worker_that_lost_its_lease_touches_nothing(bench: Bench, outcome: str) -> None:
    """Somebody took the work over while the handler ran: its outcome is not written, its message not acknowledged."""
    app, runs, go = Service("shop"), [], asyncio.Event()

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        runs.append(ctx.epoch)
        ctx.emit("Paid", {})
        await go.wait()
        if outcome == "failure":
            raise ValueError("too late to matter")

    async with open_world(bench.path / "ledger.db", embedded=bench.embedded, skew=1000.0) as other:
        async with bench.running(app) as service:
            await bench.send(letter("e1", event_type="Ordered"))
            await until(lambda: runs)
            if bench.embedded:
                (taken,) = await other.due(STAGE)
            else:
                taken = await other.won("e1", stage=STAGE, id=ITEM, event_type="Ordered")
            go.set()
            await asyncio.sleep(0.1)
            item = await bench.there(STAGE, "e1", State.RUNNING)
            assert (item.epoch, item.attempts) == (taken.epoch, 0)
            if bench.broker is not None:
                assert await bench.broker.depths() == {"shop": 1}
            await service.stop()
        await other.settle(taken, Done())
    assert await paid(bench) == 0
    assert bench.outbox() == []
    assert (await bench.done(STAGE, "e1")).successes == 1


async def test_a_success_that_cannot_be_recorded_is_left_to_its_lease_when_the_service_stops(bench: Bench) -> None:
    app, runs = shop()
    fails = Times("settle", 1_000_000)
    spoil(bench, fails)
    async with bench.running(app) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await until(lambda: fails.calls)
        await service.stop()
    assert runs == ["e1"]
    item = await bench.there(STAGE, "e1", State.RUNNING)
    assert (item.attempts, item.successes) == (0, 0)


async def test_a_transaction_whose_success_cannot_be_recorded_is_let_go_when_the_service_stops(bench: Bench) -> None:
    """Nobody else can write while it is open."""
    bench.raw("CREATE TABLE stock (id TEXT)")
    app = Service("shop")

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        async with ctx.transaction() as db:
            db.execute("INSERT INTO stock VALUES ('a')")

    fails = Times("settle", 1_000_000)
    spoil(bench, fails)
    async with bench.running(app) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await until(lambda: fails.calls)
        await service.stop()
        await asyncio.wait_for(bench.world.ledger.wake(["nothing"]), 5)
    assert bench.raw("SELECT count(*) FROM stock") == [(0,)]


async def test_a_fault_of_the_store_that_is_no_outage_does_not_end_the_service(two: Bench) -> None:
    """One delivery meets a bug; the others are handled, and it is given back."""
    app, runs = shop()
    broken: list[str] = []

    def fails(name: str, arguments: tuple[Any, ...]) -> str | None:
        if name == "claim" and arguments[0].event_id == "e1" and len(broken) < 1:
            broken.append("e1")
            raise RuntimeError("a bug of our own")
        return None

    two.spoil_ledger = lambda real: Unreliable(real, fails)
    async with two.running(app, settings=swift(lease=0.4)):
        await two.send(letter("e1", event_type="Ordered"))
        await two.send(letter("e2", event_type="Ordered"))
        await two.done(STAGE, "e2")
        await two.done(STAGE, "e1")
        await two.drained()
    assert sorted(runs) == ["e1", "e2"]


@pytest.mark.parametrize("method", ["due", "claim", "receive"])
async def test_a_fault_where_work_is_taken_ends_the_service_as_a_whole(two: Bench, method: str) -> None:
    """It must not go on with one of its loops dead: whoever started it sees the error, and nothing runs on."""
    app, _ = shop()
    calls: list[str] = []

    def fails(name: str, _: tuple[Any, ...]) -> str | None:
        calls.append(name)
        if name == method:
            raise RuntimeError("a bug of our own")
        return None

    two.spoil_ledger = two.spoil_broker = lambda real: Unreliable(real, fails)
    with pytest.raises(RuntimeError, match="a bug of our own"):  # noqa: PT012 - what happens before it is raised counts
        async with two.running(app) as service:
            await asyncio.wait({service.task}, timeout=10)
            before = len(calls)
            await asyncio.sleep(0.1)
            assert calls[before:] == []
            await service.task
