"""What a handler is given, what it sends out, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from headway import Context, Event, LeaseLost, Service, SyncContext
from headway.core.states import State
from tests.runtime.bench import Bench, swift, until
from tests.world import letter


@dataclass
class Order:
    id: int
    lines: list[str]


class Parcel(msgspec.Struct):
    id: int
    weight: float


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_an_event_is_handled_and_done(bench: Bench, running: Any, colour: str) -> None:
    app, seen = Service("shop"), []

    async def later(event: Event[Any]) -> None:
        seen.append(event.data)

    def now(event: Event[Any]) -> None:
        seen.append(event.data)

    app.on("Ordered")(later if colour == "async" else now)
    async with running(app):
        await bench.send(letter("e1", event_type="Ordered", data={"id": 7}))
        item = await bench.done("shop.Ordered", "e1")
        await bench.drained()
    assert seen == [{"id": 7}]
    assert (item.attempts, item.successes, item.body) == (0, 1, None)


async def test_an_event_that_was_sent_before_anybody_asked_for_it_is_handled(bench: Bench, running: Any) -> None:
    app = Service("shop")
    app.on("Ordered")(lambda event: None)
    await bench.send(letter("e1", event_type="Ordered"))
    async with running(app):
        await bench.done("shop.Ordered", "e1")


async def test_a_sync_handler_does_not_block_the_others(running: Any, bench: Bench) -> None:
    app, both = Service("shop"), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.on("Ordered", stage="shop.sync")
    def block(event: Event[Any]) -> None:
        asyncio.run_coroutine_threadsafe(both.wait(), loop).result(10)

    @app.on("Ordered", stage="shop.async")
    async def free(event: Event[Any]) -> None:
        both.set()

    async with running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done("shop.sync", "e1")


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_emits_go_out_with_success_and_name_their_cause(bench: Bench, running: Any, colour: str) -> None:
    app, got = Service("shop"), []

    @app.on("Paid")
    async def paid(event: Event[Any]) -> None:
        got.append(event)

    async def later(event: Event[Any], ctx: Context) -> None:
        ctx.emit("Paid", {"id": 1}, order_key="customer-1")

    def now(event: Event[Any], ctx: SyncContext) -> None:
        ctx.emit("Paid", {"id": 1}, order_key="customer-1")

    app.on("Ordered")(later if colour == "async" else now)
    async with running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await until(lambda: got)
        await bench.drained()
    assert got[0].data == {"id": 1}
    assert dict(got[0].headers) == {"causation_id": "e1", "correlation_id": "e1", "order_key": "customer-1"}


async def test_the_correlation_of_the_first_event_is_handed_on(bench: Bench, running: Any) -> None:
    app, got = Service("shop"), []

    @app.on("Ordered")
    async def ordered(event: Event[Any], ctx: Context) -> None:
        ctx.emit("Paid")

    @app.on("Paid")
    async def paid(event: Event[Any], ctx: Context) -> None:
        got.append(event)

    async with running(app):
        await bench.send(letter("e1", event_type="Ordered", correlation_id="request-9"))
        await until(lambda: got)
    assert got[0].headers["correlation_id"] == "request-9"
    assert got[0].data == {}


async def test_a_failed_attempt_emits_nothing(bench: Bench, running: Any) -> None:
    app, got = Service("shop"), []

    @app.on("Ordered")
    async def ordered(event: Event[Any], ctx: Context) -> None:
        ctx.emit("Paid", {"attempt": ctx.attempt})
        if ctx.attempt == 1:
            raise ConnectionError("first time")

    @app.on("Paid")
    async def paid(event: Event[Any]) -> None:
        got.append(event.data)

    async with running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.waiting("shop.Ordered", "e1")
        bench.world.pass_time(60)
        await bench.done("shop.Ordered", "e1")
        await until(lambda: got)
        await bench.drained()
    assert got == [{"attempt": 2}]


async def test_a_rerun_of_the_same_success_emits_the_same_ids(bench: Bench) -> None:
    """The worker dies after the handler: what it would have sent has the ids that the next one sends."""
    app, ids = Service("shop"), []

    @app.on("Ordered")
    async def ordered(event: Event[Any], ctx: Context) -> None:
        for n in range(2):
            ctx.emit("Paid", {"n": n})
        ids.append([json.loads(out.body)["event_id"] for out in ctx._scope.emits])
        if len(ids) == 1:
            raise ConnectionError("as if it had died here")

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.waiting("shop.Ordered", "e1")
        bench.world.pass_time(60)
        await bench.done("shop.Ordered", "e1")
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


async def test_events_of_one_order_key_arrive_in_their_order(two: Bench) -> None:
    app = Service("shop")

    @app.on("Ordered")
    async def ordered(event: Event[Any], ctx: Context) -> None:
        for n in range(20):
            ctx.emit("Line", {"n": n}, order_key="order-1")

    reader = Service("reader")
    reader.on("Line")(lambda event: None)
    await two.declare(reader)
    async with two.running(app):
        await two.send(letter("e1", event_type="Ordered"))
        await two.done("shop.Ordered", "e1")
        await until(lambda: not two.outbox())
    bodies = two.raw("SELECT body FROM headway_message WHERE queue = 'reader' ORDER BY id", file="broker.db")
    assert [json.loads(body)["data"]["n"] for (body,) in bodies] == list(range(20))


@pytest.mark.parametrize(
    ("wanted", "data", "expected"),
    [
        (Order, {"id": 1, "lines": ["a"]}, Order(1, ["a"])),
        (Parcel, {"id": 1, "weight": 2}, Parcel(1, 2.0)),
    ],
)
async def test_data_comes_as_the_type_that_was_declared(
    bench: Bench, running: Any, wanted: type[Any], data: Any, expected: Any
) -> None:
    app, got = Service("shop"), []

    @app.on(wanted)
    async def handle(event: Event[Any]) -> None:
        got.append(event.data)

    async with running(app):
        await bench.send(letter("e1", event_type=wanted.__name__, data=data))
        await until(lambda: got)
    assert got == [expected]
    assert type(got[0]) is wanted


async def test_a_typed_object_is_emitted_under_its_name(bench: Bench, running: Any) -> None:
    app, got = Service("shop"), []

    @app.on("Start")
    async def start(event: Event[Any], ctx: Context) -> None:
        ctx.emit(Order(3, ["x"]))

    @app.on(Order)
    async def handle(event: Event[Order]) -> None:
        got.append(event.data)

    async with running(app):
        await bench.send(letter("e1", event_type="Start"))
        await until(lambda: got)
    assert got == [Order(3, ["x"])]


async def test_data_that_does_not_fit_is_dead_with_the_path_to_the_wrong_field(bench: Bench, running: Any) -> None:
    app, got = Service("shop"), []

    @app.on(Order)
    async def handle(event: Event[Order]) -> None:
        got.append(event)

    async with running(app):
        await bench.send(letter("e1", event_type="Order", data={"id": 1, "lines": ["a", 2]}))
        item = await bench.dead("shop.Order", "e1")
    note = (await bench.history(item, "dead letter"))[0].note
    assert (item.reason, item.attempts, got) == ("non_retryable", 1, [])
    assert "$.lines[1]" in note
    assert "Order" in note


async def test_a_sync_handler_that_returns_a_coroutine_is_told_what_to_write(bench: Bench, running: Any) -> None:
    app = Service("shop")

    async def work() -> None:
        """Nobody awaits this."""

    @app.on("Ordered")
    def handle(event: Event[Any]) -> Any:
        return work()

    async with running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead("shop.Ordered", "e1")
    assert item.reason == "non_retryable"
    assert "`async def`" in (await bench.history(item, "dead letter"))[0].note


async def test_a_handler_knows_its_item_its_attempt_and_its_epoch(bench: Bench, running: Any) -> None:
    app, got = Service("shop"), []

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        got.append((ctx.item_id, ctx.attempt, ctx.epoch))

    async with running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.done("shop.Ordered", "e1")
    assert got[0][:2] == (item.id, 1)
    assert 0 < got[0][2] < item.epoch


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("",), {}),  # a name that no consumer could read
        (("x" * 600,), {}),
        (("Paid", {}), {"order_key": 7}),  # a header that no consumer could read
        ((Order,), {}),
        ((Order(1, []), {"id": 2}), {}),
        (("Paid", object()), {}),
    ],
)
async def test_an_emit_that_nobody_could_read_fails_the_attempt(
    bench: Bench, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    app = Service("shop")

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        ctx.emit(*arguments, **named)

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.ended("shop.Ordered", "e1")
    assert (item.state, item.reason) == (State.DEAD, "non_retryable")


async def test_handlers_run_beside_each_other_up_to_the_concurrency(bench: Bench) -> None:
    app, inside, most = Service("shop"), set(), 0
    go = asyncio.Event()

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        nonlocal most
        inside.add(event.event_id)
        most = max(most, len(inside))
        await go.wait()
        inside.discard(event.event_id)

    async with bench.running(app, settings=swift(concurrency=3)):
        for n in range(10):
            await bench.send(letter(f"e{n}", event_type="Ordered"))
        await until(lambda: len(inside) == 3)
        go.set()
        for n in range(10):
            await bench.done("shop.Ordered", f"e{n}")
    assert most == 3


async def test_a_service_that_stops_hands_back_what_runs_uncharged(bench: Bench) -> None:
    app, started = Service("shop"), asyncio.Event()

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with bench.running(app, settings=swift(grace=0.0)) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await started.wait()
        await service.stop()
    item = await bench.there("shop.Ordered", "e1", State.WAITING)
    assert (item.attempts, item.crashes, item.free_in <= 0) == (0, 0, True)
    assert item.body is not None


async def test_a_service_that_stops_waits_for_what_runs(bench: Bench) -> None:
    app, started = Service("shop"), asyncio.Event()

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        started.set()
        await asyncio.sleep(0.1)

    async with bench.running(app) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await started.wait()
        await service.stop()
    assert (await bench.done("shop.Ordered", "e1")).attempts == 0


async def test_work_that_waits_for_a_slot_is_not_begun_once_it_is_cut_off(bench: Bench) -> None:
    """A sync handler that began then could not be stopped any more, while its work is handed to others."""
    app, began = Service("shop"), []
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.on("Ordered")
    async def first(event: Event[Any]) -> None:
        loop.call_soon(started.set)
        await asyncio.sleep(3600)

    @app.on("Queued")
    def second(event: Event[Any]) -> None:
        began.append(event.event_id)

    async with bench.running(app, settings=swift(grace=0.0, concurrency=1)) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await started.wait()
        await bench.send(letter("e2", event_type="Queued"))
        await bench.there("shop.Queued", "e2", State.RUNNING)
        await service.stop()
    assert began == []
    await bench.there("shop.Queued", "e2", State.WAITING)


async def test_what_a_handler_leaves_running_cannot_emit_unseen(bench: Bench) -> None:
    """An emit after the end of the handler goes nowhere, so it must not look as if it had worked."""
    app, contexts, tasks, refused = Service("shop"), [], [], asyncio.Event()

    async def afterwards(ctx: Context) -> None:
        while True:
            try:
                ctx.emit("Paid", {})
            except LeaseLost:
                refused.set()
                return
            await asyncio.sleep(0)

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        contexts.append(ctx)
        tasks.append(asyncio.ensure_future(afterwards(ctx)))

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done("shop.Ordered", "e1")
        await asyncio.wait_for(refused.wait(), 10)
        sent = await bench.world.ledger.unrouted()
        if bench.broker is not None:
            await bench.drained()
            sent = await bench.broker.unrouted()
    assert sent == len(contexts[0]._scope.emits)
