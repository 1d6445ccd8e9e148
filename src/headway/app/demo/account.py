"""The account of the demonstration, from the ledger and from what the handlers wrote. It says what does not add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.core.decide import Reason
from headway.core.item import Item
from headway.core.states import State


@dataclass(frozen=True, slots=True)
class Account:
    """What became of everything that was sent."""

    sent: int
    states: Mapping[str, Mapping[str, int]]
    dead: Mapping[str, str]
    results: int
    problems: Sequence[str]


def account(sent: Mapping[str, int], items: Sequence[Item], results: Sequence[int]) -> Account:
    """Add it up: `sent` is each event's archive by its id, `results` the archives that the last stage has written."""
    first = {item.event_id: item for item in items if item.stage == "demo.ArchiveIngested"}
    second = [item for item in items if item.stage == "demo.ArchiveParsed"]
    parsed = {sent[event] for event, item in first.items() if item.state is State.DONE}
    written = Counter(results)
    problems = [f"event {event} is nowhere" for event in sent if event not in first]
    problems += [f"item {item.id} was never sent" for item in first.values() if item.event_id not in sent]
    problems += [
        f"item {item.id} at {item.stage} is {item.state}, not done and not dead"
        for item in items
        if item.state not in {State.DONE, State.DEAD}
    ]
    problems += [
        f"item {item.id} is dead without a reason" for item in items if item.state is State.DEAD and not item.reason
    ]
    problems += [
        f"item {item.id} is dead ({item.reason}), and only what kills its workers was to end so"
        for item in items
        if item.state is State.DEAD and item.reason != Reason.CRASH_LOOP
    ]
    problems += [f"item {item.id} has {item.successes} successes" for item in items if item.successes > 1]
    problems += [
        f"archive {archive} was parsed, and its result is missing" for archive in sorted(parsed - set(written))
    ]
    problems += [f"archive {archive} has a result, and was not parsed" for archive in sorted(set(written) - parsed)]
    problems += [f"archive {archive} has {times} results" for archive, times in written.items() if times > 1]
    if len(second) != len(parsed):
        problems.append(f"{len(parsed)} archives were parsed, {len(second)} went to the second stage")
    states: dict[str, Counter[str]] = {}
    for item in items:
        states.setdefault(item.stage, Counter())[item.state.value] += 1
    dead = {item.id: item.reason or "" for item in items if item.state is State.DEAD}
    return Account(len(sent), states, dead, len(results), problems)
