"""One SQLite file: its connections, its clocks, and one writer that commits what many callers ask for together.

Rules of this file: whatever is written goes through `write`, or through a `Transaction` that holds the same turn;
every step runs in a savepoint of its own, so that one that fails does not take its neighbours with it; nobody learns
the answer of a step before the commit that holds it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from headway.adapters.sqlite.turn import Turn
from headway.errors import ConfigError, Conflict, HeadwayError, IllegalMove, ServiceUnavailable
from headway.ports.points import Point, Probe, unwatched

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)
Row = Mapping[str, Any]
Step = Callable[[sqlite3.Connection], T]

META = "CREATE TABLE IF NOT EXISTS headway_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"
OLDEST_SQLITE = (3, 37, 0)
GROUP = 256
"""How many steps one commit takes at the most."""

PATIENCE = 60.0
"""How long to wait for other processes to let go of the file, in seconds."""


class Store:
    """A SQLite file that threads, event loops and processes write to together."""

    def __init__(
        self, path: str | Path, *, skew: float = 0.0, wall_skew: float = 0.0, probe: Probe = unwatched
    ) -> None:
        """Open the file, or make it. `skew` moves both clocks, `wall_skew` only the one for dates: for tests."""
        self.path = Path(path)
        self.probe = probe
        self.skew = skew
        self.wall_skew = wall_skew
        self.turn = Turn()
        self._reading = threading.Lock()
        self._asked: deque[tuple[Step[Any], Future[Any]]] = deque()
        self._queue = threading.Lock()
        self._writing = False
        self._closed = False
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed")
        self._writer = self.connect(sqlite3.Connection)
        self._reader = self.connect(sqlite3.Connection)
        # A reader waits for nobody, but for a file that is being recovered after a crash.
        self._reader.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
        self._reader.execute("PRAGMA query_only = ON")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-sqlite")

    def connect(self, factory: type[C]) -> C:
        """A connection of this file with its clocks; transactions are begun and ended by hand."""
        try:
            connection = sqlite3.connect(
                self.path,
                isolation_level=None,
                check_same_thread=False,
                timeout=0,
                factory=factory,
            )
            patiently(connection, "PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise _cannot_open(self.path, error) from error
        connection.execute("PRAGMA synchronous = FULL")
        connection.row_factory = sqlite3.Row
        connection.create_function("mono", 0, self.mono)
        connection.create_function("wall", 0, self.wall)
        return connection

    def mono(self) -> float:
        """Seconds on a clock that only goes forward: the same for all processes of this host until it restarts."""
        return time.monotonic() + self.skew

    def wall(self) -> float:
        """Seconds since 1970, by a clock that people may set."""
        return time.time() + self.skew + self.wall_skew

    async def write(self, step: Step[T]) -> T:
        """Run `step` in the next commit, beside whatever else was asked for meanwhile; return after the commit."""
        return await asyncio.wrap_future(self._submit(step))

    async def read(self, step: Step[T]) -> T:
        """Run `step` on a connection that only reads, off the event loop."""
        return await asyncio.to_thread(self._read, step)

    async def close(self) -> None:
        """Commit what was asked for, then let go of the file; harmless when that is done."""
        with self._queue:
            self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        self._writer.close()
        self._reader.close()

    def _read(self, step: Step[T]) -> T:
        with self._reading, translated():
            return step(self._reader)

    def _submit(self, step: Step[T]) -> Future[T]:
        future: Future[T] = Future()
        with self._queue:
            if self._closed:
                raise HeadwayError(f"{self.path} was closed")
            self._asked.append((step, future))
            if not self._writing:
                self._writing = True
                self._thread.submit(self._drain)
        return future

    def _drain(self) -> None:
        while batch := self._next_batch():
            try:
                self.turn.take(Turn.WRITER)
                try:
                    answers = self._commit(batch)
                finally:
                    self.turn.pass_on()
            except Exception as error:  # noqa: BLE001 - whatever it was, everybody who waits must hear of it
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                _resolve(future, answer)

    def _next_batch(self) -> list[tuple[Step[Any], Future[Any]]]:
        with self._queue:
            batch = [self._asked.popleft() for _ in range(min(GROUP, len(self._asked)))]
            self._writing = bool(batch)
            return batch

    def _commit(self, batch: list[tuple[Step[Any], Future[Any]]]) -> list[Any]:
        begin(self._writer)
        try:
            answers = [_in_savepoint(self._writer, step) for step, _ in batch]
            self.probe(Point.WRITTEN)
            with translated():
                self._writer.execute("COMMIT")
        finally:
            undo(self._writer)
        return answers


def begin(connection: sqlite3.Connection) -> None:
    """Take the file's write lock, however long other processes need theirs."""
    with translated():
        patiently(connection, "BEGIN IMMEDIATE")


def patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Run it; where another process has the file, ask again after a moment that differs each time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.0005, 0.005))  # noqa: S311 - spreads processes, protects nothing
        else:
            return


def undo(connection: sqlite3.Connection) -> None:
    """Roll back what is open; nothing where nothing is."""
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _in_savepoint(connection: sqlite3.Connection, step: Step[Any]) -> Any:
    connection.execute("SAVEPOINT step")
    try:
        with translated():
            answer = step(connection)
    except Exception as error:  # noqa: BLE001 - the step's own caller gets it, its neighbours go on
        connection.execute("ROLLBACK TO step")
        answer = error
    connection.execute("RELEASE step")
    return answer


def _resolve(future: Future[Any], answer: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into Headway's."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        if "no such move" in str(error):
            raise IllegalMove(str(error)) from error
        raise Conflict(f"SQLite refused to write: {error}") from error
    except sqlite3.Error as error:
        raise ServiceUnavailable(f"SQLite did not answer: {error}") from error


def _cannot_open(path: Path, error: sqlite3.Error) -> ConfigError:
    if not path.parent.is_dir():
        advice = f"the directory {path.parent} does not exist: create it, or name another one"
    elif path.is_dir():
        advice = "it is a directory: name a file in it"
    elif isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        advice = "it is no SQLite database: name another file"
    else:
        advice = "see that this user may write the file and its directory"
    return ConfigError(f"cannot open {path} as a SQLite file ({error}): {advice}")


def must_hold(path: Path, kind: str, version: int) -> None:
    """Refuse a file that is not there, or is none of ours, without changing anything."""
    if not path.is_file():
        raise ConfigError(f"there is no {kind} {path}: `headway run` and `headway send` make one")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            meta = dict(db.execute("SELECT name, value FROM headway_meta").fetchall())
    except sqlite3.Error as error:
        raise ConfigError(
            f"{path} cannot be read as a {kind} ({error}): see its permissions, or name another"
        ) from error
    _check(path, meta, kind, version)


def _check(path: Path | str, meta: Mapping[str, str], kind: str, version: int) -> None:
    if meta["kind"] != kind:
        raise ConfigError(f"{path} holds a {meta['kind']}, not a {kind}: give each a file of its own")
    if int(meta["version"]) != version:
        raise ConfigError(f"{path} has schema version {meta['version']}, this Headway knows {version}")


def boot_id() -> str:
    """What differs after every restart of this host: a monotonic clock means nothing beyond it."""
    proc = Path("/proc/sys/kernel/random/boot_id")
    if proc.exists():
        return proc.read_text(encoding="ascii").strip()
    asked = subprocess.run(
        ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def prepare(
    connection: sqlite3.Connection, *, kind: str, version: int, create: str, rebase: Callable[[], None]
) -> None:
    """Make the tables of a new file; after a restart of the host, put monotonic times on the new clock."""
    path = next(row["file"] for row in connection.execute("PRAGMA database_list") if row["name"] == "main")
    connection.execute(META)
    meta = dict(connection.execute("SELECT name, value FROM headway_meta").fetchall())
    if not meta:
        for statement in _split(create):
            connection.execute(statement)
        rows = {"kind": kind, "version": str(version), "boot": boot_id()}
        connection.executemany("INSERT INTO headway_meta VALUES (?, ?)", rows.items())
        return
    _check(path, meta, kind, version)
    if meta["boot"] != boot_id():
        rebase()
        connection.execute("UPDATE headway_meta SET value = ? WHERE name = 'boot'", (boot_id(),))


def _split(text: str) -> Iterator[str]:
    """The statements of a script; `executescript` would commit the transaction that they belong to."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
