"""What kind of failure an error is, and by which rule."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway import errors
from headway.core.failure import BUILT_IN, FINAL, REFUSED, UNCHARGED, Failure, Kind, classify


class Ours(Exception):
    """An error that no rule knows."""


class Flaky(ConnectionResetError):
    """An error whose base is known."""


class BadAndFlaky(ValueError, ConnectionError):
    """An error with two known bases."""


class FlakyAndBad(ConnectionError, ValueError):
    """The same, the other way round."""


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """An error with a cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("known", "kind"), BUILT_IN.items())
def test_each_known_error_has_its_kind(known: type[BaseException], kind: Kind) -> None:
    failure = classify(known("it failed"))
    assert failure == Failure(kind, known.__name__, known.__name__, "it failed")


@pytest.mark.parametrize(
    ("error", "kind", "rule"),
    [
        (errors.DocumentNotFoundError(), Kind.NOT_VISIBLE, "DocumentNotFoundError"),
        (errors.ServiceUnavailable(), Kind.TRANSIENT, "HeadwayError"),
        (errors.IllegalMove(), Kind.CONFLICT, "Conflict"),
        (errors.KeyReuseError(), Kind.PERMANENT, "KeyReuseError"),
        (errors.TransactionExpired(), Kind.TRANSIENT, "HeadwayError"),
        (Flaky(), Kind.TRANSIENT, "ConnectionError"),
        (FileNotFoundError(), Kind.PERMANENT, "FileNotFoundError"),
        (InterruptedError(), Kind.TRANSIENT, "OSError"),
        (KeyError("id"), Kind.PERMANENT, "LookupError"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, ""), Kind.PERMANENT, "ValueError"),
        (ZeroDivisionError(), Kind.PERMANENT, "ArithmeticError"),
        (ModuleNotFoundError(), Kind.PERMANENT, "ImportError"),
        (BadAndFlaky(), Kind.PERMANENT, "ValueError"),
        (FlakyAndBad(), Kind.TRANSIENT, "ConnectionError"),
    ],
)
def test_the_most_specific_known_type_decides(error: Exception, kind: Kind, rule: str) -> None:
    failure = classify(error)
    assert (failure.kind, failure.rule) == (kind, rule)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_ends_a_task_or_a_process_is_cancelled(error: BaseException) -> None:
    failure = classify(error)
    assert (failure.kind, failure.rule) == (Kind.CANCELLED, type(error).__name__)


def test_an_error_that_nothing_is_known_of_is_unknown() -> None:
    assert classify(Ours("why?")) == Failure(Kind.UNKNOWN, "nothing known", "Ours", "why?")


def test_no_failure_is_both_final_and_free_of_charge() -> None:
    assert not FINAL & UNCHARGED
    assert not REFUSED & UNCHARGED


@pytest.mark.parametrize("name", ["IntegrityError", "DataError", "ProgrammingError"])
def test_what_every_database_driver_calls_alike_is_permanent(name: str) -> None:
    error = type(name, (Ours,), {})()
    assert classify(error).kind is Kind.PERMANENT


def test_what_a_driver_derives_from_it_is_permanent_too() -> None:
    integrity = type("IntegrityError", (Ours,), {})
    error = type("UniqueViolation", (integrity,), {})()
    assert (classify(error).kind, classify(error).rule) == (Kind.PERMANENT, "IntegrityError")


# -- causes


def test_where_nothing_is_known_the_cause_decides() -> None:
    failure = classify(caused(Ours("load"), ConnectionResetError("reset")))
    assert (failure.kind, failure.rule, failure.error_type) == (Kind.TRANSIENT, "ConnectionError (cause)", "Ours")


def test_the_cause_of_a_cause_decides() -> None:
    assert classify(caused(Ours(), caused(Ours(), ValueError()))).kind is Kind.PERMANENT


def test_what_is_known_of_an_error_counts_before_its_cause() -> None:
    assert classify(caused(ValueError(), ConnectionResetError())).kind is Kind.PERMANENT


def test_an_error_that_merely_came_up_while_another_was_handled_has_no_cause() -> None:
    error = Ours()
    error.__context__ = ConnectionResetError()
    assert classify(error).kind is Kind.UNKNOWN


def test_a_cause_that_nothing_is_known_of_decides_nothing() -> None:
    assert classify(caused(Ours(), Ours())) == Failure(Kind.UNKNOWN, "nothing known", "Ours", "")


def test_a_circle_of_causes_ends() -> None:
    one, other = Ours(), Ours()
    caused(caused(one, other).__cause__ or other, one)
    assert classify(one).kind is Kind.UNKNOWN


def test_an_error_that_is_its_own_cause_is_unknown() -> None:
    error = Ours()
    assert classify(caused(error, error)).kind is Kind.UNKNOWN


# -- groups


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ([ConnectionResetError()], Kind.TRANSIENT),
        ([ConnectionResetError(), ValueError()], Kind.PERMANENT),
        ([ValueError(), ConnectionResetError()], Kind.PERMANENT),
        ([errors.CodecError(), TimeoutError()], Kind.POISON),
        ([Ours(), TimeoutError()], Kind.TRANSIENT),
        ([Ours(), ValueError()], Kind.PERMANENT),
        ([Ours(), Ours()], Kind.UNKNOWN),
        ([ExceptionGroup("inner", [TimeoutError(), ExceptionGroup("deep", [ValueError()])])], Kind.PERMANENT),
        ([caused(Ours(), ValueError()), TimeoutError()], Kind.PERMANENT),
    ],
)
def test_in_a_group_the_kind_that_is_not_retried_wins(members: list[Exception], kind: Kind) -> None:
    assert classify(ExceptionGroup("several", members)).kind is kind


@pytest.mark.parametrize("other", [ValueError(), TimeoutError(), Ours()])
def test_a_group_with_a_cancellation_is_cancelled(other: Exception) -> None:
    group = BaseExceptionGroup("several", [other, asyncio.CancelledError()])
    failure = classify(group)
    assert (failure.kind, failure.rule) == (Kind.CANCELLED, "CancelledError (in group)")


def test_the_rule_of_a_group_says_whose_it_was() -> None:
    assert classify(ExceptionGroup("several", [TimeoutError()])).rule == "TimeoutError (in group)"


def test_the_cause_of_a_group_counts_before_its_members() -> None:
    group = caused(ExceptionGroup("several", [ValueError()]), ConnectionResetError())
    assert classify(group).kind is Kind.TRANSIENT


def test_a_group_whose_members_were_caused_by_it_ends() -> None:
    member = Ours()
    group = ExceptionGroup("several", [member])
    caused(member, group)
    assert classify(group).kind is Kind.UNKNOWN


def test_a_group_within_a_circle_of_causes_ends() -> None:
    member = Ours()
    group = ExceptionGroup("several", [member, TimeoutError()])
    caused(member, group)
    assert classify(member).kind is Kind.TRANSIENT


# -- how long the other side asks to be left alone


class Throttled(TimeoutError):
    """An error as clients of HTTP raise it."""

    def __init__(self, retry_after: Any) -> None:
        super().__init__()
        self.retry_after = retry_after


@pytest.mark.parametrize("after", [0, 0.0, 2, 7.5])
def test_what_the_other_side_asks_for_is_kept(after: float) -> None:
    assert classify(Throttled(after)).retry_after == after


@pytest.mark.parametrize("after", [None, True, "7", -1.0, float("nan"), float("inf"), object()])
def test_what_is_no_time_to_wait_is_ignored(after: Any) -> None:
    assert classify(Throttled(after)).retry_after is None


# -- errors that misbehave themselves


class Unprintable(ConnectionError):
    """An error whose message fails."""

    def __str__(self) -> str:
        return str(self.args[0])


class Trap(ConnectionError):
    """An error that fails when it is asked how long to wait."""

    @property
    def retry_after(self) -> float:
        raise RuntimeError("no answer")


@pytest.mark.parametrize("error", [Unprintable(), Trap("no answer")])
def test_an_error_that_fails_when_it_is_asked_is_classified_all_the_same(error: Exception) -> None:
    assert classify(error).kind is Kind.TRANSIENT


@pytest.mark.parametrize("message", ["caf\udce9.json", "\ud800", "\udfff\ud800"])
def test_the_message_of_any_error_can_be_stored(message: str) -> None:
    # A file's name that is no UTF-8 comes into Python like this, and from there into messages.
    classify(FileNotFoundError(message)).message.encode()


def test_a_message_that_can_be_stored_is_kept_as_it_is() -> None:
    assert classify(ValueError("Ж 💥\n")).message == "Ж 💥\n"
