"""The command line: one file a group of commands."""

from __future__ import annotations

import click

from headway import __version__
from headway.app.cli import demo, dlq, look, run, send
from headway.app.cli.shown import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="headway")
def main() -> None:
    """Work that must not get lost: run services, see where everything is, bring dead letters back.

    Exit codes: 0 done, 1 not found or not reachable, 2 wrong usage or settings, 4 it has changed meanwhile,
    6 some of it was done.
    """


for command in (run.run, send.send, look.status, look.why, dlq.dlq, demo.demo):
    main.add_command(command)
