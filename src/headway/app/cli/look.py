"""`headway status` and `headway why`: they look, and change nothing."""

from __future__ import annotations

import time
from typing import Any

import click

from headway.app.cli.shown import (
    broker_option,
    console,
    jsonable,
    ledger_option,
    output_option,
    printable,
    run_async,
    show_json,
    show_table,
)
from headway.app.wiring import open_parts
from headway.core.states import State
from headway.ops.why import Explanation, span, times
from headway.ops.why import why as explain_all
from headway.ports.ledger import OutboxState, Tally


@click.command()
@ledger_option
@broker_option
@output_option
def status(ledger: str | None, broker: str | None, output: str) -> None:
    """How much work is where, by stage; what waits to be published, and what nobody wants."""
    tallies, outbox, unrouted = run_async(_status(ledger, broker))
    if output == "json":
        show_json({"stages": tallies, "outbox": outbox, "unrouted": unrouted})
        return
    stages = sorted({tally.stage for tally in tallies})
    counts = {(tally.stage, tally.state): tally.count for tally in tallies}
    rows = [[stage, *(counts.get((stage, state), "·") for state in State)] for stage in stages]
    show_table("", ["stage", *(state.value.replace("_", " ") for state in State)], rows)
    for line in _remarks(tallies, outbox, unrouted, time.time()):
        click.echo(line)


def _remarks(tallies: list[Tally], outbox: OutboxState, unrouted: int, now: float) -> list[str]:
    lines = [] if tallies else ["nothing is here yet"]
    for tally in tallies:
        if tally.free and tally.state is State.RUNNING:
            lines.append(f"{tally.stage}: {tally.free} running by record, their workers are gone: taken over when free")
        if tally.free and tally.state is State.WAITING:
            lines.append(f"{tally.stage}: {tally.free} due now; without a running `headway run` they stay so")
    if outbox.pending:
        age = span(now - (outbox.oldest_at or now))
        error = f"; last refusal: {outbox.last_error}" if outbox.last_error else ""
        lines.append(f"outbox: {times(outbox.pending, 'event')} to publish, the oldest for {age}{error}")
    if unrouted:
        lines.append(f"unrouted: {times(unrouted, 'event')} of types that no stage has asked for; kept until one does")
    return lines


async def _status(ledger: str | None, broker: str | None) -> tuple[list[Tally], OutboxState, int]:
    async with open_parts(ledger, broker) as parts:
        return (
            list(await parts.ledger.count()),
            await parts.ledger.pending(),
            await parts.topology.unrouted(),
        )


@click.command()
@click.argument("identity", metavar="ID")
@ledger_option
@output_option
def why(identity: str, ledger: str | None, output: str) -> None:
    """Say of an item where it is, since when, what happens next, and what you may do.

    ID is an item's id or the beginning of one, an event's id, or a key.
    """
    explanations = run_async(_why(identity, ledger))
    if output == "json":
        show_json([_plain(explanation) for explanation in explanations])
        return
    for explanation in explanations:
        _show(explanation)


async def _why(identity: str, ledger: str | None) -> list[Explanation]:
    async with open_parts(ledger) as parts:
        return await explain_all(parts.ledger, identity, now=time.time())


def _plain(explanation: Explanation) -> dict[str, Any]:
    plain: dict[str, Any] = jsonable(explanation)
    return plain


def _show(explanation: Explanation) -> None:
    item = explanation.item
    out = console()
    out.print(printable(f"{item.event_type or 'bytes'} {item.event_id or item.key} at {item.stage}"), style="bold")
    out.print(f"  item  {item.id}")
    for title, text in (("is", explanation.where), ("next", explanation.next), ("may", explanation.may)):
        out.print(printable(f"  {title:<5} {text}"))
    for record in explanation.history:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at))
        who = f" by {record.by}" if record.by else ""
        note = f": {record.note}" if record.note else ""
        out.print(printable(f"  {moment}  round {record.round}  {record.what}{who}{note}"))
