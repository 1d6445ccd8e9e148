"""What a ledger knows of one piece of work."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.states import Carrier, State


@dataclass(frozen=True, slots=True)
class Effect:
    """An outside effect that the work began. While `happened` is None nobody knows whether it did."""

    unsafe: bool = False
    happened: bool | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One event at one stage, as it was when it was read.

    `epoch` changes with every move, so `(id, epoch)` says what a reader saw. Times are seconds from the reading, by
    the store's own clock: `free_in` until somebody may take it (the rest of the lease, or of the wait), `elapsed`
    since the first execution of the round. `*_at` are wall-clock dates, for people.
    """

    id: str
    tenant: str
    stage: str
    key: str
    event_id: str
    event_type: str
    fingerprint: str | None
    state: State
    carrier: Carrier
    epoch: int
    holder: str | None
    round: int
    attempts: int
    crashes: int
    strikes: int
    deliveries: int
    successes: int
    free_in: float
    elapsed: float
    not_after_in: float | None
    body: bytes | None
    outcome: bytes | None
    reason: str | None
    waiting_for: str | None
    effects: dict[str, Effect] = field(default_factory=dict)
    discarded_from: State | None = None
    created_at: float = 0.0
    moved_at: float = 0.0
    free_at: float = 0.0

    @property
    def open_effects(self) -> tuple[str, ...]:
        """The unsafe effects that were begun and never ended."""
        return tuple(name for name, effect in self.effects.items() if effect.unsafe and effect.happened is None)

    @property
    def stranded(self) -> bool:
        """Running by its record, but its lease is over and its carrier has not brought it back."""
        return self.state is State.RUNNING and self.free_in <= 0 and self.carrier is not Carrier.LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One charged execution that failed."""

    number: int
    kind: str
    error_type: str
    message: str
    delay: float | None = None
    traceback: str = ""
