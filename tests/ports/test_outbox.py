"""The outbox of a ledger beside a broker: what was committed goes out, in order within an order key, and only that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.core.decide import Reason
from headway.core.event import Letter
from headway.core.settlements import DeadLetter, Done, Lost, Retry
from headway.errors import ConfigError
from headway.ports.ledger import OutboxRow
from tests.ports.situations import KEY, LEASE, accepted
from tests.world import World, letter, open_world


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[World]:
    """A ledger beside a broker."""
    async with open_world(tmp_path / "ledger.db", embedded=False) as world:
        yield world


def _out(name: str, order_key: str | None = None) -> Letter:
    return letter(name) if order_key is None else letter(name, order_key=order_key)


async def _send(world: World, *letters: Letter) -> None:
    await accepted(world, await world.won(f"sends {letters[0].event_id}"), Done(emits=letters))


async def _heads(world: World, limit: int = 100) -> dict[str, OutboxRow]:
    return {row.letter.event_id: row for row in await world.ledger.heads(limit)}


async def test_an_accepted_settle_sends_its_events(beside: World) -> None:
    sent = letter("out", order_key="o")
    await _send(beside, sent)
    [row] = await beside.ledger.heads(10)
    assert (row.letter, row.tries) == (sent, 0)


async def test_a_lost_settle_sends_nothing(beside: World) -> None:
    item = await beside.won(KEY)
    await accepted(beside, item, Retry(delay=LEASE))
    assert isinstance(await beside.settle(item, Done(emits=(letter("out"),))), Lost)
    assert (await _heads(beside), (await beside.ledger.pending()).pending) == ({}, 0)


async def test_a_settle_that_is_repeated_sends_once(beside: World) -> None:
    item = await beside.won(KEY)
    for _ in range(2):
        await beside.settle(item, Done(emits=(letter("out"),)), token="once")
    assert (await beside.ledger.pending()).pending == 1


async def test_a_dead_letter_sends_its_events(beside: World) -> None:
    await accepted(beside, await beside.won(KEY), DeadLetter(reason=Reason.POISON, emits=(letter("failed"),)))
    assert [*await _heads(beside)] == ["failed"]


async def test_only_the_first_of_an_order_key_is_a_head(beside: World) -> None:
    await _send(beside, _out("a1", "a"), _out("a2", "a"), _out("b1", "b"), _out("b2", "b"))
    assert [*await _heads(beside)] == ["a1", "b1"]


async def test_everything_without_an_order_key_is_a_head(beside: World) -> None:
    await _send(beside, _out("x"), _out("y"), _out("z"))
    assert [*await _heads(beside)] == ["x", "y", "z"]


async def test_the_next_of_an_order_key_follows_when_the_first_is_sent(beside: World) -> None:
    await _send(beside, _out("a1", "a"), _out("a2", "a"))
    await beside.ledger.sent([(await _heads(beside))["a1"].id])
    assert [*await _heads(beside)] == ["a2"]


async def test_the_order_within_a_key_is_that_of_the_commits(beside: World) -> None:
    for name in ("third", "first", "second"):
        await _send(beside, _out(name, "a"))
    order = []
    while heads := await _heads(beside):
        order += [*heads]
        await beside.ledger.sent([row.id for row in heads.values()])
    assert order == ["third", "first", "second"]


async def test_heads_are_as_many_as_were_asked_for(beside: World) -> None:
    await _send(beside, _out("x"), _out("y"), _out("z"))
    assert [*await _heads(beside, limit=2)] == ["x", "y"]


async def test_a_refused_event_blocks_only_its_own_order_key(beside: World) -> None:
    await _send(beside, _out("a1", "a"), _out("a2", "a"), _out("b1", "b"), _out("x"))
    await beside.ledger.refused((await _heads(beside))["a1"].id, error="no such queue", delay=60.0)
    assert [*await _heads(beside)] == ["b1", "x"]


async def test_a_refused_event_comes_back_after_its_delay(beside: World) -> None:
    await _send(beside, _out("a1", "a"), _out("a2", "a"))
    await beside.ledger.refused((await _heads(beside))["a1"].id, error="no such queue", delay=60.0)
    beside.pass_time(59)
    early = await _heads(beside)
    beside.pass_time(2)
    heads = await _heads(beside)
    assert (early, [*heads], heads["a1"].tries) == ({}, ["a1"], 1)


async def test_what_is_sent_is_forgotten(beside: World) -> None:
    await _send(beside, _out("x"), _out("y"))
    await beside.ledger.sent([row.id for row in (await _heads(beside)).values()])
    state = await beside.ledger.pending()
    assert (await _heads(beside), state.pending, state.oldest_at) == ({}, 0, None)


async def test_forgetting_twice_is_harmless(beside: World) -> None:
    await _send(beside, _out("x"), _out("y"))
    first = (await _heads(beside))["x"].id
    await beside.ledger.sent([first])
    await beside.ledger.sent([first])
    assert [*await _heads(beside)] == ["y"]


async def test_forgetting_nothing_is_harmless(beside: World) -> None:
    await _send(beside, _out("x"))
    await beside.ledger.sent([])
    assert [*await _heads(beside)] == ["x"]


async def test_what_is_pending_is_told_with_the_last_refusal(beside: World) -> None:
    await _send(beside, _out("x"), _out("y"))
    await beside.ledger.refused((await _heads(beside))["x"].id, error="no such queue", delay=60.0)
    state = await beside.ledger.pending()
    assert (state.pending, state.last_error) == (2, "no such queue")
    assert state.oldest_at == pytest.approx(beside.store.wall(), abs=20)


async def test_a_ledger_beside_a_broker_is_no_broker(beside: World) -> None:
    with pytest.raises(ConfigError):
        await beside.ledger.publish(letter())
