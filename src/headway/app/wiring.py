"""One URL chooses a part. Which parts there are, and which go together, is known here and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from headway.adapters.sqlite.broker import SQLiteBroker
from headway.adapters.sqlite.ledger import SQLiteLedger
from headway.adapters.sqlite.store import Store
from headway.adapters.sqlite.transaction import SQLiteTransactions
from headway.core.event import Letter
from headway.errors import ConfigError
from headway.ports.broker import Broker, Topology
from headway.ports.ledger import Transactions, WholeLedger
from headway.ports.points import Probe, unwatched
from headway.runtime import envelope


class Publisher(Protocol):
    """Whatever takes events: the broker, or the ledger that is the broker too."""

    async def publish(self, letter: Letter) -> None:
        """Return only when the event is durable."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service runs on. `broker` is None where the ledger is the broker too."""

    ledger: WholeLedger
    transactions: Transactions
    publisher: Publisher
    topology: Topology
    broker: Broker | None


def sqlite_path(url: str | None, *, part: str) -> Path:
    """The file that a URL names; refuse everything else with what to write instead."""
    example = f"--{part} sqlite:///{part}.db (or HEADWAY_{part.upper()}=sqlite:///{part}.db)"
    if not url:
        raise ConfigError(f"which {part}? Give {example}: nothing is kept in a file that nobody has named")
    try:
        split = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} is no URL ({error}): write it as in {example}") from error
    if split.scheme != "sqlite":
        raise ConfigError(
            f"there is no {part} for {url!r}: {split.scheme or 'no scheme'}; known is sqlite, as in {example}"
        )
    if split.netloc or len(split.path) < 2 or not url.startswith("sqlite:///"):
        raise ConfigError(f"{url!r} names no file: three slashes and a path, as in {example}")
    if "?" in url or "#" in url:
        raise ConfigError(f"{url!r}: there is nothing to set behind ? or #; in a file's name write %3F or %23")
    # As everywhere with SQLite URLs, sqlite:///x.db is beside you and sqlite:////var/x.db is absolute.
    path = unquote(split.path[1:])
    if path == ":memory:":
        raise ConfigError(f"{url!r}: what is only in memory is lost with the process; name a file, as in {example}")
    if "\0" in path:
        raise ConfigError(f"{url!r} names no file: a name has no NUL in it; write it as in {example}")
    return Path(path)


@asynccontextmanager
async def open_parts(
    ledger_url: str | None,
    broker_url: str | None = None,
    *,
    session: float = 30.0,
    probe: Probe = unwatched,
    make: bool = False,
) -> AsyncIterator[Parts]:
    """Open what these URLs name. Without a broker's URL, or with the ledger's, one file is both.

    Only with `make` is a file that does not exist made: who looks at a ledger wants the one that there is.
    """
    ledger_path = sqlite_path(ledger_url, part="ledger")
    broker_path = ledger_path if broker_url is None else sqlite_path(broker_url, part="broker")
    embedded = broker_path.resolve() == ledger_path.resolve()
    if not make:
        SQLiteLedger.must_be_in(ledger_path)
        if not embedded:
            SQLiteBroker.must_be_in(broker_path)
    async with AsyncExitStack() as stack:
        store = Store(ledger_path, probe=probe)
        ledger = SQLiteLedger(store, embedded=embedded, read_data=envelope.data_of)
        stack.push_async_callback(ledger.close)
        if make:  # who looks changes nothing, and waits for nobody
            await ledger.migrate()
            await ledger.take_role()
        transactions = SQLiteTransactions(store)
        if embedded:
            yield Parts(ledger, transactions, ledger, ledger, None)
            return
        broker_store = Store(broker_path)
        stack.push_async_callback(broker_store.close)
        broker = SQLiteBroker(broker_store, timeout=session)
        if make:
            await broker.migrate()
            stack.push_async_callback(broker.close)
        yield Parts(ledger, transactions, broker, broker, broker)
