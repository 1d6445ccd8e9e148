"""A broker in a SQLite file of its own: sessions hold messages, and what a dead session held goes to others."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.adapters.sqlite.broker import SQLiteBroker
from headway.ports.broker import Delivery, Subscription
from tests.world import letter, open_broker

QUEUE = "chunking"
ALIVE = 10.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The broker's file."""
    return tmp_path / "broker.db"


@pytest.fixture
async def broker(path: Path) -> AsyncIterator[SQLiteBroker]:
    """One session, with a queue."""
    async with open_broker(path, alive=ALIVE) as broker:
        await _declare(broker)
        yield broker


async def _declare(broker: SQLiteBroker, service: str = QUEUE, *event_types: str) -> None:
    wanted = [Subscription(name, f"{service}.{name}", service) for name in event_types or ("JSONParsed",)]
    await broker.declare({service: wanted})


async def _publish(broker: SQLiteBroker, *names: str) -> None:
    for name in names:
        await broker.publish(letter(name))


async def _bodies(broker: SQLiteBroker, limit: int = 10, queue: str = QUEUE) -> list[bytes]:
    return [delivery.body for delivery in await broker.receive(queue, limit)]


async def _one(broker: SQLiteBroker) -> Delivery:
    [delivery] = await broker.receive(QUEUE, 1)
    return delivery


async def test_what_is_published_is_received_byte_for_byte(broker: SQLiteBroker) -> None:
    await _publish(broker, "é")
    delivery = await _one(broker)
    assert (delivery.body, delivery.deliveries) == (letter("é").body, 1)


async def test_bytes_that_are_no_text_are_received_as_they_are(broker: SQLiteBroker, path: Path) -> None:
    raw = bytes(range(256))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO headway_message (queue, body, born_date) VALUES (?, ?, 0)", (QUEUE, raw))
    assert await _bodies(broker) == [raw]


async def test_messages_come_in_the_order_in_which_they_were_published(broker: SQLiteBroker) -> None:
    names = ["c", "a", "b"]
    await _publish(broker, *names)
    assert await _bodies(broker) == [letter(name).body for name in names]


async def test_no_more_is_received_than_was_asked_for(broker: SQLiteBroker) -> None:
    await _publish(broker, "a", "b", "c")
    assert [len(await broker.receive(QUEUE, limit)) for limit in (0, 2, 2, 2)] == [0, 2, 1, 0]


async def test_a_negative_limit_receives_nothing(broker: SQLiteBroker) -> None:
    await _publish(broker, "a")
    assert await _bodies(broker, limit=-1) == []


async def test_what_a_living_session_holds_is_given_to_nobody_else(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await _one(broker)
    async with open_broker(path) as other:
        assert await _bodies(other) == []


async def test_what_was_acknowledged_never_comes_again(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await broker.acknowledge(await _one(broker))
    async with open_broker(path, skew=ALIVE + 1) as other:
        assert (await _bodies(other), await other.depths()) == ([], {})


async def test_what_a_closed_session_held_goes_to_others_at_once(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    async with open_broker(path) as other:
        await _one(other)
    assert (await _one(broker)).deliveries == 2


async def test_what_a_silent_session_held_goes_to_others_after_its_time(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await _one(broker)
    async with open_broker(path, skew=ALIVE + 1) as other:
        assert (await _one(other)).deliveries == 2


async def test_a_session_lives_as_long_as_it_says(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await _one(broker)
    async with open_broker(path, skew=ALIVE - 4) as other:
        assert await _bodies(other) == []


async def test_receiving_nothing_keeps_a_session_alive(path: Path) -> None:
    async with open_broker(path, alive=0.6) as broker, open_broker(path) as other:
        await _declare(broker)
        await _publish(broker, "a")
        await _one(broker)
        broker._store.skew = other._store.skew = 0.5
        broker._alive_since -= 0.5
        await broker.receive(QUEUE, 0)
        broker._store.skew = other._store.skew = 0.8
        assert await _bodies(other) == []


async def test_an_acknowledgement_after_the_redelivery_to_somebody_else_changes_nothing(
    broker: SQLiteBroker, path: Path
) -> None:
    await _publish(broker, "a")
    late = await _one(broker)
    async with open_broker(path, skew=ALIVE + 1) as other:
        theirs = await _one(other)
        await broker.acknowledge(late)
        assert await other.depths() == {QUEUE: 1}
        await other.acknowledge(theirs)
        assert await other.depths() == {}


async def test_a_give_back_after_the_redelivery_to_somebody_else_changes_nothing(
    broker: SQLiteBroker, path: Path
) -> None:
    await _publish(broker, "a")
    late = await _one(broker)
    async with open_broker(path, skew=ALIVE + 1) as other, open_broker(path, skew=ALIVE + 1) as third:
        await _one(other)
        await broker.give_back(late)
        assert await _bodies(third) == []


async def test_an_old_delivery_of_what_came_back_to_the_same_session_changes_nothing(broker: SQLiteBroker) -> None:
    await _publish(broker, "a")
    first = await _one(broker)
    await broker.give_back(first)
    await _one(broker)
    await broker.acknowledge(first)
    await broker.give_back(first)
    assert (await _bodies(broker), await broker.depths()) == ([], {QUEUE: 1})


async def test_what_is_given_back_goes_to_others_at_once(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await broker.give_back(await _one(broker))
    async with open_broker(path) as other:
        assert (await _one(other)).deliveries == 2


async def test_only_the_session_that_holds_a_message_can_let_it_go(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    delivery = await _one(broker)
    async with open_broker(path) as other:
        await other.acknowledge(delivery)
        await other.give_back(delivery)
        assert (await other.depths(), await _bodies(other)) == ({QUEUE: 1}, [])


async def test_a_session_that_ends_takes_no_other_with_it(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await _one(broker)
    async with open_broker(path) as other:
        await other.receive(QUEUE, 1)
    async with open_broker(path) as third:
        assert await _bodies(third) == []


async def test_acknowledging_twice_is_harmless(broker: SQLiteBroker) -> None:
    await _publish(broker, "a", "b")
    delivery = await _one(broker)
    await broker.acknowledge(delivery)
    await broker.acknowledge(delivery)
    assert await broker.depths() == {QUEUE: 1}


async def test_each_service_gets_its_own_copy(broker: SQLiteBroker) -> None:
    await _declare(broker, "search")
    await _publish(broker, "a")
    await broker.acknowledge(await _one(broker))
    assert await _bodies(broker, queue="search") == [letter("a").body]


async def test_a_service_with_two_stages_for_an_event_gets_one_message(broker: SQLiteBroker) -> None:
    wanted = [Subscription("JSONParsed", stage, QUEUE) for stage in ("one", "two")]
    await broker.declare({QUEUE: wanted})
    await _publish(broker, "a")
    assert len(await _bodies(broker)) == 1


async def test_a_service_gets_only_the_events_that_it_declared(broker: SQLiteBroker) -> None:
    await broker.publish(letter("a", event_type="Other"))
    assert (await _bodies(broker), await broker.unrouted()) == ([], 1)


async def test_an_event_for_nobody_is_delivered_when_somebody_declares(broker: SQLiteBroker) -> None:
    await broker.publish(letter("a", event_type="Other"))
    await _declare(broker, "search", "Other")
    assert (await broker.unrouted(), len(await _bodies(broker, queue="search"))) == (0, 1)


async def test_a_service_that_is_declared_later_gets_nothing_of_what_others_took(broker: SQLiteBroker) -> None:
    await _publish(broker, "a")
    await _declare(broker, "search")
    assert await _bodies(broker, queue="search") == []


async def test_an_older_worker_that_starts_takes_no_subscription_away(broker: SQLiteBroker) -> None:
    await _publish(broker, "a")
    await _declare(broker, QUEUE, "Other")
    await _publish(broker, "b")
    assert await _bodies(broker) == [letter("a").body, letter("b").body]


async def test_after_a_restart_of_the_host_no_session_is_alive(broker: SQLiteBroker, path: Path) -> None:
    await _publish(broker, "a")
    await _one(broker)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE headway_meta SET value = 'a boot before this one' WHERE name = 'boot'")
    async with open_broker(path) as other:
        assert len(await _bodies(other)) == 1


async def test_closing_twice_is_harmless(path: Path) -> None:
    async with open_broker(path) as broker:
        await broker.close()
