"""`@retry`: the same decision as everywhere, around one call.

Rules of this file: two loops that read alike, one a colour; the colour is chosen once, when a function is decorated;
a call that succeeds at once does nothing but the call.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, ParamSpec, TypeVar, cast, overload

from headway.core.decide import DeadLetter, History, Retry, decide
from headway.core.failure import classify
from headway.core.policies import DEFAULT
from headway.core.policy import RetryPolicy

P = ParamSpec("P")
R = TypeVar("R")

_COROUTINE, _GENERATORS = 0x80, 0x20 | 0x200
_process = os.urandom(8).hex()
_calls = count()


@overload
def retry(target: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def retry(target: RetryPolicy = DEFAULT, /) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def retry(target: Any = DEFAULT, /) -> Any:
    """Call again what failed, as its policy says: `@retry`, or `@retry(policy)`. The last error is raised as it was."""
    if isinstance(target, RetryPolicy):
        return functools.partial(_decorate, target)
    return _decorate(DEFAULT, target)


def _decorate(policy: RetryPolicy, fn: Callable[P, R]) -> Callable[P, R]:
    if isinstance(fn, (staticmethod, classmethod)):
        raise TypeError(f"put @retry below @{type(fn).__name__}, next to the function")
    if not callable(fn):
        raise TypeError(f"retry takes a function or a RetryPolicy, not {fn!r}: write @retry, or @retry(policy)")
    flags = _flags_of(fn)
    name = getattr(fn, "__qualname__", repr(fn))
    if flags & _GENERATORS:
        raise TypeError(f"{name} is a generator: retry the function that makes one item, or collect it in a list")
    if flags & _COROUTINE:
        return cast("Callable[P, R]", _async(policy, cast("Callable[P, Awaitable[Any]]", fn), name))
    return _sync(policy, fn, name)


def _flags_of(fn: Any) -> int:
    """The code flags of what will really be called; `inspect` knows them too, but costs an import."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    called = fn if hasattr(fn, "__code__") else getattr(type(fn), "__call__", None)  # noqa: B004 - its code is wanted
    code = getattr(called, "__code__", None)
    return getattr(code, "co_flags", 0)


def _sync(policy: RetryPolicy, fn: Callable[P, R], name: str) -> Callable[P, R]:
    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        started = None if policy.ttl is None else time.monotonic()
        failures: _Failures | None = None
        while True:
            try:
                return fn(*args, **kwargs)
            except Exception as error:
                failures = failures or _Failures(policy, name, started)
                delay = failures.after(error)
                if delay is None:
                    raise
            if delay:
                time.sleep(delay)

    return call


def _async(policy: RetryPolicy, fn: Callable[P, Awaitable[R]], name: str) -> Callable[P, Awaitable[R]]:
    from asyncio import sleep  # noqa: PLC0415 - whoever retries sync functions only never pays for asyncio

    @functools.wraps(fn)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        started = None if policy.ttl is None else time.monotonic()
        failures: _Failures | None = None
        while True:
            try:
                return await fn(*args, **kwargs)
            except Exception as error:
                failures = failures or _Failures(policy, name, started)
                delay = failures.after(error)
                if delay is None:
                    raise
            if delay:
                await sleep(delay)

    return call


class _Failures:
    """What has failed in one call so far."""

    def __init__(self, policy: RetryPolicy, name: str, started: float | None) -> None:
        self._policy = policy
        self._key = f"{name}/{_process}/{next(_calls)}"
        self._started = time.monotonic() if started is None else started
        self._attempts = 0

    def after(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None when there is none, and then the error says why."""
        self._attempts += 1
        history = History(key=self._key, attempts=self._attempts, started=self._started)
        now = time.monotonic()
        decision = decide(self._policy, classify(error), history, now)
        if isinstance(decision, Retry):
            return decision.delay
        if isinstance(decision, DeadLetter):
            error.add_note(
                f"headway: given up after {self._attempts} of at most {self._policy.max_attempts} attempts "
                f"in {now - self._started:.2f} s ({decision.reason})"
            )
        return None
