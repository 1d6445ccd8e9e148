"""What tests of the ledger and the broker share: parts on real files, and short ways to ask for things."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.adapters.sqlite.broker import SQLiteBroker
from headway.adapters.sqlite.ledger import SQLiteLedger
from headway.adapters.sqlite.store import Store
from headway.adapters.sqlite.transaction import SQLiteTransactions
from headway.core import claims, keys
from headway.core.event import Event, Letter
from headway.core.item import Item
from headway.core.settlements import Lost, Settled, Settlement
from headway.core.states import Carrier
from headway.runtime import envelope

STAGE = "chunking.JSONParsed"
_number = itertools.count(1)


@dataclass
class World:
    """One ledger file, opened by one client whose clocks can be moved without waiting."""

    store: Store
    ledger: SQLiteLedger
    transactions: SQLiteTransactions

    def pass_time(self, seconds: float) -> None:
        """Let time pass, for this client."""
        self.store.skew += seconds

    async def claim(self, key: str, *, carrier: Carrier = Carrier.BROKER, **changes: Any) -> claims.Answer:
        """Claim the work of a key, as a delivery or a call would."""
        return await self.ledger.claim(wanted(key, carrier=carrier, **changes))

    async def won(self, key: str, *, carrier: Carrier = Carrier.BROKER, **changes: Any) -> Item:
        """Claim the work of a key and win it; the item has its bytes, as a consumer would pass them on."""
        answer = await self.claim(key, carrier=carrier, **changes)
        assert isinstance(answer, claims.Won), answer
        body = letter(key).body if carrier is Carrier.BROKER else answer.item.body
        return replace(answer.item, body=body)

    async def settle(self, seen: Item, settlement: Settlement, *, by: str = "test", token: str = "") -> Settled | Lost:
        """Settle with a token of its own, as every new act has."""
        return await self.ledger.settle(seen, settlement, by=by, token=token or uuid.uuid4().hex)

    async def due(self, *stages: str, limit: int = 10, lease: float = 10.0) -> list[Item]:
        """Take what may run now."""
        return list(await self.ledger.due(list(stages) or [STAGE], limit=limit, lease=lease, holder=uuid.uuid4().hex))

    async def item(self, key: str) -> Item:
        """What the ledger says of the work of a key."""
        item = await self.ledger.get(keys.item_id("", STAGE, key))
        assert item is not None
        return item


def wanted(key: str, *, carrier: Carrier = Carrier.BROKER, lease: float = 10.0, **changes: Any) -> claims.Wanted:
    """What a consumer asks for when it gets the event of a key."""
    ask = claims.Wanted(
        id=keys.item_id("", changes.get("stage", STAGE), key),
        stage=STAGE,
        key=key,
        holder=uuid.uuid4().hex,
        carrier=carrier,
        lease=lease,
        event_id=key,
        event_type="JSONParsed",
    )
    return replace(ask, **changes)


def letter(event_id: str = "", *, event_type: str = "JSONParsed", data: object = None, **headers: str) -> Letter:
    """An event as it is carried."""
    event: Event[object] = Event(
        event_type=event_type,
        data={"id": event_id} if data is None else data,
        event_id=event_id or f"event-{next(_number)}",
        timestamp="2026-01-01T00:00:00.000Z",
        headers=headers,
    )
    return envelope.encode(event)


@asynccontextmanager
async def open_world(
    path: Path, *, embedded: bool = True, skew: float = 0.0, wall_skew: float = 0.0
) -> AsyncIterator[World]:
    """Open a ledger file as one client does; others may have it open at the same time."""
    store = Store(path, skew=skew, wall_skew=wall_skew)
    ledger = SQLiteLedger(store, embedded=embedded, read_data=envelope.data_of)
    await ledger.migrate()
    try:
        yield World(store, ledger, SQLiteTransactions(store))
    finally:
        await ledger.close()


@asynccontextmanager
async def open_broker(path: Path, *, alive: float = 10.0, skew: float = 0.0) -> AsyncIterator[SQLiteBroker]:
    """Open a broker file as one session."""
    broker = SQLiteBroker(Store(path, skew=skew), timeout=alive)
    await broker.migrate()
    try:
        yield broker
    finally:
        await broker.close()
