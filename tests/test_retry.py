"""`@retry` around functions of both colours: the same tests for each."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from headway import RetryPolicy, policies, retry
from headway.runtime.call import _Failures

BRISK = policies.DEFAULT.replace(base_delay=0.001, max_delay=0.002)
EAGER = policies.DEFAULT.replace(base_delay=0.0)
GENERATOR = "is a generator"


class Colour(ABC):
    """A way to write a function, and to run it to its end."""

    @abstractmethod
    def dress(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The same function in this colour."""

    @abstractmethod
    def begin(self, call: Callable[[], Any]) -> None:
        """Run it to its first wait, without a loop: loops have ideas of their own about some errors."""

    @abstractmethod
    def end(self, answer: Any) -> Any:
        """What the call came to."""


class Sync(Colour):
    """Plain functions."""

    def dress(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn

    def begin(self, call: Callable[[], Any]) -> None:
        call()

    def end(self, answer: Any) -> Any:
        return answer


class Async(Colour):
    """Coroutine functions."""

    def dress(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def twin(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return twin

    def begin(self, call: Callable[[], Any]) -> None:
        call().send(None)

    def end(self, answer: Any) -> Any:
        assert inspect.iscoroutine(answer)
        return asyncio.run(answer)


@pytest.fixture(params=[Sync(), Async()], ids=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    """Each test is run in both."""
    made: Colour = request.param
    return made


class Work:
    """Fails as often as it is told, then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        if self.errors:
            raise self.errors.pop(0)
        return "answer"

    def dressed(self, colour: Colour) -> Callable[..., Any]:
        """A function of a colour that does this work."""

        def work(*args: Any, **kwargs: Any) -> str:
            return self(*args, **kwargs)

        return colour.dress(work)


def notes(error: BaseException) -> str:
    """What was noted on an error."""
    return "\n".join(getattr(error, "__notes__", []))


# -- how often it is called


def test_what_succeeds_at_once_is_called_once(colour: Colour) -> None:
    work = Work()
    assert colour.end(retry(work.dressed(colour))()) == "answer"
    assert len(work.calls) == 1


def test_what_fails_twice_and_then_succeeds_succeeds(colour: Colour) -> None:
    work = Work(ConnectionError("1"), TimeoutError("2"))
    assert colour.end(retry(BRISK)(work.dressed(colour))()) == "answer"
    assert len(work.calls) == 3


def test_every_attempt_is_given_the_same_arguments(colour: Colour) -> None:
    work = Work(ConnectionError())
    colour.end(retry(EAGER)(work.dressed(colour))(1, "a", key=[2]))
    assert work.calls == [((1, "a"), {"key": [2]})] * 2


def test_the_last_error_is_raised_as_it_was_with_a_note(colour: Colour) -> None:
    errors = [ConnectionError("1"), ConnectionError("2"), ConnectionError("3")]
    work = Work(*errors)
    with pytest.raises(ConnectionError) as raised:
        colour.end(retry(BRISK)(work.dressed(colour))())
    assert raised.value is errors[2]
    assert len(work.calls) == 3
    assert "given up after 3 of at most 3 attempts" in notes(raised.value)
    assert "max_attempts_exceeded" in notes(raised.value)


def test_one_attempt_is_no_retry(colour: Colour) -> None:
    work = Work(ConnectionError())
    with pytest.raises(ConnectionError):
        colour.end(retry(EAGER.replace(max_attempts=1))(work.dressed(colour))())
    assert len(work.calls) == 1


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("id"), TypeError("no"), AssertionError()])
def test_a_permanent_error_is_raised_at_once(colour: Colour, error: Exception) -> None:
    work = Work(error)
    with pytest.raises(type(error)) as raised:
        colour.end(retry(EAGER)(work.dressed(colour))())
    assert raised.value is error
    assert len(work.calls) == 1
    assert "non_retryable" in notes(error)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_ends_a_task_or_a_process_is_left_alone(colour: Colour, error: BaseException) -> None:
    work = Work(error)
    with pytest.raises(type(error)) as raised:
        colour.begin(retry(EAGER)(work.dressed(colour)))
    assert raised.value is error
    assert len(work.calls) == 1
    assert not notes(error)


def test_each_call_has_its_whole_budget(colour: Colour) -> None:
    work = Work(*[ConnectionError() for _ in range(5)])
    call = retry(EAGER)(work.dressed(colour))
    with pytest.raises(ConnectionError):
        colour.end(call())
    assert colour.end(call()) == "answer"
    assert len(work.calls) == 6


def test_an_error_that_is_raised_again_and_again_is_noted_once(colour: Colour) -> None:
    error = ConnectionError()
    work = Work(error, error, error)
    with pytest.raises(ConnectionError):
        colour.end(retry(EAGER)(work.dressed(colour))())
    assert len(error.__notes__) == 1


# -- how long it waits


def test_between_attempts_it_waits(colour: Colour) -> None:
    steady = RetryPolicy(base_delay=0.05, backoff_multiplier=1.0, jitter_factor=0.0)
    begun = time.monotonic()
    colour.end(retry(steady)(Work(ConnectionError(), ConnectionError()).dressed(colour))())
    assert time.monotonic() - begun >= 0.1


def test_the_time_that_the_other_side_asks_for_is_waited(colour: Colour) -> None:
    error = ConnectionError()
    error.retry_after = 0.1  # type: ignore[attr-defined]  # as clients of HTTP do
    begun = time.monotonic()
    colour.end(retry(BRISK)(Work(error).dressed(colour))())
    assert time.monotonic() - begun >= 0.1


def test_no_attempt_is_made_after_the_time_of_the_policy(colour: Colour) -> None:
    slow = policies.DEFAULT.replace(max_attempts=1000, base_delay=10.0, ttl=0.1)
    work = Work(*[ConnectionError() for _ in range(1000)])
    begun = time.monotonic()
    with pytest.raises(ConnectionError) as raised:
        colour.end(retry(slow)(work.dressed(colour))())
    assert time.monotonic() - begun < 5.0
    assert len(work.calls) <= 2
    assert "ttl_exceeded" in notes(raised.value)


def test_the_time_of_the_policy_counts_from_the_beginning_of_the_call(colour: Colour) -> None:
    work = Work()

    def slow() -> None:
        work()
        time.sleep(0.06)
        raise ConnectionError

    with pytest.raises(ConnectionError) as raised:
        colour.end(retry(EAGER.replace(ttl=0.05))(colour.dress(slow))())
    assert len(work.calls) == 1
    assert "ttl_exceeded" in notes(raised.value)


def test_asked_to_wait_longer_than_its_time_it_gives_up_at_once(colour: Colour) -> None:
    error = ConnectionError()
    error.retry_after = 60.0  # type: ignore[attr-defined]
    with pytest.raises(ConnectionError):
        colour.end(retry(BRISK.replace(ttl=30.0))(Work(error).dressed(colour))())
    assert "ttl_exceeded" in notes(error)


def test_calls_that_fail_together_do_not_come_back_together() -> None:
    policy = policies.EVENT_RACE
    assert len({_Failures(policy, "load", None).after(ConnectionError()) for _ in range(100)}) == 100


async def test_a_wait_that_is_cancelled_ends_the_call() -> None:
    work = Work(ConnectionError(), ConnectionError())
    patient = policies.DEFAULT.replace(base_delay=60.0, max_delay=60.0)
    task = asyncio.create_task(retry(patient)(work.dressed(Async()))())
    await asyncio.sleep(0)
    assert len(work.calls) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(work.calls) == 1


async def test_while_one_call_waits_others_run() -> None:
    waiting = Work(ConnectionError())
    patient = policies.DEFAULT.replace(base_delay=0.1, max_delay=0.1)
    task = asyncio.create_task(retry(patient)(waiting.dressed(Async()))())
    await asyncio.sleep(0)
    assert len(waiting.calls) == 1
    other = Work()
    await retry(other.dressed(Async()))()
    assert len(waiting.calls) == 1
    assert await task == "answer"


# -- what it is put on


@pytest.mark.parametrize("decorate", [retry, retry(), retry(EAGER), retry(policies.EVENT_RACE)])
def test_it_is_written_bare_or_with_a_policy(colour: Colour, decorate: Callable[..., Any]) -> None:
    assert colour.end(decorate(Work().dressed(colour))()) == "answer"


def test_the_policy_that_is_given_is_the_one_that_is_asked(colour: Colour) -> None:
    work = Work(*[ConnectionError() for _ in range(6)])
    assert colour.end(retry(EAGER.replace(max_attempts=7))(work.dressed(colour))()) == "answer"


def test_a_method_is_retried_on_its_object(colour: Colour) -> None:
    work = Work(ConnectionError())

    class Client:
        load = retry(EAGER)(colour.dress(lambda self, key: (self, key, work())))

    client = Client()
    assert colour.end(client.load("a")) == (client, "a", "answer")
    assert len(work.calls) == 2


def test_a_bound_method_is_retried(colour: Colour) -> None:
    work = Work(ConnectionError())

    class Client:
        load = colour.dress(lambda self, key: (self, key, work()))

    client = Client()
    assert colour.end(retry(EAGER)(client.load)("a")) == (client, "a", "answer")


def test_a_static_method_is_retried(colour: Colour) -> None:
    work = Work(ConnectionError(), ConnectionError())

    class Client:
        load = staticmethod(retry(EAGER)(work.dressed(colour)))

    assert colour.end(Client.load(1)) == "answer"
    assert colour.end(Client().load(1)) == "answer"
    assert work.calls == [((1,), {})] * 4


def test_a_class_method_is_retried(colour: Colour) -> None:
    work = Work(ConnectionError())

    class Client:
        load = classmethod(retry(EAGER)(colour.dress(lambda cls, key: (cls, key, work()))))

    assert colour.end(Client.load("a")) == (Client, "a", "answer")


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_put_above_what_only_a_class_can_call_it_says_what_to_write(colour: Colour, kind: Any) -> None:
    with pytest.raises(TypeError, match=f"@{kind.__name__}"):
        retry(EAGER)(kind(Work().dressed(colour)))


def test_a_partial_is_retried(colour: Colour) -> None:
    work = Work(ConnectionError())
    partial = functools.partial(functools.partial(work.dressed(colour), 1), key=2)
    assert colour.end(retry(EAGER)(partial)(3)) == "answer"
    assert work.calls == [((1, 3), {"key": 2})] * 2


def test_an_object_that_can_be_called_is_retried(colour: Colour) -> None:
    work = Work(ConnectionError())

    class Loader:
        __call__ = colour.dress(lambda _, key: (key, work()))

    assert colour.end(retry(EAGER)(Loader())("a")) == ("a", "answer")
    assert len(work.calls) == 2


def test_a_partial_of_an_object_is_retried(colour: Colour) -> None:
    work = Work(ConnectionError())

    class Loader:
        __call__ = colour.dress(lambda _, key: (key, work()))

    assert colour.end(retry(EAGER)(functools.partial(Loader(), "a"))()) == ("a", "answer")


def test_a_retried_function_may_be_retried(colour: Colour) -> None:
    work = Work(*[ConnectionError() for _ in range(3)])
    twice = EAGER.replace(max_attempts=2)
    assert colour.end(retry(twice)(retry(twice)(work.dressed(colour)))()) == "answer"


def test_a_built_in_is_retried() -> None:
    assert retry(max)(1, 2) == 2


# -- what it refuses


def generator() -> Iterator[int]:
    """Makes items."""
    yield 1


async def async_generator() -> AsyncIterator[int]:
    """Makes items too."""
    yield 1


class Maker:
    """An object that makes items when it is called."""

    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "target", [generator, async_generator, functools.partial(generator), Maker(), functools.partial(Maker())]
)
@pytest.mark.parametrize("decorate", [retry, retry(EAGER)])
def test_a_generator_is_refused(decorate: Callable[..., Any], target: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=GENERATOR):
        decorate(target)


@pytest.mark.parametrize("target", [3, None, "policy", {"max_attempts": 3}])
@pytest.mark.parametrize("decorate", [retry, retry(EAGER)])
def test_what_cannot_be_called_is_refused_with_the_line_to_write(decorate: Callable[..., Any], target: Any) -> None:
    with pytest.raises(TypeError, match="write @retry"):
        decorate(target)


def test_a_coroutine_that_was_called_already_is_refused() -> None:
    called = Work().dressed(Async())()
    with pytest.raises(TypeError, match="retry takes a function"):
        retry(called)
    called.close()


# -- what it looks like afterwards


def test_name_documentation_and_signature_are_kept() -> None:
    @retry
    def load(key: str, *, limit: int = 3) -> list[str]:
        """Load it."""
        return [key] * limit

    @retry(EAGER)
    async def load_later(key: str, *, limit: int = 3) -> list[str]:
        """Load it."""
        return [key] * limit

    for fn, name in ((load, "load"), (load_later, "load_later")):
        assert fn.__name__ == name
        assert fn.__doc__ == "Load it."
        assert list(inspect.signature(fn).parameters) == ["key", "limit"]


def test_the_colour_is_kept(colour: Colour) -> None:
    plain = Work().dressed(colour)
    assert inspect.iscoroutinefunction(retry(plain)) is inspect.iscoroutinefunction(plain)
