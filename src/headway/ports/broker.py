"""What carries events between services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.event import Letter


@dataclass(frozen=True, slots=True)
class Delivery:
    """Bytes from a queue, ours until they are acknowledged, given back, or we are taken for dead."""

    tag: str
    body: bytes
    deliveries: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A stage that wants events of a type, with the template of its key, where it is not the event's id."""

    event_type: str
    stage: str
    service: str
    key: str | None = None


class Broker(Protocol):
    """Five verbs. Nothing here counts attempts or waits: that is the ledger's."""

    async def publish(self, letter: Letter) -> None:
        """Return only when the event is durable with the broker; raise where it refused it."""
        ...

    async def receive(self, queue: str, limit: int) -> Sequence[Delivery]:
        """Take up to `limit` messages, at once; an empty answer says that there are none. Keeps our session alive."""
        ...

    async def acknowledge(self, delivery: Delivery) -> None:
        """The message is accounted for; harmless when it is no longer ours."""
        ...

    async def give_back(self, delivery: Delivery) -> None:
        """Somebody else should have it; harmless when it is no longer ours."""
        ...

    async def close(self) -> None:
        """End the session: what was not acknowledged is delivered again, to others, at once."""
        ...


class Topology(Protocol):
    """Who wants which events."""

    async def declare(self, wanted: Mapping[str, Sequence[Subscription]]) -> None:
        """Add these services' subscriptions; none is ever taken away, since an older worker may start beside a newer.

        Events that nobody wanted before go to all who want them now; a service that comes later gets none of them.
        """
        ...

    async def unrouted(self) -> int:
        """How many events are kept that nobody has subscribed to."""
        ...
