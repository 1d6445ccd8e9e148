"""A handler's own transaction: its writes are committed by the settle of its work, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from headway.adapters.sqlite.transaction import SQLiteTransaction
from headway.core.item import Item
from headway.core.settlements import Done, Lost, Settled, Settlement
from headway.core.states import State
from headway.errors import HeadwayError, TransactionExpired
from tests.ports.situations import KEY, LEASE, declare
from tests.world import World, letter, open_world

BOUND = 60.0
"""Far longer than any of these tests: what waits for it has hung."""

SOON = 10.0
"""How long what must happen at once may take on a busy machine."""


@pytest.fixture(autouse=True)
def _table(world: World) -> Iterator[None]:
    with closing(sqlite3.connect(world.store.path)) as db, db:
        db.execute("CREATE TABLE mine (n INTEGER UNIQUE) STRICT")
    yield
    if world.store.turn._held:  # left behind by a test that fails: closing the world must not hang on it
        world.store.turn.pass_on()


def _rows(world: World) -> list[int]:
    with closing(sqlite3.connect(world.store.path)) as db:
        return [row[0] for row in db.execute("SELECT n FROM mine ORDER BY n")]


async def _begun(world: World, *numbers: int, bound: float = BOUND) -> SQLiteTransaction:
    transaction = await world.transactions.begin(bound=bound)
    for number in numbers:
        transaction.connection.execute("INSERT INTO mine VALUES (?)", (number,))
    return transaction


async def _settle(
    world: World, item: Item, transaction: SQLiteTransaction, *, token: str = "", settlement: Settlement | None = None
) -> Settled | Lost:
    token = token or uuid.uuid4().hex
    settlement = settlement or Done(value=b"1")
    return await world.ledger.settle(item, settlement, by="test", token=token, within=transaction)


async def _others_go_on(world: World) -> None:
    """Somebody else can write: the turn is free."""
    async with asyncio.timeout(SOON / 2):
        await world.won("somebody else")


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not true():  # noqa: ASYNC110 - what another thread does
            await asyncio.sleep(0.005)


# -- with the settle, or not at all


async def test_the_settle_commits_what_the_handler_wrote(world: World) -> None:
    item = await world.won(KEY)
    answer = await _settle(world, item, await _begun(world, 1, 2))
    assert isinstance(answer, Settled)
    assert (_rows(world), (await world.item(KEY)).state) == ([1, 2], State.DONE)


async def test_before_the_settle_nobody_sees_what_the_handler_wrote(world: World) -> None:
    transaction = await _begun(world, 1)
    assert _rows(world) == []
    await transaction.roll_back()


async def test_what_goes_out_with_the_settle_is_in_the_same_commit(world: World) -> None:
    await declare(world)
    item = await world.won(KEY)
    await _settle(world, item, await _begun(world, 1), settlement=Done(emits=(letter("out"),)))
    assert (_rows(world), [due.key for due in await world.due()]) == ([1], ["out"])


async def test_rolling_back_undoes_what_the_handler_wrote(world: World) -> None:
    transaction = await _begun(world, 1)
    await transaction.roll_back()
    assert (_rows(world), transaction.over) == ([], True)
    await _others_go_on(world)


async def test_rolling_back_twice_is_harmless(world: World) -> None:
    transaction = await _begun(world, 1)
    await transaction.roll_back()
    await transaction.roll_back()
    await _others_go_on(world)


async def test_rolling_back_after_the_commit_undoes_nothing(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    await _settle(world, item, transaction)
    await transaction.roll_back()
    assert _rows(world) == [1]


async def test_after_the_settle_the_connection_is_no_longer_there(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world)
    await _settle(world, item, transaction)
    with pytest.raises(TransactionExpired):
        _ = transaction.connection


async def test_after_the_settle_others_go_on(world: World) -> None:
    item = await world.won(KEY)
    await _settle(world, item, await _begun(world, 1))
    await _others_go_on(world)


async def _overtaken(world: World) -> Item:
    """What a worker holds whose work was taken over."""
    item = await world.won(KEY, lease=LEASE)
    world.pass_time(LEASE + 1)
    await world.won(KEY)
    return item


async def test_a_lost_settle_leaves_nothing_of_what_the_handler_wrote(world: World) -> None:
    item = await _overtaken(world)
    transaction = await _begun(world, 1)
    answer = await _settle(world, item, transaction)
    await transaction.roll_back()
    assert isinstance(answer, Lost)
    assert _rows(world) == []


async def test_a_lost_settle_lets_others_go_on(world: World) -> None:
    item = await _overtaken(world)
    transaction = await _begun(world, 1, bound=4 * SOON)
    await _settle(world, item, transaction)
    try:
        await _others_go_on(world)
    finally:
        await transaction.roll_back()


async def test_a_settle_whose_answer_was_lost_after_the_commit_is_told_what_it_did(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    first = await _settle(world, item, transaction, token="once")
    again = await _settle(world, item, transaction, token="once")
    assert isinstance(first, Settled)
    assert again == Settled(State.DONE, first.epoch, again=True)
    assert (_rows(world), (await world.item(KEY)).successes) == ([1], 1)


async def test_a_transaction_that_was_rolled_back_cannot_be_settled(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    await transaction.roll_back()
    with pytest.raises(TransactionExpired):
        await _settle(world, item, transaction)
    assert (await world.item(KEY)).state is State.RUNNING


async def test_a_transaction_of_something_else_is_refused(world: World) -> None:
    class Other:
        connection = None

        async def roll_back(self, *, in_use: bool = False) -> None: ...

    with pytest.raises(TypeError):
        await world.ledger.settle(await world.won(KEY), Done(), by="test", token="t", within=Other())


async def test_a_constraint_of_the_handlers_own_leaves_the_transaction_open(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    with pytest.raises(sqlite3.IntegrityError):
        transaction.connection.execute("INSERT INTO mine VALUES (1)")
    await _settle(world, item, transaction)
    assert _rows(world) == [1]


# -- nothing else ends it


def _with(db: sqlite3.Connection) -> None:
    with db:
        pass


def _with_an_error(db: sqlite3.Connection) -> None:
    with db:
        raise sqlite3.ProgrammingError("the handler's own")


ENDS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "commit()": lambda db: db.commit(),
    "rollback()": lambda db: db.rollback(),
    "COMMIT": lambda db: db.execute("COMMIT"),
    "END": lambda db: db.execute("END TRANSACTION"),
    "ROLLBACK": lambda db: db.execute("ROLLBACK"),
    "BEGIN": lambda db: db.execute("BEGIN"),
    "with connection": _with,
    "with connection, raising": _with_an_error,
    "executescript": lambda db: db.executescript("INSERT INTO mine VALUES (9)"),
    "close()": lambda db: db.close(),
    "isolation_level": lambda db: setattr(db, "isolation_level", None),
}


@pytest.mark.parametrize("end", [name for name in ENDS if name != "isolation_level"])
async def test_a_handler_that_ends_its_transaction_is_refused(world: World, end: str) -> None:
    transaction = await _begun(world, 1)
    with pytest.raises(sqlite3.Error):
        ENDS[end](transaction.connection)
    assert transaction.connection.in_transaction
    await transaction.roll_back()
    assert _rows(world) == []


@pytest.mark.parametrize("end", ENDS)
async def test_a_handler_that_tried_to_end_its_transaction_still_gets_all_or_nothing(world: World, end: str) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    with suppress(sqlite3.Error):
        ENDS[end](transaction.connection)
    assert _rows(world) == []
    await _settle(world, item, transaction)
    assert _rows(world) == [1]


async def test_savepoints_are_the_handlers_own(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    transaction.connection.execute("SAVEPOINT here")
    transaction.connection.execute("INSERT INTO mine VALUES (2)")
    transaction.connection.execute("ROLLBACK TO here")
    transaction.connection.execute("RELEASE here")
    await _settle(world, item, transaction)
    assert _rows(world) == [1]


async def test_a_transaction_that_sqlite_itself_rolled_back_commits_nothing_in_pieces(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1)
    with pytest.raises(sqlite3.IntegrityError):
        transaction.connection.execute("INSERT OR ROLLBACK INTO mine VALUES (1)")
    with pytest.raises((HeadwayError, sqlite3.Error)):
        await _settle(world, item, transaction)
    await transaction.roll_back()
    assert (_rows(world), (await world.item(KEY)).state) == ([], State.RUNNING)


async def test_a_handler_that_closes_its_connection_does_not_keep_the_turn(world: World) -> None:
    transaction = await _begun(world, 1)
    with suppress(sqlite3.Error):
        transaction.connection.close()
    with suppress(sqlite3.Error):
        await transaction.roll_back()
    await _others_go_on(world)
    assert _rows(world) == []


# -- the bound


async def test_a_transaction_ends_at_its_bound(world: World) -> None:
    transaction = await _begun(world, 1, bound=0.05)
    await _until(lambda: transaction.over)
    with pytest.raises(TransactionExpired):
        _ = transaction.connection


async def test_a_settle_after_the_bound_is_refused_and_writes_nothing(world: World) -> None:
    item = await world.won(KEY)
    transaction = await _begun(world, 1, bound=0.05)
    await _until(lambda: transaction.over)
    with pytest.raises(TransactionExpired):
        await _settle(world, item, transaction)
    assert (_rows(world), (await world.item(KEY)).state) == ([], State.RUNNING)


async def test_after_the_bound_others_go_on(world: World) -> None:
    transaction = await _begun(world, 1, bound=0.05)
    await _others_go_on(world)
    assert transaction.over


async def test_a_statement_that_runs_past_the_bound_is_interrupted(world: World) -> None:
    transaction = await _begun(world, 1, bound=0.1)
    for_ever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    connection = transaction.connection
    async with asyncio.timeout(SOON):
        with pytest.raises(sqlite3.Error):
            await asyncio.to_thread(lambda: connection.execute(for_ever).fetchall())
    await _others_go_on(world)
    assert _rows(world) == []


# -- whose turn it is


async def test_others_wait_while_a_transaction_is_open(world: World) -> None:
    transaction = await _begun(world)
    other = asyncio.ensure_future(world.won("somebody else"))
    done, _ = await asyncio.wait({other}, timeout=0.05)
    await transaction.roll_back()
    async with asyncio.timeout(SOON):
        await other
    assert not done


async def test_reads_do_not_wait_for_a_transaction(world: World) -> None:
    await world.won(KEY)
    transaction = await _begun(world, 1)
    async with asyncio.timeout(SOON):
        assert (await world.item(KEY)).state is State.RUNNING
    await transaction.roll_back()


async def test_a_second_transaction_waits_for_the_first(world: World) -> None:
    first = await _begun(world, 1)
    second = asyncio.ensure_future(_begun(world, 2))
    done, _ = await asyncio.wait({second}, timeout=0.05)
    await first.roll_back()
    async with asyncio.timeout(SOON):
        await (await second).roll_back()
    assert not done


async def test_a_renewal_comes_between_two_waiting_transactions(world: World) -> None:
    """The turn alternates, so that a queue of handlers' transactions does not keep leases from being renewed."""
    first = await _begun(world)
    renewed = asyncio.Event()

    async def transact() -> bool:
        transaction = await _begun(world)
        await asyncio.wait({asyncio.ensure_future(renewed.wait())}, timeout=SOON / 4)
        before = renewed.is_set()
        await transaction.roll_back()
        return before

    handlers = [asyncio.ensure_future(transact()) for _ in range(3)]
    await _until(lambda: world.store.turn._waiting[1] == 3)
    claim = asyncio.ensure_future(world.won(KEY))
    claim.add_done_callback(lambda _: renewed.set())
    await _until(lambda: world.store.turn._waiting[0] == 1)
    await first.roll_back()
    assert all(await asyncio.gather(*handlers))


async def test_a_begin_that_was_cancelled_while_it_waited_leaves_the_turn_free(world: World) -> None:
    first = await _begun(world)
    begun = asyncio.ensure_future(world.transactions.begin(bound=BOUND))
    await _until(lambda: world.store.turn._waiting[1] == 1)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    await first.roll_back()
    await _others_go_on(world)


async def test_a_begin_that_was_cancelled_when_it_had_begun_leaves_the_turn_free(world: World) -> None:
    begun = asyncio.ensure_future(world.transactions.begin(bound=BOUND))
    await asyncio.sleep(0)
    deadline = time.monotonic() + SOON
    while not world.store.turn._held and time.monotonic() < deadline:
        time.sleep(0.001)  # noqa: ASYNC251 - the loop must not learn that it has begun
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    await _others_go_on(world)


async def test_transactions_leave_no_thread_behind(world: World) -> None:
    item = await world.won(KEY)
    before = set(threading.enumerate())
    await _settle(world, item, await _begun(world, 1))
    await (await _begun(world, 2)).roll_back()
    await _until(lambda: not [t for t in set(threading.enumerate()) - before if isinstance(t, threading.Timer)])


async def test_a_transaction_of_one_client_makes_another_wait_not_fail(world: World) -> None:
    async with open_world(world.store.path) as other:
        transaction = await _begun(world, 1)
        claim = asyncio.ensure_future(other.won(KEY))
        await asyncio.wait({claim}, timeout=0.05)
        await transaction.roll_back()
        async with asyncio.timeout(SOON):
            assert (await claim).state is State.RUNNING


async def test_a_handler_that_writes_in_a_loop_is_ended_at_the_bound_again_and_again(world: World) -> None:
    """Two threads inside of one connection have been seen to wait for each other for ever."""

    def write(connection: sqlite3.Connection) -> None:
        while True:
            connection.execute("INSERT INTO mine VALUES (NULL)")
            connection.execute("SELECT count(*), max(rowid) FROM mine").fetchall()

    await (await _begun(world)).roll_back()
    for _ in range(12):
        transaction = await world.transactions.begin(bound=0.05)
        async with asyncio.timeout(SOON):
            with pytest.raises((sqlite3.Error, TransactionExpired)):
                await asyncio.to_thread(write, transaction.connection)
    await _others_go_on(world)
    assert _rows(world) == []
