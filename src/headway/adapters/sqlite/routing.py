"""Who wants which events: the same tables in a ledger's file and in a broker's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from headway.adapters.sqlite.statements import statements
from headway.core.event import Letter
from headway.ports.broker import Subscription

SQL = statements("routing.sql")


class Routing:
    """Steps over the subscriptions of a file; each runs inside a transaction that somebody else commits."""

    def subscribers(self, db: sqlite3.Connection, letter: Letter) -> list[Subscription]:
        """The stages that want this event."""
        rows = db.execute(SQL["subscribed"], {"event_type": letter.event_type}).fetchall()
        return [Subscription(letter.event_type, row["stage"], row["service"], row["key"]) for row in rows]

    def keep(self, db: sqlite3.Connection, letter: Letter) -> None:
        """Keep an event that nobody wants yet."""
        values = {
            "event_id": letter.event_id,
            "event_type": letter.event_type,
            "not_after": letter.not_after,
            "body": letter.body,
        }
        db.execute(SQL["keep_unrouted"], values)

    def declare(self, db: sqlite3.Connection, service: str, subscriptions: Sequence[Subscription]) -> list[Letter]:
        """Replace the service's subscriptions; hand out what was kept for want of them."""
        db.execute(SQL["unsubscribe"], {"service": service})
        kept: list[Letter] = []
        for wanted in subscriptions:
            values = {
                "stage": wanted.stage,
                "event_type": wanted.event_type,
                "service": service,
                "key": wanted.key,
            }
            db.execute(SQL["subscribe"], values)
            rows = db.execute(SQL["take_unrouted"], {"event_type": wanted.event_type}).fetchall()
            kept += [
                Letter(row["event_id"], row["event_type"], row["body"], not_after=row["not_after"]) for row in rows
            ]
        return kept

    def unrouted(self, db: sqlite3.Connection) -> int:
        """How many events are kept."""
        return int(db.execute(SQL["count_unrouted"]).fetchone()[0])
