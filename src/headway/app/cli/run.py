"""`headway run`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys

import click

from headway.app.cli.shown import broker_option, ledger_option, run_async
from headway.app.serve import load, serve, stop_on_signals
from headway.app.wiring import open_parts
from headway.errors import ConfigError
from headway.ops.why import times
from headway.runtime.service import Service
from headway.runtime.worker import Settings, Stopping


@click.command()
@click.argument("target", metavar="MODULE[:NAME]")
@ledger_option
@broker_option
@click.option("--concurrency", default=16, show_default=True, help="How many handlers run at once.")
@click.option("--lease", default=30.0, show_default=True, help="Seconds until the work of a dead worker is taken over.")
@click.option("--grace", default=10.0, show_default=True, help="Seconds that handlers have to end when it stops.")
@click.option("--keep", default=30.0, show_default=True, help="Days that records are kept after their end.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run(
    target: str,
    ledger: str | None,
    broker: str | None,
    concurrency: int,
    lease: float,
    grace: float,
    keep: float,
    verbose: bool,  # noqa: FBT001 - click passes flags so
) -> None:
    """Run the services of a module until SIGTERM or Ctrl-C; a second one cuts running handlers off."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = Settings(
            concurrency=concurrency,
            lease=lease,
            grace=grace,
            keep=keep * 86400,
            name=f"{socket.gethostname()}/{os.getpid()}",
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    run_async(_run(load(target), ledger, broker, settings))


async def _run(services: list[Service], ledger: str | None, broker: str | None, settings: Settings) -> None:
    stopping = Stopping()
    stop_on_signals(stopping, say=_say)
    async with open_parts(ledger, broker, session=settings.lease, make=True) as parts:
        names = ", ".join(service.name for service in services)
        _say(f"running {names} on {ledger}; stop with Ctrl-C")
        await serve(services, parts, settings, stopping)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _say(f"stopped; {times(len(left), 'handler')} that would not end was handed back, and ends with this process")
        sys.stderr.flush()
        os._exit(0)  # asyncio would wait for it for ever
    _say("stopped; what was running is done or handed back")


def _say(line: str) -> None:
    click.echo(f"headway: {line}", err=True)
