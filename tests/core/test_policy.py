"""A policy that could never work cannot be built, and its refusal says which number is wrong."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from headway.core.backoff import Jitter
from headway.core.policies import DEFAULT, EVENT_RACE
from headway.core.policy import RetryPolicy

NUMBERS = ["base_delay", "max_delay", "backoff_multiplier", "jitter_factor", "ttl"]
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, False, "1", "", [1], 1j]


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, "3", None, math.nan, math.inf])
def test_attempts_that_cannot_be_counted_are_refused(value: Any) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy(max_attempts=value)
    assert f"max_attempts={value!r}" in str(refused.value)


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_finite_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy(**{field: value})
    assert f"{field}={value!r}" in str(refused.value)


@pytest.mark.parametrize("field", ["base_delay", "max_delay", "backoff_multiplier", "jitter_factor"])
def test_what_must_be_a_number_is_not_left_out(field: str) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy().replace(**{field: None})
    assert f"{field}=None" in str(refused.value)


@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_that_no_clock_can_hold_is_refused(field: str) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy().replace(**{field: 10**400})
    assert f"{field}=1000" in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_delay", -0.1),
        ("max_delay", 0.9),
        ("backoff_multiplier", 0.99),
        ("jitter_factor", -0.1),
        ("jitter_factor", 1.1),
        ("ttl", 0.0),
        ("ttl", 0),
        ("ttl", -1.0),
    ],
)
def test_a_number_out_of_its_bounds_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy(base_delay=1.0).replace(**{field: value})
    assert f"{field}={value!r}" in str(refused.value)


def test_a_cap_below_the_base_is_refused_with_both() -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy(base_delay=5.0, max_delay=2.0)
    assert "max_delay=2.0" in str(refused.value)
    assert "base_delay (5)" in str(refused.value)


def test_bounds_of_both_sides_are_told() -> None:
    with pytest.raises(ValueError, match="at least 0 and at most 1"):
        RetryPolicy(jitter_factor=2.0)


@pytest.mark.parametrize("value", ["sometimes", None, 3, [], True])
def test_a_jitter_that_does_not_exist_is_refused(value: Any) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy(jitter=value)
    assert f"jitter={value!r}" in str(refused.value)


@pytest.mark.parametrize("value", [None, 3, b"mine"])
def test_a_name_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy(name=value)
    assert f"name={value!r}" in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_attempts": 1},
        {"base_delay": 0.0, "max_delay": 0.0},
        {"base_delay": 30, "max_delay": 30},
        {"backoff_multiplier": 1},
        {"jitter_factor": 0},
        {"jitter_factor": 1},
        {"ttl": 0.001},
        {"ttl": None},
    ],
)
def test_a_number_on_its_bound_is_taken(changes: dict[str, Any]) -> None:
    policy = RetryPolicy(**changes)
    assert {name: getattr(policy, name) for name in changes} == changes


def test_a_jitter_may_be_written_as_its_name() -> None:
    assert RetryPolicy(jitter="full").jitter is Jitter.FULL  # type: ignore[arg-type]  # a setting is text


def test_a_changed_policy_is_checked_like_a_new_one() -> None:
    with pytest.raises(ValueError, match="max_attempts=0"):
        DEFAULT.replace(max_attempts=0)


def test_replace_changes_what_it_names_and_nothing_else() -> None:
    changed = EVENT_RACE.replace(ttl=60.0)
    assert changed == RetryPolicy(**{**dataclasses.asdict(EVENT_RACE), "ttl": 60.0})
    assert EVENT_RACE.ttl == 1800.0


def test_a_policy_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.max_attempts = 7  # type: ignore[misc]  # that it is refused is the point


def test_a_policy_that_may_not_wait_waits_for_nothing() -> None:
    policy = RetryPolicy(base_delay=0.0, jitter=Jitter.FULL)
    assert policy.delay(7, key="any") == 0.0


def test_the_policy_without_arguments_is_spread_by_a_tenth() -> None:
    delays = [RetryPolicy().delay(1, key=f"item-{number}") for number in range(200)]
    assert min(delays) >= 0.9
    assert max(delays) <= 1.1
    assert max(delays) - min(delays) > 0.15
