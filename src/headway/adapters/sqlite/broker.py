"""A broker in a SQLite file of its own: queues, sessions, redelivery. It fences nothing beyond its own session."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from headway.adapters.sqlite.routing import Routing, Wanted
from headway.adapters.sqlite.statements import script, statements
from headway.adapters.sqlite.store import Store, must_hold, prepare
from headway.core.event import Letter
from headway.ports.broker import Delivery

SQL = statements("broker.sql")
SCHEMA_VERSION = 1


class SQLiteBroker:
    """One session with the broker. When it has not received for `timeout` seconds, what it holds goes to others."""

    def __init__(self, store: Store, *, timeout: float = 30.0) -> None:
        """Serve this file; `migrate` makes its tables."""
        self._store = store
        self._timeout = timeout
        self._session = uuid.uuid4().hex
        self._alive_since = float("-inf")
        self._closed = False
        self._routing = Routing()

    @staticmethod
    def must_be_in(path: Path) -> None:
        """Refuse a file that holds no broker of this version, without changing anything."""
        must_hold(path, "broker", SCHEMA_VERSION)

    async def migrate(self) -> None:
        """Make the tables; after a restart of the host, no session is alive."""

        def migrate(db: sqlite3.Connection) -> None:
            schema = script("broker_schema.sql") + script("routing_schema.sql")

            def rebase() -> None:
                db.execute("DELETE FROM headway_session")

            prepare(db, kind="broker", version=SCHEMA_VERSION, create=schema, rebase=rebase)

        await self._store.write(migrate)

    async def publish(self, letter: Letter) -> None:
        """Put the event into the queue of each service that wants it."""
        await self._store.write(lambda db: self._route(db, letter))

    async def receive(self, queue: str, limit: int) -> Sequence[Delivery]:
        """Take messages that no living session holds."""
        before = time.monotonic()
        renew = before - self._alive_since > self._timeout / 3
        asked = {"queue": queue, "limit": max(limit, 0), "session": self._session, "timeout": self._timeout}

        def ready(db: sqlite3.Connection) -> list[int]:
            return [row["id"] for row in db.execute(SQL["ready"], asked)]

        def receive(db: sqlite3.Connection) -> list[Delivery]:
            if renew:
                db.execute(SQL["forget_dead"])
                db.execute(SQL["keep_alive"], asked)
            rows = db.execute(SQL["hold"], {**asked, "ids": json.dumps(ready(db))}).fetchall()
            rows.sort(key=lambda row: row["id"])
            return [Delivery(str(row["id"]), row["body"], row["deliveries"]) for row in rows]

        # Who finds nothing has only read: idle services do not take the file's lock from each other.
        if not renew and not await self._store.read(ready):
            return []
        deliveries = await self._store.write(receive)
        if renew:
            self._alive_since = before
        return deliveries

    async def acknowledge(self, delivery: Delivery) -> None:
        """Remove the message, if it is still ours."""
        await self._store.write(lambda db: db.execute(SQL["acknowledge"], self._held(delivery)))

    async def give_back(self, delivery: Delivery) -> None:
        """Let others have the message, if it is still ours."""
        await self._store.write(lambda db: db.execute(SQL["give_back"], self._held(delivery)))

    async def close(self) -> None:
        """End the session and let go of the file; harmless when that is done."""
        if not self._closed:
            self._closed = True
            await self._store.write(lambda db: db.execute(SQL["end_session"], {"session": self._session}))
        await self._store.close()

    async def declare(self, wanted: Wanted) -> None:
        """Add these services' subscriptions."""

        def declare(db: sqlite3.Connection) -> None:
            for letter in self._routing.declare(db, wanted):
                self._route(db, letter)

        await self._store.write(declare)

    async def unrouted(self) -> int:
        """How many events nobody has subscribed to."""
        return await self._store.read(self._routing.unrouted)

    async def depths(self) -> dict[str, int]:
        """How many messages each queue holds, delivered ones included."""
        rows = await self._store.read(lambda db: db.execute(SQL["depth"]).fetchall())
        return {row["queue"]: row["count"] for row in rows}

    def _route(self, db: sqlite3.Connection, letter: Letter) -> None:
        queues = sorted({wanted.service for wanted in self._routing.subscribers(db, letter)})
        for queue in queues:
            db.execute(SQL["enqueue"], {"queue": queue, "body": letter.body})
        if not queues:
            self._routing.keep(db, letter)

    def _held(self, delivery: Delivery) -> dict[str, object]:
        return {"id": int(delivery.tag), "session": self._session, "deliveries": delivery.deliveries}
