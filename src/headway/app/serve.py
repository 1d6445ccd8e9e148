"""Runs services on their parts until they are told to stop."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.app.wiring import Parts
from headway.errors import ConfigError
from headway.ports.points import Probe, unwatched
from headway.runtime.consumer import Consumer, together
from headway.runtime.lease import Heartbeat
from headway.runtime.relay import Relay
from headway.runtime.service import Service
from headway.runtime.upkeep import clean
from headway.runtime.worker import Settings, Stopping, Worker


async def serve(
    services: Sequence[Service],
    parts: Parts,
    settings: Settings,
    stopping: Stopping,
    *,
    probe: Probe = unwatched,
) -> None:
    """Declare what the services want, then work until `stopping` is asked."""
    wanted = {service.name: [stage.subscription for stage in service.stages] for service in services}
    await parts.topology.declare(wanted)
    heartbeat = Heartbeat(parts.ledger, seconds=settings.lease)
    worker = Worker(parts.ledger, parts.transactions, heartbeat, settings, stopping, probe=probe)
    loops = [Consumer(service, worker, parts.broker).run() for service in services]
    if parts.broker is not None:
        loops.append(Relay(worker, parts.ledger, parts.broker).run())
    loops.append(clean(parts.ledger, stopping, keep=settings.keep))
    heartbeat.start()
    try:
        await together(*loops)
    finally:
        await asyncio.to_thread(heartbeat.stop)


def stop_on_signals(stopping: Stopping, *, say: Callable[[str], None]) -> None:
    """The first SIGTERM or SIGINT asks to stop, the second cuts running handlers off."""

    def stop() -> None:
        if stopping.asked.is_set():
            say("cutting off what still runs")
            stopping.cut_off.set()
        else:
            say("stopping: nothing new is taken, running handlers may end; once more cuts them off")
        stopping.asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def load(target: str) -> list[Service]:
    """The services that `module:name` names; `module` alone stands for all services in it."""
    module_name, _, name = target.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"{target!r} names no module: write `headway run module:app`, without path and .py")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(f"there is no module {module_name!r} here: run `headway run module:app` beside it") from error
    found = list({id(value): value for value in vars(module).values() if isinstance(value, Service)}.values())
    if name:
        value = getattr(module, name, None)
        if not isinstance(value, Service):
            there = ", ".join(key for key, value in vars(module).items() if isinstance(value, Service))
            raise ConfigError(f"{module_name} has no service {name!r}; it has: {there or 'none'}")
        found = [value]
    if not found:
        raise ConfigError(f'{module_name} has no service: make one with `app = Service("name")`')
    _check(found)
    return found


def _check(services: list[Service]) -> None:
    """Refuse services that would take each other's work, or that have none."""
    names: set[str] = set()
    owners: dict[str, str] = {}
    for service in services:
        if not service.stages:
            raise ConfigError(f"{service.name} handles nothing: put @app.on(…) on a handler")
        if service.name in names:
            raise ConfigError(f"two services are named {service.name!r}: give each a name of its own")
        names.add(service.name)
        for stage in service.stages:
            if owners.setdefault(stage.name, service.name) != service.name:
                raise ConfigError(
                    f"{owners[stage.name]} and {service.name} both have a stage {stage.name!r}: name one otherwise"
                )
