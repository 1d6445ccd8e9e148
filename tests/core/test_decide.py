"""The one decision: every branch by example, and what must hold of all answers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headway.core.backoff import Jitter
from headway.core.decide import (
    CRASH_LIMIT,
    LEAD,
    DeadLetter,
    Decision,
    Doubt,
    GiveBack,
    History,
    Reason,
    Retry,
    decide,
)
from headway.core.failure import FINAL, REFUSED, UNCHARGED, Failure, Kind
from headway.core.policy import RetryPolicy
from tests.core.made import policies

POLICY = RetryPolicy(name="test", max_attempts=3, base_delay=1.0, max_delay=30.0, jitter=Jitter.NONE, ttl=60.0)
FRESH = History(key="item-1")
CHARGED = [kind for kind in Kind if kind not in UNCHARGED | FINAL]

TIMES = st.floats(min_value=0.0, max_value=1e6)


def failure(kind: Kind = Kind.TRANSIENT, *, retry_after: float | None = None) -> Failure:
    """A failure of a kind."""
    return Failure(kind, "test", "TimeoutError", "no answer", retry_after)


FAILURES = st.builds(failure, st.sampled_from(Kind), retry_after=st.none() | st.floats(min_value=0.0, max_value=1e5))
HISTORIES = st.builds(
    History,
    key=st.text(max_size=5),
    attempts=st.integers(min_value=0, max_value=60),
    strikes=st.integers(min_value=0, max_value=5),
    started=TIMES,
    not_after=st.none() | TIMES,
    open_effects=st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
)


def limit(policy: RetryPolicy, history: History) -> float:
    """When no attempt may start any more."""
    own = math.inf if policy.ttl is None else history.started + policy.ttl
    return min(own, math.inf if history.not_after is None else history.not_after)


# -- before the handler is called


def test_work_without_a_past_goes_ahead() -> None:
    assert decide(POLICY, None, FRESH, 0.0) == Retry(0.0)


def test_a_takeover_goes_ahead_although_attempts_are_used_up() -> None:
    assert decide(POLICY, None, replace(FRESH, attempts=2), 0.0) == Retry(0.0)


@pytest.mark.parametrize("now", [60.0, 61.0])
def test_work_whose_time_is_over_is_not_begun(now: float) -> None:
    assert decide(POLICY, None, FRESH, now) == DeadLetter(Reason.TTL)


def test_work_is_begun_until_its_time_is_over() -> None:
    assert decide(POLICY, None, FRESH, 59.999) == Retry(0.0)


def test_work_that_its_sender_no_longer_wants_is_not_begun() -> None:
    assert decide(POLICY, None, replace(FRESH, not_after=5.0), 5.0) == DeadLetter(Reason.TTL)


def test_without_a_limit_work_may_be_begun_at_any_time() -> None:
    assert decide(POLICY.replace(ttl=None), None, FRESH, 1e9) == Retry(0.0)


@pytest.mark.parametrize("strikes", [CRASH_LIMIT, CRASH_LIMIT + 1])
def test_work_that_killed_its_workers_is_not_begun(strikes: int) -> None:
    assert decide(POLICY, None, replace(FRESH, strikes=strikes), 0.0) == DeadLetter(Reason.CRASH_LOOP)


def test_work_is_begun_below_the_limit_of_crashes() -> None:
    assert decide(POLICY, None, replace(FRESH, strikes=CRASH_LIMIT - 1), 0.0) == Retry(0.0)


def test_work_with_an_open_effect_is_not_begun() -> None:
    assert decide(POLICY, None, replace(FRESH, open_effects=("charge",)), 0.0) == Doubt(("charge",))


def test_three_crashes_are_the_limit() -> None:
    assert CRASH_LIMIT == 3


# -- after a failure


@pytest.mark.parametrize("kind", CHARGED)
def test_a_failure_that_may_pass_is_retried(kind: Kind) -> None:
    assert decide(POLICY, failure(kind), replace(FRESH, attempts=1), 0.0) == Retry(1.0)


@pytest.mark.parametrize(("attempts", "delay"), [(1, 1.0), (2, 2.0)])
def test_delays_grow_with_the_attempts(attempts: int, delay: float) -> None:
    assert decide(POLICY, failure(), replace(FRESH, attempts=attempts), 0.0) == Retry(delay)


@pytest.mark.parametrize("attempts", [3, 4])
def test_attempts_are_used_up(attempts: int) -> None:
    assert decide(POLICY, failure(), replace(FRESH, attempts=attempts), 0.0) == DeadLetter(Reason.MAX_ATTEMPTS)


@pytest.mark.parametrize(("kind", "reason"), [(Kind.PERMANENT, Reason.NON_RETRYABLE), (Kind.POISON, Reason.POISON)])
def test_a_final_failure_is_not_retried(kind: Kind, reason: Reason) -> None:
    assert decide(POLICY, failure(kind), replace(FRESH, attempts=1), 0.0) == DeadLetter(reason)


@pytest.mark.parametrize("kind", sorted(UNCHARGED))
def test_a_failure_that_is_not_the_works_own_gives_it_back(kind: Kind) -> None:
    used_up = replace(FRESH, attempts=99, strikes=99)
    assert decide(POLICY, failure(kind), used_up, 1e9) == GiveBack()


def test_crashes_count_before_the_failure_does() -> None:
    history = replace(FRESH, attempts=1, strikes=CRASH_LIMIT)
    assert decide(POLICY, failure(Kind.PERMANENT), history, 0.0) == DeadLetter(Reason.CRASH_LOOP)


def test_attempts_are_named_before_time_where_both_are_over() -> None:
    assert decide(POLICY, failure(), replace(FRESH, attempts=3), 1e9) == DeadLetter(Reason.MAX_ATTEMPTS)


# -- open effects


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in REFUSED])
def test_an_open_effect_is_in_doubt_after_a_failure(kind: Kind) -> None:
    history = replace(FRESH, attempts=1, open_effects=("charge", "mail"))
    assert decide(POLICY, failure(kind), history, 0.0) == Doubt(("charge", "mail"))


def test_a_refused_effect_is_retried() -> None:
    history = replace(FRESH, attempts=1, open_effects=("charge",))
    assert decide(POLICY, failure(Kind.THROTTLED), history, 0.0) == Retry(1.0)


def test_a_finally_refused_effect_is_abandoned() -> None:
    history = replace(FRESH, attempts=1, open_effects=("charge",))
    assert decide(POLICY, failure(Kind.PERMANENT), history, 0.0) == DeadLetter(Reason.NON_RETRYABLE)


def test_doubt_counts_before_crashes() -> None:
    history = replace(FRESH, strikes=CRASH_LIMIT, open_effects=("charge",))
    assert decide(POLICY, None, history, 0.0) == Doubt(("charge",))


# -- limits of time


def test_a_wait_is_clipped_so_that_its_attempt_starts_before_the_limit() -> None:
    decision = decide(POLICY, failure(), replace(FRESH, attempts=2), 58.5)
    assert isinstance(decision, Retry)
    assert decision.delay == pytest.approx(1.5 - LEAD)


def test_a_retry_whose_attempt_could_not_start_in_time_is_abandoned() -> None:
    assert decide(POLICY, failure(), replace(FRESH, attempts=1), 60.0 - LEAD / 2) == DeadLetter(Reason.TTL)


def test_a_limit_shorter_than_the_lead_still_allows_a_retry() -> None:
    brief = POLICY.replace(ttl=0.05)
    decision = decide(brief, failure(), replace(FRESH, attempts=1), 0.0)
    assert isinstance(decision, Retry)
    assert decision.delay == pytest.approx(0.045)


def test_the_earlier_limit_counts() -> None:
    history = replace(FRESH, attempts=1, not_after=0.5)
    decision = decide(POLICY, failure(), history, 0.0)
    assert isinstance(decision, Retry)
    assert decision.delay == pytest.approx(0.5 - LEAD)


def test_a_later_wish_of_the_sender_does_not_extend_the_policy() -> None:
    history = replace(FRESH, attempts=1, not_after=1e9)
    assert decide(POLICY, failure(), history, 60.0) == DeadLetter(Reason.TTL)


# -- what the other side asks for


def test_the_time_that_is_asked_for_is_a_floor() -> None:
    history = replace(FRESH, attempts=1)
    assert decide(POLICY, failure(Kind.THROTTLED, retry_after=7.0), history, 0.0) == Retry(7.0)


def test_the_time_that_is_asked_for_is_no_ceiling() -> None:
    history = replace(FRESH, attempts=2)
    assert decide(POLICY, failure(Kind.THROTTLED, retry_after=0.5), history, 0.0) == Retry(2.0)


def test_the_time_that_is_asked_for_may_exceed_the_cap() -> None:
    history = replace(FRESH, attempts=1)
    assert decide(POLICY, failure(retry_after=45.0), history, 0.0) == Retry(45.0)


def test_work_that_may_not_be_asked_again_in_time_is_abandoned_at_once() -> None:
    history = replace(FRESH, attempts=1)
    assert decide(POLICY, failure(retry_after=60.0), history, 0.0) == DeadLetter(Reason.TTL)


def test_a_policy_without_delay_retries_at_once() -> None:
    eager = POLICY.replace(base_delay=0.0)
    assert decide(eager, failure(), replace(FRESH, attempts=1), 0.0) == Retry(0.0)


# -- what holds of every answer


@given(policies(), st.none() | FAILURES, HISTORIES, TIMES)
def test_the_same_question_has_the_same_answer(
    policy: RetryPolicy, failed: Failure | None, history: History, now: float
) -> None:
    assert decide(policy, failed, history, now) == decide(policy.replace(), failed, replace(history), now)


@given(policies(), FAILURES, HISTORIES, TIMES)
def test_no_attempt_is_made_beyond_the_last(policy: RetryPolicy, failed: Failure, history: History, now: float) -> None:
    answer = decide(policy, failed, replace(history, attempts=policy.max_attempts), now)
    assert not isinstance(answer, Retry)


@given(policies(), st.none() | FAILURES, HISTORIES, TIMES)
@example(POLICY, failure(), History(key="", attempts=1, started=0.0), 59.0)
def test_no_attempt_starts_at_its_limit_or_after(
    policy: RetryPolicy, failed: Failure | None, history: History, now: float
) -> None:
    answer = decide(policy, failed, history, now)
    assume(isinstance(answer, Retry))
    assert isinstance(answer, Retry)
    assert 0.0 <= answer.delay < limit(policy, history) - now


@given(policies(), FAILURES, HISTORIES, TIMES)
def test_no_retry_comes_before_the_time_that_was_asked_for(
    policy: RetryPolicy, failed: Failure, history: History, now: float
) -> None:
    answer = decide(policy, failed, history, now)
    if isinstance(answer, Retry):
        assert answer.delay >= (failed.retry_after or 0.0)


@given(policies(), FAILURES, HISTORIES, TIMES)
def test_no_retry_waits_longer_than_the_cap_and_the_floor(
    policy: RetryPolicy, failed: Failure, history: History, now: float
) -> None:
    answer = decide(policy, failed, history, now)
    if isinstance(answer, Retry):
        assert answer.delay <= max(policy.max_delay, failed.retry_after or 0.0)


@given(policies(), st.none() | FAILURES, HISTORIES, TIMES)
def test_no_open_effect_is_run_again_unless_it_was_refused(
    policy: RetryPolicy, failed: Failure | None, history: History, now: float
) -> None:
    history = replace(history, open_effects=("charge",))
    answer = decide(policy, failed, history, now)
    refused = failed is not None and failed.kind in REFUSED
    assert isinstance(answer, Doubt) is not refused


@given(policies(), st.sampled_from(sorted(UNCHARGED)), HISTORIES, TIMES)
def test_nothing_is_charged_or_abandoned_for_what_is_not_the_works_own(
    policy: RetryPolicy, kind: Kind, history: History, now: float
) -> None:
    assert decide(policy, failure(kind), replace(history, open_effects=()), now) == GiveBack()


@given(policies(), st.none() | FAILURES, HISTORIES, TIMES)
def test_work_at_the_limit_of_crashes_never_runs_again(
    policy: RetryPolicy, failed: Failure | None, history: History, now: float
) -> None:
    answer = decide(policy, failed, replace(history, strikes=CRASH_LIMIT), now)
    assert not isinstance(answer, Retry)


ANY_NUMBER = st.floats() | st.integers(min_value=-(10**6), max_value=10**6)


@given(
    policies(),
    st.none() | st.builds(failure, st.sampled_from(Kind), retry_after=st.none() | ANY_NUMBER),
    st.builds(
        History,
        key=st.text(st.characters(codec="utf-8")),
        attempts=st.integers(),
        strikes=st.integers(),
        started=ANY_NUMBER,
        not_after=st.none() | ANY_NUMBER,
        open_effects=st.lists(st.text(), max_size=2).map(tuple),
    ),
    ANY_NUMBER,
)
def test_there_is_an_answer_to_every_question(
    policy: RetryPolicy, failed: Failure | None, history: History, now: float
) -> None:
    answer: object = decide(policy, failed, history, now)
    assert isinstance(answer, Decision)


@given(policies(), st.lists(st.sampled_from(CHARGED), max_size=80))
def test_work_that_fails_for_ever_ends_after_its_attempts(policy: RetryPolicy, kinds: list[Kind]) -> None:
    endless = policy.replace(ttl=None)
    history, runs = FRESH, 0
    answer: Decision = decide(endless, None, history, 0.0)
    for kind in [*kinds, *[Kind.UNKNOWN] * endless.max_attempts]:
        if not isinstance(answer, Retry):
            break
        runs += 1
        history = replace(history, attempts=history.attempts + 1)
        answer = decide(endless, failure(kind), history, 0.0)
    assert runs == endless.max_attempts
    assert answer == DeadLetter(Reason.MAX_ATTEMPTS)


def test_the_reasons_are_a_closed_set_of_names() -> None:
    assert {reason.value for reason in Reason} == {
        "max_attempts_exceeded",
        "ttl_exceeded",
        "non_retryable",
        "poison",
        "no_handler",
        "crash_loop",
        "missing_dependency",
        "key_reuse",
        "manual",
    }
