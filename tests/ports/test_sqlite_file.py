"""What a SQLite file holds by itself: the table of moves above all, whoever writes to it past the code."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headway.adapters.sqlite.broker import SQLiteBroker
from headway.adapters.sqlite.store import Store
from headway.core.states import MOVES, State
from headway.errors import ConfigError, HeadwayError
from tests.ports.situations import KEY, SITUATIONS
from tests.world import World, open_world

PAIRS = [(source, target) for source in State for target in State]
MOVED = {(move.source, move.target) for move in MOVES if move.source and move.target}
BORN = {move.target for move in MOVES if move.source is None}
ENDED = {move.source for move in MOVES if move.target is None}
SITUATION = {
    State.RUNNING: "running, caller",
    State.WAITING: "waiting, ledger",
    State.DONE: "done, caller",
    State.DEAD: "dead, ledger",
    State.IN_DOUBT: "in doubt",
    State.DISCARDED: "discarded dead",
}
"""A way into each state out of which no other rule of the file than the table forbids a move."""

BIRTH = """
INSERT INTO headway_item (id, tenant, stage, key, event_id, event_type, state, carrier, epoch, free_at, free_date, body,
                  born_date, moved_date)
VALUES ('new', '', 's', 'k', 'e', 't', ?, 'caller', 1, 0, 0, x'00', 0, 0)
"""


@pytest.fixture
def raw(world: World) -> Iterator[sqlite3.Connection]:
    """The file as `sqlite3` opens it, without anything of Headway's."""
    with closing(sqlite3.connect(world.store.path)) as connection:
        yield connection


def _pairs(pairs: list[tuple[State, State]]) -> list[str]:
    return [f"{source} to {target}" for source, target in pairs]


REFUSED = [pair for pair in PAIRS if pair not in MOVED]
ALLOWED = [pair for pair in PAIRS if pair in MOVED]


@pytest.mark.parametrize(("source", "target"), REFUSED, ids=_pairs(REFUSED))
async def test_an_update_past_the_table_is_refused(
    world: World, raw: sqlite3.Connection, source: State, target: State
) -> None:
    await SITUATIONS[SITUATION[source]](world)
    with pytest.raises(sqlite3.IntegrityError, match="no such move"):
        raw.execute("UPDATE headway_item SET state = ?", (target,))
    assert (await world.item(KEY)).state is source


@pytest.mark.parametrize(("source", "target"), ALLOWED, ids=_pairs(ALLOWED))
async def test_an_update_within_the_table_is_not(
    world: World, raw: sqlite3.Connection, source: State, target: State
) -> None:
    await SITUATIONS[SITUATION[source]](world)
    with raw:
        raw.execute("UPDATE headway_item SET state = ?", (target,))
    assert (await world.item(KEY)).state is target


@pytest.mark.parametrize("target", State)
async def test_work_is_born_only_where_the_table_says(world: World, raw: sqlite3.Connection, target: State) -> None:
    if target in BORN:
        assert raw.execute(BIRTH, (target,)).rowcount == 1
    else:
        with pytest.raises(sqlite3.IntegrityError, match="no such move"):
            raw.execute(BIRTH, (target,))


@pytest.mark.parametrize("source", State)
async def test_a_record_ends_only_where_the_table_says(world: World, raw: sqlite3.Connection, source: State) -> None:
    await SITUATIONS[SITUATION[source]](world)
    if source in ENDED:
        assert raw.execute("DELETE FROM headway_item").rowcount == 1
    else:
        with pytest.raises(sqlite3.IntegrityError, match="no such move"):
            raw.execute("DELETE FROM headway_item")


@pytest.mark.parametrize("source", [State.WAITING, State.DEAD, State.IN_DOUBT])
async def test_what_the_ledger_carries_cannot_lose_its_bytes(
    world: World, raw: sqlite3.Connection, source: State
) -> None:
    await SITUATIONS[SITUATION[source]](world)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        raw.execute("UPDATE headway_item SET body = NULL")


async def test_what_waits_is_never_carried_by_the_broker(world: World, raw: sqlite3.Connection) -> None:
    await SITUATIONS["waiting, ledger"](world)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        raw.execute("UPDATE headway_item SET carrier = 'broker'")


async def test_a_file_of_a_ledger_is_refused_as_a_broker(world: World, tmp_path: Path) -> None:
    store = Store(world.store.path)
    with pytest.raises(ConfigError):
        await SQLiteBroker(store).migrate()
    await store.close()


async def test_migrating_twice_keeps_what_is_there(world: World) -> None:
    await SITUATIONS["waiting, ledger"](world)
    before = await world.item(KEY)
    async with open_world(world.store.path) as again:
        assert (await again.item(KEY)).free_at == before.free_at


async def test_after_closing_every_write_is_refused_and_none_hangs(tmp_path: Path) -> None:
    async with open_world(tmp_path / "ledger.db") as world:
        pass
    for _ in range(2):
        async with asyncio.timeout(5):
            with pytest.raises((HeadwayError, RuntimeError)):
                await world.claim(KEY)
