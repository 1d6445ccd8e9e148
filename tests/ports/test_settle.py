"""A settle is atomic, fenced, and safe to repeat."""

from __future__ import annotations

from headway.core.settlements import Done, GiveBack, Lost, Settled
from headway.core.states import State
from tests.world import World


async def test_a_settle_whose_answer_was_lost_is_told_what_it_did(world: World) -> None:
    seen = await world.won("a")
    first = await world.settle(seen, Done(value=b"1"), token="once")
    again = await world.settle(seen, Done(value=b"1"), token="once")
    assert isinstance(first, Settled)
    assert not first.again
    assert again == Settled(State.DONE, first.epoch, again=True)
    assert (await world.item("a")).successes == 1


async def test_a_settle_of_somebody_else_from_the_same_sight_is_lost(world: World) -> None:
    seen = await world.won("a")
    await world.settle(seen, Done(value=b"1"), token="mine")
    other = await world.settle(seen, Done(value=b"2"), token="theirs")
    assert isinstance(other, Lost)
    assert (await world.item("a")).outcome == b"1"


async def test_a_token_says_nothing_of_other_work(world: World) -> None:
    for key in ("a", "b"):
        await world.settle(await world.won(key), GiveBack())
    first, second = await world.due()
    await world.settle(first, Done(), token="same")
    await world.settle(second, Done(), token="theirs")
    assert isinstance(await world.settle(second, Done(), token="same"), Lost)


async def test_a_token_says_nothing_of_another_move_of_the_same_work(world: World) -> None:
    first = await world.won("a")
    await world.settle(first, GiveBack(), token="same")
    [second] = await world.due()
    await world.settle(second, Done(), token="theirs")
    assert isinstance(await world.settle(second, Done(), token="same"), Lost)
