"""Reads the `.sql` files beside it: one dictionary of statements a file."""

from __future__ import annotations

import re
from importlib.resources import files

_SECTION = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"\{(\w+)\}")


def script(name: str) -> str:
    """The text of a file."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def statements(name: str) -> dict[str, str]:
    """The statements of a file by their names, with the parts that they include (each defined above them)."""
    _, *pieces = _SECTION.split(script(name))
    kinds, names, texts = pieces[::3], pieces[1::3], pieces[2::3]
    parts: dict[str, str] = {}
    whole: dict[str, str] = {}
    for kind, title, text in zip(kinds, names, texts, strict=True):
        filled = _INCLUDE.sub(lambda found: parts[found[1]], text).strip()
        (parts if kind == "part" else whole)[title] = filled
    return whole
