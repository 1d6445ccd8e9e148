"""The table of moves: what it must contain, and that nothing in it is cut off from the rest."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from headway.core.event import Event
from headway.core.item import Effect
from headway.core.settlements import Settlement
from headway.core.states import FINAL, MOVES, Carrier, Move, State, allows
from tests.core.made import OPEN, item

VERBS = {"claim", "due", "publish", "wake", "clean"}
"""Who moves items without a settlement: the verbs of a ledger."""

BY = sorted({by for move in MOVES for by in move.by})


def test_every_state_is_reached_from_a_birth() -> None:
    reached: set[State | None] = {None}
    for _ in State:
        reached |= {move.target for move in MOVES if move.source in reached}
    assert reached >= set(State)


@pytest.mark.parametrize("state", State)
def test_from_every_state_the_record_can_end(state: State) -> None:
    reached: set[State | None] = {state}
    for _ in State:
        reached |= {move.target for move in MOVES if move.source in reached}
    assert None in reached


def test_records_end_in_final_states_only() -> None:
    assert {move.source for move in MOVES if move.target is None} == FINAL
    assert {State.DONE, State.DEAD, State.DISCARDED} == FINAL


def test_no_final_state_is_left_without_a_person() -> None:
    left = {by for move in MOVES if move.source in FINAL and move.target is not None for by in move.by}
    assert left == {"Redrive", "Reprocess", "Discard", "Restore"}


def test_nothing_but_success_or_a_person_ends_in_done() -> None:
    assert {by for move in MOVES if move.target is State.DONE for by in move.by} == {"Done", "Resolve"}


def test_only_claims_and_due_set_work_running() -> None:
    assert {by for move in MOVES if move.target is State.RUNNING for by in move.by} == {"claim", "due"}


def test_work_in_doubt_is_left_by_an_answer_only() -> None:
    assert {by for move in MOVES if move.source is State.IN_DOUBT for by in move.by} == {"Resolve"}


def test_items_are_born_running_or_waiting() -> None:
    assert {move.target for move in MOVES if move.source is None} == {State.RUNNING, State.WAITING}


@pytest.mark.parametrize("move", MOVES)
def test_every_move_says_who_makes_it_and_why(move: Move) -> None:
    assert move.by
    assert move.note
    assert move.source is not None or move.target is not None


def test_no_move_is_written_twice() -> None:
    written = [(move.source, move.target, by) for move in MOVES for by in move.by]
    assert len(written) == len(set(written))


def test_every_settlement_has_a_move_and_every_move_somebody_who_makes_it() -> None:
    assert set(BY) == VERBS | {settlement.__name__ for settlement in get_args(Settlement)}


def test_what_is_allowed_is_what_the_table_has() -> None:
    asked = itertools.product([None, *State], [None, *State], [*BY, "nobody"])
    written = {(move.source, move.target, by) for move in MOVES for by in move.by}
    assert {question for question in asked if allows(*question)} == written


# -- what is read off an item and an event


def test_only_unsafe_effects_without_an_end_are_open() -> None:
    effects = {
        "open": OPEN,
        "ended": Effect(unsafe=True, happened=True),
        "refused": Effect(unsafe=True, happened=False),
        "safe": Effect(unsafe=False),
    }
    assert item(effects=effects).open_effects == ("open",)


@pytest.mark.parametrize(
    ("changes", "stranded"),
    [
        ({"free_in": 0.0}, True),
        ({"free_in": -1.0, "carrier": Carrier.CALLER}, True),
        ({"free_in": 0.1}, False),
        ({"free_in": -1.0, "carrier": Carrier.LEDGER}, False),
        ({"free_in": -1.0, "state": State.WAITING}, False),
    ],
)
def test_work_is_stranded_when_only_its_carrier_could_bring_it_back(changes: dict[str, object], stranded: bool) -> None:
    assert item(**changes).stranded is stranded


def test_an_event_without_the_header_has_no_order() -> None:
    event: Event[object] = Event(event_type="JSONParsed", data={}, event_id="1", timestamp="")
    assert event.order_key is None


def test_the_order_of_an_event_is_in_its_headers() -> None:
    event: Event[object] = Event(
        event_type="JSONParsed", data={}, event_id="1", timestamp="", headers={"order_key": "archive-1"}
    )
    assert event.order_key == "archive-1"
