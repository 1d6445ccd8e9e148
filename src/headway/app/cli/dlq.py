"""`headway dlq`: dead letters, one by one or many by their ids."""

from __future__ import annotations

import sys
import time

import click

from headway.app.cli.shown import (
    PARTIAL,
    Commands,
    actor,
    ids_output_option,
    ledger_option,
    output_option,
    printable,
    run_async,
    show_json,
    show_table,
)
from headway.app.wiring import open_parts
from headway.core.decide import Reason
from headway.core.item import Item
from headway.core.settlements import Discard, Redrive
from headway.errors import NotFound
from headway.ops import dead_letters
from headway.ops.dead_letters import Outcome
from headway.ops.why import Explanation, explain, span, times


def _said(_: click.Context, __: click.Parameter, reason: str) -> str:
    if not reason.strip():
        raise click.BadParameter("an empty reason says nothing to who reads the history: write one")
    return reason


reason_option = click.option(
    "--reason", required=True, callback=_said, help="Why you do this: it is kept with your name in the item's history."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
ids_argument = click.argument("identities", metavar="ID...", nargs=-1)


@click.group(cls=Commands)
def dlq() -> None:
    """Dead letters: work that was abandoned, each with its reason, waiting for a person."""


@dlq.command("list")
@ledger_option
@click.option("--stage", help="Only of this stage.")
@click.option("--reason", type=click.Choice([reason.value for reason in Reason]), help="Only with this reason.")
@click.option("--limit", default=1000, type=click.IntRange(min=1), show_default=True, help="At most so many.")
@click.option("--after", default="", metavar="ITEM", help="From after this item id on: for the next page.")
@ids_output_option
def list_(ledger: str | None, stage: str | None, reason: str | None, limit: int, after: str, output: str) -> None:
    """List dead letters. With -o ids, pipe them: `headway dlq list -o ids | headway dlq requeue - --reason …`."""
    items = run_async(_find(ledger, stage, reason, limit, after))
    if output == "ids":
        for item in items:
            click.echo(item.id)
    elif output == "json":
        show_json(items)
    else:
        now = time.time()
        rows = [
            (
                item.id[:12],
                item.stage,
                item.event_type or "bytes",
                item.reason,
                item.attempts,
                span(now - item.moved_at),
            )
            for item in items
        ]
        show_table(times(len(items), "dead letter"), ["item", "stage", "event", "reason", "attempts", "for"], rows)
    if len(items) == limit:
        click.echo(f"there may be more: --after {items[-1].id}", err=True)


@dlq.command()
@click.argument("identity", metavar="ID")
@ledger_option
@output_option
def show(identity: str, ledger: str | None, output: str) -> None:
    """Show a dead letter: its event, every failed attempt with its error, and what people did."""
    explanation = run_async(_explained(ledger, identity))
    if output == "json":
        show_json(explanation)
        return
    item = explanation.item
    click.echo(f"item    {item.id}\nstage   {item.stage}\nis      {explanation.where}\nmay     {explanation.may}")
    click.echo(f"bytes   {printable((item.body or b'').decode(errors='backslashreplace'))}")
    for record in explanation.history:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.at))
        click.echo(printable(f"{moment}  round {record.round}  {record.what} {record.by} {record.note}".rstrip()))
        if record.details.get("traceback"):
            click.echo(printable("    " + str(record.details["traceback"]).rstrip().replace("\n", "\n    ")))


@dlq.command()
@ids_argument
@ledger_option
@reason_option
@dry_run_option
@output_option
def requeue(
    identities: tuple[str, ...],
    ledger: str | None,
    reason: str,
    dry_run: bool,  # noqa: FBT001 - click passes flags so
    output: str,
) -> None:
    """Bring dead letters back, each in a new round with its whole budget and time. `-` reads ids from stdin."""
    _act_on(identities, ledger, Redrive(reason=reason), dry_run=dry_run, output=output)


@dlq.command()
@ids_argument
@ledger_option
@reason_option
@dry_run_option
@output_option
def discard(
    identities: tuple[str, ...],
    ledger: str | None,
    reason: str,
    dry_run: bool,  # noqa: FBT001 - click passes flags so
    output: str,
) -> None:
    """Give dead letters up: they stay on record and are removed after their time. `-` reads ids from stdin."""
    _act_on(identities, ledger, Discard(reason=reason), dry_run=dry_run, output=output)


def _act_on(
    identities: tuple[str, ...], ledger: str | None, act: Redrive | Discard, *, dry_run: bool, output: str
) -> None:
    if not identities:
        raise click.UsageError("which ones? Give ids, or - to read them from standard input")
    wanted = [name for given in identities for name in (sys.stdin.read().split() if given == "-" else [given])]
    outcomes = run_async(_each(wanted, ledger, act, dry_run=dry_run))
    if output == "json":
        show_json(outcomes)
    else:
        for outcome in outcomes:
            click.echo(f"{outcome.item[:12]}  {outcome.message}", err=not outcome.ok)
    failed = [outcome for outcome in outcomes if not outcome.ok]
    if failed:
        unknown = all(outcome.unknown for outcome in failed)
        sys.exit(PARTIAL if len(failed) < len(outcomes) else 1 if unknown else 4)


async def _each(wanted: list[str], ledger: str | None, act: Redrive | Discard, *, dry_run: bool) -> list[Outcome]:
    outcomes = []
    async with open_parts(ledger) as parts:
        for identity in wanted:
            try:
                item = await dead_letters.find_dead(parts.ledger, identity)
            except NotFound as error:
                outcomes.append(Outcome(identity, ok=False, message=str(error), unknown=True))
                continue
            if dry_run:
                outcomes.append(dead_letters.check(item, act))
            else:
                outcomes.append(await dead_letters.act_on(parts.ledger, item, act, by=actor()))
    return outcomes


async def _find(ledger: str | None, stage: str | None, reason: str | None, limit: int, after: str) -> list[Item]:
    async with open_parts(ledger) as parts:
        return list(await dead_letters.find(parts.ledger, stage=stage, reason=reason, limit=limit, after=after))


async def _explained(ledger: str | None, identity: str) -> Explanation:
    async with open_parts(ledger) as parts:
        item = await dead_letters.find_dead(parts.ledger, identity)
        return explain(item, await parts.ledger.history(item.id), now=time.time())
