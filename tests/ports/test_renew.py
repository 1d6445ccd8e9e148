"""Renewals: they extend a lease and carry notes, for whoever still holds it; and wakes."""

from __future__ import annotations

import pytest

from headway.core import claims
from headway.core.decide import Reason
from headway.core.item import Effect, Item
from headway.core.settlements import DeadLetter, Discard, Done, Redrive, Retry
from headway.core.states import Carrier, State
from headway.ports.ledger import Record, Renewal
from tests.ports.situations import KEY, LATER, LEASE, SITUATIONS, accepted, attempt
from tests.world import World, wanted


async def _renew(world: World, item: Item, lease: float = LEASE, **notes: object) -> bool:
    renewal = Renewal(id=item.id, epoch=item.epoch, lease=lease, **notes)  # type: ignore[arg-type]
    return (await world.ledger.renew([renewal]))[0]


async def _attempts(world: World, item: Item) -> list[Record]:
    return [record for record in await world.ledger.history(item.id) if record.what == "attempt"]


async def test_a_renewed_lease_counts_from_its_renewal(world: World) -> None:
    item = await world.won(KEY, lease=10.0)
    world.pass_time(8)
    assert await _renew(world, item, 10.0)
    world.pass_time(8)
    assert isinstance(await world.claim(KEY), claims.Busy)
    world.pass_time(3)
    assert isinstance(await world.claim(KEY), claims.Won)


async def test_a_lease_that_ran_out_can_be_renewed_while_nobody_has_taken_the_work(world: World) -> None:
    item = await world.won(KEY, lease=10.0)
    world.pass_time(11)
    assert await _renew(world, item)
    assert isinstance(await world.claim(KEY), claims.Busy)


async def test_a_renewal_after_a_takeover_is_refused(world: World) -> None:
    item = await world.won(KEY, lease=10.0)
    world.pass_time(11)
    heir = await world.won(KEY, lease=10.0)
    assert not await _renew(world, item, LEASE, attempt=attempt(1), effects={"a": Effect()})
    now = await world.item(KEY)
    assert (now.epoch, now.attempts, now.effects, now.free_in < 11) == (heir.epoch, 0, {}, True)
    assert await _attempts(world, item) == []


async def test_a_renewal_after_the_settle_is_refused(world: World) -> None:
    item = await world.won(KEY)
    await accepted(world, item, Retry(delay=5.0))
    assert not await _renew(world, item)
    assert (await world.item(KEY)).free_in < 6


async def test_a_renewal_of_what_is_not_there_is_refused(world: World) -> None:
    assert await world.ledger.renew([Renewal(id="nothing", epoch=1, lease=1.0)]) == [False]


async def test_renewals_are_answered_one_by_one(world: World) -> None:
    first, second = await world.won("a"), await world.won("b")
    await accepted(world, first, Done())
    renewals = [Renewal(id=item.id, epoch=item.epoch, lease=LEASE) for item in (first, second)]
    assert list(await world.ledger.renew(renewals)) == [False, True]


async def test_a_renewal_extends_nothing_that_was_taken_beside_it(world: World) -> None:
    for key in ("a", "b"):
        await accepted(world, await world.won(key), Retry(delay=0.0))
    renewed, beside = await world.due(lease=10.0)
    await _renew(world, renewed, LATER)
    assert (await world.item(beside.key)).free_in < 11


async def test_the_date_of_a_renewed_lease_is_told_to_people(world: World) -> None:
    item = await world.won(KEY, lease=10.0)
    await _renew(world, item, LATER)
    assert (await world.item(KEY)).free_at == pytest.approx(world.store.wall() + LATER, abs=20)


async def test_a_noted_attempt_is_charged_before_the_work_ends(world: World) -> None:
    item = await world.won(KEY)
    await _renew(world, item, attempt=attempt(1))
    [record] = await _attempts(world, item)
    assert ((await world.item(KEY)).attempts, record.details["number"]) == (1, 1)


async def test_a_noted_attempt_survives_the_crash_of_the_next(world: World) -> None:
    await _renew(world, await world.won(KEY), attempt=attempt(1))
    world.pass_time(LEASE + 1)
    taken = await world.won(KEY)
    assert (taken.attempts, taken.crashes) == (1, 1)


async def test_an_attempt_that_is_noted_twice_is_charged_once(world: World) -> None:
    item = await world.won(KEY)
    for _ in range(2):
        await _renew(world, item, attempt=attempt(1))
    assert ((await world.item(KEY)).attempts, len(await _attempts(world, item))) == (1, 1)


async def test_an_attempt_that_was_noted_is_not_charged_again_by_the_settle(world: World) -> None:
    item = await world.won(KEY)
    await _renew(world, item, attempt=attempt(1))
    await accepted(world, item, Retry(delay=0.0, attempt=attempt(1)))
    assert ((await world.item(KEY)).attempts, len(await _attempts(world, item))) == (1, 1)


async def test_a_renewal_without_notes_keeps_what_was_noted(world: World) -> None:
    item = await world.won(KEY)
    await _renew(world, item, attempt=attempt(1), alone=True, effects={"a": Effect(unsafe=True)})
    await _renew(world, item, 10.0)
    world.pass_time(11)
    taken = await world.won(KEY)
    assert (taken.attempts, taken.strikes, taken.open_effects) == (1, 1, ("a",))


async def test_work_that_is_no_longer_alone_gets_no_strike(world: World) -> None:
    item = await world.won(KEY)
    await _renew(world, item, alone=True)
    await _renew(world, item, 10.0, alone=False)
    world.pass_time(11)
    assert (await world.won(KEY)).strikes == 0


async def test_the_history_keeps_the_first_five_and_the_last_forty_five_attempts(world: World) -> None:
    item = await world.won(KEY)
    for number in range(1, 61):
        await _renew(world, item, attempt=attempt(number))
    kept = [record.details["number"] for record in await _attempts(world, item)]
    assert sorted(kept) == [*range(1, 6), *range(16, 61)]


async def test_the_count_of_attempts_is_exact_where_the_history_is_not(world: World) -> None:
    item = await world.won(KEY)
    for number in range(1, 61):
        await _renew(world, item, attempt=attempt(number))
    assert (await world.item(KEY)).attempts == 60


async def test_a_long_history_trims_no_other_work(world: World) -> None:
    other, item = await world.won("other"), await world.won(KEY)
    for number in range(1, 11):
        await _renew(world, other, attempt=attempt(number))
    for number in range(1, 61):
        await _renew(world, item, attempt=attempt(number))
    assert len(await _attempts(world, other)) == 10


async def test_a_long_history_trims_no_other_round(world: World) -> None:
    item = await world.won(KEY)
    for number in range(1, 11):
        await _renew(world, item, attempt=attempt(number))
    await accepted(world, item, DeadLetter(reason=Reason.POISON))
    await accepted(world, await world.item(KEY), Redrive(reason="again"))
    [again] = await world.due()
    for number in range(1, 61):
        await _renew(world, again, attempt=attempt(number))
    kept = [record.round for record in await _attempts(world, item)]
    assert (kept.count(1), kept.count(2)) == (10, 50)


async def test_a_wake_wakes_nothing_but_what_it_names(world: World) -> None:
    for key in ("a", "b"):
        await accepted(world, await world.won(key), Retry(delay=LATER))
    assert await world.ledger.wake([wanted("a").id]) == 1
    assert (await world.item("b")).free_in > LATER / 2


@pytest.mark.parametrize("count", [49, 50])
async def test_a_history_of_fifty_attempts_is_whole(world: World, count: int) -> None:
    item = await world.won(KEY)
    for number in range(1, count + 1):
        await _renew(world, item, attempt=attempt(number))
    assert len(await _attempts(world, item)) == count


# -- wakes


async def test_a_wake_makes_waiting_work_due_now(world: World) -> None:
    await SITUATIONS["waiting, ledger"](world)
    await world.ledger.wake([wanted(KEY).id])
    assert [item.key for item in await world.due()] == [KEY]


async def test_a_wake_charges_nothing_and_is_no_move(world: World) -> None:
    await SITUATIONS["waiting, ledger"](world)
    before = await world.item(KEY)
    await world.ledger.wake([before.id])
    after = await world.item(KEY)
    assert (after.epoch, after.attempts, after.crashes) == (before.epoch, before.attempts, before.crashes)


async def test_a_wake_counts_only_what_it_woke(world: World) -> None:
    for key in ("a", "b"):
        await accepted(world, await world.won(key), Retry(delay=LATER))
    await world.won("running")
    keys = ["a", "b", "running", "nothing"]
    first = await world.ledger.wake([wanted(key).id for key in keys])
    again = await world.ledger.wake([wanted(key).id for key in keys])
    assert (first, again, await world.ledger.wake([])) == (2, 0, 0)


async def test_a_wake_of_a_callers_wait_lets_its_next_call_run_it(world: World) -> None:
    await SITUATIONS["waiting, caller"](world)
    await world.ledger.wake([wanted(KEY).id])
    assert isinstance(await world.claim(KEY, carrier=Carrier.CALLER), claims.Won)


async def test_a_wake_between_a_read_and_an_act_does_not_lose_the_act(world: World) -> None:
    await SITUATIONS["waiting, ledger"](world)
    seen = await world.item(KEY)
    await world.ledger.wake([seen.id])
    await accepted(world, seen, Discard(reason="not wanted"))
    assert (await world.item(KEY)).state is State.DISCARDED


async def test_what_is_not_running_has_no_lease_to_renew(world: World) -> None:
    await world.settle(await world.won(KEY), Retry(delay=60.0))
    seen = await world.item(KEY)
    assert not await _renew(world, seen)
