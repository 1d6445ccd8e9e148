"""A handler's own transaction in the ledger's file: committed by the settle of its work, or not at all.

A handler's thread may be in the middle of a statement when its transaction is ended by another one. So there is never
more than one thread inside the connection (two of them, with Python's lock and SQLite's, can wait for each other for
ever), and no statement of a handler ever runs outside of the transaction, where it would commit by itself.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NoReturn

from headway.adapters.sqlite.store import Store, begin, translated
from headway.adapters.sqlite.turn import Turn
from headway.errors import TransactionExpired
from headway.ports.points import Point

OPERATIONS = 10_000
"""How many steps of its machine SQLite makes, about a millisecond's, before it asks whether to abort a statement."""


class HandlerCursor(sqlite3.Cursor):
    """A cursor whose every step waits until nobody else is inside the connection."""

    connection: HandlerConnection

    def execute(self, *arguments: Any) -> HandlerCursor:
        """Run one statement."""
        with self.connection.inside():
            super().execute(*arguments)
        return self

    def executemany(self, *arguments: Any) -> HandlerCursor:
        """Run one statement for each row."""
        with self.connection.inside():
            super().executemany(*arguments)
        return self

    def executescript(self, _: str) -> NoReturn:
        """Refuse: a script begins with a COMMIT."""
        raise sqlite3.ProgrammingError("executescript() commits first: execute its statements one by one")

    def fetchone(self) -> Any:
        """The next row."""
        with self.connection.inside():
            return super().fetchone()

    def fetchmany(self, *arguments: Any) -> list[Any]:
        """The next rows."""
        with self.connection.inside():
            return super().fetchmany(*arguments)

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        with self.connection.inside():
            return super().fetchall()

    def __next__(self) -> Any:
        """The next row of a loop."""
        with self.connection.inside():
            return super().__next__()


class HandlerConnection(sqlite3.Connection):
    """A SQLite connection for one thread at a time, which cannot end its transaction: the settle does."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Open it; nothing is begun yet."""
        super().__init__(*arguments, **options)
        self.alone = threading.RLock()
        self.begun = False
        self.ended: str | None = None
        self.aborting = False
        # Not interrupt(): that would go on to abort what comes next, the rollback itself among it.
        self.set_progress_handler(lambda: self.aborting, OPERATIONS)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be the only one in here; refused once the transaction is over, whatever ended it."""
        with self.alone:
            if self.ended is not None:
                raise TransactionExpired(self.ended)
            if self.begun and not self.in_transaction:
                raise TransactionExpired("a statement of the handler's own (as INSERT OR ROLLBACK) has rolled it back")
            yield

    def cursor(self, factory: Any = HandlerCursor) -> Any:
        """A cursor that keeps to the rules of this connection."""
        if not issubclass(factory, HandlerCursor):
            raise sqlite3.ProgrammingError("leave out the cursor's class: this connection has its own")
        return super().cursor(factory)

    def execute(self, *arguments: Any) -> HandlerCursor:
        """Run one statement."""
        cursor: HandlerCursor = self.cursor()
        return cursor.execute(*arguments)

    def executemany(self, *arguments: Any) -> HandlerCursor:
        """Run one statement for each row."""
        cursor: HandlerCursor = self.cursor()
        return cursor.executemany(*arguments)

    def executescript(self, _: str) -> NoReturn:
        """Refuse: a script begins with a COMMIT."""
        raise sqlite3.ProgrammingError("executescript() commits first: execute its statements one by one")

    def commit(self) -> NoReturn:
        """Refuse: the settle commits, after the handler has returned."""
        raise sqlite3.ProgrammingError("leave out commit(): Headway commits when the handler has returned")

    def rollback(self) -> NoReturn:
        """Refuse: raising rolls back."""
        raise sqlite3.ProgrammingError("leave out rollback(): raise an error, and Headway rolls back")

    def close(self) -> NoReturn:
        """Refuse: what the handler wrote is still to be committed."""
        raise sqlite3.ProgrammingError("leave out close(): Headway closes it when the handler's work is settled")

    def __exit__(self, kind: object, *_: object) -> NoReturn:
        """Refuse: this would commit or roll back."""
        self.rollback() if kind is not None else self.commit()
        raise AssertionError


class SQLiteTransaction:
    """Holds the file's turn to write until it is committed, rolled back, or has been open for too long."""

    def __init__(self, store: Store, *, bound: float) -> None:
        """Begin it, on the calling thread, which may have to wait for its turn."""
        self._store = store
        self._ending = threading.Lock()
        self._committing = False
        self._bound = bound
        self._connection: HandlerConnection = store.connect(HandlerConnection)
        store.turn.take(Turn.HANDLER)
        try:
            begin(self._connection)
        except BaseException:
            sqlite3.Connection.close(self._connection)
            store.turn.pass_on()
            raise
        self._connection.set_authorizer(self._allows)
        self._connection.begun = True
        self._watch = threading.Timer(bound, self._expire)
        self._watch.daemon = True
        self._watch.start()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to write with; its statements are part of this work's outcome."""
        with self._connection.inside():
            return self._connection

    @property
    def over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._connection.ended is not None

    def commit(self) -> None:
        """Commit what the handler and the settle have written; raise if it was rolled back before."""
        with self._ending, self._connection.inside():
            self._committing = True
            self._store.probe(Point.WRITTEN)
            why = "its commit failed"
            try:
                with translated():
                    sqlite3.Connection.execute(self._connection, "COMMIT")
                why = "it was committed"
            finally:
                self._end(why)

    def give_up(self) -> None:
        """Roll back, on this thread: the work was taken over, or nobody waits for it any more."""
        self._roll_back("it was given up")

    async def roll_back(self) -> None:
        """Undo everything; harmless when it is over already."""
        await asyncio.to_thread(self._roll_back, "it was rolled back")

    def _roll_back(self, why: str) -> None:
        with self._ending:
            if not self.over:
                self._connection.ended = why  # so that who writes in a loop lets go of the connection
                self._end(why)

    def _expire(self) -> None:
        self._connection.aborting = True
        self._roll_back(
            f"the ctx.transaction() block was open for more than {self._bound:.1f} s, so it was rolled back: "
            "nobody else can write meanwhile; do slow work before the block, or give the service a longer lease"
        )

    def _end(self, why: str) -> None:
        with self._connection.alone:
            self._connection.ended = why
            self._watch.cancel()
            self._connection.aborting = False
            if self._connection.in_transaction:
                sqlite3.Connection.execute(self._connection, "ROLLBACK")
            sqlite3.Connection.close(self._connection)
        self._store.turn.pass_on()

    def _allows(self, action: int, *_: object) -> int:
        """Deny COMMIT and ROLLBACK as SQL text too; savepoints are the handler's own."""
        ours = self._committing or self.over
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION and not ours else sqlite3.SQLITE_OK


class SQLiteTransactions:
    """Opens transactions of one file."""

    def __init__(self, store: Store) -> None:
        """Serve this file."""
        self._store = store

    async def begin(self, *, bound: float) -> SQLiteTransaction:
        """Wait for the turn to write, off the event loop, and begin."""
        opening: Future[SQLiteTransaction] = Future()
        threading.Thread(target=self._open, args=(bound, opening), daemon=True).start()
        try:
            return await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            # Whoever asked is gone; the turn must not stay with a transaction that nobody knows.
            opening.add_done_callback(_abandon)
            raise

    def _open(self, bound: float, opening: Future[SQLiteTransaction]) -> None:
        try:
            opening.set_result(SQLiteTransaction(self._store, bound=bound))
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            opening.set_exception(error)


def _abandon(opening: Future[SQLiteTransaction]) -> None:
    if opening.exception() is None:
        opening.result().give_up()
