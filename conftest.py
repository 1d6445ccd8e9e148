"""Runs the snippets of the documents: each page in a directory of its own, top to bottom.

A Python block whose first line is a comment with a file's name becomes that file; a bash block is run there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

_FILE = re.compile(r"# (\w+\.py)\n")


def _setup(namespace: dict[str, Any]) -> None:
    namespace["directory"] = tempfile.TemporaryDirectory(prefix="headway-docs-")


def _teardown(namespace: dict[str, Any]) -> None:
    namespace["directory"].cleanup()


def _python(example: Example) -> None:
    source = str(example.parsed)
    named = _FILE.match(source)
    if named:
        (Path(example.namespace["directory"].name) / named[1]).write_text(source, encoding="utf-8")
    exec(compile(source, example.path, "exec", dont_inherit=True), {"__name__": "snippet"})  # noqa: S102 - our own documents


def _bash(example: Example) -> str | None:
    directory = Path(example.namespace["directory"].name)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    printed = directory / "printed"
    with printed.open("w") as out:
        script = subprocess.Popen(  # noqa: S603 - our own documents
            ["bash", "-euo", "pipefail", "-c", str(example.parsed)],  # noqa: S607 - bash as the reader has it
            cwd=directory,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code: int | None = script.wait(timeout=50)
    except subprocess.TimeoutExpired:
        code = None
    with contextlib.suppress(ProcessLookupError):  # what a snippet that failed has left running
        os.killpg(script.pid, signal.SIGKILL)
    return None if code == 0 else f"exit code {code}:\n{printed.read_text()}"


pytest_collect_file = Sybil(
    parsers=[CodeBlockParser("python", _python), CodeBlockParser("bash", _bash)],
    patterns=["README.md", "docs/**/*.md"],
    setup=_setup,
    teardown=_teardown,
).pytest()
