"""Retry policies: frozen values that are refused when they are impossible."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from typing import Any

from headway.core.backoff import Jitter, nominal_delay, spread, unit


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how long and at what intervals work is tried. Times are seconds.

    `max_attempts` counts executions, the first included. `ttl` bounds the time from the first execution of a round.
    """

    name: str = "custom"
    max_attempts: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    backoff_multiplier: float = 2.0
    jitter: Jitter = Jitter.PROPORTIONAL
    jitter_factor: float = 0.1
    ttl: float | None = None

    def __post_init__(self) -> None:
        """Refuse what could never work."""
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise ValueError(f"max_attempts={self.max_attempts!r}: a whole number of executions from 1 on")
        if type(self.name) is not str:
            raise ValueError(f"name={self.name!r}: a text")
        if self.jitter not in list(Jitter):
            raise ValueError(f"jitter={self.jitter!r}: one of {', '.join(Jitter)}")
        object.__setattr__(self, "jitter", Jitter(self.jitter))
        self._check("base_delay", low=0.0)
        self._check("max_delay", low=self.base_delay, below="base_delay")
        self._check("backoff_multiplier", low=1.0)
        self._check("jitter_factor", low=0.0, high=1.0)
        if self.ttl is not None:
            self._check("ttl", low=0.0, open_at_low=True)

    def _check(
        self, field: str, *, low: float, high: float = math.inf, below: str = "", open_at_low: bool = False
    ) -> None:
        value = getattr(self, field)
        if not _is_seconds(value) or not low <= value <= high or (open_at_low and value == low):
            least = f"{below} ({low:g})" if below else f"{low:g}"
            bound = "more than" if open_at_low else "at least"
            limit = f" and at most {high:g}" if math.isfinite(high) else ""
            raise ValueError(f"{field}={value!r}: a finite number, {bound} {least}{limit}")

    def replace(self, **changes: Any) -> RetryPolicy:
        """The same policy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def delay(self, retry: int, *, key: str) -> float:
        """Seconds to wait before retry `retry` (1, 2, …) of the work that `key` names."""
        nominal = nominal_delay(retry, base=self.base_delay, factor=self.backoff_multiplier, cap=self.max_delay)
        if nominal == 0 or self.jitter is Jitter.NONE:
            return nominal
        return spread(
            nominal,
            self.jitter,
            proportion=self.jitter_factor,
            cap=self.max_delay,
            u=unit(self.name, key, retry),
        )


def _is_seconds(value: object) -> bool:
    """Whether it is a finite number, small enough for a clock to add."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < sys.float_info.max
