"""The one decision: what happens next to work that failed, or that came with a past.

Rules of this file: `decide` is pure; every time it is given is on the same clock as `now`; whoever retries anything
in Headway asks it, and nobody else decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.failure import FINAL, REFUSED, UNCHARGED, Failure, Kind
from headway.core.policy import RetryPolicy

CRASH_LIMIT = 3
"""How many times work may kill its worker, while nothing else ran there, before it is stopped."""

LEAD = 0.1
"""How long before a limit the last attempt starts at the latest: a clipped wait must end before it, not at it."""


class Reason(StrEnum):
    """Why work was abandoned: the closed set that every dead letter carries."""

    MAX_ATTEMPTS = "max_attempts_exceeded"
    TTL = "ttl_exceeded"
    NON_RETRYABLE = "non_retryable"
    POISON = "poison"
    NO_HANDLER = "no_handler"
    CRASH_LOOP = "crash_loop"
    MISSING_DEPENDENCY = "missing_dependency"
    KEY_REUSE = "key_reuse"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is known of the work in this round: a few numbers, never the list of its attempts."""

    key: str
    attempts: int = 0
    strikes: int = 0
    started: float = 0.0
    not_after: float | None = None
    open_effects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """Run it (again) after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Stop, and put it in front of a person."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Doubt:
    """Unsafe effects may or may not have happened: a person or a probe must say."""

    effects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Nothing was wrong with the work: hand it back, uncharged."""


Decision = Retry | DeadLetter | Doubt | GiveBack

_NOW = Retry(0.0)
_GIVE_BACK = GiveBack()


def decide(policy: RetryPolicy, failure: Failure | None, history: History, now: float) -> Decision:
    """Say what happens next. `failure` is None before the handler is called: then `Retry(0)` means go ahead."""
    kind = None if failure is None else failure.kind
    if history.open_effects and kind not in REFUSED:
        return Doubt(history.open_effects)
    if kind in UNCHARGED:
        return _GIVE_BACK
    if history.strikes >= CRASH_LIMIT:
        return DeadLetter(Reason.CRASH_LOOP)
    if kind in FINAL:
        return DeadLetter(Reason.POISON if kind is Kind.POISON else Reason.NON_RETRYABLE)
    remaining = _limit(policy, history) - now
    if failure is None:
        return _NOW if remaining > 0 else DeadLetter(Reason.TTL)
    if history.attempts >= policy.max_attempts:
        return DeadLetter(Reason.MAX_ATTEMPTS)
    return _wait(policy, failure, history, remaining)


def _limit(policy: RetryPolicy, history: History) -> float:
    own = float("inf") if policy.ttl is None else history.started + policy.ttl
    return own if history.not_after is None else min(own, history.not_after)


def _wait(policy: RetryPolicy, failure: Failure, history: History, remaining: float) -> Decision:
    floor = failure.retry_after or 0.0
    last_start = remaining - min(LEAD, (policy.ttl or 1.0) / 10)
    if last_start <= 0 or floor > last_start:
        return DeadLetter(Reason.TTL)
    delay = max(policy.delay(history.attempts, key=history.key), floor)
    return Retry(min(delay, last_start)) if delay > 0 else _NOW
