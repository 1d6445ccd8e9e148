"""Calls a handler, async or not, and ends it when the service stops or its lease is lost."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable

from headway.runtime.context import Context, Scope, SyncContext
from headway.runtime.service import Stage

LAST_WORDS = 1.0
"""How long a handler that was cut off has to clean up, in seconds; one that does not end is left behind, fenced."""


class CutOff(Exception):
    """The service stops, and the handler was cut off."""


class Exited(Exception):
    """The handler has called sys.exit(): it fails, and its worker goes on."""


class CancelledItself(Exception):
    """The handler ended as cancelled, and nobody here cancelled it."""


async def call(stage: Stage, scope: Scope, cut_off: asyncio.Event) -> None:
    """Run the handler to its end; raises what it raises, or `CutOff`, or `CancelledItself`.

    `CancelledError` means that the caller was cancelled, and nothing else.
    """
    task = asyncio.ensure_future(_run(stage, scope))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(task.cancel)

    scope.lease.when_lost(stop)
    stopped = asyncio.ensure_future(cut_off.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        scope.lease.when_lost(None)
        stopped.cancel()
        ended = task.done()
        if not ended:
            task.cancel()
            await asyncio.wait({task}, timeout=LAST_WORDS)
    if not ended:
        raise CutOff
    if task.cancelled():
        raise CancelledItself("the handler ended as cancelled")
    task.result()


async def _run(stage: Stage, scope: Scope) -> None:
    try:
        await _handle(stage, scope)
    except SystemExit as error:
        raise Exited(f"the handler has called sys.exit({error.code!r})") from error


async def _handle(stage: Stage, scope: Scope) -> None:
    arguments: tuple[object, ...] = (scope.event,)
    if stage.is_async:
        if stage.takes_context:
            arguments += (Context(scope),)
        await stage.handler(*arguments)
        return
    if stage.takes_context:
        arguments += (SyncContext(scope, asyncio.get_running_loop()),)
    answer = await _on_thread(stage.handler, arguments)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(
            f"{stage.name}: the handler returned something to await, which nobody does: make it `async def`"
        )


async def _on_thread(handler: Callable[..., object], arguments: tuple[object, ...]) -> object:
    """Run a handler on a thread of its own, which does not keep the process from ending when it is cut off."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[object] = loop.create_future()

    def tell(outcome: object, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(outcome)
        else:
            answer.set_exception(error)

    def run() -> None:
        outcome, failed = None, None
        try:
            outcome = handler(*arguments)
        except BaseException as error:
            failed = error if not isinstance(error, StopIteration) else RuntimeError("the handler raised StopIteration")
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, outcome, failed)

    threading.Thread(target=run, name="headway-handler", daemon=True).start()
    return await answer
