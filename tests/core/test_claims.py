"""What a claim is told that could not take the item as it is."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core import claims
from headway.core.states import Carrier, State
from tests.core.made import item

ANSWERS = {
    State.RUNNING: claims.Busy,
    State.WAITING: claims.Waiting,
    State.DONE: claims.Done,
    State.DEAD: claims.Dead,
    State.IN_DOUBT: claims.InDoubt,
    State.DISCARDED: claims.Discarded,
}


def wanted(**changes: Any) -> claims.Wanted:
    """What another worker asks for."""
    asked: dict[str, Any] = {"holder": "worker-2", "fingerprint": None, **changes}
    return claims.Wanted(id="item-1", stage="s", key="k", carrier=Carrier.BROKER, lease=10.0, **asked)


@pytest.mark.parametrize("state", State)
def test_each_state_has_an_answer_of_its_own(state: State) -> None:
    seen = item(state=state)
    assert claims.answer(seen, wanted()) == ANSWERS[state](seen)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("known", "given"), [("one", "two"), (None, "one"), ("one", None)])
def test_another_payload_is_a_mismatch_in_every_state(state: State, known: str | None, given: str | None) -> None:
    seen = item(state=state, fingerprint=known)
    assert claims.answer(seen, wanted(fingerprint=given, holder="worker-1")) == claims.Mismatch(seen)


def test_the_same_payload_is_no_mismatch() -> None:
    seen = item(state=State.DONE, fingerprint="one")
    assert claims.answer(seen, wanted(fingerprint="one")) == claims.Done(seen)


def test_a_claim_that_is_repeated_by_its_holder_is_won() -> None:
    seen = item(holder="worker-2")
    assert claims.answer(seen, wanted()) == claims.Won(seen)


def test_who_held_it_before_holds_it_no_more_once_it_has_moved() -> None:
    seen = item(holder="worker-2", state=State.WAITING)
    assert claims.answer(seen, wanted()) == claims.Waiting(seen)
