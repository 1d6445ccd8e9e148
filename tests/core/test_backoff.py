"""How long a retry waits: the schedule, its cap, and where chance may place it."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import backoff
from headway.core.backoff import Jitter, nominal_delay, spread, unit
from headway.core.policies import DEFAULT, EVENT_RACE
from headway.core.policy import RetryPolicy
from tests.core.made import UNITS, policies

SECONDS = st.floats(min_value=0.0, max_value=1e9)
RETRIES = st.integers(min_value=1, max_value=10**6)


@pytest.mark.parametrize(
    ("base", "factor", "cap", "schedule"),
    [
        (0.25, 2.0, 60.0, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
        (300.0, 2.0, 3600.0, [300.0, 600.0, 1200.0, 2400.0, 3600.0]),
        (5.0, 2.0, 60.0, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]),
        (1.0, 1.0, 30.0, [1.0, 1.0, 1.0]),
        (2.0, 3.0, 2.0, [2.0, 2.0]),
        (0.0, 2.0, 60.0, [0.0, 0.0]),
        (0.0, 2.0, 0.0, [0.0, 0.0]),
    ],
)
def test_the_schedule_is_to_the_letter(base: float, factor: float, cap: float, schedule: list[float]) -> None:
    retries = range(1, len(schedule) + 1)
    assert [nominal_delay(retry, base=base, factor=factor, cap=cap) for retry in retries] == schedule


def test_the_race_of_events_waits_64_seconds_in_eight_steps_at_the_most() -> None:
    steady = EVENT_RACE.replace(jitter=Jitter.NONE)
    assert sum(steady.delay(retry, key="any") for retry in range(1, 9)) == 63.75
    assert EVENT_RACE.max_attempts == 9


def test_a_bare_retry_waits_one_and_two_seconds_at_the_most() -> None:
    steady = DEFAULT.replace(jitter=Jitter.NONE)
    assert [steady.delay(retry, key="any") for retry in range(1, DEFAULT.max_attempts)] == [1.0, 2.0]
    assert DEFAULT.jitter is Jitter.EQUAL


@given(base=SECONDS, factor=st.floats(min_value=1.0, max_value=1e9), more=SECONDS, retry=RETRIES)
def test_no_nominal_delay_is_above_the_cap(base: float, factor: float, more: float, retry: int) -> None:
    cap = base + more
    assert 0.0 <= nominal_delay(retry, base=base, factor=factor, cap=cap) <= cap


@given(base=SECONDS, factor=st.floats(min_value=1.0, max_value=1e9), more=SECONDS, retry=RETRIES)
def test_no_nominal_delay_is_below_the_one_before(base: float, factor: float, more: float, retry: int) -> None:
    cap = base + more
    delay, later = (nominal_delay(number, base=base, factor=factor, cap=cap) for number in (retry, retry + 1))
    assert delay <= later


def test_the_millionth_retry_waits_for_the_cap() -> None:
    assert nominal_delay(10**6, base=0.25, factor=2.0, cap=60.0) == 60.0


@pytest.mark.parametrize(("base", "cap", "retry"), [(1e-10, 1e300, 1030), (5e-324, 1e308, 2000)])
def test_no_range_is_too_wide_for_the_power(base: float, cap: float, retry: int) -> None:
    assert 0.0 < nominal_delay(retry, base=base, factor=2.0, cap=cap) <= cap


# -- where chance may place a delay


@given(nominal=SECONDS, more=SECONDS, u=UNITS)
def test_full_jitter_is_between_nothing_and_nominal(nominal: float, more: float, u: float) -> None:
    assert 0.0 <= spread(nominal, Jitter.FULL, proportion=0.1, cap=nominal + more, u=u) <= nominal


@given(nominal=SECONDS, more=SECONDS, u=UNITS)
def test_equal_jitter_is_between_half_and_nominal(nominal: float, more: float, u: float) -> None:
    assert nominal / 2 <= spread(nominal, Jitter.EQUAL, proportion=0.1, cap=nominal + more, u=u) <= nominal


@given(nominal=SECONDS, more=SECONDS, u=UNITS)
def test_no_jitter_is_nominal(nominal: float, more: float, u: float) -> None:
    assert spread(nominal, Jitter.NONE, proportion=0.1, cap=nominal + more, u=u) == nominal


@given(nominal=SECONDS, more=SECONDS, part=st.floats(min_value=0.0, max_value=1.0), u=UNITS)
def test_proportional_jitter_is_its_part_around_nominal(nominal: float, more: float, part: float, u: float) -> None:
    delay = spread(nominal, Jitter.PROPORTIONAL, proportion=part, cap=nominal + more, u=u)
    assert nominal * (1 - part) <= delay <= nominal * (1 + part)


@given(nominal=SECONDS, more=SECONDS, jitter=st.sampled_from(Jitter), u=UNITS)
def test_no_jitter_leaves_the_cap(nominal: float, more: float, jitter: Jitter, u: float) -> None:
    cap = nominal + more
    assert 0.0 <= spread(nominal, jitter, proportion=1.0, cap=cap, u=u) <= cap


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [(Jitter.FULL, 0.0, 10.0), (Jitter.EQUAL, 5.0, 10.0), (Jitter.PROPORTIONAL, 8.0, 11.0), (Jitter.NONE, 10.0, 10.0)],
)
def test_chance_reaches_both_ends_of_the_range(jitter: Jitter, low: float, high: float) -> None:
    ends = [spread(10.0, jitter, proportion=0.2, cap=11.0, u=u) for u in (0.0, 1 - 2**-53)]
    assert ends == pytest.approx([low, high])


def test_a_delay_in_the_middle_of_a_cut_range_is_spread_and_not_piled_up_at_the_cap() -> None:
    assert spread(10.0, Jitter.PROPORTIONAL, proportion=0.2, cap=10.0, u=0.5) == pytest.approx(9.0)


# -- chance that can be derived again


@given(policy=st.text(max_size=9), key=st.text(max_size=9), retry=RETRIES)
def test_chance_is_the_same_when_it_is_derived_again(policy: str, key: str, retry: int) -> None:
    assert unit(policy, key, retry) == unit(policy, key, retry)


@given(policy=st.text(max_size=9), key=st.text(max_size=9), retry=RETRIES)
def test_chance_is_in_the_unit_interval(policy: str, key: str, retry: int) -> None:
    assert 0.0 <= unit(policy, key, retry) < 1.0


def test_chance_is_below_one_whatever_the_hash_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # No text is known whose hash is all ones, so here the hash is.
    ones = SimpleNamespace(digest=lambda: b"\xff" * 8)
    monkeypatch.setattr(backoff, "hashlib", SimpleNamespace(blake2b=lambda *_, **__: ones))
    assert unit("policy", "key", 1) < 1.0


def test_chance_is_the_same_on_every_machine() -> None:
    source = b"10:event_race3:key1"
    number = int.from_bytes(hashlib.blake2b(source, digest_size=8, person=b"headway-jitter").digest())
    assert unit("event_race", "key", 1) == pytest.approx(number / 2**64, abs=1e-12)


def test_neighbours_that_join_to_the_same_text_have_chances_of_their_own() -> None:
    assert len({unit("a", "bc", 1), unit("ab", "c", 1), unit("a", "b", 1), unit("a", "b1", 1), unit("a", "b", 11)}) == 5


def test_chance_spreads_over_the_whole_interval() -> None:
    tenths = [0] * 10
    for number in range(5000):
        tenths[int(unit("policy", f"item-{number}", 1) * 10)] += 1
    assert min(tenths) > 400
    assert max(tenths) < 600


def test_items_that_fail_together_do_not_come_back_together() -> None:
    assert len({EVENT_RACE.delay(3, key=f"item-{number}") for number in range(1000)}) == 1000


def test_the_retries_of_one_item_are_placed_anew_each_time() -> None:
    flat = RetryPolicy(base_delay=1.0, backoff_multiplier=1.0, jitter=Jitter.FULL)
    assert len({flat.delay(retry, key="item") for retry in range(1, 21)}) == 20


@given(policy=policies(), key=st.text(max_size=9), retry=RETRIES)
def test_no_policy_waits_longer_than_its_cap(policy: RetryPolicy, key: str, retry: int) -> None:
    assert 0.0 <= policy.delay(retry, key=key) <= policy.max_delay


@given(policy=policies(), key=st.text(max_size=9), retry=RETRIES)
def test_a_policy_says_the_same_delay_twice(policy: RetryPolicy, key: str, retry: int) -> None:
    assert policy.delay(retry, key=key) == policy.replace().delay(retry, key=key)
