"""Threads, event loops and processes at the same work: exactly one of them gets each piece."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from headway.core.settlements import Retry
from headway.core.states import State
from headway.ports.ledger import Query, Renewal
from tests.ports.contender import contend, drain, in_threads, keys
from tests.ports.situations import accepted
from tests.world import STAGE, World, open_world

ROOT = Path(__file__).parents[2]


@contextmanager
def _processes(what: str, path: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that stand ready to begin together."""
    command = [sys.executable, "-m", "tests.ports.contender", what, str(path)]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for process in started:
            assert _out(process).readline() == "ready\n"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def _begin(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def _outcomes(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    return [json.loads(_out(process).readline()) for process in processes]


async def _due(world: World, count: int) -> None:
    for name in keys()[:count]:
        await accepted(world, await world.won(name), Retry(delay=0.0))


@pytest.mark.slow
def test_of_eight_threads_and_two_processes_exactly_one_wins_each_key(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    asyncio.run(contend("open", path))
    with _processes("race", path, 2) as processes:
        _begin(processes)
        outcomes = in_threads("race", path, 8) + _outcomes(processes)
    wins = Counter(key for outcome in outcomes for key in outcome)
    assert wins == Counter(keys())


def test_of_eight_threads_exactly_one_wins_each_key(tmp_path: Path) -> None:
    wins = Counter(key for outcome in in_threads("race", tmp_path / "ledger.db", 8) for key in outcome)
    assert wins == Counter(keys())


@pytest.mark.slow
async def test_processes_that_take_what_is_due_share_it(world: World) -> None:
    await _due(world, 50)
    with _processes("drain", world.store.path, 2) as processes:
        _begin(processes)
        mine = await drain(world)
        outcomes = [mine, *await asyncio.to_thread(_outcomes, processes)]
    assert Counter(key for outcome in outcomes for key in outcome) == Counter(keys())
    assert len(await world.ledger.find(Query(state=State.DONE))) == 50


async def test_four_clients_that_take_what_is_due_at_once_never_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with open_world(path) as a, open_world(path) as b, open_world(path) as c, open_world(path) as d:
        await _due(a, 40)
        taken = await asyncio.gather(*(client.due(STAGE, limit=15, lease=60.0) for client in (a, b, c, d)))
    names = [item.key for items in taken for item in items]
    assert (len(names), len(set(names))) == (40, 40)
    assert sorted(len(items) for items in taken) == [0, 10, 15, 15]


@pytest.mark.slow
def test_processes_that_make_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.db"
        with _processes("open", path, 2) as processes:
            _begin(processes)
            assert _outcomes(processes) == [[], []]
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT value FROM headway_sequence").fetchall() == [(0,)]


async def test_clients_that_make_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"{number}.db"
        outcomes = await asyncio.gather(*(asyncio.to_thread(asyncio.run, contend("open", path)) for _ in range(4)))
        assert outcomes == [[]] * 4


async def test_many_steps_of_one_client_share_commits_and_fail_alone(world: World) -> None:
    """What is written together is committed together, but a step that is refused takes nobody with it."""
    items = await asyncio.gather(*(world.won(key) for key in keys()))
    refused = Renewal(id=items[0].id, epoch=items[0].epoch, lease=float("nan"))
    answers = await asyncio.gather(
        world.ledger.renew([refused]), *(world.won(f"more {key}") for key in keys()), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers if isinstance(answer, BaseException)] == ["Conflict"]
    assert (await world.item(items[0].key)).free_in > 0
    assert sum(tally.count for tally in await world.ledger.count()) == 100
