"""Headway keeps event-driven services moving forward.

The layers, each of which imports only those below it: `app` (command line, wiring, demo), `ops` (tools for people),
`runtime` (clocks, tasks, threads) beside `adapters` (drivers), `ports` (protocols), `core` (pure rules), `errors`.
Names are imported when they are first used: `from headway import retry` loads no driver and no asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.core import policies
    from headway.core.event import Event
    from headway.core.policy import RetryPolicy
    from headway.errors import (
        ConfigError,
        Conflict,
        DocumentNotFoundError,
        HeadwayError,
        LeaseLost,
        ServiceUnavailable,
    )
    from headway.runtime.call import retry
    from headway.runtime.context import Context, SyncContext
    from headway.runtime.service import Service

__version__ = "0.1.0.dev0"

_HOMES = {
    "ConfigError": "headway.errors",
    "Conflict": "headway.errors",
    "Context": "headway.runtime.context",
    "DocumentNotFoundError": "headway.errors",
    "Event": "headway.core.event",
    "HeadwayError": "headway.errors",
    "LeaseLost": "headway.errors",
    "RetryPolicy": "headway.core.policy",
    "Service": "headway.runtime.service",
    "ServiceUnavailable": "headway.errors",
    "SyncContext": "headway.runtime.context",
    "policies": "headway.core.policies",
    "retry": "headway.runtime.call",
}

__all__ = [
    "ConfigError",
    "Conflict",
    "Context",
    "DocumentNotFoundError",
    "Event",
    "HeadwayError",
    "LeaseLost",
    "RetryPolicy",
    "Service",
    "ServiceUnavailable",
    "SyncContext",
    "policies",
    "retry",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    value = module if name == "policies" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
