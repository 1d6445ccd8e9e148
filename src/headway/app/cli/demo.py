"""`headway demo`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import click

from headway.app.cli.shown import output_option, run_async, show_json, show_table
from headway.app.demo.account import Account
from headway.app.demo.story import Story
from headway.core.states import State


@click.command()
@click.option("--events", default=200, show_default=True, type=click.IntRange(min=40), help="How many events to send.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep its files in this new directory.")
@output_option
def demo(events: int, keep: Path | None, output: str) -> None:
    """Run a pipeline of two stages, break it in five ways, and add up where everything went.

    Exit code 1 when the account does not add up.
    """
    started = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"{time.monotonic() - started:5.1f} s  {line}", err=output == "json")

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"--keep {keep}: there is something in it already, name a new directory")
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as scratch:
        scene = keep or Path(scratch)
        scene.mkdir(parents=True, exist_ok=True)
        story = Story(scene, events=events, say=say)
        result = run_async(story.tell())
        _show(result, output)
        if keep is not None and output == "table":
            click.echo(f"its ledger is kept: headway status --ledger sqlite:///{story.path}")
    sys.exit(1 if result.problems else 0)


def _show(result: Account, output: str) -> None:
    if output == "json":
        show_json(result)
        return
    columns = [State.DONE, State.DEAD, State.WAITING, State.RUNNING, State.IN_DOUBT, State.DISCARDED]
    rows = [[stage, *(counts.get(state.value, 0) for state in columns)] for stage, counts in result.states.items()]
    show_table("\nThe account", ["stage", *(state.value.replace("_", " ") for state in columns)], rows)
    for item, reason in result.dead.items():
        click.echo(f"dead letter {item[:12]}: {reason}")
    for problem in result.problems:
        click.echo(f"DOES NOT ADD UP: {problem}")
    if not result.problems:
        click.echo(
            f"{result.sent} events sent: every one is done, with exactly one of {result.results} results, "
            f"or in a dead letter with its reason."
        )
