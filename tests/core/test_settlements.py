"""What each settlement changes and what it leaves, and that no walk over them leaves the table or loses the work."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core import settlements
from headway.core.decide import Reason
from headway.core.event import Letter
from headway.core.failure import REFUSED, Kind
from headway.core.item import Attempt, Effect, Item
from headway.core.settlements import (
    DeadLetter,
    Discard,
    Done,
    Doubt,
    Edit,
    GiveBack,
    Hold,
    Park,
    Plan,
    Postpone,
    Redrive,
    Reprocess,
    Resolve,
    Restore,
    Retry,
    Settlement,
    plan,
)
from headway.core.states import Carrier, State, allows
from headway.errors import IllegalMove
from tests.core.made import BODY, OPEN, attempt, item

EMIT = Letter("event-2", "ChunksPrepared", b"{}")
NEW = b'{"id": 2}'

EVERY: tuple[Settlement, ...] = (
    Done(value=b"1", emits=(EMIT,)),
    Retry(delay=5.0, attempt=attempt()),
    Park(on="doc-1", delay=5.0, attempt=attempt()),
    Hold(dependency="search", delay=5.0),
    GiveBack(),
    DeadLetter(reason=Reason.POISON, message="no event"),
    Doubt(attempt=attempt()),
    Discard(reason="not wanted"),
    Restore(reason="wanted"),
    Redrive(reason="mended", delay=3.0),
    Reprocess(reason="again", body=NEW),
    Postpone(reason="later", delay=60.0),
    Edit(reason="typo", body=NEW),
    Resolve(reason="looked"),
    Resolve(reason="looked", to=State.DONE, value=b"1"),
    Resolve(reason="looked", to=State.DEAD),
    Resolve(reason="looked", to=State.RUNNING),
    Resolve(reason="looked", to=State.DISCARDED),
)

LEGAL = {
    State.RUNNING: {"Done", "Retry", "Park", "Hold", "GiveBack", "DeadLetter", "Doubt", "Discard"},
    State.WAITING: {"Postpone", "Edit", "Discard"},
    State.DONE: {"Reprocess"},
    State.DEAD: {"Redrive", "Discard"},
    State.IN_DOUBT: {"Resolve"},
    State.DISCARDED: {"Restore"},
}
"""The settlements of each state, written down apart from the table of moves."""

LEFT = {State.RUNNING, State.DISCARDED}
"""States in which a doubt does not end."""

LEDGERS: dict[State, dict[str, Any]] = {
    State.RUNNING: {},
    State.WAITING: {"waiting_for": "document:doc-1"},
    State.DONE: {"body": None, "outcome": b"1", "successes": 1},
    State.DEAD: {"reason": Reason.POISON.value, "attempts": 3},
    State.IN_DOUBT: {"effects": {"charge": OPEN}},
    State.DISCARDED: {"discarded_from": State.WAITING},
}


def held(state: State, **changes: Any) -> Item:
    """An item that the ledger carries, as it is in a state."""
    return item(**{"state": state, "carrier": Carrier.LEDGER, **LEDGERS[state], **changes})


def changed(seen: Item, planned: Plan) -> dict[str, Any]:
    """The fields that a plan changes, with their new values."""
    before, after = (
        {field.name: getattr(of, field.name) for field in dataclasses.fields(of)} for of in (seen, planned.item)
    )
    return {name: value for name, value in after.items() if value != before[name]}


# -- which settlements there are in a state


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("settlement", EVERY, ids=lambda settlement: type(settlement).__name__)
def test_a_settlement_is_planned_only_where_it_belongs(state: State, settlement: Settlement) -> None:
    name = type(settlement).__name__
    legal = name in LEGAL[state] and not (isinstance(settlement, Resolve) and settlement.to in LEFT)
    if legal:
        assert plan(held(state), settlement).move == name
    else:
        with pytest.raises(IllegalMove):
            plan(held(state), settlement)


def test_a_refused_move_names_the_item_and_both_states() -> None:
    with pytest.raises(IllegalMove, match="Done cannot bring item item-1 from waiting to done"):
        plan(held(State.WAITING), Done())


@pytest.mark.parametrize("settlement", EVERY, ids=lambda settlement: type(settlement).__name__)
@pytest.mark.parametrize("state", State)
def test_no_settlement_changes_whose_work_it_is(state: State, settlement: Settlement) -> None:
    try:
        planned = plan(held(state), settlement)
    except IllegalMove:
        return
    own = ("id", "tenant", "stage", "key", "event_id", "event_type", "fingerprint", "epoch", "deliveries", "crashes")
    fresh = planned.fresh_round
    assert not [name for name in changed(held(state), planned) if name in own and not (fresh and name == "crashes")]


# -- what a worker's settlements write


def test_success_keeps_its_value_and_lets_go_of_the_bytes() -> None:
    seen = item(attempts=1, waiting_for="document:doc-1")
    planned = plan(seen, Done(value=b"1", emits=(EMIT,)))
    assert changed(seen, planned) == {
        "state": State.DONE,
        "successes": 1,
        "body": None,
        "outcome": b"1",
        "waiting_for": None,
    }
    assert planned == Plan(item=planned.item, emits=(EMIT,), move="Done")


def test_success_needs_no_bytes() -> None:
    assert plan(item(body=None), Done()).item.state is State.DONE


def test_a_retry_charges_its_attempt_and_waits_in_the_ledger() -> None:
    seen = item()
    failed = attempt()
    planned = plan(seen, Retry(delay=5.0, attempt=failed))
    assert changed(seen, planned) == {"state": State.WAITING, "carrier": Carrier.LEDGER, "attempts": 1}
    assert planned == Plan(item=planned.item, delay=5.0, attempt=failed, move="Retry")


def test_a_retry_forgets_what_was_waited_for() -> None:
    assert plan(item(waiting_for="document:doc-1"), Retry(delay=5.0)).item.waiting_for is None


def test_a_parked_item_names_what_it_waits_for() -> None:
    seen = item()
    planned = plan(seen, Park(on="doc-1", delay=5.0, attempt=attempt(2)))
    assert changed(seen, planned) == {
        "state": State.WAITING,
        "carrier": Carrier.LEDGER,
        "attempts": 2,
        "waiting_for": "document:doc-1",
    }
    assert planned == Plan(item=planned.item, delay=5.0, attempt=attempt(2), move="Park")


def test_held_work_is_not_charged() -> None:
    seen = item(attempts=1)
    planned = plan(seen, Hold(dependency="search", delay=5.0))
    assert changed(seen, planned) == {
        "state": State.WAITING,
        "carrier": Carrier.LEDGER,
        "waiting_for": "dependency:search",
    }
    assert planned == Plan(item=planned.item, delay=5.0, move="Hold")


def test_work_that_is_given_back_is_due_at_once_and_uncharged() -> None:
    seen = item(attempts=1, crashes=1, strikes=1)
    planned = plan(seen, GiveBack())
    assert changed(seen, planned) == {"state": State.WAITING, "carrier": Carrier.LEDGER}
    assert planned == Plan(item=planned.item, delay=0.0, move="GiveBack")


def test_abandoned_work_keeps_its_bytes_and_its_reason() -> None:
    seen = item(waiting_for="document:doc-1")
    letter = DeadLetter(reason=Reason.MAX_ATTEMPTS, attempt=attempt(3), message="no answer", emits=(EMIT,))
    planned = plan(seen, letter)
    assert changed(seen, planned) == {
        "state": State.DEAD,
        "carrier": Carrier.LEDGER,
        "attempts": 3,
        "reason": "max_attempts_exceeded",
        "waiting_for": None,
    }
    assert planned == Plan(
        item=planned.item,
        attempt=attempt(3),
        dead_letter=letter,
        emits=(EMIT,),
        move="DeadLetter",
        note="no answer",
    )


def test_doubt_names_the_open_effects() -> None:
    seen = item(effects={"charge": OPEN, "mail": OPEN, "done": Effect(unsafe=True, happened=True)})
    planned = plan(seen, Doubt(attempt=attempt()))
    assert changed(seen, planned) == {"state": State.IN_DOUBT, "carrier": Carrier.LEDGER, "attempts": 1}
    assert planned == Plan(item=planned.item, attempt=attempt(), move="Doubt", note="charge, mail")


def test_work_in_doubt_waits_for_an_answer_and_for_nothing_else() -> None:
    seen = item(effects={"charge": OPEN}, waiting_for="document:doc-1")
    assert plan(seen, Doubt()).item.waiting_for is None


@pytest.mark.parametrize("kind", sorted(REFUSED))
@pytest.mark.parametrize("state", [State.WAITING, State.DEAD])
def test_what_the_receiver_refused_did_not_happen(kind: str, state: State) -> None:
    ended = Effect(unsafe=True, happened=True, value="tx-0")
    seen = item(effects={"charge": OPEN, "earlier": ended, "safe": Effect()})
    failed = replace(attempt(), kind=kind)
    settled = (
        Retry(delay=5.0, attempt=failed) if state is State.WAITING else DeadLetter(reason=Reason.TTL, attempt=failed)
    )
    assert plan(seen, settled).item.effects == {
        "charge": Effect(unsafe=True, happened=False),
        "earlier": ended,
        "safe": Effect(),
    }


def test_a_letter_whose_key_is_known_says_whose_it_is() -> None:
    letter = settlements.key_reused("k-1", "item-1")
    assert letter.reason is Reason.KEY_REUSE
    assert "k-1" in letter.message
    assert "item-1" in letter.message


# -- what a person's settlements write


def test_a_discarded_wait_remembers_where_it_was() -> None:
    seen = held(State.WAITING)
    planned = plan(seen, Discard(reason="not wanted"))
    assert changed(seen, planned) == {"state": State.DISCARDED, "discarded_from": State.WAITING}
    assert planned == Plan(item=planned.item, move="Discard", note="not wanted")


def test_a_discarded_dead_letter_remembers_where_it_was() -> None:
    seen = held(State.DEAD)
    planned = plan(seen, Discard(reason="not wanted"))
    assert changed(seen, planned) == {"state": State.DISCARDED, "discarded_from": State.DEAD}
    assert not planned.only_if_free


def test_running_work_is_discarded_only_if_it_is_stranded() -> None:
    planned = plan(item(), Discard(reason="not wanted"))
    assert planned.only_if_free
    assert planned.item.discarded_from is State.WAITING


def test_stranded_work_may_be_discarded_without_its_bytes() -> None:
    seen = item(body=None)
    planned = plan(seen, Discard(reason="not wanted"))
    assert (planned.item.state, planned.item.carrier) == (State.DISCARDED, Carrier.BROKER)


@pytest.mark.parametrize("state", [State.WAITING, State.DEAD])
def test_a_restored_item_is_what_it_was(state: State) -> None:
    seen = held(state)
    discarded = plan(seen, Discard(reason="not wanted")).item
    planned = plan(discarded, Restore(reason="wanted"))
    assert planned == Plan(item=seen, move="Restore", note="wanted")


def test_stranded_work_is_restored_to_the_ledger() -> None:
    discarded = plan(item(), Discard(reason="not wanted")).item
    restored = plan(discarded, Restore(reason="wanted")).item
    assert (restored.state, restored.carrier, restored.body) == (State.WAITING, Carrier.LEDGER, BODY)


def test_a_redrive_opens_a_round_with_its_own_budget_and_time() -> None:
    seen = held(
        State.DEAD, attempts=3, crashes=2, strikes=1, not_after_in=-5.0, successes=1, effects={"charge": OPEN}, round=2
    )
    planned = plan(seen, Redrive(reason="mended", delay=3.0))
    assert changed(seen, planned) == {
        "state": State.WAITING,
        "round": 3,
        "attempts": 0,
        "crashes": 0,
        "strikes": 0,
        "not_after_in": None,
        "reason": None,
    }
    assert planned == Plan(item=planned.item, delay=3.0, fresh_round=True, move="Redrive", note="mended")


def test_work_that_is_done_again_brings_its_own_bytes() -> None:
    seen = held(State.DONE)
    planned = plan(seen, Reprocess(reason="again", body=NEW))
    assert changed(seen, planned) == {"state": State.WAITING, "round": 2, "body": NEW, "outcome": None}
    assert planned == Plan(item=planned.item, delay=0.0, fresh_round=True, move="Reprocess", note="again")


def test_work_of_a_broker_that_is_done_again_is_the_ledgers() -> None:
    seen = held(State.DONE, carrier=Carrier.BROKER)
    assert plan(seen, Reprocess(reason="again", body=NEW)).item.carrier is Carrier.LEDGER


def test_a_letter_that_reused_a_key_has_no_new_round() -> None:
    with pytest.raises(IllegalMove, match="key of its own"):
        plan(held(State.DEAD, reason=Reason.KEY_REUSE.value), Redrive(reason="mended"))


def test_a_postponed_wait_keeps_what_it_waits_for() -> None:
    seen = held(State.WAITING)
    planned = plan(seen, Postpone(reason="later", delay=60.0))
    assert planned == Plan(item=seen, delay=60.0, move="Postpone", note="later")


def test_an_edit_changes_the_bytes_and_keeps_the_due_time_and_the_fingerprint() -> None:
    seen = held(State.WAITING, fingerprint="f1")
    planned = plan(seen, Edit(reason="typo", body=NEW))
    assert changed(seen, planned) == {"body": NEW}
    assert planned == Plan(item=planned.item, move="Edit", note="typo")


def test_answered_doubt_goes_on_in_the_same_round() -> None:
    seen = held(State.IN_DOUBT, attempts=1, effects={"charge": OPEN, "mail": OPEN})
    planned = plan(seen, Resolve(reason="looked", happened={"charge": "tx-1"}))
    assert changed(seen, planned) == {
        "state": State.WAITING,
        "effects": {
            "charge": Effect(unsafe=True, happened=True, value="tx-1"),
            "mail": Effect(unsafe=True, happened=False),
        },
    }
    assert planned == Plan(item=planned.item, delay=0.0, move="Resolve", note="looked")


def test_an_answer_leaves_effects_that_were_known() -> None:
    known = Effect(unsafe=True, happened=True, value="tx-0")
    seen = held(State.IN_DOUBT, effects={"charge": OPEN, "earlier": known})
    assert plan(seen, Resolve(reason="looked")).item.effects["earlier"] == known


def test_an_answer_to_what_is_not_open_is_refused() -> None:
    with pytest.raises(ValueError, match="no open effect named mail, post"):
        plan(held(State.IN_DOUBT), Resolve(reason="looked", happened={"post": None, "mail": None, "charge": None}))


def test_doubt_may_end_as_done_with_its_value_and_events() -> None:
    seen = held(State.IN_DOUBT)
    settled = Resolve(reason="looked", happened={"charge": None}, to=State.DONE, value=b"1", emits=(EMIT,))
    planned = plan(seen, settled)
    assert changed(seen, planned) == {
        "state": State.DONE,
        "successes": 1,
        "body": None,
        "outcome": b"1",
        "effects": {"charge": Effect(unsafe=True, happened=True)},
    }
    assert planned == Plan(item=planned.item, emits=(EMIT,), move="Resolve", note="looked")


def test_doubt_may_end_as_a_dead_letter() -> None:
    seen = held(State.IN_DOUBT)
    planned = plan(seen, Resolve(reason="give it up", to=State.DEAD, emits=(EMIT,)))
    assert changed(seen, planned) == {
        "state": State.DEAD,
        "reason": "manual",
        "effects": {"charge": Effect(unsafe=True, happened=False)},
    }
    letter = DeadLetter(reason=Reason.MANUAL, message="give it up", emits=(EMIT,))
    assert planned == Plan(item=planned.item, dead_letter=letter, emits=(EMIT,), move="Resolve", note="give it up")


# -- who carries the work

KEPT: tuple[Settlement, ...] = (
    Retry(delay=5.0),
    Park(on="doc-1", delay=5.0),
    Hold(dependency="search", delay=5.0),
    GiveBack(),
    DeadLetter(reason=Reason.POISON),
    Doubt(),
)


@pytest.mark.parametrize("settlement", KEPT, ids=lambda settlement: type(settlement).__name__)
def test_what_the_broker_carried_is_the_ledgers_once_it_is_kept(settlement: Settlement) -> None:
    kept = plan(item(), settlement).item
    assert (kept.carrier, kept.body) == (Carrier.LEDGER, BODY)


@pytest.mark.parametrize("carrier", [Carrier.BROKER, Carrier.LEDGER])
@pytest.mark.parametrize("settlement", KEPT, ids=lambda settlement: type(settlement).__name__)
def test_what_the_ledger_keeps_it_keeps_with_its_bytes(settlement: Settlement, carrier: Carrier) -> None:
    with pytest.raises(IllegalMove, match="bytes"):
        plan(item(carrier=carrier, body=None), settlement)


@pytest.mark.parametrize("carrier", [Carrier.CALLER, Carrier.LEADER])
@pytest.mark.parametrize("settlement", KEPT, ids=lambda settlement: type(settlement).__name__)
def test_what_a_caller_carries_stays_the_callers(settlement: Settlement, carrier: Carrier) -> None:
    kept = plan(item(carrier=carrier, body=None), settlement).item
    assert (kept.carrier, kept.body) == (carrier, None)


@pytest.mark.parametrize("settlement", [Restore(reason="wanted")])
def test_stranded_work_whose_bytes_nobody_saw_cannot_be_restored(settlement: Settlement) -> None:
    discarded = plan(item(body=None), Discard(reason="not wanted")).item
    with pytest.raises(IllegalMove, match="bytes"):
        plan(discarded, settlement)


# -- walks

DELAYS = st.floats(min_value=0.0, max_value=100.0)
ATTEMPTS = st.none() | st.builds(
    lambda number, kind: replace(attempt(number), kind=kind.value),
    st.integers(min_value=1, max_value=9),
    st.sampled_from(Kind),
)
ANY: st.SearchStrategy[Settlement] = st.one_of(
    st.builds(Done, value=st.none() | st.binary(max_size=2)),
    st.builds(Retry, delay=DELAYS, attempt=ATTEMPTS),
    st.builds(Park, on=st.just("doc-1"), delay=DELAYS, attempt=ATTEMPTS),
    st.builds(Hold, dependency=st.just("search"), delay=DELAYS),
    st.just(GiveBack()),
    st.builds(DeadLetter, reason=st.sampled_from(Reason), attempt=ATTEMPTS),
    st.builds(Doubt, attempt=ATTEMPTS),
    st.builds(Discard, reason=st.just("why")),
    st.builds(Restore, reason=st.just("why")),
    st.builds(Redrive, reason=st.just("why"), delay=DELAYS),
    st.builds(Reprocess, reason=st.just("why"), body=st.binary(max_size=2)),
    st.builds(Postpone, reason=st.just("why"), delay=DELAYS),
    st.builds(Edit, reason=st.just("why"), body=st.binary(max_size=2)),
    st.builds(
        Resolve,
        reason=st.just("why"),
        happened=st.dictionaries(st.sampled_from(["charge", "mail"]), st.none() | st.text(max_size=2), max_size=2),
        to=st.sampled_from(State),
    ),
)
STEPS = st.lists(st.sampled_from(["take", "begin"]) | ANY, max_size=25)


def take(seen: Item) -> Item:
    """What a claim or `due` makes of an item; its epoch and its times are the store's."""
    if seen.state not in {State.RUNNING, State.WAITING}:
        return seen
    crashed = seen.state is State.RUNNING
    return replace(seen, state=State.RUNNING, crashes=seen.crashes + crashed, strikes=seen.strikes + crashed)


def begin(seen: Item) -> Item:
    """A running item begins an effect that may not happen twice."""
    return replace(seen, effects={**seen.effects, "charge": OPEN}) if seen.state is State.RUNNING else seen


def is_sound(now: Item) -> None:
    """What holds of every item at rest."""
    kept = now.state not in {State.DONE, State.DISCARDED}
    assert now.carrier is not Carrier.LEDGER or not kept or now.body is not None
    assert now.carrier is not Carrier.BROKER or now.state in {State.RUNNING, State.DONE, State.DISCARDED}
    assert (now.discarded_from is not None) is (now.state is State.DISCARDED)
    home = now.discarded_from or now.state
    assert (now.reason is not None) is (home is State.DEAD)
    if now.state is State.DONE:
        assert (now.body, now.waiting_for) == (None, None)
    if now.outcome is not None:
        assert now.state is State.DONE


def is_lawful(before: Item, planned: Plan) -> None:
    """What holds of every step."""
    now = planned.item
    assert allows(before.state, now.state, planned.move)
    assert (now.id, now.epoch, now.fingerprint) == (before.id, before.epoch, before.fingerprint)
    assert now.successes == before.successes + (now.state is State.DONE)
    assert now.round == before.round + planned.fresh_round
    assert planned.delay is None or now.state is State.WAITING
    assert (planned.dead_letter is not None) is (now.state is State.DEAD and before.state is not State.DISCARDED)
    assert planned.only_if_free is (before.state is State.RUNNING and now.state is State.DISCARDED)
    assert planned.attempt is None or now.attempts == planned.attempt.number
    if before.carrier in {Carrier.CALLER, Carrier.LEADER}:
        assert now.carrier is before.carrier
    if before.carrier is Carrier.LEDGER:
        assert now.carrier is Carrier.LEDGER
    ended = {name for name, effect in before.effects.items() if effect.happened is not None}
    assert all(now.effects[name] == before.effects[name] for name in ended)
    if before.state is State.IN_DOUBT:
        assert not now.open_effects


@settings(max_examples=300)
@given(carrier=st.sampled_from(Carrier), with_bytes=st.booleans(), steps=STEPS)
def test_no_walk_leaves_the_table_or_loses_the_work(carrier: Carrier, with_bytes: bool, steps: list[Any]) -> None:
    carried = carrier in {Carrier.BROKER, Carrier.LEDGER}
    now = item(carrier=carrier, body=BODY if carried and (with_bytes or carrier is Carrier.LEDGER) else None)
    for step in steps:
        if step == "take":
            now = take(now)
        elif step == "begin":
            now = begin(now)
        else:
            try:
                planned = plan(now, step)
            except (IllegalMove, ValueError):
                continue
            is_lawful(now, planned)
            now = planned.item
        is_sound(now)


@given(settlement=ANY, state=st.sampled_from(State))
def test_a_plan_is_the_same_when_it_is_made_again(settlement: Settlement, state: State) -> None:
    answers: list[object] = []
    for _ in range(2):
        try:
            answers.append(settlements.plan(held(state), settlement))
        except (IllegalMove, ValueError) as refused:
            answers.append(str(refused))
    assert answers[0] == answers[1]


def test_what_failed_otherwise_stays_open() -> None:
    seen = item(effects={"charge": OPEN})
    failed = Attempt(number=1, kind=Kind.TRANSIENT.value, error_type="Lost", message="?")
    assert plan(seen, Doubt(attempt=failed)).item.effects == {"charge": OPEN}
