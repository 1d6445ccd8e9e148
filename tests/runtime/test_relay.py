"""The outbox relay: one leader, order within an order key, and refusals that hold up nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headway import Context, Event, Service
from headway.core.settlements import Done
from headway.errors import ServiceUnavailable
from tests.runtime.bench import Bench, Unreliable, swift, until
from tests.world import letter

reader = Service("reader")
reader.on("Line")(lambda event: None)


class Refusing:
    """A broker that refuses some letters."""

    def __init__(self, real: Any, refuses: Callable[[dict[str, Any]], bool], error: Exception) -> None:
        self._real = real
        self._refuses = refuses
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def publish(self, out: Any) -> None:
        if self._refuses(json.loads(out.body)["data"]):
            raise self._error
        await self._real.publish(out)


async def commit(two: Bench, *lines: tuple[str | None, int]) -> None:
    """Commit events of these order keys and numbers to the outbox, as a success does."""
    item = await two.world.won(f"cause-{lines}")
    emits = tuple(
        letter(f"{key}-{n}", event_type="Line", data={"key": key, "n": n}, **({"order_key": key} if key else {}))
        for key, n in lines
    )
    await two.world.settle(item, Done(emits=emits))


def arrived(two: Bench) -> list[tuple[str | None, int]]:
    rows = two.raw("SELECT body FROM headway_message WHERE queue = 'reader' ORDER BY id", file="broker.db")
    return [(data["key"], data["n"]) for data in (json.loads(body)["data"] for (body,) in rows)]


def nobody() -> Service:
    """A service that does nothing but relay."""
    app = Service("relaying")
    app.on("Nothing")(lambda event: None)
    return app


async def test_what_was_committed_is_published_and_forgotten(two: Bench) -> None:
    await two.declare(reader)
    await commit(two, ("a", 1), (None, 2), ("a", 3))
    async with two.running(nobody()):
        await until(lambda: not two.outbox())
    assert sorted(arrived(two), key=lambda line: line[1]) == [("a", 1), (None, 2), ("a", 3)]


@pytest.mark.parametrize("error", [ServiceUnavailable("too big"), ValueError("the driver says no")])
async def test_a_refused_event_holds_up_only_its_own_order_key(two: Bench, error: Exception) -> None:
    await two.declare(reader)
    refuses = [True]
    two.spoil_broker = lambda real: Refusing(real, lambda data: refuses[0] and data == {"key": "a", "n": 2}, error)
    await commit(two, ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), (None, 1))
    async with two.running(nobody()):
        await until(lambda: len(arrived(two)) == 4)
        await until(lambda: two.raw("SELECT tries FROM headway_outbox WHERE event_id = 'a-2'")[0][0] >= 1)
        assert sorted(arrived(two), key=str) == sorted([("a", 1), ("b", 1), ("b", 2), (None, 1)], key=str)
        await until(lambda: len(two.outbox()) == 2)
        assert str(error) in ((await two.world.ledger.pending()).last_error or "")
        refuses[0] = False
        await until(lambda: not two.outbox())
    assert [line for line in arrived(two) if line[0] == "a"] == [("a", 1), ("a", 2), ("a", 3)]
    assert [line for line in arrived(two) if line[0] == "b"] == [("b", 1), ("b", 2)]


async def test_a_refused_event_is_tried_again_at_growing_intervals(two: Bench) -> None:
    await two.declare(reader)
    two.spoil_broker = lambda real: Refusing(real, lambda data: True, ValueError("no"))
    await commit(two, ("a", 1))
    waits = []
    async with two.running(nobody()):
        for n in range(1, 5):
            await until(lambda n=n: two.raw("SELECT tries FROM headway_outbox")[0][0] == n)  # type: ignore[misc]
            ((left,),) = two.raw("SELECT free_at - mono() FROM headway_outbox")
            waits.append(left)
            two.world.pass_time(left + 0.01)
    assert waits == pytest.approx([0.25, 0.5, 1.0, 2.0], abs=0.2)


async def test_nothing_is_lost_while_the_broker_is_down(two: Bench) -> None:
    await two.declare(reader)
    down = [True]

    def fails(name: str, _: tuple[Any, ...]) -> str | None:
        return "before" if down[0] and name in {"publish", "receive"} else None

    two.spoil_broker = lambda real: Unreliable(real, fails)
    await commit(two, *[("a", n) for n in range(5)], *[("b", n) for n in range(5)])
    async with two.running(nobody()):
        await until(lambda: two.raw("SELECT max(tries) FROM headway_outbox")[0][0] >= 1)
        assert arrived(two) == []
        down[0] = False
        await until(lambda: not two.outbox())
    for key in "ab":
        assert [line for line in arrived(two) if line[0] == key] == [(key, n) for n in range(5)]


async def test_an_event_whose_publication_is_not_noted_goes_out_again_under_the_same_id(two: Bench) -> None:
    await two.declare(reader)
    left = ["before"]

    def fails(name: str, _: tuple[Any, ...]) -> str | None:
        return left.pop() if name == "sent" and left else None

    two.spoil_ledger = lambda real: Unreliable(real, fails)
    await commit(two, ("a", 1))
    async with two.running(nobody()):
        await until(lambda: not two.outbox())
    rows = two.raw("SELECT body FROM headway_message WHERE queue = 'reader' ORDER BY id", file="broker.db")
    assert [json.loads(body)["event_id"] for (body,) in rows] == ["a-1", "a-1"]


async def test_of_two_relays_one_leads(two: Bench) -> None:
    await two.declare(reader)
    publishing: set[str] = set()
    both: list[set[str]] = []

    def watch(name: str) -> Callable[[Any], Any]:
        def fails(method: str, _: tuple[Any, ...]) -> None:
            if method == "publish":
                publishing.add(name)
                both.append(set(publishing))

        return lambda real: Unreliable(real, fails)

    async with AsyncExitStack() as stack:
        for name in ("one", "other"):
            two.spoil_broker = watch(name)
            await stack.enter_async_context(two.running(nobody()))
        for n in range(10):
            await commit(two, ("a", n))
            await asyncio.sleep(0.01)
        await until(lambda: not two.outbox())
    assert arrived(two) == [("a", n) for n in range(10)]
    assert len(both[-1]) == 1


async def test_another_relay_takes_over_when_the_leader_steps_down(two: Bench) -> None:
    """Nobody waits for the rest of a lease that was handed back."""
    await two.declare(reader)
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(two.running(nobody(), settings=swift(lease=60.0)))
        await commit(two, ("a", 1))
        await until(lambda: not two.outbox())
        await stack.enter_async_context(two.running(nobody(), settings=swift(lease=60.0)))
        await asyncio.sleep(0.1)  # it has asked by now, and stands by
        await leader.stop()
        await commit(two, ("a", 2))
        await until(lambda: not two.outbox())
    assert arrived(two) == [("a", 1), ("a", 2)]


async def test_a_leader_whose_claim_was_not_answered_leads_soon(two: Bench) -> None:
    """It holds the lease without knowing; it must not wait for its own lease to run out."""
    await two.declare(reader)
    left = ["after"]

    def fails(name: str, arguments: tuple[Any, ...]) -> str | None:
        return left.pop() if name == "claim" and arguments[0].stage == "headway.relay" and left else None

    two.spoil_ledger = lambda real: Unreliable(real, fails)
    await commit(two, ("a", 1))
    async with two.running(nobody(), settings=swift(lease=60.0)):
        await until(lambda: not two.outbox())


async def test_events_of_a_success_during_the_stop_go_out_with_the_next_start(two: Bench) -> None:
    await two.declare(reader)
    app, started = Service("shop"), asyncio.Event()

    @app.on("Ordered")
    async def handle(event: Event[Any], ctx: Context) -> None:
        started.set()
        await asyncio.sleep(0.05)
        ctx.emit("Line", {"key": None, "n": 1})

    async with two.running(app) as service:
        await two.send(letter("e1", event_type="Ordered"))
        await asyncio.wait_for(started.wait(), 10)
        await service.stop()
    assert (await two.done("shop.Ordered", "e1")).successes == 1
    async with two.running(nobody()):
        await until(lambda: not two.outbox())
    assert arrived(two) == [(None, 1)]
