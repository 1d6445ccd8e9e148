"""Publishing into a ledger that is the broker too: waiting work for each stage that wants the event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core import claims, keys
from headway.core.decide import Reason
from headway.core.item import Item
from headway.core.settlements import DeadLetter, Discard, Done, Redrive, Retry
from headway.core.states import Carrier, State
from headway.errors import IllegalMove
from headway.ports.ledger import Query
from tests.ports.situations import KEY, LEASE, accepted, attempt, declare, publish
from tests.world import STAGE, World, letter

QUARANTINE = keys.quarantine_stage("chunking")


async def _work(world: World) -> dict[str, State]:
    return {item.key: item.state for item in await world.ledger.find(Query(stage=STAGE))}


async def _quarantined(world: World) -> list[Item]:
    return list(await world.ledger.find(Query(stage=QUARANTINE)))


# -- routes


async def test_an_event_becomes_work_of_each_stage_that_wants_it(world: World) -> None:
    await declare(world, "chunking.JSONParsed", "search.JSONParsed")
    await publish(world, KEY)
    found = await world.ledger.find(Query(identity=KEY))
    assert {(item.stage, item.state, item.carrier) for item in found} == {
        ("chunking.JSONParsed", State.WAITING, Carrier.LEDGER),
        ("search.JSONParsed", State.WAITING, Carrier.LEDGER),
    }


async def test_published_work_is_due_at_once_with_its_bytes(world: World) -> None:
    await declare(world)
    await publish(world, KEY)
    [item] = await world.due()
    assert (item.body, item.attempts, item.deliveries, item.event_type) == (letter(KEY).body, 0, 0, "JSONParsed")


async def test_the_time_of_published_work_begins_with_its_first_execution(world: World) -> None:
    await declare(world)
    await publish(world, KEY)
    world.pass_time(500)
    [item] = await world.due()
    assert item.elapsed == pytest.approx(0, abs=5)


async def test_an_event_for_nobody_is_kept_outside_the_work(world: World) -> None:
    await publish(world, KEY)
    assert (await world.ledger.unrouted(), list(await world.ledger.find(Query())), await world.due()) == (1, [], [])


async def test_an_event_for_nobody_becomes_work_when_a_stage_is_declared(world: World) -> None:
    await publish(world, KEY)
    await declare(world)
    assert (await world.ledger.unrouted(), [item.key for item in await world.due()]) == (0, [KEY])


async def test_an_event_for_nobody_goes_to_every_stage_that_is_declared_together(world: World) -> None:
    await publish(world, KEY)
    await declare(world, "a.JSONParsed", "b.JSONParsed")
    assert {item.stage for item in await world.due("a.JSONParsed", "b.JSONParsed")} == {"a.JSONParsed", "b.JSONParsed"}


async def test_an_event_of_another_type_stays_where_it_is(world: World) -> None:
    await publish(world, KEY, event_type="Other")
    await declare(world)
    assert (await world.ledger.unrouted(), await world.due()) == (1, [])


async def test_a_stage_that_is_declared_later_gets_nothing_of_what_others_took(world: World) -> None:
    await declare(world)
    await publish(world, KEY)
    await declare(world, STAGE, "later.JSONParsed")
    await publish(world, "next")
    assert [item.key for item in await world.due("later.JSONParsed")] == ["next"]


async def test_an_older_worker_that_starts_takes_no_stage_from_a_newer_one(world: World) -> None:
    await declare(world, STAGE, "newer.JSONParsed")
    await declare(world, STAGE)
    await publish(world, KEY)
    assert len(await world.due("newer.JSONParsed")) == 1


async def test_events_that_nobody_wanted_are_removed_after_their_time(world: World) -> None:
    await publish(world, "old")
    world.pass_time(100)
    await publish(world, "new")
    await world.ledger.clean(dead_letters=True, older_than=50)
    assert await world.ledger.unrouted() == 1


# -- what exists


@pytest.mark.parametrize("state", ["waiting", "running", "done", "dead"])
async def test_publishing_work_that_exists_writes_nothing(world: World, state: str) -> None:
    await declare(world)
    await publish(world, KEY)
    if state != "waiting":
        [item] = await world.due(lease=LEASE)
        if state == "done":
            await accepted(world, item, Done())
        if state == "dead":
            await accepted(world, item, DeadLetter(reason=Reason.POISON))
    before = await world.item(KEY)
    await publish(world, KEY, data={"id": "another payload, but the event's id is its key"})
    after = await world.item(KEY)
    assert replace(after, free_in=0, elapsed=0) == replace(before, free_in=0, elapsed=0)
    assert await _quarantined(world) == []


async def test_what_a_success_sends_out_is_there_with_it(world: World) -> None:
    await declare(world)
    await accepted(world, await world.won("first"), Done(emits=(letter("second"),)))
    assert await _work(world) == {"first": State.DONE, "second": State.WAITING}


async def test_what_a_lost_settle_sends_out_is_not_there(world: World) -> None:
    await declare(world)
    item = await world.won("first")
    await accepted(world, item, Retry(delay=LEASE))
    await world.settle(item, Done(emits=(letter("second"),)))
    assert await _work(world) == {"first": State.WAITING}


async def test_what_a_dead_letter_sends_out_is_there_with_it(world: World) -> None:
    await declare(world)
    failed = DeadLetter(reason=Reason.POISON, emits=(letter("failed"),))
    await accepted(world, await world.won("first"), failed)
    assert await _work(world) == {"first": State.DEAD, "failed": State.WAITING}


async def test_a_delivery_of_published_work_is_let_go(world: World) -> None:
    await declare(world)
    await publish(world, KEY)
    assert isinstance(await world.claim(KEY), claims.Waiting)


# -- keys made from the data


async def test_a_key_from_the_data_makes_two_events_one_piece_of_work(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"order": 7})
    await publish(world, "e2", data={"order": 7})
    assert len(await _work(world)) == 1
    assert await _quarantined(world) == []


async def test_the_same_key_with_another_payload_is_a_dead_letter_over_its_bytes(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"order": 7, "sum": 1})
    await publish(world, "e2", data={"order": 7, "sum": 2})
    [dead] = await _quarantined(world)
    assert (dead.state, dead.reason, dead.event_id) == (State.DEAD, "key_reuse", "e2")
    assert dead.body == letter("e2", data={"order": 7, "sum": 2}).body


async def test_the_work_whose_key_was_reused_is_untouched(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"order": 7, "sum": 1})
    await publish(world, "e2", data={"order": 7, "sum": 2})
    [item] = await world.due()
    assert (item.event_id, item.body) == ("e1", letter("e1", data={"order": 7, "sum": 1}).body)


async def test_a_reused_key_that_comes_twice_is_one_letter(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"order": 7, "sum": 1})
    for _ in range(2):
        await publish(world, "e2", data={"order": 7, "sum": 2})
    assert len(await _quarantined(world)) == 1


async def test_a_published_letter_that_reused_a_key_cannot_be_redriven(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"order": 7, "sum": 1})
    await publish(world, "e2", data={"order": 7, "sum": 2})
    [dead] = await _quarantined(world)
    with pytest.raises(IllegalMove):
        await world.settle(dead, Redrive(reason="try"))


async def test_an_event_without_the_field_of_the_key_is_a_dead_letter(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"sum": 1})
    [dead] = await _quarantined(world)
    [record] = [record for record in await world.ledger.history(dead.id) if record.what == "dead letter"]
    assert (dead.state, dead.reason, await _work(world)) == (State.DEAD, "non_retryable", {})
    assert "order" in record.note


async def test_a_quarantined_letter_can_be_redriven_with_its_bytes(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"sum": 1})
    await accepted(world, (await _quarantined(world))[0], Redrive(reason="the template was mended"))
    [item] = await world.due(QUARANTINE)
    assert (item.round, item.body) == (2, letter("e1", data={"sum": 1}).body)


async def test_a_released_letter_that_comes_back_is_put_in_front_of_a_person_again(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"sum": 1})
    await accepted(world, (await _quarantined(world))[0], Redrive(reason="try"))
    [item] = await world.due(QUARANTINE)
    await accepted(world, item, Done(value=b'"released"', emits=(letter("e1", data={"sum": 1}),)))
    [again] = await _quarantined(world)
    assert again.state is not State.DONE


@pytest.mark.parametrize("act", [Discard(reason="no")])
async def test_a_discarded_quarantined_letter_stays_discarded_when_it_comes_again(world: World, act: Discard) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"sum": 1})
    await accepted(world, (await _quarantined(world))[0], act)
    await publish(world, "e1", data={"sum": 1})
    assert [item.state for item in await _quarantined(world)] == [State.DISCARDED]


async def test_a_waiting_item_of_a_template_keeps_its_fingerprint_through_a_retry(world: World) -> None:
    await declare(world, key="{order}")
    await publish(world, "e1", data={"order": 7})
    [item] = await world.due()
    await accepted(world, item, Retry(delay=0.0, attempt=attempt(1)))
    await publish(world, "e2", data={"order": 7})
    assert await _quarantined(world) == []
