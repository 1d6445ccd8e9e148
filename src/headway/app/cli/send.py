"""`headway send`."""

from __future__ import annotations

import json
import math
from typing import IO, Any

import click

from headway.app.cli.shown import broker_option, ledger_option, output_option, run_async, show_json
from headway.app.wiring import open_parts
from headway.core.event import Letter
from headway.errors import CodecError, ConfigError, PayloadError
from headway.runtime import envelope


@click.command()
@click.argument("event_type")
@ledger_option
@broker_option
@click.option("--data", help="The event's data as JSON; {} by default.")
@click.option("--file", "file", type=click.File("rb"), help="Read the data from a file, or from - for standard input.")
@click.option("--id", "event_id", help="The event's id: sending the same id again is the same event.")
@click.option("--not-after", metavar="DATE", help="An ISO date after which nothing is to be done any more.")
@output_option
def send(
    event_type: str,
    ledger: str | None,
    broker: str | None,
    data: str | None,
    file: IO[bytes] | None,
    event_id: str | None,
    not_after: str | None,
    output: str,
) -> None:
    """Send an event, durably: it is on disk when this returns."""
    if data is not None and file is not None:
        raise click.UsageError("give --data or --file, not both")
    headers = {} if not_after is None else {"not_after": not_after}
    if event_id == "":
        raise click.UsageError("--id is empty: leave it out to have one made")
    content = _read(data, file)
    try:
        letter = envelope.new_letter(event_type, content, event_id=event_id, headers=headers)
    except (CodecError, PayloadError) as error:
        raise ConfigError(f"nobody could read this event: {error}") from error
    run_async(_send(letter, ledger, broker))
    if output == "json":
        show_json({"event_id": letter.event_id, "event_type": event_type})
    else:
        click.echo(f"sent {event_type} as {letter.event_id}")


def _read(data: str | None, file: IO[bytes] | None) -> Any:
    source = "--data"
    text: str | bytes = data if data is not None else "{}"
    if file is not None:
        source, text = f"--file {file.name}", file.read()
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except ValueError as error:
        raise ConfigError(f"{source} is no JSON ({error}); write it as in --data '{{\"id\": 1}}'") from error


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is a word of Python's, not of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


async def _send(letter: Letter, ledger: str | None, broker: str | None) -> None:
    async with open_parts(ledger, broker, make=True) as parts:
        await parts.publisher.publish(letter)
