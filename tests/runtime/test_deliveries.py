"""Duplicates, keys, time limits of senders, several stages and several services."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from headway import Context, Event, Service
from headway.core import keys
from headway.core.settlements import Discard
from headway.core.states import State
from tests.runtime.bench import Bench, swift, until
from tests.world import letter


def shop(*, key: str | None = None) -> tuple[Service, list[Any]]:
    app, seen = Service("shop"), []

    @app.on("Ordered", key=key)
    async def handle(event: Event[Any]) -> None:
        seen.append(event.data)

    return app, seen


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def test_an_event_that_came_too_late_is_dead_without_a_call(bench: Bench) -> None:
    app, seen = shop()
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", not_after=in_seconds(-1)))
        item = await bench.dead("shop.Ordered", "e1")
        await bench.drained()
    assert (item.reason, item.attempts, seen) == ("ttl_exceeded", 0, [])
    assert item.body is not None


async def test_an_event_in_time_is_handled(bench: Bench) -> None:
    app, seen = shop()
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", not_after=in_seconds(60)))
        await bench.done("shop.Ordered", "e1")
    assert len(seen) == 1


async def test_a_retry_beyond_the_senders_limit_is_not_begun(bench: Bench) -> None:
    app = Service("shop")

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        raise ConnectionError("down")

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", not_after=in_seconds(60)))
        await bench.waiting("shop.Ordered", "e1")
        bench.world.pass_time(100)
        item = await bench.dead("shop.Ordered", "e1")
    assert (item.reason, item.attempts) == ("ttl_exceeded", 1)


async def test_the_same_event_twice_is_handled_once(bench: Bench) -> None:
    app, seen = shop()
    async with bench.running(app, settings=swift(lease=0.5)):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done("shop.Ordered", "e1")
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.drained()
        await bench.send(letter("last", event_type="Ordered"))
        await bench.done("shop.Ordered", "last")
    assert len(seen) == 2


async def test_a_duplicate_of_work_that_runs_is_not_run_beside_it(bench: Bench) -> None:
    app, started, go, runs = Service("shop"), asyncio.Event(), asyncio.Event(), []

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        runs.append(event.event_id)
        started.set()
        await go.wait()

    async with bench.running(app, settings=swift(lease=0.6)):
        await bench.send(letter("e1", event_type="Ordered"))
        await asyncio.wait_for(started.wait(), 10)
        await bench.send(letter("e1", event_type="Ordered"))
        if bench.broker is not None:  # the duplicate has asked for the work, and was told that it is busy

            async def asked() -> bool:
                item = await bench.item("shop.Ordered", "e1")
                return item is not None and item.deliveries >= 2

            await until(asked)
        go.set()
        await bench.done("shop.Ordered", "e1")
        await bench.drained()
    assert runs == ["e1"]


async def test_a_duplicate_of_dead_work_is_acknowledged_and_not_run(bench: Bench) -> None:
    app = Service("shop")
    runs = []

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        runs.append(1)
        raise ValueError("never")

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.dead("shop.Ordered", "e1")
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.drained()
        await bench.send(letter("e2", event_type="Ordered"))
        await bench.dead("shop.Ordered", "e2")
    assert len(runs) == 2


async def test_a_duplicate_of_discarded_work_is_acknowledged_and_not_run(bench: Bench) -> None:
    app, seen = shop()
    await bench.declare(app)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", not_after=in_seconds(-1)))
        item = await bench.dead("shop.Ordered", "e1")
        await bench.world.settle(item, Discard(reason="not wanted"))
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.drained()
        await bench.send(letter("e2", event_type="Ordered"))
        await bench.done("shop.Ordered", "e2")
    assert [data["id"] for data in seen] == ["e2"]


async def test_two_events_with_one_key_are_one_piece_of_work(bench: Bench) -> None:
    app, seen = shop(key="{order.id}")
    async with bench.running(app, settings=swift(lease=0.5)):
        for n in range(3):
            await bench.send(letter(f"e{n}", event_type="Ordered", data={"order": {"id": 7}}))
        await bench.done("shop.Ordered", keys.key_from("{order.id}", {"order": {"id": 7}}))
        await bench.drained()
        await bench.send(letter("last", event_type="Ordered", data={"order": {"id": 8}}))
        await bench.done("shop.Ordered", keys.key_from("{order.id}", {"order": {"id": 8}}))
    assert seen == [{"order": {"id": 7}}, {"order": {"id": 8}}]


async def test_a_key_with_another_payload_is_a_letter_of_its_own(bench: Bench) -> None:
    app, seen = shop(key="{id}")
    async with bench.running(app, settings=swift(lease=0.5)):
        await bench.send(letter("e1", event_type="Ordered", data={"id": 7, "n": 1}))
        first = await bench.done("shop.Ordered", keys.key_from("{id}", {"id": 7}))
        other = letter("e2", event_type="Ordered", data={"id": 7, "n": 2})
        await bench.send(other)
        await bench.send(other)
        (buried,) = await bench.quarantined("shop")
        await bench.drained()
    assert (buried.reason, buried.body) == ("key_reuse", other.body)
    assert seen == [{"id": 7, "n": 1}]
    assert first.id in (await bench.history(buried, "dead letter"))[0].note


async def test_an_event_without_the_field_of_the_key_is_a_letter_that_names_it(bench: Bench) -> None:
    app, seen = shop(key="{order.id}")
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", data={"order": {}}))
        (buried,) = await bench.quarantined("shop")
        await bench.drained()
    assert (buried.reason, seen) == ("non_retryable", [])
    assert "data.order.id" in (await bench.history(buried, "dead letter"))[0].note


async def test_two_stages_of_a_service_each_handle_an_event(bench: Bench) -> None:
    app, seen = Service("shop"), []

    @app.on("Ordered")
    async def bill(event: Event[Any]) -> None:
        seen.append("bill")

    @app.on("Ordered", stage="shop.pack")
    async def pack(event: Event[Any]) -> None:
        seen.append("pack")

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done("shop.Ordered", "e1")
        await bench.done("shop.pack", "e1")
        await bench.drained()
    assert sorted(seen) == ["bill", "pack"]


async def test_the_failure_of_one_stage_does_not_rerun_the_other(bench: Bench) -> None:
    app, seen = Service("shop"), []

    @app.on("Ordered")
    async def bill(event: Event[Any]) -> None:
        seen.append("bill")

    @app.on("Ordered", stage="shop.pack")
    async def pack(event: Event[Any], ctx: Context) -> None:
        seen.append("pack")
        if ctx.attempt == 1:
            raise ConnectionError("first")

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.done("shop.Ordered", "e1")
        await bench.waiting("shop.pack", "e1")
        bench.world.pass_time(60)
        await bench.done("shop.pack", "e1")
    assert sorted(seen) == ["bill", "pack", "pack"]


async def test_two_services_on_one_ledger_each_handle_an_event(bench: Bench) -> None:
    first, second, seen = Service("first"), Service("second"), []

    @first.on("Ordered")
    async def one(event: Event[Any], ctx: Context) -> None:
        seen.append("first")
        ctx.emit("Billed")

    @second.on("Ordered")
    async def two(event: Event[Any]) -> None:
        seen.append("second")

    @second.on("Billed")
    async def three(event: Event[Any]) -> None:
        seen.append("billed")

    await bench.declare(first, second)
    async with bench.running(first, second):
        await bench.send(letter("e1", event_type="Ordered"))
        await until(lambda: len(seen) == 3)
        await bench.drained()
    assert sorted(seen) == ["billed", "first", "second"]


async def test_events_kept_for_want_of_a_stage_go_to_every_service_that_starts(bench: Bench) -> None:
    """Which of the services of one process is declared first is nobody's choice."""
    first, second = Service("first"), Service("second")
    first.on("Ordered")(lambda event: None)
    second.on("Ordered")(lambda event: None)
    await bench.send(letter("e1", event_type="Ordered"))
    async with bench.running(first, second):
        await bench.done("first.Ordered", "e1")
        await bench.done("second.Ordered", "e1")


async def test_work_of_a_stage_that_is_not_here_stays_for_those_who_have_it(one: Bench) -> None:
    app, seen = shop()
    other = Service("other")
    other.on("Else")(lambda event: None)
    await one.declare(app)
    await one.send(letter("e1", event_type="Ordered"))
    async with one.running(other):
        await one.send(letter("e2", event_type="Else"))
        await one.done("other.Else", "e2")
        await one.there("shop.Ordered", "e1", State.WAITING)
    assert seen == []
