"""The ledger in a SQLite file. What an outcome means is planned in `core.settlements`; this file only writes it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headway.adapters.sqlite.routing import Routing, Wanted
from headway.adapters.sqlite.statements import script, statements
from headway.adapters.sqlite.store import Row, Store, must_hold, prepare, translated
from headway.adapters.sqlite.transaction import SQLiteTransaction
from headway.core import claims
from headway.core.decide import Reason
from headway.core.event import Letter
from headway.core.item import Attempt, Effect, Item
from headway.core.keys import identity, item_id, quarantine_key, quarantine_stage
from headway.core.settlements import DeadLetter, Lost, Plan, Reprocess, Settled, Settlement, key_reused, plan
from headway.core.states import MOVES, Carrier, State
from headway.errors import ConfigError
from headway.ports.broker import Subscription
from headway.ports.ledger import OutboxRow, OutboxState, Query, Record, Renewal, Tally, Transaction

SQL = statements("ledger.sql")
SCHEMA_VERSION = 1

ReadData = Callable[[bytes], object]


class SQLiteLedger:
    """Every port of the ledger, over one file. It may be called from any thread and any event loop.

    `embedded` says that the file is the broker too: an event that goes out becomes a waiting item of each stage that
    wants it, in the transaction that sends it. Otherwise it becomes a row of the outbox. `read_data` reads an
    event's data from its bytes, for stages whose key is made from it.
    """

    def __init__(self, store: Store, *, embedded: bool, read_data: ReadData) -> None:
        """Serve this file; `migrate` makes its tables."""
        self._store = store
        self._embedded = embedded
        self._read_data = read_data
        self._routing = Routing()

    # -- Ledger

    async def claim(self, wanted: claims.Wanted) -> claims.Answer:
        """Take the work if it is new or free."""
        return await self._store.write(lambda db: _claim(db, wanted))

    async def renew(self, renewals: Sequence[Renewal]) -> Sequence[bool]:
        """Extend all of these leases in one transaction."""
        return await self._store.write(lambda db: [_renew(db, renewal) for renewal in renewals])

    async def settle(
        self, seen: Item, settlement: Settlement, *, by: str, token: str, within: Transaction | None = None
    ) -> Settled | Lost:
        """Write everything that this outcome means."""
        planned = plan(seen, settlement)
        if within is None:
            return await self._store.write(lambda db: self._settle(db, seen, planned, by, token))
        if not isinstance(within, SQLiteTransaction):
            raise TypeError(f"a {type(within).__name__} is no transaction of this ledger")
        if within.over:  # asked again: its commit may have happened with the answer lost, or it may have run out
            answer = await self._store.read(lambda db: _not_settled(db, seen, token))
            return answer if isinstance(answer, Settled) else self._settle_within(within, seen, planned, by, token)
        return await asyncio.to_thread(self._settle_within, within, seen, planned, by, token)

    async def due(self, stages: Sequence[str], *, limit: int, lease: float, holder: str) -> Sequence[Item]:
        """Take what may run now."""
        asked = {"stages": json.dumps(list(stages)), "limit": max(limit, 0), "lease": lease, "holder": holder}

        def due(db: sqlite3.Connection) -> list[str]:
            return [row["id"] for row in db.execute(SQL["due"], asked)]

        def take(db: sqlite3.Connection) -> list[Item]:
            ids = due(db)
            taken = db.execute(SQL["take_listed"], {**asked, "ids": json.dumps(ids), "delivered": 0}).fetchall()
            if taken:
                _use_epoch(db)
            return sorted(map(_item, taken), key=lambda item: ids.index(item.id))

        # Who finds nothing has only read: idle workers do not take the file's lock from each other.
        return await self._store.write(take) if await self._store.read(due) else []

    async def wake(self, items: Sequence[str]) -> int:
        """Make waiting items due now."""

        def wake(db: sqlite3.Connection) -> int:
            return sum(db.execute(SQL["wake"], {"id": item}).rowcount for item in items)

        return await self._store.write(wake)

    # -- LedgerReads

    async def get(self, item_id: str) -> Item | None:
        """The item of this id."""
        return await self._store.read(lambda db: _get(db, item_id))

    async def find(self, query: Query) -> Sequence[Item]:
        """A page of items in the order of their ids."""
        asked = asdict(query)
        return await self._store.read(lambda db: list(map(_item, db.execute(SQL["find"], asked).fetchall())))

    async def count(self) -> Sequence[Tally]:
        """Everything in the ledger, by stage and state."""
        rows = await self._store.read(lambda db: db.execute(SQL["count"]).fetchall())
        return [Tally(row["stage"], State(row["state"]), row["count"], row["free"], row["oldest_at"]) for row in rows]

    async def history(self, item_id: str) -> Sequence[Record]:
        """What happened to an item, oldest first."""
        return await self._store.read(lambda db: _history(db, item_id))

    # -- OutboxRows

    async def heads(self, limit: int) -> Sequence[OutboxRow]:
        """The first row of each order key, and every row without one."""
        rows = await self._store.read(lambda db: db.execute(SQL["heads"], {"limit": limit}).fetchall())
        return [OutboxRow(row["id"], _letter(row, order_key=row["order_key"]), row["tries"]) for row in rows]

    async def sent(self, rows: Sequence[int]) -> None:
        """These are with the broker."""
        await self._store.write(lambda db: db.executemany(SQL["sent"], [{"id": row} for row in rows]))

    async def refused(self, row: int, *, error: str, delay: float) -> None:
        """Try again after `delay` seconds."""
        asked = {"id": row, "error": error, "delay": delay}
        await self._store.write(lambda db: db.execute(SQL["refused"], asked))

    async def pending(self) -> OutboxState:
        """What is still to be published."""
        row = await self._store.read(lambda db: db.execute(SQL["outbox_state"]).fetchone())
        return OutboxState(row["pending"], row["oldest_at"], row["last_error"])

    # -- Upkeep

    @staticmethod
    def must_be_in(path: Path) -> None:
        """Refuse a file that holds no ledger of this version, without changing anything."""
        must_hold(path, "ledger", SCHEMA_VERSION)

    async def migrate(self) -> None:
        """Make the tables, or put an older file on this host's present clock."""

        def migrate(db: sqlite3.Connection) -> None:
            schema = script("ledger_schema.sql") + script("routing_schema.sql") + move_triggers()
            prepare(db, kind="ledger", version=SCHEMA_VERSION, create=schema, rebase=lambda: _rebase(db))

        await self._store.write(migrate)

    async def take_role(self) -> None:
        """Remember whether this file is the broker too; refuse to be used as what it has not been so far."""
        role, other = ("alone", "give --broker") if self._embedded else ("beside a broker", "leave out --broker")

        def take(db: sqlite3.Connection) -> None:
            db.execute(SQL["take_role"], {"role": role})
            known = db.execute(SQL["role"]).fetchone()["value"]
            if known != role:
                raise ConfigError(f"{self._store.path} has been used {known} so far: {other}, as its services do")

        await self._store.write(take)

    async def clean(self, *, older_than: float, limit: int = 500, dead_letters: bool = False) -> int:
        """Remove records that ended long ago, and events that nobody has wanted for as long."""
        asked = {"older_than": older_than, "limit": limit, "dead_letters": dead_letters}

        def clean(db: sqlite3.Connection) -> int:
            return db.execute(SQL["clean"], asked).rowcount + db.execute(SQL["clean_unrouted"], asked).rowcount

        return await self._store.write(clean)

    async def close(self) -> None:
        """Let go of the file."""
        await self._store.close()

    # -- The broker's part, where this file is the broker too

    async def publish(self, letter: Letter) -> None:
        """Make an event a waiting item of each stage that wants it."""
        if not self._embedded:
            raise ConfigError("this ledger is no broker: publish to the broker beside it")
        await self._store.write(lambda db: self._send(db, letter, item=None))

    async def declare(self, wanted: Wanted) -> None:
        """Add these services' subscriptions."""

        def declare(db: sqlite3.Connection) -> None:
            for letter in self._routing.declare(db, wanted):
                self._send(db, letter, item=None)

        await self._store.write(declare)

    async def unrouted(self) -> int:
        """How many events nobody has subscribed to."""
        return await self._store.read(self._routing.unrouted)

    # -- Steps: each runs inside a transaction that somebody else commits

    def _settle_within(
        self, transaction: SQLiteTransaction, seen: Item, planned: Plan, by: str, token: str
    ) -> Settled | Lost:
        with translated():
            answer = self._settle(transaction.connection, seen, planned, by, token)
        if isinstance(answer, Settled):
            transaction.commit()
        else:
            transaction.give_up()
        return answer

    def _settle(self, db: sqlite3.Connection, seen: Item, planned: Plan, by: str, token: str) -> Settled | Lost:
        if db.execute(SQL["settle"], _settle_values(seen, planned)).rowcount == 0:
            return _not_settled(db, seen, token)
        epoch = _use_epoch(db)
        if planned.attempt is not None:
            _add_attempt(db, seen.id, seen.round, planned.attempt)
        if planned.dead_letter is not None:
            _add_dead_letter(db, seen, planned.item, planned.dead_letter)
        db.execute(SQL["add_audit"], _audit_values(seen, planned, epoch, by, token))
        for letter in planned.emits:
            self._send(db, letter, item=seen.id)
        return Settled(planned.item.state, epoch)

    def _send(self, db: sqlite3.Connection, letter: Letter, *, item: str | None) -> None:
        if not self._embedded:
            db.execute(SQL["add_outbox"], {**_letter_values(letter), "item": item})
            return
        wanted_by = self._routing.subscribers(db, letter)
        for subscription in wanted_by:
            self._deliver(db, subscription, letter)
        if not wanted_by:
            self._routing.keep(db, letter)

    def _deliver(self, db: sqlite3.Connection, to: Subscription, letter: Letter) -> None:
        try:
            data = None if to.key is None else self._read_data(letter.body)
            key, payload = identity(to.key, letter.event_id, data)
        except ValueError as error:
            self._bury(db, to, letter, DeadLetter(reason=Reason.NON_RETRYABLE, message=str(error)))
            return
        born = _birth_values(to.stage, key, letter, fingerprint=payload)
        if _born(db, born) is None:
            known = _get(db, born["id"])
            if known is not None and known.fingerprint != payload:
                self._bury(db, to, letter, key_reused(key, known.id))

    def _bury(self, db: sqlite3.Connection, to: Subscription, letter: Letter, dead: DeadLetter) -> None:
        """A letter that cannot become the work it was meant to be is a dead letter of its own, over its bytes."""
        key = quarantine_key(dead.reason, letter.body)
        born = _birth_values(quarantine_stage(to.service), key, letter, fingerprint=None)
        seen = _born(db, {**born, "state": "running"})
        if seen is not None:
            self._settle(db, seen, plan(seen, dead), "publish", f"bury {seen.epoch}")
            return
        known = _get(db, born["id"])
        if known is not None and known.state is State.DONE:  # it was released once, and is back
            again = plan(known, Reprocess(reason=dead.message, body=letter.body))
            self._settle(db, known, again, "publish", f"bury {known.epoch}")


def move_triggers() -> str:
    """Triggers that refuse every move that the table of moves does not have."""
    births, moves, ends = (
        ", ".join(sorted({f"'{name}'" for name in names}))
        for names in (
            [move.target for move in MOVES if move.source is None],
            [f"{move.source}>{move.target}" for move in MOVES if move.source and move.target],
            [move.source for move in MOVES if move.target is None],
        )
    )
    refuse = "SELECT RAISE(ABORT, 'no such move of an item is in the table of moves'); END;"
    return f"""
CREATE TRIGGER headway_item_born BEFORE INSERT ON headway_item WHEN NEW.state NOT IN ({births}) BEGIN {refuse}
CREATE TRIGGER headway_item_moves BEFORE UPDATE OF state ON headway_item
    WHEN OLD.state || '>' || NEW.state NOT IN ({moves}) BEGIN {refuse}
CREATE TRIGGER headway_item_ends BEFORE DELETE ON headway_item WHEN OLD.state NOT IN ({ends}) BEGIN {refuse}
"""


def _use_epoch(db: sqlite3.Connection) -> int:
    """Use up the epoch that a move has just written. What moved nothing uses none, and so writes nothing at all."""
    return int(db.execute(SQL["use_epoch"]).fetchone()[0])


def _born(db: sqlite3.Connection, values: Mapping[str, Any]) -> Item | None:
    row = db.execute(SQL["birth"], values).fetchone()
    if row is None:
        return None
    _use_epoch(db)
    return _item(row)


def _claim(db: sqlite3.Connection, wanted: claims.Wanted) -> claims.Answer:
    asked = {
        **asdict(wanted),
        "state": "running",
        "body": None,
        "delivered": int(wanted.carrier is Carrier.BROKER),
    }
    born = _born(db, asked)
    if born is not None:
        return claims.Won(born)
    row = db.execute(SQL["take_one"], asked).fetchone()
    if row is not None:
        _use_epoch(db)
        return claims.Won(_item(row))
    item = _get(db, wanted.id)
    if item is None:
        raise LookupError(f"item {wanted.id} was neither made nor found")
    answer = claims.answer(item, wanted)
    if wanted.carrier is Carrier.BROKER and not isinstance(answer, (claims.Won, claims.Mismatch)):
        db.execute(SQL["count_delivery"], asked)
        answer = replace(answer, item=replace(item, deliveries=item.deliveries + 1))
    return answer


def _renew(db: sqlite3.Connection, renewal: Renewal) -> bool:
    attempt = renewal.attempt
    asked = {
        "id": renewal.id,
        "epoch": renewal.epoch,
        "lease": renewal.lease,
        "alone": renewal.alone,
        "attempts": None if attempt is None else attempt.number,
        "effects": None if renewal.effects is None else _effects_text(renewal.effects),
    }
    row = db.execute(SQL["renew"], asked).fetchone()
    if row is not None and attempt is not None:
        _add_attempt(db, renewal.id, row["round"], attempt)
    return row is not None


def _not_settled(db: sqlite3.Connection, seen: Item, token: str) -> Settled | Lost:
    asked = {"item": seen.id, "left_epoch": seen.epoch, "token": token}
    row = db.execute(SQL["settled_by"], asked).fetchone()
    if row is not None:
        return Settled(State(row["to_state"]), row["epoch"], again=True)
    return Lost(_get(db, seen.id))


def _get(db: sqlite3.Connection, item_id: str) -> Item | None:
    row = db.execute(SQL["get"], {"id": item_id}).fetchone()
    return None if row is None else _item(row)


def _history(db: sqlite3.Connection, item_id: str) -> list[Record]:
    asked = {"item": item_id}
    records = [
        Record(at=row["at"], what="attempt", round=row["round"], note=f"{row['error_type']}: {row['message']}",
               details=_details(row, "number", "kind", "delay", "traceback"))
        for row in db.execute(SQL["attempts_of"], asked)
    ]  # fmt: skip
    records += [
        Record(at=row["at"], what="dead letter", round=row["round"], note=row["message"],
               details=_details(row, "reason", "attempts"))
        for row in db.execute(SQL["dead_letters_of"], asked)
    ]  # fmt: skip
    records += [
        Record(at=row["at"], what=row["move"], round=row["round"], by=row["actor"], note=row["note"],
               details=_details(row, "from_state", "to_state"))
        for row in db.execute(SQL["audit_of"], asked)
    ]  # fmt: skip
    return sorted(records, key=lambda record: record.at)


def _details(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _add_attempt(db: sqlite3.Connection, item: str, round_: int, attempt: Attempt) -> None:
    values = {**asdict(attempt), "item": item, "round": round_}
    db.execute(SQL["add_attempt"], values)
    db.execute(SQL["trim_attempts"], values)


def _add_dead_letter(db: sqlite3.Connection, seen: Item, item: Item, letter: DeadLetter) -> None:
    message = letter.message
    if not message and letter.attempt is not None:
        message = f"{letter.attempt.error_type}: {letter.attempt.message}"
    asked = {
        "item": seen.id,
        "round": seen.round,
        "reason": letter.reason.value,
        "message": message,
        "attempts": item.attempts,
    }
    db.execute(SQL["add_dead_letter"], asked)


def _settle_values(seen: Item, planned: Plan) -> dict[str, Any]:
    item = planned.item
    return {
        "id": seen.id,
        "epoch": seen.epoch,
        "only_if_free": planned.only_if_free,
        "state": item.state.value,
        "carrier": item.carrier.value,
        "round": item.round,
        "attempts": item.attempts,
        "crashes": item.crashes,
        "strikes": item.strikes,
        "successes": item.successes,
        "delay": planned.delay,
        "fresh_round": planned.fresh_round,
        "body": item.body,
        "outcome": item.outcome,
        "reason": item.reason,
        "waiting_for": item.waiting_for,
        "effects": _effects_text(item.effects),
        "discarded_from": item.discarded_from,
    }


def _audit_values(seen: Item, planned: Plan, epoch: int, by: str, token: str) -> dict[str, Any]:
    return {
        "item": seen.id,
        "left_epoch": seen.epoch,
        "token": token,
        "move": planned.move,
        "from_state": seen.state.value,
        "to_state": planned.item.state.value,
        "epoch": epoch,
        "round": planned.item.round,
        "actor": by,
        "note": planned.note,
    }


def _birth_values(stage: str, key: str, letter: Letter, *, fingerprint: str | None) -> dict[str, Any]:
    return {
        "id": item_id("", stage, key),
        "tenant": "",
        "stage": stage,
        "key": key,
        "event_id": letter.event_id,
        "event_type": letter.event_type,
        "fingerprint": fingerprint,
        "state": "waiting",
        "carrier": "ledger",
        "holder": None,
        "delivered": 0,
        "lease": 0.0,
        "not_after": letter.not_after,
        "body": letter.body,
    }


def _letter_values(letter: Letter) -> dict[str, Any]:
    return {
        "event_id": letter.event_id,
        "event_type": letter.event_type,
        "order_key": letter.order_key,
        "not_after": letter.not_after,
        "body": letter.body,
    }


def _letter(row: Row, *, order_key: str | None) -> Letter:
    return Letter(row["event_id"], row["event_type"], row["body"], order_key, row["not_after"])


def _item(row: Row) -> Item:
    values = dict(row)
    values["state"] = State(values["state"])
    values["carrier"] = Carrier(values["carrier"])
    discarded_from = values["discarded_from"]
    values["discarded_from"] = None if discarded_from is None else State(discarded_from)
    values["effects"] = {name: Effect(**effect) for name, effect in json.loads(values["effects"]).items()}
    return Item(**values)


def _effects_text(effects: Mapping[str, Effect]) -> str:
    return json.dumps({name: asdict(effect) for name, effect in effects.items()})


def _rebase(db: sqlite3.Connection) -> None:
    db.execute(SQL["rebase_items"])
    db.execute(SQL["rebase_outbox"])
    db.execute(SQL["rebase_unrouted"])
