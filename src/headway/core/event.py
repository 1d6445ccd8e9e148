"""The envelope that every event travels in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Data = TypeVar("Data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[Data]):
    """One event: what happened, to what, when. Its id stays the same wherever it is sent again."""

    event_type: str
    data: Data
    event_id: str
    timestamp: str
    version: str = "1.0"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def order_key(self) -> str | None:
        """Events with the same order key are published one after the other; that says nothing of their handling."""
        return self.headers.get("order_key")


@dataclass(frozen=True, slots=True)
class Letter:
    """An event as it is carried: its identity in the open, everything else as bytes that only a codec reads."""

    event_id: str
    event_type: str
    body: bytes
    order_key: str | None = None
    not_after: float | None = None
