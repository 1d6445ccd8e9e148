"""What processes under test write about themselves: a file of JSON lines, each appended by a single write."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Log:
    """One file for all processes of a test: a line survives the process that wrote it, whatever kills it next."""

    path: Path

    def write(self, what: str, **fields: Any) -> None:
        """Append a line with who and when; the clock is the same for all processes of this host."""
        line = json.dumps({"what": what, "pid": os.getpid(), "at": time.monotonic(), **fields}) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def lines(self, what: str, **wanted: Any) -> list[dict[str, Any]]:
        """The whole lines of a kind so far, oldest first, in which these fields have these values."""
        return self.all(what=what, **wanted)

    def all(self, **wanted: Any) -> list[dict[str, Any]]:
        """The whole lines so far, oldest first, in which these fields have these values."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8")
        found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in found if all(line.get(name) == value for name, value in wanted.items())]
