"""Unsafe effects: one that is left open ends in doubt, and nothing runs on before somebody has said what happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core import claims
from headway.core.decide import Doubt as InDoubt
from headway.core.decide import History, decide
from headway.core.item import Effect, Item
from headway.core.policy import RetryPolicy
from headway.core.settlements import Done, Doubt, GiveBack, Redrive, Reprocess, Resolve, Retry
from headway.core.states import Carrier, State
from headway.errors import IllegalMove
from headway.ports.ledger import Renewal
from tests.ports.situations import KEY, LEASE, SITUATIONS, accepted, attempt
from tests.world import World

OPEN = Effect(unsafe=True)
HAPPENED = Effect(unsafe=True, happened=True, value="receipt")
DID_NOT = Effect(unsafe=True, happened=False)


async def _note(world: World, item: Item, **effects: Effect) -> Item:
    """Note effects of running work, as its worker does; the item as the worker then knows it."""
    noted = await world.ledger.renew([Renewal(id=item.id, epoch=item.epoch, lease=LEASE, effects=effects)])
    assert list(noted) == [True]
    return replace(item, effects=effects)


async def test_an_effect_is_durable_before_it_is_tried(world: World) -> None:
    item = await _note(world, await world.won(KEY), charge=OPEN)
    assert (await world.item(KEY)).effects == item.effects
    assert (await world.item(KEY)).open_effects == ("charge",)


async def test_an_effect_that_a_crash_left_open_comes_with_the_takeover(world: World) -> None:
    await _note(world, await world.won(KEY), charge=OPEN, mail=HAPPENED)
    world.pass_time(LEASE + 1)
    taken = await world.won(KEY)
    assert (taken.open_effects, taken.effects["mail"]) == (("charge",), HAPPENED)


async def test_taken_over_work_with_an_open_effect_is_in_doubt_before_it_runs(world: World) -> None:
    await _note(world, await world.won(KEY), charge=OPEN)
    world.pass_time(LEASE + 1)
    taken = await world.won(KEY)
    history = History(key=taken.id, open_effects=taken.open_effects)
    assert decide(RetryPolicy(), None, history, 0.0) == InDoubt(("charge",))


async def test_doubt_is_recorded_with_its_attempt_and_its_effects(world: World) -> None:
    await SITUATIONS["in doubt"](world)
    item = await world.item(KEY)
    [doubt] = [record for record in await world.ledger.history(item.id) if record.what == "Doubt"]
    assert (doubt.note, item.attempts, item.carrier) == ("charge", 1, Carrier.LEDGER)


async def test_nobody_takes_what_is_in_doubt(world: World) -> None:
    await SITUATIONS["in doubt"](world)
    world.pass_time(10 * LEASE)
    assert (await world.due(), type(await world.claim(KEY))) == ([], claims.InDoubt)


@pytest.mark.parametrize(
    ("resolve", "effect"),
    [
        (Resolve(reason="seen at the bank", happened={"charge": "receipt"}), HAPPENED),
        (Resolve(reason="seen at the bank", happened={"charge": None}), Effect(unsafe=True, happened=True)),
        (Resolve(reason="not at the bank"), DID_NOT),
    ],
    ids=["happened", "happened and returned nothing", "did not"],
)
async def test_resolved_work_runs_on_in_its_round_with_the_answer(
    world: World, resolve: Resolve, effect: Effect
) -> None:
    await SITUATIONS["in doubt"](world)
    await accepted(world, await world.item(KEY), resolve)
    [item] = await world.due()
    assert (item.effects, item.round, item.attempts) == ({"charge": effect}, 1, 1)
    await accepted(world, item, Done(value=b"1"))
    assert (await world.item(KEY)).state is State.DONE


async def test_each_of_several_effects_gets_its_own_answer(world: World) -> None:
    item = await _note(world, await world.won(KEY), charge=OPEN, mail=OPEN, call=HAPPENED)
    await accepted(world, item, Doubt())
    await accepted(world, await world.item(KEY), Resolve(reason="seen", happened={"mail": "id-1"}))
    effects = (await world.item(KEY)).effects
    assert effects == {"charge": DID_NOT, "mail": replace(HAPPENED, value="id-1"), "call": HAPPENED}


async def test_a_resolve_to_done_has_its_value_and_no_second_run(world: World) -> None:
    await SITUATIONS["in doubt"](world)
    done = Resolve(reason="all of it happened", happened={"charge": "r"}, to=State.DONE, value=b"9")
    await accepted(world, await world.item(KEY), done)
    item = await world.item(KEY)
    assert (item.outcome, item.successes, await world.due()) == (b"9", 1, [])


async def test_a_resolve_to_dead_leaves_a_dead_letter_that_can_be_redriven(world: World) -> None:
    await SITUATIONS["in doubt"](world)
    await accepted(world, await world.item(KEY), Resolve(reason="too late", to=State.DEAD))
    item = await world.item(KEY)
    [dead] = [record for record in await world.ledger.history(item.id) if record.what == "dead letter"]
    await accepted(world, item, Redrive(reason="after all"))
    assert (dead.details["reason"], dead.note, len(await world.due())) == ("manual", "too late", 1)


async def test_a_resolve_of_an_effect_that_nobody_began_is_refused(world: World) -> None:
    await SITUATIONS["in doubt"](world)
    before = await world.item(KEY)
    with pytest.raises(ValueError, match="refund"):
        await world.settle(before, Resolve(reason="?", happened={"refund": "x"}))
    assert (await world.item(KEY)).epoch == before.epoch


@pytest.mark.parametrize("to", [State.RUNNING, State.DISCARDED, State.IN_DOUBT])
async def test_doubt_ends_only_where_the_table_says(world: World, to: State) -> None:
    await SITUATIONS["in doubt"](world)
    with pytest.raises(IllegalMove):
        await world.settle(await world.item(KEY), Resolve(reason="?", to=to))


async def test_effects_are_known_in_the_rounds_after(world: World) -> None:
    item = await _note(world, await world.won(KEY), charge=HAPPENED)
    await accepted(world, item, Done())
    await accepted(world, await world.item(KEY), Reprocess(reason="again", body=b"x"))
    [again] = await world.due()
    assert (again.round, again.effects) == (2, {"charge": HAPPENED})


@pytest.mark.parametrize("settlement", [Retry(delay=0.0, attempt=attempt(1)), GiveBack()])
async def test_effects_are_known_after_a_wait(world: World, settlement: Retry | GiveBack) -> None:
    item = await _note(world, await world.won(KEY), charge=HAPPENED)
    await accepted(world, item, settlement)
    [again] = await world.due()
    assert again.effects == {"charge": HAPPENED}
