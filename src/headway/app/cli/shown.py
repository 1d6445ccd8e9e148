"""What all commands share: where the ledger is, how results are shown, and how errors end."""

from __future__ import annotations

import asyncio
import dataclasses
import getpass
import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.errors import ConfigError, Conflict, HeadwayError

T = TypeVar("T")
Command = Callable[..., Any]

PARTIAL = 6

ledger_option = click.option(
    "--ledger",
    envvar="HEADWAY_LEDGER",
    metavar="URL",
    help="The ledger, as sqlite:///file.db [HEADWAY_LEDGER].",
)
broker_option = click.option(
    "--broker",
    envvar="HEADWAY_BROKER",
    metavar="URL",
    help="The broker [HEADWAY_BROKER]; without it the ledger's file is the broker too.",
)
output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to show the result."
)
ids_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "ids"]),
    default="table",
    help="How to show the result.",
)


class Commands(click.Group):
    """A group whose errors are sentences, with exit codes that scripts can rely on."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; end with what its error means."""
        try:
            return super().invoke(ctx)
        except HeadwayError as error:
            click.echo(f"headway: {error}", err=True)
            ctx.exit(2 if isinstance(error, ConfigError) else 4 if isinstance(error, Conflict) else 1)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Drive a command's coroutine."""
    return asyncio.run(work)


def show_json(value: object) -> None:
    """Print a result for programs."""
    click.echo(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def show_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a result for people; where nobody looks, nothing is cut off."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console().print(table)


def console() -> Console:
    """A console as wide as the terminal, or wide enough for whole lines where there is none."""
    return Console(
        width=None if sys.stdout.isatty() else 200,
        soft_wrap=not sys.stdout.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
    )


def printable(text: str) -> str:
    """What came from anybody, without what a terminal would obey."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)


def jsonable(value: object) -> Any:
    """A result as plain data: bytes as text where they are text, as hex where not."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): jsonable(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(member) for member in value]
    return value


def actor() -> str:
    """Who acts, for the audit."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        return "somebody (command line)"
