"""The named policies: what is tried how often where nobody says otherwise."""

from __future__ import annotations

from headway.core.backoff import Jitter
from headway.core.policy import RetryPolicy

DEFAULT = RetryPolicy(name="default", jitter=Jitter.EQUAL)
"""What a bare `@retry` does: three executions, 1 s and 2 s apart at the most."""

EVENT_RACE = RetryPolicy(
    name="event_race",
    max_attempts=9,
    base_delay=0.25,
    max_delay=60.0,
    jitter=Jitter.FULL,
    ttl=1800.0,
)
"""What an event does whose document is not there yet: eight retries in about a minute at the most."""
