"""Claims: a lost answer is asked for again, and a key that is known with another payload changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core import claims
from headway.core.item import Item
from headway.core.settlements import Done, Retry
from headway.core.states import Carrier
from tests.ports.situations import KEY, SITUATIONS, STATES, accepted
from tests.world import World, wanted


def _still(item: Item) -> Item:
    return replace(item, free_in=0.0, elapsed=0.0)


@pytest.mark.parametrize("carrier", [Carrier.CALLER, Carrier.BROKER, Carrier.LEADER])
async def test_a_claim_that_is_repeated_by_its_holder_is_won_again(world: World, carrier: Carrier) -> None:
    asked = wanted(KEY, carrier=carrier)
    first = await world.ledger.claim(asked)
    again = await world.ledger.claim(asked)
    assert isinstance(first, claims.Won)
    assert isinstance(again, claims.Won)
    assert again.item.epoch == first.item.epoch


async def test_a_claim_that_is_repeated_by_its_holder_counts_one_delivery(world: World) -> None:
    asked = wanted(KEY)
    await world.ledger.claim(asked)
    await world.ledger.claim(asked)
    assert (await world.item(KEY)).deliveries == 1


async def test_a_repeated_takeover_is_one_crash(world: World) -> None:
    await SITUATIONS["ran out, broker"](world)
    asked = wanted(KEY)
    first = await world.ledger.claim(asked)
    again = await world.ledger.claim(asked)
    assert (first.item.crashes, again.item.crashes, again.item.epoch) == (1, 1, first.item.epoch)


async def test_a_claim_that_is_repeated_after_its_settle_is_told_what_came_of_it(world: World) -> None:
    asked = wanted(KEY)
    won = await world.ledger.claim(asked)
    await accepted(world, won.item, Done())
    assert isinstance(await world.ledger.claim(asked), claims.Done)


async def test_a_claim_of_another_holder_is_not_won(world: World) -> None:
    await world.won(KEY)
    assert isinstance(await world.claim(KEY), claims.Busy)


async def test_every_move_has_an_epoch_larger_than_all_before(world: World) -> None:
    epochs = []
    for key in ("a", "b"):
        item = await world.won(key)
        epochs.append(item.epoch)
        await accepted(world, item, Retry(delay=0.0))
        epochs.append((await world.item(key)).epoch)
    assert epochs == sorted(set(epochs))


async def test_what_was_claimed_is_in_the_answer(world: World) -> None:
    item = await world.won(KEY, event_id="e", event_type="T", tenant="", fingerprint="f", not_after=world.store.wall())
    assert (item.event_id, item.event_type, item.fingerprint, item.key) == ("e", "T", "f", KEY)
    assert item.not_after_in == pytest.approx(0, abs=10)


MISMATCHED = [*SITUATIONS]


@pytest.mark.parametrize("carrier", [Carrier.BROKER, Carrier.CALLER])
@pytest.mark.parametrize("situation", MISMATCHED)
async def test_the_same_key_with_another_payload_is_a_mismatch_in_every_state(
    world: World, situation: str, carrier: Carrier
) -> None:
    await SITUATIONS[situation](world)
    before = await world.item(KEY)
    answer = await world.claim(KEY, carrier=carrier, fingerprint="another")
    assert isinstance(answer, claims.Mismatch)
    assert _still(await world.item(KEY)) == _still(before)
    assert STATES[situation] is before.state


async def test_the_payload_of_a_key_is_that_of_its_first_claim(world: World) -> None:
    await world.won(KEY, fingerprint="first")
    assert isinstance(await world.claim(KEY, fingerprint="second"), claims.Mismatch)
    assert isinstance(await world.claim(KEY, fingerprint=None), claims.Mismatch)
    assert isinstance(await world.claim(KEY, fingerprint="first"), claims.Busy)


async def test_the_same_key_at_another_stage_is_other_work(world: World) -> None:
    await world.won(KEY)
    other = await world.claim(KEY, stage="search.JSONParsed")
    assert isinstance(other, claims.Won)


async def test_a_round_begins_with_its_first_execution(world: World) -> None:
    await world.won(KEY, lease=10.0)
    world.pass_time(11)
    taken = await world.won(KEY)
    assert taken.elapsed == pytest.approx(11, abs=5)
