"""What is tried again, when, where it waits meanwhile, and when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway import Context, DocumentNotFoundError, Event, RetryPolicy, Service, policies
from headway.core.backoff import Jitter
from headway.core.settlements import Redrive
from headway.core.states import Carrier, State
from tests.runtime.bench import Bench, swift, until
from tests.world import letter

STAGE = "shop.Ordered"
EXACT = policies.EVENT_RACE.replace(jitter=Jitter.NONE)


def failing(*errors: BaseException, policy: RetryPolicy = EXACT, forever: bool = False) -> tuple[Service, list[int]]:
    """A service whose handler raises these, one an attempt, and then succeeds; and the attempts that it saw."""
    app, attempts = Service("shop"), []

    @app.on("Ordered", policy=policy)
    async def handle(event: Event[Any], ctx: Context) -> None:
        attempts.append(ctx.attempt)
        error = errors[-1] if forever else errors[len(attempts) - 1] if len(attempts) <= len(errors) else None
        if error is not None:
            raise error

    return app, attempts


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_transient_error_is_tried_again_until_it_works(bench: Bench, colour: str) -> None:
    app, attempts = Service("shop"), []

    def work(event: Event[Any]) -> None:
        attempts.append(event.event_id)
        if len(attempts) < 3:
            raise ConnectionError("not yet")

    async def work_async(event: Event[Any]) -> None:
        work(event)

    app.on("Ordered", policy=RetryPolicy(base_delay=0.01, jitter=Jitter.NONE))(work if colour == "sync" else work_async)
    async with bench.running(app, settings=swift(in_place=1.0)):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.done(STAGE, "e1")
        await bench.drained()
    assert len(attempts) == 3
    assert [record.details["number"] for record in await bench.history(item, "attempt")] == [1, 2]


async def test_an_attempt_in_place_is_charged_before_the_next_one_begins(bench: Bench) -> None:
    """Its charge is in the ledger while it sleeps: a worker that dies then takes no attempt back."""
    app, _ = failing(ConnectionError("first"), policy=RetryPolicy(base_delay=20.0, jitter=Jitter.NONE))
    async with bench.running(app, settings=swift(in_place=60.0)) as service:
        await bench.send(letter("e1", event_type="Ordered"))

        async def charged() -> Any:
            item = await bench.item(STAGE, "e1")
            return item if item is not None and item.attempts else None

        item = await until(charged)
        assert (item.state, item.attempts) == (State.RUNNING, 1)
        assert (await bench.history(item, "attempt"))[0].note == "ConnectionError: first"
        await service.stop()


async def test_a_stop_during_a_wait_in_place_takes_no_attempt_back(bench: Bench) -> None:
    app, _ = failing(ConnectionError("first"), policy=RetryPolicy(base_delay=20.0, jitter=Jitter.NONE))
    async with bench.running(app, settings=swift(in_place=60.0)) as service:
        await bench.send(letter("e1", event_type="Ordered"))

        async def charged() -> bool:
            item = await bench.item(STAGE, "e1")
            return item is not None and item.attempts == 1

        await until(charged)
        await service.stop()
    item = await bench.there(STAGE, "e1", State.WAITING)
    assert item.attempts == 1
    assert item.free_in <= 0


async def test_a_cut_off_after_attempts_in_place_takes_none_back(bench: Bench) -> None:
    app, started = Service("shop"), asyncio.Event()

    @app.on("Ordered", policy=RetryPolicy(base_delay=0.01, jitter=Jitter.NONE))
    async def handle(event: Event[Any], ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("first")
        started.set()
        await asyncio.sleep(3600)

    async with bench.running(app, settings=swift(in_place=1.0, grace=0.0)) as service:
        await bench.send(letter("e1", event_type="Ordered"))
        await asyncio.wait_for(started.wait(), 10)
        await service.stop()
    item = await bench.there(STAGE, "e1", State.WAITING)
    assert item.attempts == 1


async def test_a_success_after_attempts_in_place_keeps_their_number(bench: Bench) -> None:
    app, _ = failing(
        ConnectionError("1"), ConnectionError("2"), policy=RetryPolicy(base_delay=0.01, jitter=Jitter.NONE)
    )
    async with bench.running(app, settings=swift(in_place=1.0)):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.done(STAGE, "e1")
    assert item.attempts == 2


async def test_a_wait_in_place_holds_no_slot(bench: Bench) -> None:
    app, attempts = failing(ConnectionError("first"), policy=RetryPolicy(base_delay=20.0, jitter=Jitter.NONE))
    app.on("Other")(lambda event: None)
    async with bench.running(app, settings=swift(in_place=60.0, concurrency=1)):
        await bench.send(letter("e1", event_type="Ordered"))
        await until(lambda: attempts)
        await bench.send(letter("e2", event_type="Other"))
        await bench.done("shop.Other", "e2")
        await bench.there(STAGE, "e1", State.RUNNING)


async def test_a_long_wait_is_in_the_ledger_and_holds_no_worker(bench: Bench) -> None:
    app, attempts = failing(*[ConnectionError("down")] * 9, policy=RetryPolicy(base_delay=5.0, jitter=Jitter.NONE))
    app.on("Other")(lambda event: None)
    async with bench.running(app, settings=swift(in_place=1.0, concurrency=1)):
        for n in range(5):
            await bench.send(letter(f"e{n}", event_type="Ordered"))
        for n in range(5):
            item = await bench.waiting(STAGE, f"e{n}")
            assert 4.0 < item.free_in <= 5.0
            assert item.carrier is Carrier.LEDGER
        await bench.drained()
        await bench.send(letter("other", event_type="Other"))
        await bench.done("shop.Other", "other")
    assert attempts == [1] * 5


async def test_a_missing_document_is_looked_for_on_the_schedule_of_a_race(bench: Bench) -> None:
    """Nine executions, 0.25 s to 32 s apart, then it is dead."""
    app, attempts = failing(DocumentNotFoundError("orders/1"), forever=True)
    waits = []
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        for n in range(1, 9):
            item = await bench.waiting(STAGE, "e1", attempts=n)
            records = await bench.history(item, "attempt")
            waits.append(round(item.free_at - item.moved_at, 2))
            assert records[-1].details["kind"] == "not_visible"
            bench.world.pass_time(item.free_in + 0.01)
        item = await bench.dead(STAGE, "e1")
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert attempts == list(range(1, 10))
    assert (item.reason, item.attempts) == ("max_attempts_exceeded", 9)


async def test_work_that_is_abandoned_has_one_letter_with_its_last_error(bench: Bench) -> None:
    app, attempts = failing(ConnectionError("down"), forever=True, policy=RetryPolicy(max_attempts=3, base_delay=0.0))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
        await bench.drained()
    letters = await bench.history(item, "dead letter")
    assert [(record.note, record.details["attempts"]) for record in letters] == [("ConnectionError: down", 3)]
    assert attempts == [1, 2, 3]
    assert item.body is not None


async def test_work_whose_time_is_over_is_abandoned(bench: Bench) -> None:
    app, attempts = failing(ConnectionError("down"), forever=True, policy=EXACT.replace(base_delay=40.0, ttl=60.0))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        await bench.waiting(STAGE, "e1")
        bench.world.pass_time(70)
        item = await bench.dead(STAGE, "e1")
    assert (item.reason, attempts) == ("ttl_exceeded", [1])


async def test_the_last_wait_is_cut_so_that_the_last_attempt_is_within_the_time(bench: Bench) -> None:
    app, _ = failing(ConnectionError("down"), policy=EXACT.replace(base_delay=40.0, ttl=30.0))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.waiting(STAGE, "e1")
    assert 29.0 < item.free_at - item.moved_at < 30.0


class Throttled(ConnectionError):
    def __init__(self, retry_after: float) -> None:
        super().__init__(f"asked to wait for {retry_after} s")
        self.retry_after = retry_after


async def test_a_wait_that_was_asked_for_is_kept(bench: Bench) -> None:
    app, _ = failing(Throttled(120.0))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.waiting(STAGE, "e1")
    assert item.free_at - item.moved_at == pytest.approx(120.0, abs=0.1)


async def test_a_wait_beyond_the_time_that_is_left_is_not_begun(bench: Bench) -> None:
    app, _ = failing(Throttled(7200.0))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert (item.reason, item.attempts) == ("ttl_exceeded", 1)


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("id"), TypeError("no"), NotImplementedError()])
async def test_an_error_that_will_not_change_is_tried_once(bench: Bench, error: Exception) -> None:
    app, attempts = failing(error, forever=True)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert (item.reason, attempts) == ("non_retryable", [1])


async def test_the_next_attempt_sees_the_event_as_it_was_sent(bench: Bench) -> None:
    app, seen = Service("shop"), []

    @app.on("Ordered", policy=RetryPolicy(base_delay=0.01, jitter=Jitter.NONE))
    async def handle(event: Event[Any]) -> None:
        seen.append(dict(event.data))
        event.data["id"] = "changed"
        event.data["more"] = True
        if len(seen) == 1:
            raise ConnectionError("again")

    async with bench.running(app, settings=swift(in_place=1.0)):
        await bench.send(letter("e1", event_type="Ordered", data={"id": 1}))
        await bench.done(STAGE, "e1")
    assert seen == [{"id": 1}, {"id": 1}]


async def test_a_handler_that_cancels_itself_is_charged_and_ends_dead(bench: Bench) -> None:
    app, attempts = Service("shop"), []

    @app.on("Ordered", policy=RetryPolicy(max_attempts=2, base_delay=0.0))
    async def handle(event: Event[Any], ctx: Context) -> None:
        attempts.append(ctx.attempt)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert (item.reason, item.attempts, attempts) == ("max_attempts_exceeded", 2, [1, 2])


class Odd(BaseException):
    """What some libraries raise to get past `except Exception`."""


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_an_error_that_is_no_exception_is_charged_too(bench: Bench, colour: str) -> None:
    app = Service("shop")

    def work(event: Event[Any]) -> None:
        raise Odd("unusual")

    async def work_async(event: Event[Any]) -> None:
        raise Odd("unusual")

    app.on("Ordered", policy=RetryPolicy(max_attempts=1))(work if colour == "sync" else work_async)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert item.attempts == 1


class Unspeakable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("even its text fails")


class Trap(ValueError):
    @property
    def retry_after(self) -> float:
        raise RuntimeError("even asking fails")


@pytest.mark.parametrize(
    "error",
    [ValueError("a file named \udcff"), ValueError("a\x00b"), ValueError("x" * 1_000_000), Unspeakable(), Trap()],
    ids=["surrogate", "nul", "long", "unspeakable", "trap"],
)
async def test_whatever_an_error_says_it_ends_in_a_dead_letter(bench: Bench, error: Exception) -> None:
    """Text that a store cannot hold, or no text at all, must not keep the failure from being recorded."""
    app, attempts = failing(error, forever=True)
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
    assert (item.reason, attempts) == ("non_retryable", [1])


async def test_a_requeued_letter_has_its_whole_budget_again(bench: Bench) -> None:
    app, attempts = failing(ConnectionError("down"), forever=True, policy=RetryPolicy(max_attempts=2, base_delay=0.0))
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered"))
        item = await bench.dead(STAGE, "e1")
        await bench.world.settle(item, Redrive(reason="mended"))

        async def again() -> Any:
            now = await bench.item(STAGE, "e1")
            return now if now is not None and now.state is State.DEAD and now.round == 2 else None

        item = await until(again)
    assert attempts == [1, 2, 1, 2]
    assert len(await bench.history(item, "dead letter")) == 2
