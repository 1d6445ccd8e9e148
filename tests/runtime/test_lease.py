"""Leases, and the thread that keeps them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headway import Context, Event, LeaseLost, Service
from headway.core.keys import item_id
from headway.core.states import State
from headway.errors import ServiceUnavailable
from headway.ports.ledger import Renewal
from headway.runtime.lease import Heartbeat, Lease
from tests.runtime.bench import Bench, Unreliable, swift, until
from tests.world import World, letter, open_world

STAGE = "shop.Ordered"


class Renewals:
    """A ledger of which only renewals are asked: each answers what it is told."""

    def __init__(self) -> None:
        self.asked: list[Sequence[Renewal]] = []
        self.error: Exception | None = None
        self.granted = True

    async def renew(self, renewals: Sequence[Renewal]) -> Sequence[bool]:
        self.asked.append(renewals)
        if self.error is not None:
            raise self.error
        return [self.granted] * len(renewals)


@asynccontextmanager
async def beating(ledger: Any, seconds: float) -> AsyncIterator[Heartbeat]:
    heartbeat = Heartbeat(ledger, seconds=seconds)
    heartbeat.start()
    try:
        yield heartbeat
    finally:
        await asyncio.to_thread(heartbeat.stop)


async def test_a_lease_is_over_here_before_it_is_over_at_the_store(world: World) -> None:
    item = await world.won("a", lease=10.0)
    asked_at = time.monotonic()
    assert Lease(item, seconds=10.0, asked_at=asked_at - 8.9).live
    assert not Lease(item, seconds=10.0, asked_at=asked_at - 9.1).live


async def test_a_renewal_counts_from_when_it_was_sent(world: World) -> None:
    item = await world.won("a", lease=10.0)
    lease = Lease(item, seconds=10.0, asked_at=time.monotonic() - 100)
    lease.extend(time.monotonic() - 9.1)
    assert not lease.live
    lease.extend(time.monotonic())
    assert lease.live


async def test_a_lease_that_was_lost_does_not_come_back(world: World) -> None:
    lease = Lease(await world.won("a"), seconds=10.0, asked_at=time.monotonic())
    lease.lose()
    lease.extend(time.monotonic())
    assert not lease.live


async def test_a_block_ends_before_the_next_renewal_would_be_too_late(world: World) -> None:
    lease = Lease(await world.won("a"), seconds=30.0, asked_at=time.monotonic())
    assert lease.longest_block <= 30.0 * (1 - 1 / 3)


async def test_leases_are_kept_while_the_service_blocks_its_own_loop(tmp_path: Path) -> None:
    async with open_world(tmp_path / "ledger.db") as world, beating(world.ledger, 0.45) as heartbeat:
        asked_at = time.monotonic()
        item = await world.won("a", lease=0.45)
        lease = heartbeat.hold(item, asked_at=asked_at)
        time.sleep(0.8)  # noqa: ASYNC251 - the loop is blocked on purpose
        assert lease.live
        assert (await world.item("a")).free_in > 0


async def test_a_lease_that_was_released_is_renewed_no_more(world: World) -> None:
    ledger = Renewals()
    async with beating(ledger, 0.09) as heartbeat:
        lease = heartbeat.hold(await world.won("a"), asked_at=time.monotonic())
        await until(lambda: ledger.asked)
        heartbeat.release(lease)
        await asyncio.sleep(0.05)  # a beat that is under way ends
        before = len(ledger.asked)
        await asyncio.sleep(0.1)
        assert len(ledger.asked) == before
    assert not lease.live


async def test_all_leases_are_renewed_in_one_call(world: World) -> None:
    ledger = Renewals()
    async with beating(ledger, 0.09) as heartbeat:
        items = [await world.won(key) for key in "abc"]
        for item in items:
            heartbeat.hold(item, asked_at=time.monotonic())
        await until(lambda: any(len(asked) == 3 for asked in ledger.asked))
    assert {renewal.id for renewal in ledger.asked[-1]} == {item.id for item in items}


async def test_a_lease_that_is_refused_is_told_at_once(world: World) -> None:
    ledger = Renewals()
    ledger.granted = False
    told = threading.Event()
    async with beating(ledger, 0.09) as heartbeat:
        lease = heartbeat.hold(await world.won("a"), asked_at=time.monotonic())
        lease.when_lost(told.set)
        assert await asyncio.to_thread(told.wait, 5)
    assert not lease.live


async def test_a_loss_is_told_to_who_asks_after_it(world: World) -> None:
    """The lease was lost between the claim and the call of the handler."""
    lease = Lease(await world.won("a"), seconds=10.0, asked_at=time.monotonic())
    lease.lose()
    told: list[bool] = []
    lease.when_lost(lambda: told.append(True))
    assert told == [True]


@pytest.mark.parametrize("error", [ServiceUnavailable("down"), RuntimeError("a bug, or a driver's own error")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_heart_that_fails_says_so_and_beats_on(world: World, error: Exception) -> None:
    ledger = Renewals()
    ledger.error = error
    async with beating(ledger, 0.09) as heartbeat:
        heartbeat.hold(await world.won("a"), asked_at=time.monotonic())
        await until(lambda: not heartbeat.healthy)
        ledger.error = None
        await until(lambda: heartbeat.healthy)


async def test_a_service_whose_leases_cannot_be_renewed_takes_nothing_new(two: Bench) -> None:
    app, started, go = Service("shop"), [], asyncio.Event()
    down = [True]

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        started.append(event.event_id)
        await go.wait()

    def fails(name: str, arguments: tuple[Any, ...]) -> str | None:
        if name == "renew" and down[0]:
            down.append(True)
            return "before"
        return None

    two.spoil_ledger = lambda real: Unreliable(real, fails)
    async with two.running(app, settings=swift(lease=0.9)):
        await two.send(letter("e1", event_type="Ordered"))
        await until(lambda: len(down) > 1)
        await asyncio.sleep(0.05)
        await two.send(letter("e2", event_type="Ordered"))
        await asyncio.sleep(0.15)
        assert started == ["e1"]
        down[0] = False
        await until(lambda: "e2" in started)
        go.set()
        await two.done(STAGE, "e1")
        await two.done(STAGE, "e2")


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_handler_whose_lease_is_lost_is_stopped_or_refused(bench: Bench, colour: str) -> None:
    app, outcome, runs = Service("shop"), [], []

    async def later(event: Event[Any], ctx: Context) -> None:
        runs.append(ctx.epoch)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            outcome.append("stopped")
            raise

    def now(event: Event[Any], ctx: Any) -> None:
        runs.append(ctx.epoch)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                ctx.emit("Paid")
            except LeaseLost:
                outcome.append("refused")
                return
            time.sleep(0.01)

    app.on("Ordered")(later if colour == "async" else now)
    async with open_world(bench.path / "ledger.db", embedded=bench.embedded, skew=1000.0) as other:
        async with bench.running(app, settings=swift(lease=0.6)) as service:
            await bench.send(letter("e1", event_type="Ordered"))
            await until(lambda: runs)
            service.stopping.asked.set()  # so that it does not take the work again
            if bench.embedded:
                (taken,) = await other.due(STAGE, lease=3600.0)
            else:
                taken = await other.won(
                    "e1", stage=STAGE, id=item_id("", STAGE, "e1"), event_type="Ordered", lease=3600.0
                )
            await until(lambda: outcome)
        item = await bench.there(STAGE, "e1", State.RUNNING)
    assert outcome == ["stopped" if colour == "async" else "refused"]
    assert (item.epoch, item.attempts) == (taken.epoch, 0)


async def test_work_that_has_crashed_a_worker_runs_with_nothing_beside_it(bench: Bench) -> None:
    """Whatever runs beside it would be charged with its crashes."""
    app, inside, beside = Service("shop"), set(), []
    go = asyncio.Event()

    @app.on("Ordered")
    async def handle(event: Event[Any]) -> None:
        inside.add(event.event_id)
        beside.append((event.event_id, frozenset(inside)))
        await (go.wait() if event.event_id == "e2" else asyncio.sleep(0.02))
        inside.discard(event.event_id)

    await bench.declare(app)
    if bench.embedded:
        await bench.send(letter("crashed", event_type="Ordered"))
        await bench.world.due(STAGE, lease=10.0)
    else:
        await bench.world.won("crashed", stage=STAGE, id=item_id("", STAGE, "crashed"), lease=10.0)
        await bench.send(letter("crashed", event_type="Ordered"))
    async with bench.running(app):
        await bench.send(letter("e2", event_type="Ordered"))
        await until(lambda: "e2" in inside)
        bench.raw("UPDATE headway_item SET free_at = mono() WHERE event_id = 'crashed' AND state = 'running'")
        await bench.send(letter("crashed", event_type="Ordered"))
        go.set()
        item = await bench.done(STAGE, "crashed")
    assert item.crashes == 1
    assert ("crashed", frozenset({"crashed"})) in beside
