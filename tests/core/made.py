"""Items and policies for tests of the rules, made by hand and by search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headway.core.backoff import Jitter
from headway.core.item import Attempt, Effect, Item
from headway.core.policy import RetryPolicy
from headway.core.states import Carrier, State

UNITS = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)
OPEN = Effect(unsafe=True)
BODY = b'{"id": 1}'


def item(**changes: Any) -> Item:
    """An item that a consumer has claimed: running, carried by the broker, its bytes at hand."""
    made = Item(
        id="item-1",
        tenant="",
        stage="chunking.JSONParsed",
        key="event-1",
        event_id="event-1",
        event_type="JSONParsed",
        fingerprint=None,
        state=State.RUNNING,
        carrier=Carrier.BROKER,
        epoch=7,
        holder="worker-1",
        round=1,
        attempts=0,
        crashes=0,
        strikes=0,
        deliveries=1,
        successes=0,
        free_in=10.0,
        elapsed=0.0,
        not_after_in=None,
        body=BODY,
        outcome=None,
        reason=None,
        waiting_for=None,
    )
    return replace(made, **changes)


def attempt(number: int = 1) -> Attempt:
    """A charged execution."""
    return Attempt(number=number, kind="transient", error_type="TimeoutError", message="no answer")


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    """Any policy that can be built."""
    base = draw(st.floats(min_value=0.0, max_value=1e6))
    return RetryPolicy(
        name=draw(st.text(max_size=5)),
        max_attempts=draw(st.integers(min_value=1, max_value=50)),
        base_delay=base,
        max_delay=draw(st.floats(min_value=base, max_value=1e7)),
        backoff_multiplier=draw(st.floats(min_value=1.0, max_value=100.0)),
        jitter=draw(st.sampled_from(Jitter)),
        jitter_factor=draw(st.floats(min_value=0.0, max_value=1.0)),
        ttl=draw(st.none() | st.floats(min_value=1e-3, max_value=1e7)),  # shorter is lost in the clock's own steps
    )
