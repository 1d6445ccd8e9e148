"""Who brings work back: its caller, the broker, the ledger; and leaders, who are no work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core import claims
from headway.core.decide import Reason
from headway.core.item import Attempt
from headway.core.settlements import DeadLetter, Done, GiveBack, Hold, Lost, Park, Redrive, Retry
from headway.core.states import Carrier, State
from headway.errors import IllegalMove
from headway.ops.why import explain
from headway.ports.ledger import Query
from tests.ports.situations import KEY, LEASE, SITUATIONS, accepted, attempt, declare, publish
from tests.world import STAGE, World, letter

# -- what its caller carries


async def test_a_callers_wait_is_run_by_its_next_call_once_due(world: World) -> None:
    await SITUATIONS["waiting, caller"](world)
    early = await world.claim(KEY, carrier=Carrier.CALLER)
    world.pass_time(1001)
    late = await world.claim(KEY, carrier=Carrier.CALLER)
    assert isinstance(early, claims.Waiting)
    assert isinstance(late, claims.Won)
    assert (late.item.attempts, late.item.crashes, late.item.strikes) == (1, 0, 0)


async def test_a_callers_wait_has_no_bytes_and_is_explained_as_its_callers(world: World) -> None:
    await SITUATIONS["due, caller"](world)
    item = await world.item(KEY)
    told = explain(item, await world.ledger.history(item.id), now=world.store.wall())
    assert (item.body, item.carrier) == (None, Carrier.CALLER)
    assert told.next == "it runs at the next call with its key"


async def test_a_callers_work_that_is_given_back_is_due_at_once_and_uncharged(world: World) -> None:
    await accepted(world, await world.won(KEY, carrier=Carrier.CALLER), GiveBack())
    answer = await world.claim(KEY, carrier=Carrier.CALLER)
    assert isinstance(answer, claims.Won)
    assert (answer.item.attempts, answer.item.crashes, answer.item.strikes) == (0, 0, 0)


async def test_every_crash_of_a_caller_is_a_strike(world: World) -> None:
    for _ in range(4):
        await world.won(KEY, carrier=Carrier.CALLER)
        world.pass_time(11)
    item = await world.item(KEY)
    assert (item.crashes, item.strikes, item.attempts) == (3, 3, 0)


async def test_a_callers_dead_letter_is_redriven_for_its_next_call(world: World) -> None:
    await SITUATIONS["dead, caller"](world)
    await accepted(world, await world.item(KEY), Redrive(reason="mended"))
    assert await world.due() == []
    item = await world.won(KEY, carrier=Carrier.CALLER)
    assert (item.round, item.attempts, item.carrier) == (2, 0, Carrier.CALLER)


# -- what the broker carries


async def test_a_crash_beside_others_is_no_strike(world: World) -> None:
    await SITUATIONS["ran out, broker"](world)
    assert (await world.won(KEY)).strikes == 0


async def test_a_crash_while_alone_is_a_strike_once(world: World) -> None:
    await SITUATIONS["ran out alone, broker"](world)
    await world.won(KEY)
    world.pass_time(11)
    item = await world.won(KEY)
    assert (item.crashes, item.strikes) == (2, 1), "alone ends with the holder who was"


async def test_a_delivery_that_is_given_back_becomes_the_ledgers(world: World) -> None:
    await accepted(world, await world.won(KEY), GiveBack())
    item = await world.item(KEY)
    assert (item.state, item.carrier, item.attempts, item.crashes) == (State.WAITING, Carrier.LEDGER, 0, 0)


async def test_a_redelivery_of_what_was_given_back_is_let_go(world: World) -> None:
    await accepted(world, await world.won(KEY), GiveBack())
    answer = await world.claim(KEY)
    assert isinstance(answer, claims.Waiting)
    assert answer.item.deliveries == 2


async def test_what_was_given_back_is_handed_out_with_its_bytes(world: World) -> None:
    await accepted(world, await world.won(KEY), GiveBack())
    [item] = await world.due()
    assert (item.body, item.attempts, item.crashes) == (letter(KEY).body, 0, 0)


@pytest.mark.parametrize(
    "settlement", [Retry(delay=1), Park(on="a", delay=1), Hold(dependency="a", delay=1), GiveBack()]
)
async def test_the_ledger_takes_no_work_of_a_broker_without_its_bytes(
    world: World, settlement: Retry | Park | Hold | GiveBack
) -> None:
    item = await world.won(KEY)
    with pytest.raises(IllegalMove):
        await world.settle(replace(item, body=None), settlement)
    assert (await world.item(KEY)).state is State.RUNNING


@pytest.mark.parametrize(
    ("settlement", "waits_for"),
    [(Park(on="messages/1", delay=9), "document:messages/1"), (Hold(dependency="db", delay=9), "dependency:db")],
)
async def test_a_wait_says_what_it_is_for_until_it_ends(world: World, settlement: Park | Hold, waits_for: str) -> None:
    await accepted(world, await world.won(KEY), settlement)
    waiting = await world.item(KEY)
    world.pass_time(10)
    [item] = await world.due()
    await accepted(world, item, Done())
    assert (waiting.waiting_for, waiting.attempts, (await world.item(KEY)).waiting_for) == (waits_for, 0, None)


async def test_a_late_settle_that_nobody_has_overtaken_is_accepted(world: World) -> None:
    item = await world.won(KEY)
    world.pass_time(11)
    await accepted(world, item, Done(value=b"1"))
    assert (await world.item(KEY)).crashes == 0


async def test_a_late_settle_after_a_takeover_is_lost(world: World) -> None:
    zombie = await world.won(KEY)
    world.pass_time(11)
    heir = await world.won(KEY)
    answer = await world.settle(zombie, Done(value=b"zombie"))
    await accepted(world, heir, Done(value=b"heir"))
    assert isinstance(answer, Lost)
    assert (await world.item(KEY)).outcome == b"heir"


# -- the order of what is due


async def test_the_longest_due_is_handed_out_first(world: World) -> None:
    for key, delay in (("a", 30.0), ("b", 10.0), ("c", 20.0)):
        await accepted(world, await world.won(key), Retry(delay=delay))
    world.pass_time(31)
    assert [(await world.due(limit=1))[0].key for _ in range(3)] == ["b", "c", "a"]


async def test_a_batch_of_due_work_is_in_the_order_of_its_due_times(world: World) -> None:
    for key, delay in (("a", 30.0), ("b", 10.0), ("c", 20.0)):
        await accepted(world, await world.won(key), Retry(delay=delay))
    world.pass_time(31)
    assert [item.key for item in await world.due()] == ["b", "c", "a"]


# -- leaders


async def _killed_leader(world: World, times: int) -> None:
    await world.won(KEY, carrier=Carrier.LEADER)
    for _ in range(times):
        world.pass_time(11)
        await world.won(KEY, carrier=Carrier.LEADER)


async def test_a_leader_that_was_killed_five_times_still_leads(world: World) -> None:
    await _killed_leader(world, 5)
    item = await world.item(KEY)
    assert (item.state, item.crashes, item.strikes, item.attempts) == (State.RUNNING, 0, 0, 0)


async def test_a_leader_is_alone(world: World) -> None:
    await world.won(KEY, carrier=Carrier.LEADER)
    assert isinstance(await world.claim(KEY, carrier=Carrier.LEADER), claims.Busy)


@pytest.mark.parametrize("situation", ["running, leader", "ran out, leader", "due, leader"])
async def test_a_leader_is_in_no_sum_and_in_no_list(world: World, situation: str) -> None:
    await SITUATIONS[situation](world)
    item = await world.item(KEY)
    found = [await world.ledger.find(query) for query in (Query(), Query(identity=item.id), Query(stage=STAGE))]
    assert (await world.ledger.count(), found) == ([], [[], [], []])


async def test_a_leader_that_steps_down_is_replaced_at_once(world: World) -> None:
    await accepted(world, await world.won(KEY, carrier=Carrier.LEADER), GiveBack())
    item = await world.won(KEY, carrier=Carrier.LEADER)
    assert (item.crashes, item.attempts) == (0, 0)


# -- one event at two stages


async def test_one_event_at_two_stages_is_two_pieces_of_work(world: World) -> None:
    await declare(world, "chunking.JSONParsed", "search.JSONParsed")
    await publish(world, KEY)
    mine, other = await world.due("chunking.JSONParsed", "search.JSONParsed")
    await accepted(world, mine, Done())
    await accepted(world, other, DeadLetter(reason=Reason.NON_RETRYABLE, attempt=attempt(1)))
    states = {item.stage: item.state for item in await world.ledger.find(Query(identity=KEY))}
    assert states == {mine.stage: State.DONE, other.stage: State.DEAD}


async def test_a_redrive_of_one_stage_leaves_the_other_alone(world: World) -> None:
    await declare(world, "chunking.JSONParsed", "search.JSONParsed")
    await publish(world, KEY)
    mine, other = await world.due("chunking.JSONParsed", "search.JSONParsed")
    await accepted(world, mine, Done())
    await accepted(world, other, DeadLetter(reason=Reason.NON_RETRYABLE))
    [dead] = await world.ledger.find(Query(state=State.DEAD))
    await accepted(world, dead, Redrive(reason="mended"))
    taken = await world.due("chunking.JSONParsed", "search.JSONParsed")
    assert [item.stage for item in taken] == [other.stage]


# -- sums


async def test_sums_say_what_is_overdue_and_what_is_stranded(world: World) -> None:
    await accepted(world, await world.won("due"), Retry(delay=0.0))
    await accepted(world, await world.won("later"), Retry(delay=LEASE))
    await world.won("stranded", lease=0.0)
    await world.won("well", lease=LEASE)
    sums = {(tally.state, tally.count, tally.free) for tally in await world.ledger.count()}
    assert sums == {(State.WAITING, 2, 1), (State.RUNNING, 2, 1)}


async def test_an_attempt_is_told_with_its_traceback(world: World) -> None:
    item = await world.won(KEY)
    told = Attempt(number=1, kind="transient", error_type="OSError", message="no", delay=2.0, traceback="File …")
    await accepted(world, item, Retry(delay=2.0, attempt=told))
    [record] = [record for record in await world.ledger.history(item.id) if record.what == "attempt"]
    assert (record.note, record.details["traceback"], record.details["delay"]) == ("OSError: no", "File …", 2.0)
