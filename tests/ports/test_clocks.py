"""Clocks and the ends of records: wall clocks may be wrong, hosts restart, records are removed, epochs never repeat."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headway.core import claims
from headway.core.decide import Reason
from headway.core.settlements import DeadLetter, Discard, Done, Redrive, Retry
from headway.core.states import Carrier, State
from tests.ports.situations import KEY, LATER, LEASE, SITUATIONS, accepted, attempt, declare, publish
from tests.world import World, letter, open_world

HOUR = 3600.0
SKEWS = [HOUR, -HOUR]


# -- a client whose wall clock is an hour off


@pytest.mark.parametrize("wall_skew", SKEWS)
async def test_a_wrong_wall_clock_takes_nothing_over_early(world: World, wall_skew: float) -> None:
    await world.won(KEY, lease=LEASE)
    async with open_world(world.store.path, wall_skew=wall_skew) as other:
        assert isinstance(await other.claim(KEY), claims.Busy)


@pytest.mark.parametrize("wall_skew", SKEWS)
async def test_a_wrong_wall_clock_takes_nothing_over_late(world: World, wall_skew: float) -> None:
    async with open_world(world.store.path, wall_skew=wall_skew) as other:
        await other.won(KEY, lease=LEASE)
    world.pass_time(LEASE + 1)
    assert isinstance(await world.claim(KEY), claims.Won)


@pytest.mark.parametrize("wall_skew", SKEWS)
async def test_a_wait_that_a_wrong_wall_clock_wrote_ends_at_its_time(world: World, wall_skew: float) -> None:
    async with open_world(world.store.path, wall_skew=wall_skew) as other:
        await accepted(other, await other.won(KEY), Retry(delay=LATER))
    world.pass_time(LATER - 100)
    early = await world.due()
    world.pass_time(101)
    assert (early, len(await world.due())) == ([], 1)


@pytest.mark.parametrize("wall_skew", SKEWS)
async def test_a_wrong_wall_clock_is_handed_nothing_before_its_time(world: World, wall_skew: float) -> None:
    await accepted(world, await world.won(KEY), Retry(delay=LATER))
    async with open_world(world.store.path, wall_skew=wall_skew) as other:
        early = await other.due()
        other.pass_time(LATER + 1)
        assert (early, len(await other.due())) == ([], 1)


@pytest.mark.parametrize("wall_skew", SKEWS)
async def test_the_time_that_a_round_has_taken_is_the_same_for_everybody(world: World, wall_skew: float) -> None:
    await world.won(KEY, lease=LEASE)
    async with open_world(world.store.path, wall_skew=wall_skew) as other:
        other.pass_time(LEASE + 1)
        assert (await other.won(KEY)).elapsed == pytest.approx(LEASE + 1, abs=20)


# -- the ends of records


async def test_what_ended_long_ago_is_removed_with_its_history(world: World) -> None:
    await SITUATIONS["done, broker"](world)
    item = await world.item(KEY)
    world.pass_time(1000)
    assert await world.ledger.clean(dead_letters=True, older_than=999) == 1
    assert (await world.ledger.get(item.id), list(await world.ledger.history(item.id))) == (None, [])


async def test_a_history_is_not_inherited_by_the_next_work_of_the_key(world: World) -> None:
    await SITUATIONS["dead, ledger"](world)
    world.pass_time(1000)
    await world.ledger.clean(dead_letters=True, older_than=999)
    item = await world.won(KEY)
    assert (item.round, item.attempts, list(await world.ledger.history(item.id))) == (1, 0, [])


async def test_work_that_is_claimed_again_after_its_record_was_removed_has_a_larger_epoch(world: World) -> None:
    first = await world.won(KEY)
    await accepted(world, first, Done())
    last = await world.item(KEY)
    world.pass_time(1000)
    await world.ledger.clean(dead_letters=True, older_than=999)
    assert (await world.won(KEY)).epoch > last.epoch > first.epoch


async def test_a_holder_from_before_the_record_was_removed_cannot_settle_its_successor(world: World) -> None:
    zombie = await world.won(KEY)
    await accepted(world, zombie, Done())
    world.pass_time(1000)
    await world.ledger.clean(dead_letters=True, older_than=999)
    await world.won(KEY)
    await world.settle(zombie, Done(value=b"zombie"))
    assert (await world.item(KEY)).state is State.RUNNING


@pytest.mark.parametrize(
    ("situation", "removed"),
    [
        ("running, broker", 0),
        ("ran out, broker", 0),
        ("due, leader", 0),
        ("waiting, ledger", 0),
        ("waiting, caller", 0),
        ("in doubt", 0),
        ("done, broker", 1),
        ("dead, ledger", 1),
        ("discarded dead", 1),
        ("discarded waiting", 0),  # it keeps its due time, and counts from there
    ],
)
async def test_only_what_has_ended_is_removed(world: World, situation: str, removed: int) -> None:
    await SITUATIONS[situation](world)
    world.pass_time(HOUR)
    assert await world.ledger.clean(dead_letters=True, older_than=HOUR - 10) == removed


@pytest.mark.parametrize("situation", ["done, broker", "dead, ledger", "discarded dead"])
async def test_what_ended_lately_is_kept(world: World, situation: str) -> None:
    world.pass_time(HOUR)
    await SITUATIONS[situation](world)
    assert await world.ledger.clean(dead_letters=True, older_than=LEASE) == 0


async def test_what_was_brought_back_counts_from_there(world: World) -> None:
    await SITUATIONS["dead, ledger"](world)
    world.pass_time(HOUR)
    await accepted(world, await world.item(KEY), Redrive(reason="again"))
    await accepted(world, await world.item(KEY), Discard(reason="no"))
    assert await world.ledger.clean(dead_letters=True, older_than=LEASE) == 0


async def test_removing_is_done_in_small_batches(world: World) -> None:
    for number in range(5):
        await accepted(world, await world.won(f"k{number}"), Done())
    world.pass_time(1000)
    assert [await world.ledger.clean(dead_letters=True, older_than=999, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_has_an_event_yet_to_send_is_kept_until_it_is_sent(tmp_path: Path) -> None:
    async with open_world(tmp_path / "two.db", embedded=False) as world:
        await accepted(world, await world.won(KEY), Done(emits=(letter("out"),)))
        world.pass_time(1000)
        kept = await world.ledger.clean(dead_letters=True, older_than=999)
        await world.ledger.sent([row.id for row in await world.ledger.heads(10)])
        assert (kept, await world.ledger.clean(dead_letters=True, older_than=999)) == (0, 1)


# -- a restart of the host


class Restarted:
    """A ledger's file, as it is found after the host's next start; `down` is how long the host was off."""

    def __init__(self, path: Path, *, uptime: float) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE headway_meta SET value = 'a boot before this one' WHERE name = 'boot'")
            # Until now the monotonic clock of that boot was ahead of ours by this much.
            for column in ("free_at", "round_at"):
                db.execute(f"UPDATE headway_item SET {column} = {column} + ?", (uptime,))
            db.execute("UPDATE headway_outbox SET free_at = free_at + ?", (uptime,))


UPTIMES = [10 * HOUR, -10 * HOUR]
"""How far the clock of the boot before is ahead of this one's: a long uptime before, or a short one."""


@pytest.mark.parametrize("uptime", UPTIMES)
@pytest.mark.parametrize("carrier", [Carrier.BROKER, Carrier.CALLER])
async def test_after_a_restart_what_was_running_is_free_at_once(
    tmp_path: Path, uptime: float, carrier: Carrier
) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await before.won(KEY, carrier=carrier, lease=LEASE)
    Restarted(tmp_path / "l.db", uptime=uptime)
    async with open_world(tmp_path / "l.db") as after:
        answer = await after.claim(KEY, carrier=carrier)
        assert isinstance(answer, claims.Won)
        assert answer.item.crashes == 1


@pytest.mark.parametrize("uptime", UPTIMES)
async def test_after_a_restart_the_ledgers_running_work_is_due_at_once(tmp_path: Path, uptime: float) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await SITUATIONS["running, ledger"](before)
    Restarted(tmp_path / "l.db", uptime=uptime)
    async with open_world(tmp_path / "l.db") as after:
        assert [item.crashes for item in await after.due()] == [1]


@pytest.mark.parametrize("uptime", UPTIMES)
async def test_after_a_restart_waits_end_at_the_date_that_they_had(tmp_path: Path, uptime: float) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await accepted(before, await before.won(KEY), Retry(delay=LATER, attempt=attempt(1)))
    Restarted(tmp_path / "l.db", uptime=uptime)
    async with open_world(tmp_path / "l.db", wall_skew=LATER / 2) as after:  # it was off for half of the wait
        assert await after.due() == []
        after.pass_time(LATER / 2 - 100)
        assert await after.due() == []
        after.pass_time(101)
        assert len(await after.due()) == 1


async def test_after_a_long_restart_a_wait_that_is_over_is_due_at_once(tmp_path: Path) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await accepted(before, await before.won(KEY), Retry(delay=LATER))
    Restarted(tmp_path / "l.db", uptime=10 * HOUR)
    async with open_world(tmp_path / "l.db", wall_skew=LATER + 1) as after:
        assert len(await after.due()) == 1


@pytest.mark.parametrize("uptime", UPTIMES)
async def test_after_a_restart_a_round_is_as_old_as_its_dates_say(tmp_path: Path, uptime: float) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await accepted(before, await before.won(KEY), Retry(delay=0.0))
    Restarted(tmp_path / "l.db", uptime=uptime)
    async with open_world(tmp_path / "l.db", wall_skew=500.0) as after:
        [item] = await after.due()
        assert item.elapsed == pytest.approx(500, abs=20)


@pytest.mark.parametrize("uptime", UPTIMES)
async def test_after_a_restart_the_round_of_published_work_is_as_old_as_its_dates_say(
    tmp_path: Path, uptime: float
) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await declare(before)
        await publish(before, KEY)
        await before.due()
    Restarted(tmp_path / "l.db", uptime=uptime)
    async with open_world(tmp_path / "l.db", wall_skew=500.0) as after:
        [item] = await after.due()
        assert item.elapsed == pytest.approx(500, abs=20)


async def test_after_a_restart_a_redriven_round_has_not_begun(tmp_path: Path) -> None:
    async with open_world(tmp_path / "l.db") as before:
        await SITUATIONS["dead, ledger"](before)
        await accepted(before, await before.item(KEY), Redrive(reason="again"))
    Restarted(tmp_path / "l.db", uptime=10 * HOUR)
    async with open_world(tmp_path / "l.db", wall_skew=500.0) as after:
        assert (await after.due())[0].elapsed == pytest.approx(0, abs=20)


@pytest.mark.parametrize("uptime", UPTIMES)
async def test_after_a_restart_events_go_out_at_once(tmp_path: Path, uptime: float) -> None:
    async with open_world(tmp_path / "l.db", embedded=False) as before:
        await accepted(before, await before.won(KEY), Done(emits=(letter("out"),)))
    Restarted(tmp_path / "l.db", uptime=uptime)
    async with open_world(tmp_path / "l.db", embedded=False) as after:
        assert [row.letter.event_id for row in await after.ledger.heads(10)] == ["out"]


async def test_opening_a_file_of_this_boot_moves_no_times(world: World) -> None:
    await SITUATIONS["running, broker"](world)
    async with open_world(world.store.path) as other:
        assert isinstance(await other.claim(KEY), claims.Busy)


async def test_a_wall_clock_that_jumps_removes_nothing(world: World) -> None:
    await world.settle(await world.won(KEY), Done())
    world.store.wall_skew += 400 * 86400
    assert await world.ledger.clean(older_than=30 * 86400) == 0


async def test_a_dead_letter_waits_for_a_person_however_long(world: World) -> None:
    await world.settle(await world.won(KEY), DeadLetter(reason=Reason.NON_RETRYABLE))
    world.pass_time(400 * 86400)
    assert await world.ledger.clean(older_than=30 * 86400) == 0
