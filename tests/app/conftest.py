"""Fixtures: a command line in a directory of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.cli import Cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands whose ledger is in this directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWAY_BROKER", raising=False)
    return Cli(tmp_path)
