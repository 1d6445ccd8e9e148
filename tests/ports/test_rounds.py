"""Rounds: what a redrive opens anew, what it keeps, and what discarding and restoring leave alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core import claims
from headway.core.decide import Reason
from headway.core.item import Item
from headway.core.settlements import DeadLetter, Discard, Done, Redrive, Reprocess, Restore, Retry
from headway.core.states import Carrier, State
from headway.errors import IllegalMove
from headway.ports.ledger import Query
from tests.ports.situations import KEY, LATER, LEASE, SITUATIONS, accepted, attempt, declare
from tests.world import World, letter


async def _expired(world: World) -> Item:
    """An embedded letter that was retried until its TTL was over, with a sender's limit on top."""
    await declare(world)
    await world.ledger.publish(replace(letter(KEY), not_after=world.store.wall() + 20))
    [item] = await world.due(lease=LEASE)
    await accepted(world, item, Retry(delay=30.0, attempt=attempt(1, delay=30.0)))
    world.pass_time(31)
    [item] = await world.due(lease=LEASE)
    await accepted(world, item, DeadLetter(reason=Reason.TTL, attempt=attempt(2), message="too late"))
    return await world.item(KEY)


async def test_before_its_redrive_an_expired_letter_has_used_its_round(world: World) -> None:
    dead = await _expired(world)
    assert (dead.attempts, dead.reason, dead.round) == (2, "ttl_exceeded", 1)
    assert dead.not_after_in is not None
    assert dead.not_after_in < 0
    assert dead.elapsed >= 31


async def test_a_requeued_letter_gets_its_whole_time_and_budget_again(world: World) -> None:
    await accepted(world, await _expired(world), Redrive(reason="still wanted"))
    world.pass_time(500)
    [item] = await world.due()
    assert (item.round, item.attempts, item.not_after_in, item.reason) == (2, 0, None, None)
    assert item.elapsed == pytest.approx(0, abs=5), "its time begins with its first execution"


async def test_a_requeued_letter_can_succeed(world: World) -> None:
    await accepted(world, await _expired(world), Redrive(reason="still wanted"))
    [item] = await world.due()
    await accepted(world, item, Done(value=b"1"))
    done = await world.item(KEY)
    assert (done.state, done.round, done.successes, done.outcome) == (State.DONE, 2, 1, b"1")


async def test_each_round_has_one_dead_letter_in_the_history(world: World) -> None:
    await accepted(world, await _expired(world), Redrive(reason="still wanted"))
    [item] = await world.due()
    await accepted(world, item, DeadLetter(reason=Reason.NON_RETRYABLE, attempt=attempt(1)))
    history = await world.ledger.history(item.id)
    letters = [(r.round, r.details["reason"], r.details["attempts"]) for r in history if r.what == "dead letter"]
    assert letters == [(1, "ttl_exceeded", 2), (2, "non_retryable", 1)]


async def test_attempts_of_all_rounds_stay_in_the_history(world: World) -> None:
    await accepted(world, await _expired(world), Redrive(reason="still wanted"))
    [item] = await world.due()
    await accepted(world, item, DeadLetter(reason=Reason.NON_RETRYABLE, attempt=attempt(1)))
    history = await world.ledger.history(item.id)
    assert [(r.round, r.details["number"]) for r in history if r.what == "attempt"] == [(1, 1), (1, 2), (2, 1)]


async def test_moves_are_recorded_with_who_made_them_and_why(world: World) -> None:
    dead = await _expired(world)
    await world.settle(dead, Redrive(reason="still wanted"), by="ana")
    [move] = [record for record in await world.ledger.history(dead.id) if record.what == "Redrive"]
    assert (move.by, move.note, move.round) == ("ana", "still wanted", 2)
    assert (move.details["from_state"], move.details["to_state"]) == ("dead", "waiting")


async def test_a_redrive_can_be_spread(world: World) -> None:
    await accepted(world, await _expired(world), Redrive(reason="all of them", delay=50.0))
    early = await world.due()
    world.pass_time(51)
    assert (early, len(await world.due())) == ([], 1)


async def test_crashes_and_strikes_begin_anew_with_a_round(world: World) -> None:
    await SITUATIONS["ran out alone, ledger"](world)
    [item] = await world.due()
    assert (item.crashes, item.strikes) == (1, 1)
    await accepted(world, item, DeadLetter(reason=Reason.CRASH_LOOP))
    await accepted(world, await world.item(KEY), Redrive(reason="mended"))
    again = await world.item(KEY)
    assert (again.crashes, again.strikes) == (0, 0)


async def test_a_reprocess_of_a_done_delivery_runs_from_the_bytes_that_are_given(world: World) -> None:
    await SITUATIONS["done, broker"](world)
    await accepted(world, await world.item(KEY), Reprocess(reason="new model", body=b"again"))
    [item] = await world.due()
    await accepted(world, item, Done(value=b"8"))
    done = await world.item(KEY)
    assert (item.body, done.round, done.successes, done.outcome) == (b"again", 2, 2, b"8")


async def test_a_discarded_wait_comes_back_with_its_due_time(world: World) -> None:
    await SITUATIONS["waiting, ledger"](world)
    before = await world.item(KEY)
    await accepted(world, before, Discard(reason="not now"))
    await accepted(world, await world.item(KEY), Restore(reason="now"))
    after = await world.item(KEY)
    assert (after.state, after.free_at, after.body) == (State.WAITING, before.free_at, before.body)
    world.pass_time(LATER + 1)
    assert len(await world.due()) == 1


async def test_what_is_discarded_is_handed_out_to_nobody(world: World) -> None:
    await SITUATIONS["discarded waiting"](world)
    world.pass_time(2 * LATER)
    assert await world.due() == []


async def test_a_discarded_dead_letter_comes_back_with_its_reason(world: World) -> None:
    await SITUATIONS["discarded dead"](world)
    await accepted(world, await world.item(KEY), Restore(reason="wanted after all"))
    after = await world.item(KEY)
    assert (after.state, after.reason, after.attempts, after.round) == (State.DEAD, "max_attempts_exceeded", 3, 1)
    letters = [record for record in await world.ledger.history(after.id) if record.what == "dead letter"]
    assert len(letters) == 1, "it was abandoned once"


async def test_a_letter_that_reused_a_key_cannot_be_redriven(world: World) -> None:
    item = await world.won(KEY)
    await accepted(world, item, DeadLetter(reason=Reason.KEY_REUSE))
    dead = await world.item(KEY)
    with pytest.raises(IllegalMove):
        await world.settle(dead, Redrive(reason="try"))
    now = await world.item(KEY)
    assert (now.state, now.epoch, now.round) == (State.DEAD, dead.epoch, 1)


async def test_a_letter_that_reused_a_key_can_be_discarded_and_restored(world: World) -> None:
    await accepted(world, await world.won(KEY), DeadLetter(reason=Reason.KEY_REUSE))
    await accepted(world, await world.item(KEY), Discard(reason="sent anew"))
    await accepted(world, await world.item(KEY), Restore(reason="wrong one"))
    assert (await world.item(KEY)).reason == "key_reuse"


# -- an acknowledgement that was lost after a dead letter


async def test_a_redelivery_of_a_dead_letter_is_told_so_and_counted(world: World) -> None:
    await SITUATIONS["dead, ledger"](world)
    answer = await world.claim(KEY)
    assert isinstance(answer, claims.Dead)
    assert (answer.item.deliveries, answer.item.attempts, answer.item.round) == (2, 3, 1)


async def test_a_redelivery_after_the_redrive_runs_nothing_a_second_time(world: World) -> None:
    await SITUATIONS["dead, ledger"](world)
    await accepted(world, await world.item(KEY), Redrive(reason="mended"))
    redelivered_while_waiting = await world.claim(KEY)
    [item] = await world.due()
    redelivered_while_running = await world.claim(KEY)
    await accepted(world, item, Done(value=b"1"))
    redelivered_when_done = await world.claim(KEY)
    assert isinstance(redelivered_while_waiting, claims.Waiting)
    assert isinstance(redelivered_while_running, claims.Busy)
    assert isinstance(redelivered_when_done, claims.Done)
    assert await world.due() == []
    assert ((await world.item(KEY)).successes, (await world.item(KEY)).deliveries) == (1, 4)


async def test_a_wait_of_another_carrier_is_not_won_by_a_late_redelivery_at_the_time_it_is_due(world: World) -> None:
    await SITUATIONS["due, ledger"](world)
    assert isinstance(await world.claim(KEY), claims.Waiting)
    assert len(await world.due()) == 1


# -- finding it again


async def test_dead_letters_are_found_by_reason_stage_and_state(world: World) -> None:
    dead = await _expired(world)
    found = await world.ledger.find(Query(state=State.DEAD, reason="ttl_exceeded", stage=dead.stage))
    elsewhere = await world.ledger.find(Query(state=State.DEAD, reason="poison"))
    assert ([item.id for item in found], list(elsewhere)) == ([dead.id], [])


@pytest.mark.parametrize("identity", ["event", "id", "beginning"])
async def test_work_is_found_by_its_names(world: World, identity: str) -> None:
    item = await world.won(KEY, event_id="event-1", carrier=Carrier.BROKER)
    name = {"event": "event-1", "id": item.id, "beginning": item.id[:6]}[identity]
    assert [found.id for found in await world.ledger.find(Query(identity=name))] == [item.id]


async def test_pages_of_work_follow_each_other_without_gaps_or_repeats(world: World) -> None:
    ids = [(await world.won(f"k{number}")).id for number in range(7)]
    pages, after = [], ""
    while page := await world.ledger.find(Query(limit=3, after=after)):
        pages.append([item.id for item in page])
        after = page[-1].id
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [item for page in pages for item in page] == sorted(ids)
