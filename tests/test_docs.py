"""The documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from headway.core.states import MOVES
from headway.ports.points import Point

ROOT = Path(__file__).parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_table_of_crash_points_is_the_list_that_the_tests_use() -> None:
    written = dict(
        re.findall(r"^\| `(\w+)` \| (.+) \|$", ARCHITECTURE.split("## What a crash leaves")[1], re.MULTILINE)
    )
    assert written == {point.name.lower(): point.value for point in Point}


def test_the_table_of_moves_names_every_move() -> None:
    table = ARCHITECTURE.split("## States and moves")[1].split("**Carriers.**")[0]
    verbs = {verb for move in MOVES for verb in move.by}
    assert {verb for verb in verbs if verb not in table} == set()


def test_decisions_are_numbered_without_a_gap_and_fit_a_page() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert max(len(page.read_text(encoding="utf-8").splitlines()) for page in pages) <= 60
