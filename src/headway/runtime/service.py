"""Services and their stages: which handler takes which event, as its author wrote it.

Everything that can be wrong with a handler is refused here, when it is declared.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headway.core import keys
from headway.core.event import Event
from headway.core.policies import EVENT_RACE
from headway.core.policy import RetryPolicy
from headway.ports.broker import Subscription
from headway.runtime import envelope

Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Stage:
    """One service's handling of one event type."""

    name: str
    service: str
    event_type: str
    handler: Callable[..., Any]
    data_type: type[Any] | None
    policy: RetryPolicy
    key: str | None
    is_async: bool
    takes_context: bool

    @property
    def subscription(self) -> Subscription:
        """What this stage asks of the broker."""
        return Subscription(self.event_type, self.name, self.service, self.key)

    def identity(self, event: Event[Any]) -> tuple[str, str | None]:
        """The key of an event here, and the fingerprint of its payload where the key is made from its data."""
        return keys.identity(self.key, event.event_id, event.data)

    def event_in(self, body: bytes) -> Event[Any]:
        """The event as the handler wants it, made anew from its bytes: no attempt sees what another one changed."""
        event = envelope.decode(body)
        if self.data_type is None:
            return event
        return Event(
            event_type=event.event_type,
            data=envelope.fit(event.data, self.data_type),
            event_id=event.event_id,
            timestamp=event.timestamp,
            version=event.version,
            headers=event.headers,
        )


class Service:
    """A named group of handlers that run together."""

    def __init__(self, name: str) -> None:
        """The name is stored with all of its work: keep it when the code moves."""
        if type(name) is not str or not name.strip():
            raise ValueError(f'Service({name!r}): give it a name, as in Service("chunking")')
        self.name = name
        self.stages: list[Stage] = []

    def __repr__(self) -> str:
        """Name and stages."""
        return f"Service({self.name!r}, stages={[stage.name for stage in self.stages]})"

    def on(
        self,
        event_type: str | type[Any],
        *,
        stage: str | None = None,
        policy: RetryPolicy = EVENT_RACE,
        key: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Handle events of a type: a name, or a dataclass or msgspec struct whose name it is and which data becomes.

        `stage` is the name under which the work is stored, `<service>.<event type>` by default. `key` is a template
        over the data, such as `"{order.id}"`, for work that is one although several events ask for it.
        """
        name = event_type if isinstance(event_type, str) else getattr(event_type, "__name__", "")
        if not name:
            raise TypeError(f"on({event_type!r}): give an event type's name, or the class of its data")
        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"policy={policy!r}: a RetryPolicy, such as policies.EVENT_RACE")
        if isinstance(event_type, types.FunctionType):
            raise TypeError(f'@app.on has no event type: write @app.on("Ordered") on {name}')
        if stage is not None and (type(stage) is not str or not stage.strip()):
            raise ValueError(f'stage={stage!r}: a stage needs a name, as in stage="{self.name}.{name}.second"')
        if key is not None:
            if type(key) is not str:
                raise TypeError(f'key={key!r}: a template over the data, as in key="{{order.id}}"')
            keys.template_fields(key)

        def register(handler: Handler) -> Handler:
            is_async, takes_context = _shape(handler)
            declared = Stage(
                name=stage or f"{self.name}.{name}",
                service=self.name,
                event_type=name,
                handler=handler,
                data_type=None if isinstance(event_type, str) else event_type,
                policy=policy,
                key=key,
                is_async=is_async,
                takes_context=takes_context,
            )
            self._add(declared)
            return handler

        return register

    def _add(self, declared: Stage) -> None:
        if declared.name.endswith(keys.quarantine_stage("")) or declared.name.startswith("headway."):
            raise ValueError(f"the stage name {declared.name!r} is Headway's own: name yours otherwise")
        if any(known.name == declared.name for known in self.stages):
            raise ValueError(
                f"{self.name} has a stage {declared.name!r} already: give this handler a name of its own, "
                f'as in @app.on("{declared.event_type}", stage="{declared.name}.second")'
            )
        self.stages.append(declared)


def _shape(handler: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a handler is async, and whether it takes a context; refuse what could never be called."""
    name = getattr(handler, "__qualname__", repr(handler))
    if not callable(handler):
        raise TypeError(f"{name} is no function: put @app.on(…) on a function that takes the event")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"{name} is a generator, whose body would never run: use ctx.emit(…) instead of yield")
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
    parameters = list(inspect.signature(handler).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    stray = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if stray or not positional or len(needed) > 2:
        line = f"async def {name}(event, ctx)" if is_async else f"def {name}(event, ctx)"
        raise TypeError(f"{name}{inspect.signature(handler)} cannot be called: write `{line}`, or leave out ctx")
    _check_colour(name, positional[1:2], is_async=is_async)
    return is_async, len(needed) > 1 or any(_is_context(p) for p in positional[1:2])


def _is_context(parameter: inspect.Parameter) -> bool:
    """Whether a second parameter that has a default is meant for the context."""
    return parameter.name in {"ctx", "context"} or _annotation(parameter) in {"Context", "SyncContext"}


def _annotation(parameter: inspect.Parameter) -> str:
    return str(getattr(parameter.annotation, "__name__", str(parameter.annotation)).rsplit(".")[-1])


def _check_colour(name: str, context: list[inspect.Parameter], *, is_async: bool) -> None:
    wanted, other = ("Context", "SyncContext") if is_async else ("SyncContext", "Context")
    for parameter in context:
        if _annotation(parameter) == other:
            kind = "async" if is_async else "not async"
            raise TypeError(f"{name} is {kind}: its context is a {wanted}, write `{parameter.name}: {wanted}`")
