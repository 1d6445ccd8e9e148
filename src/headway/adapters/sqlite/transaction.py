"""A handler's own transaction in the ledger's file: committed by the settle of its work, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NoReturn

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


class SQLiteTransaction:
    """Holds the file's turn to write until it is committed, rolled back, or has been open for too long."""

    def __init__(self, store: Store, *, bound: float) -> None:
        """Begin it, on the calling thread, which may have to wait for its turn."""
        self._store = store
        self._over = threading.Lock()
        self._ended: str | None = None
        self._bound = bound
        self._connection = store.connect(HandlerConnection)
        store.turn.take(Turn.HANDLER)
        try:
            begin(self._connection)
        except BaseException:
            store.turn.pass_on()
            self._connection.close()
            raise
        self._connection.set_authorizer(_no_end)
        self._watch = threading.Timer(bound, self._expire)
        self._watch.daemon = True
        self._watch.start()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection to write with; its statements are part of this work's outcome."""
        if self._ended is not None:
            raise TransactionExpired(self._ended)
        return self._connection

    @property
    def over(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._ended is not None

    def commit(self) -> None:
        """Commit what the handler and the settle have written; raise if it was rolled back before."""
        with self._over:
            connection = self.connection
            try:
                connection.set_authorizer(None)
                self._store.probe(Point.WRITTEN)
                with translated():
                    connection.execute("COMMIT")
            finally:
                self._end("it was committed")

    async def roll_back(self) -> None:
        """Undo everything; harmless when it is over already."""
        await asyncio.to_thread(self._roll_back, "it was rolled back")

    def _roll_back(self, why: str) -> None:
        with self._over:
            if self._ended is None:
                self._end(why)

    def _expire(self) -> None:
        why = (
            f"the ctx.transaction() block was open for more than {self._bound:.1f} s, so it was rolled back: "
            "nobody else can write meanwhile; do slow work before the block, or give the stage a longer lease"
        )
        with suppress(sqlite3.ProgrammingError):  # it was closed just now
            self._connection.interrupt()
        self._roll_back(why)

    def _end(self, why: str) -> None:
        self._ended = why
        self._watch.cancel()
        # A statement that a handler still runs must not slip in after the rollback, where it would commit by itself.
        self._connection.set_authorizer(_only_rollback)
        undo(self._connection)
        self._connection.close()
        self._store.turn.pass_on()


def _no_end(action: int, argument: str | None, *_: object) -> int:
    """Deny COMMIT and ROLLBACK as SQL text too; savepoints are the handler's own."""
    ends = action == sqlite3.SQLITE_TRANSACTION and argument in {"COMMIT", "ROLLBACK"}
    return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK


def _only_rollback(action: int, argument: str | None, *_: object) -> int:
    rolls_back = action == sqlite3.SQLITE_TRANSACTION and argument == "ROLLBACK"
    return sqlite3.SQLITE_OK if rolls_back else sqlite3.SQLITE_DENY


class SQLiteTransactions:
    """Opens transactions of one file."""

    def __init__(self, store: Store) -> None:
        """Serve this file."""
        self._store = store

    async def begin(self, *, bound: float) -> SQLiteTransaction:
        """Wait for the turn to write, off the event loop, and begin."""
        opening: Future[Any] = Future()
        threading.Thread(target=self._open, args=(bound, opening), daemon=True).start()
        try:
            return await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            # Whoever asked is gone; the turn must not stay with a transaction that nobody knows.
            opening.add_done_callback(_abandon)
            raise

    def _open(self, bound: float, opening: Future[Any]) -> None:
        try:
            opening.set_result(SQLiteTransaction(self._store, bound=bound))
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            opening.set_exception(error)


def _abandon(opening: Future[Any]) -> None:
    if opening.exception() is None:
        opening.result()._roll_back("nobody waits for it any more")  # noqa: SLF001 - of this module
