"""A letter whose time ran out, through the command line: requeued, it has its whole time again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SERVICE = """
from pathlib import Path
from headway import RetryPolicy, Service

app = Service("own")

@app.on("Asked", policy=RetryPolicy(name="brief", max_attempts=50, base_delay=1.2, jitter="none", ttl=1.0))
async def answer(event):
    if not Path("up").exists():
        raise ConnectionError("down")
"""


@pytest.mark.slow
def test_a_requeued_letter_whose_time_had_run_out_succeeds(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SERVICE)
    command = [sys.executable, "-c", "from headway.app.cli import main; main()"]
    environment = {**os.environ, "HEADWAY_LEDGER": f"sqlite:///{tmp_path}/ledger.db"}

    def headway(*words: str) -> str:
        return subprocess.run(
            [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    def becomes(state: str) -> dict[str, object]:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            (told,) = json.loads(headway("why", "e1", "-o", "json"))
            item: dict[str, object] = told["item"]
            if item["state"] == state:
                return item
            time.sleep(0.1)
        raise AssertionError(f"e1 did not become {state}")

    headway("send", "Asked", "--id", "e1")
    worker = subprocess.Popen([*command, "run", "own:app"], cwd=tmp_path, env=environment)
    try:
        until = time.monotonic() + 30
        while "own.Asked" not in headway("status") and time.monotonic() < until:
            time.sleep(0.1)
        assert becomes("dead")["reason"] == "ttl_exceeded"
        (tmp_path / "up").touch()
        headway("dlq", "requeue", "e1", "--reason", "it is up")
        assert becomes("done")["round"] == 2
    finally:
        worker.terminate()
        worker.wait(timeout=30)
