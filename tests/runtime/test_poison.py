"""What is no event, or nobody's: kept as it came, in front of a person, and never in a loop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway import Event, Service
from headway.core.settlements import Discard, Redrive
from headway.core.states import State
from tests.runtime.bench import Bench, swift, until
from tests.world import letter


def shop(*, key: str | None = None, handles: str = "Ordered") -> tuple[Service, list[Any]]:
    app, seen = Service("shop"), []

    @app.on(handles, key=key)
    async def handle(event: Event[Any]) -> None:
        seen.append(event.event_id)

    return app, seen


def event(**changes: Any) -> bytes:
    return json.dumps({"event_id": "x", "event_type": "Ordered", "data": {}, **changes}).encode()


GARBAGE = {
    "not utf-8": b'{"event_id": "x", "event_type": "Ordered", "data": "\xff\xfe"}',
    "bytes": bytes(range(256)),
    "nothing": b"",
    "half": b'{"event_id": "x", "event_ty',
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "no type": b'{"event_id": "x", "data": {}}',
    "no id": b'{"event_type": "Ordered", "data": {}}',
    "no data": b'{"event_type": "Ordered", "event_id": "x"}',
    "an empty type": event(event_type=""),
    "an empty id": event(event_id=""),
    "a long id": event(event_id="x" * 1000),
    "a number as id": event(event_id=7),
    "half a surrogate": b'{"event_id": "\\ud800", "event_type": "Ordered", "data": {}}',
    "bad headers": event(headers={"a": 1}),
    "no date": event(headers={"not_after": "tomorrow"}),
    "a later format": event(format=99),
    "deep": b'{"event_id": "x", "event_type": "Ordered", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "ten megabytes": b"\x00\xff" * 5_000_000,
    "a huge number": b'{"event_id": "x", "event_type": "Ordered", "data": 1e999}',
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_bytes_that_are_no_event_are_quarantined_as_they_came(two: Bench, name: str) -> None:
    app, seen = shop()
    await two.declare(app)
    await two.deliver(app, GARBAGE[name])
    async with two.running(app):
        await two.send(letter("good", event_type="Ordered"))
        await two.done("shop.Ordered", "good")
        (item,) = await two.quarantined("shop")
        await two.drained()
    assert (item.reason, item.body, item.deliveries) == ("poison", GARBAGE[name], 1)
    assert (await two.history(item, "dead letter"))[0].note
    assert seen == ["good"]


@pytest.mark.parametrize("name", GARBAGE)
async def test_an_item_with_such_bytes_is_dead_with_them(one: Bench, name: str) -> None:
    app, seen = shop()
    await one.declare(app)
    await one.deliver(app, GARBAGE[name])
    async with one.running(app):
        await one.send(letter("good", event_type="Ordered"))
        await one.done("shop.Ordered", "good")
        item = await one.dead("shop.Ordered", "blank")
    assert (item.reason, item.body) == ("poison", GARBAGE[name])
    assert seen == ["good"]


DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]


async def test_data_too_deep_for_a_key_is_a_letter_and_does_not_come_back(two: Bench) -> None:
    app, seen = shop(key="{id}")
    await two.declare(app)
    await two.deliver(app, event(data={"id": 1, "deep": DEEP}))
    async with two.running(app):
        (item,) = await two.quarantined("shop")
        await two.drained()
    assert (item.reason, seen) == ("non_retryable", [])


async def test_data_too_deep_for_a_key_does_not_stop_its_sender(one: Bench) -> None:
    app, _ = shop(key="{id}")
    await one.declare(app)
    await one.send(letter("e1", event_type="Ordered", data={"id": 1, "deep": DEEP}))
    assert [item.reason for item in await one.items()] == ["non_retryable"]


async def test_the_same_garbage_twice_is_one_letter(two: Bench) -> None:
    app, _ = shop()
    await two.declare(app)
    for _ in range(3):
        await two.deliver(app, b"garbage")
    async with two.running(app, settings=swift(lease=0.5)):
        await two.drained()
        items = await two.quarantined("shop")
    assert [item.body for item in items] == [b"garbage"]


async def test_an_event_that_nobody_here_handles_is_quarantined(two: Bench) -> None:
    app, _ = shop()
    await two.declare(app)
    await two.deliver(app, event(event_type="Strange"))
    async with two.running(app):
        (item,) = await two.quarantined("shop")
        await two.drained()
    assert (item.reason, item.body) == ("no_handler", event(event_type="Strange"))
    note = (await two.history(item, "dead letter"))[0].note
    assert "Strange" in note
    assert "Ordered" in note


async def stranger(two: Bench) -> None:
    """Leave a quarantined event of a type that the service did not handle."""
    app, _ = shop()
    await two.deliver(app, event(event_type="Strange", event_id="s1"))
    async with two.running(app):
        await two.quarantined("shop")


async def test_a_requeued_letter_goes_out_once_its_handler_exists(two: Bench) -> None:
    await stranger(two)
    app, seen = shop(handles="Strange")
    async with two.running(app):
        (item,) = await two.quarantined("shop")
        await two.world.settle(item, Redrive(reason="deployed"))
        await two.done("shop.Strange", "s1")
        (released,) = await two.quarantined("shop", state=State.DONE)
        await two.drained()
    assert seen == ["s1"]
    assert released.outcome == b'"released as event s1"'


async def test_a_requeued_letter_that_is_still_nobodys_is_dead_again(two: Bench) -> None:
    await stranger(two)
    app, _ = shop()
    async with two.running(app):
        (item,) = await two.quarantined("shop")
        await two.world.settle(item, Redrive(reason="try"))

        async def again() -> Any:
            (now,) = await two.items(stage=item.stage)
            return now if (now.state, now.round) == (State.DEAD, 2) else None

        now = await until(again)
    assert (now.reason, now.body) == ("no_handler", item.body)


async def test_requeued_garbage_is_dead_again(two: Bench) -> None:
    app, _ = shop()
    await two.declare(app)
    await two.deliver(app, b"garbage")
    async with two.running(app):
        (item,) = await two.quarantined("shop")
        await two.world.settle(item, Redrive(reason="try"))

        async def again() -> Any:
            (now,) = await two.items(stage=item.stage)
            return now if (now.state, now.round) == (State.DEAD, 2) else None

        now = await until(again)
    assert (now.reason, now.body) == ("poison", b"garbage")


async def test_a_requeued_letter_whose_key_still_does_not_fit_is_dead_again(bench: Bench) -> None:
    app, seen = shop(key="{id}")
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", data={}))
        (item,) = await bench.quarantined("shop")
        await bench.world.settle(item, Redrive(reason="try"))

        async def again() -> Any:
            (now,) = await bench.items(stage=item.stage)
            return now if (now.state, now.round) == (State.DEAD, 2) else None

        now = await until(again)
    assert (now.reason, seen) == ("non_retryable", [])


async def test_a_requeued_letter_of_a_mended_stage_is_handled(bench: Bench) -> None:
    """Its key could not be made; the deployed stage makes none, so its event goes out."""
    app, _ = shop(key="{id}")
    async with bench.running(app):
        await bench.send(letter("e1", event_type="Ordered", data={}))
        await bench.quarantined("shop")
    mended, seen = shop()
    async with bench.running(mended):
        (item,) = await bench.quarantined("shop")
        await bench.world.settle(item, Redrive(reason="mended"))
        await bench.done("shop.Ordered", "e1")
        await bench.drained()
    assert seen == ["e1"]


async def test_a_letter_that_was_released_and_is_back_is_not_lost(two: Bench) -> None:
    """Released by one version of a service, refused again by another: it is in front of a person again."""
    await stranger(two)
    knows, _ = shop(handles="Strange")
    async with two.running(knows):
        (item,) = await two.quarantined("shop")
        await two.world.settle(item, Redrive(reason="deployed"))
        await two.done("shop.Strange", "s1")
    older, _ = shop()
    await two.deliver(older, event(event_type="Strange", event_id="s1"))
    async with two.running(older):
        (back,) = await two.quarantined("shop")
        await two.drained()
    assert (back.id, back.round) == (item.id, 3)
    assert back.body == item.body


async def test_garbage_that_a_person_discarded_stays_discarded(two: Bench) -> None:
    app, _ = shop()
    await two.declare(app)
    await two.deliver(app, b"garbage")
    async with two.running(app):
        (item,) = await two.quarantined("shop")
        await two.world.settle(item, Discard(reason="useless"))
        await two.deliver(app, b"garbage")
        await two.drained()
    assert [found.state for found in await two.items()] == [State.DISCARDED]
