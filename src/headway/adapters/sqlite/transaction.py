"""A handler's own transaction in the ledger's file: committed by the settle of its work, or not at all.

A handler's thread may be in the middle of a statement when its transaction is ended by another one. So no statement
of a handler may ever run outside of the transaction, where it would commit by itself: each is compiled anew and asked
for first, and from the end on the connection only reads.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import NoReturn

from headway.adapters.sqlite.store import Store, begin, translated, undo
from headway.adapters.sqlite.turn import Turn
from headway.errors import TransactionExpired
from headway.ports.points import Point


class HandlerConnection(sqlite3.Connection):
    """A full SQLite connection, except that it cannot end its transaction: the settle does."""

    def commit(self) -> NoReturn:
        """Refuse: the settle commits, after the handler has returned."""
        raise sqlite3.ProgrammingError("leave out commit(): Headway commits when the handler has returned")

    def rollback(self) -> NoReturn:
        """Refuse: raising rolls back."""
        raise sqlite3.ProgrammingError("leave out rollback(): raise an error, and Headway rolls back")

    def close(self) -> NoReturn:
        """Refuse: what the handler wrote is still to be committed."""
        raise sqlite3.ProgrammingError("leave out close(): Headway closes it when the handler's work is settled")


class SQLiteTransaction:
    """Holds the file's turn to write until it is committed, rolled back, or has been open for too long."""

    def __init__(self, store: Store, *, bound: float) -> None:
        """Begin it, on the calling thread, which may have to wait for its turn."""
        self._store = store
        self._ending = threading.Lock()
        self._ended: str | None = None
        self._committing = False
        self._bound = bound
        self._connection = store.connect(HandlerConnection)
        store.turn.take(Turn.HANDLER)
        try:
            begin(self._connection)
        except BaseException:
            store.turn.pass_on()
            self._close()
            raise
        self._connection.set_authorizer(self._allows)
        self._watch = threading.Timer(bound, self._expire)
        self._watch.daemon = True
        self._watch.start()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to write with; its statements are part of this work's outcome."""
        if self._ended is None and not self._connection.in_transaction:
            self._roll_back("a statement of the handler's own (such as INSERT OR ROLLBACK) has rolled it back")
        if self._ended is not None:
            raise TransactionExpired(self._ended)
        return self._connection

    @property
    def over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._ended is not None

    def commit(self) -> None:
        """Commit what the handler and the settle have written; raise if it was rolled back before."""
        with self._ending:
            if self._ended is not None:
                raise TransactionExpired(self._ended)
            self._committing = True
            self._store.probe(Point.WRITTEN)
            why = "its commit failed"
            try:
                with translated():
                    self._connection.execute("COMMIT")
                why = "it was committed"
            finally:
                self._end(why)
        self._close()

    def give_up(self) -> None:
        """Roll back and close: the work was taken over, so nothing of it may stay."""
        self._roll_back("the work was taken over")
        self._close()

    async def roll_back(self, *, in_use: bool = False) -> None:
        """Undo everything; harmless when it is over already.

        `in_use` says that a thread may still be writing with it: it is fenced then, and left open to that thread.
        """
        await asyncio.to_thread(self._roll_back, "it was rolled back")
        if not in_use:
            self._close()

    def _roll_back(self, why: str) -> None:
        with self._ending:
            if self._ended is None:
                self._end(why)

    def _expire(self) -> None:
        self._connection.interrupt()
        self._roll_back(
            f"the ctx.transaction() block was open for more than {self._bound:.1f} s, so it was rolled back: "
            "nobody else can write meanwhile; do slow work before the block, or give the service a longer lease"
        )

    def _end(self, why: str) -> None:
        self._ended = why
        self._watch.cancel()
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA query_only = ON")
        undo(self._connection)
        self._store.turn.pass_on()

    def _close(self) -> None:
        sqlite3.Connection.close(self._connection)

    def _allows(self, action: int, *_: object) -> int:
        """Deny COMMIT and ROLLBACK as SQL text too; and everything, once there is no transaction any more."""
        if self._ended is not None:
            return sqlite3.SQLITE_OK  # it only reads by now
        ends = action == sqlite3.SQLITE_TRANSACTION and not self._committing
        return sqlite3.SQLITE_DENY if ends or not self._connection.in_transaction else sqlite3.SQLITE_OK


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
        transaction = opening.result()
        transaction._roll_back("nobody waits for it any more")  # noqa: SLF001 - of this module
        transaction._close()  # noqa: SLF001 - of this module
