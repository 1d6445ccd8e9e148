"""The command line as scripts use it: in this process, or as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner

from headway.app.cli import main
from headway.core.decide import Reason
from headway.core.item import Attempt, Item
from headway.core.keys import item_id
from headway.core.settlements import DeadLetter
from tests.world import STAGE, World, open_world

T = TypeVar("T")
PATIENCE = 20.0
SCRIPT = str(Path(sys.executable).with_name("headway"))


@dataclass
class Told:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    """Commands on one ledger in one directory."""

    path: Path

    @property
    def ledger(self) -> str:
        return f"sqlite:///{self.path / 'ledger.db'}"

    def __call__(self, *arguments: str, stdin: str | bytes = "", ledger: str | None = None) -> Told:
        """Run a command on the ledger of the directory, or on another; a traceback is the test's failure."""
        environment = {"HEADWAY_LEDGER": self.ledger if ledger is None else ledger or None}
        result = CliRunner().invoke(main, list(arguments), input=stdin, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Told(result.exit_code, result.stdout, result.stderr)

    def in_ledger(self, act: Callable[[World], Awaitable[T]]) -> T:
        """Do something with the ledger that no command does."""

        async def open_and_act() -> T:
            async with open_world(self.path / "ledger.db") as world:
                return await act(world)

        return asyncio.run(open_and_act())

    def module(self, text: str, name: str = "shop") -> None:
        (self.path / f"{name}.py").write_text(text, encoding="utf-8")

    @contextmanager
    def process(self, *arguments: str, wait_for: str = "running") -> Iterator[subprocess.Popen[str]]:
        """Run a command as a process of its own, from when it has said `wait_for` on."""
        process = subprocess.Popen(
            [SCRIPT, *arguments],
            cwd=self.path,
            env={**os.environ, "HEADWAY_LEDGER": self.ledger, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            while wait_for:
                line = process.stderr.readline()
                assert line, f"it ended with {process.wait(5)}"
                if wait_for in line:
                    break
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=10)


def until(condition: Callable[[], T]) -> T:
    """Wait until the condition holds; return what it says then."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def dead(cli: Cli, *keys: str, reason: str = "non_retryable", stage: str = STAGE) -> list[Item]:
    """Leave dead letters of these keys."""

    async def bury(world: World) -> list[Item]:
        items = []
        for key in keys:
            seen = await world.won(key, stage=stage, id=item_id("", stage, key))
            attempt = Attempt(
                number=1, kind="permanent", error_type="ValueError", message=f"no {key}", traceback="at 1"
            )
            await world.settle(seen, DeadLetter(reason=Reason(reason), attempt=attempt))
            found = await world.ledger.get(seen.id)
            assert found is not None
            items.append(found)
        return items

    return cli.in_ledger(bury)
