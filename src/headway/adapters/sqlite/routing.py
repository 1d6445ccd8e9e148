"""Who wants which events: the same tables in a ledger's file and in a broker's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from headway.adapters.sqlite.statements import statements
from headway.core.event import Letter
from headway.ports.broker import Subscription

SQL = statements("routing.sql")

Wanted = Mapping[str, Sequence[Subscription]]


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

    def declare(self, db: sqlite3.Connection, wanted: Wanted) -> list[Letter]:
        """Add these services' subscriptions; hand out what was kept for want of them."""
        subscriptions = [subscription for each in wanted.values() for subscription in each]
        for subscription in subscriptions:
            db.execute(SQL["subscribe"], asdict(subscription))
        rows = [
            row
            for event_type in dict.fromkeys(subscription.event_type for subscription in subscriptions)
            for row in db.execute(SQL["take_unrouted"], {"event_type": event_type}).fetchall()
        ]
        return [Letter(row["event_id"], row["event_type"], row["body"], not_after=row["not_after"]) for row in rows]

    def unrouted(self, db: sqlite3.Connection) -> int:
        """How many events are kept."""
        return int(db.execute(SQL["count_unrouted"]).fetchone()[0])
