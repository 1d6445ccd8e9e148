"""Every situation of a piece of work against everything that can happen to it: one table, one test a cell.

A cell says the answer and then what has changed: `→state` where the state did, and each of `epoch`, `crash`, `strike`
and `delivery` that grew by one. Whatever a cell does not name is asserted to be as it was.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from headway.core import claims
from headway.core.item import Effect, Item
from headway.core.settlements import Lost, Settled
from headway.core.states import MOVES, Carrier, State
from headway.errors import IllegalMove
from tests.ports.situations import ACTS, KEY, LATER, LEASE, SITUATIONS, STATES
from tests.world import STAGE, World, wanted

EVENTS = ("delivery", "redelivery", "call", "due", "wake")
TABLE = """
none                  | Won →running delivery            | Busy delivery      | Won →running              | nothing                            | nothing
running, caller       | Busy delivery                    | Busy delivery      | Busy                      | nothing                            | nothing
running, broker       | Busy delivery                    | Busy delivery      | Busy                      | nothing                            | nothing
running, ledger       | Busy delivery                    | Busy delivery      | Busy                      | nothing                            | nothing
running, leader       | Busy delivery                    | Busy delivery      | Busy                      | nothing                            | nothing
ran out, caller       | Won epoch crash strike delivery  | Busy delivery      | Won epoch crash strike    | nothing                            | nothing
ran out, broker       | Won epoch crash delivery         | Busy delivery      | Won epoch crash           | nothing                            | nothing
ran out, ledger       | Busy delivery                    | Busy delivery      | Busy                      | taken epoch crash                  | nothing
ran out, leader       | Won epoch delivery               | Busy delivery      | Won epoch                 | nothing                            | nothing
ran out alone, broker | Won epoch crash strike delivery  | Busy delivery      | Won epoch crash strike    | nothing                            | nothing
ran out alone, ledger | Busy delivery                    | Busy delivery      | Busy                      | taken epoch crash strike           | nothing
waiting, caller       | Waiting delivery                 | Waiting delivery   | Waiting                   | nothing                            | woken
waiting, ledger       | Waiting delivery                 | Waiting delivery   | Waiting                   | nothing                            | woken
due, caller           | Won →running epoch delivery      | Busy delivery      | Won →running epoch        | nothing                            | nothing
due, ledger           | Waiting delivery                 | Waiting delivery   | Waiting                   | taken →running epoch               | nothing
due, leader           | Won →running epoch delivery      | Busy delivery      | Won →running epoch        | nothing                            | nothing
done, caller          | Done delivery                    | Done delivery      | Done                      | nothing                            | nothing
done, broker          | Done delivery                    | Done delivery      | Done                      | nothing                            | nothing
dead, caller          | Dead delivery                    | Dead delivery      | Dead                      | nothing                            | nothing
dead, ledger          | Dead delivery                    | Dead delivery      | Dead                      | nothing                            | nothing
in doubt              | InDoubt delivery                 | InDoubt delivery   | InDoubt                   | nothing                            | nothing
discarded waiting     | Discarded delivery               | Discarded delivery | Discarded                 | nothing                            | nothing
discarded dead        | Discarded delivery               | Discarded delivery | Discarded                 | nothing                            | nothing
"""  # noqa: E501 - a table reads across
ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
CELLS = [(row[0], event, cell) for row in ROWS for event, cell in zip(EVENTS, row[1:], strict=True)]


def test_the_table_has_every_situation() -> None:
    assert [row[0] for row in ROWS] == ["none", *SITUATIONS]


@pytest.mark.parametrize(("situation", "event", "cell"), CELLS, ids=[f"{s} · {e}" for s, e, _ in CELLS])
async def test_what_happens_to_work(world: World, situation: str, event: str, cell: str) -> None:
    if situation != "none":
        await SITUATIONS[situation](world)
        if STATES[situation] not in {State.RUNNING, State.WAITING}:
            world.pass_time(2 * LATER)  # whatever lease or wait it had is long over, and must not matter
    if event == "redelivery":
        await world.claim(KEY, lease=LEASE)
    before = await _item(world)
    answer, item = await _happen(world, event)
    after = await _item(world)
    said, *changes = cell.split()
    assert answer == said
    if item is not None:
        assert _still(item) == _still(after), "the answer shows the item as it is now"
    if before is None and after is None:
        assert not changes
        return
    assert after is not None
    if before is None:
        assert (after.epoch, after.carrier, after.attempts, after.round) == (1, _carrier(event), 0, 1)
        assert (after.crashes, after.strikes, after.deliveries) == (0, 0, int("delivery" in changes))
    else:
        expected = replace(
            before,
            state=State(next((change[1:] for change in changes if change[0] == "→"), before.state)),
            epoch=before.epoch + ("epoch" in changes),
            crashes=before.crashes + ("crash" in changes),
            strikes=before.strikes + ("strike" in changes),
            deliveries=before.deliveries + ("delivery" in changes),
            holder=after.holder if said in {"Won", "taken"} else before.holder,
        )
        assert _still(after) == _still(expected)
        assert (after.holder == before.holder) is (said not in {"Won", "taken"})
    if said in {"Won", "taken", "woken"}:
        assert after.free_in == pytest.approx(0 if said == "woken" else LEASE, abs=20)
        assert after.free_at == pytest.approx(world.store.wall() + after.free_in, abs=20), "the date for people"
    elif before is not None:
        assert after.free_at == before.free_at


async def _item(world: World) -> Item | None:
    return await world.ledger.get(wanted(KEY).id)


def _carrier(event: str) -> Carrier:
    return Carrier.CALLER if event == "call" else Carrier.BROKER


async def _happen(world: World, event: str) -> tuple[str, Item | None]:
    """Let one of `EVENTS` happen; say the answer's name and the item that it showed."""
    match event:
        case "due":
            taken = await world.due(lease=LEASE)
            return ("taken" if taken else "nothing"), (taken[0] if taken else None)
        case "wake":
            return ("woken" if await world.ledger.wake([wanted(KEY).id]) else "nothing"), None
        case _:
            answer = await world.claim(KEY, carrier=_carrier(event), lease=LEASE)
            return type(answer).__name__, answer.item


def _still(item: Item | None) -> Item | None:
    """The item without what passes by itself: times."""
    return item and replace(item, free_in=0.0, elapsed=0.0, not_after_in=None, moved_at=0.0, free_at=0.0)


@pytest.mark.parametrize("situation", [name for name, state in STATES.items() if state is State.RUNNING])
async def test_a_wake_of_running_work_leaves_its_lease_alone(world: World, situation: str) -> None:
    await SITUATIONS[situation](world)
    before = await world.item(KEY)
    await world.ledger.wake([before.id])
    after = await world.item(KEY)
    assert after.free_at == before.free_at


# -- what people do, from what they read

LIVE = "running, "
"""A live lease: `Discard` is a legal move of running work, and is lost to its worker."""


def _may(act: str, situation: str) -> bool:
    return any(move.source is STATES[situation] and _name(act) in move.by for move in MOVES)


def _name(act: str) -> str:
    return type(ACTS[act]).__name__


PEOPLES = {"Discard", "Restore", "Redrive", "Reprocess", "Postpone", "Edit", "Resolve"}
ILLEGAL = [(situation, act) for situation in SITUATIONS for act in ACTS if not _may(act, situation)]
LEGAL = [
    (situation, act)
    for situation in SITUATIONS
    for act in ACTS
    if _name(act) in PEOPLES and _may(act, situation) and not situation.startswith(LIVE)
]


def test_every_move_that_a_person_may_make_is_tried() -> None:
    tried = {(STATES[situation], _name(act)) for situation, act in LEGAL}
    assert tried == {(move.source, name) for move in MOVES for name in move.by if name in PEOPLES}


@pytest.mark.parametrize(("situation", "act"), ILLEGAL, ids=[f"{act} of {name}" for name, act in ILLEGAL])
async def test_what_the_table_of_moves_lacks_is_refused_and_nothing_is_written(
    world: World, situation: str, act: str
) -> None:
    await SITUATIONS[situation](world)
    before = await world.item(KEY)
    history = await world.ledger.history(before.id)
    with pytest.raises(IllegalMove):
        await world.settle(before, ACTS[act])
    assert _still(await world.item(KEY)) == _still(before)
    assert (await world.item(KEY)).free_at == before.free_at
    assert await world.ledger.history(before.id) == history


@pytest.mark.parametrize("situation", [name for name in SITUATIONS if name.startswith(LIVE)])
async def test_work_under_a_live_lease_cannot_be_discarded(world: World, situation: str) -> None:
    await SITUATIONS[situation](world)
    before = await world.item(KEY)
    answer = await world.settle(before, ACTS["Discard"])
    assert isinstance(answer, Lost)
    assert _still(answer.now) == _still(before)
    assert _still(await world.item(KEY)) == _still(before)


EXPECTED: dict[str, tuple[State | None, dict[str, object]]] = {
    "Discard": (State.DISCARDED, {}),
    "Restore": (None, {"discarded_from": None}),
    "Redrive": (State.WAITING, {"round": 2, "attempts": 0, "crashes": 0, "strikes": 0, "reason": None}),
    "Reprocess": (State.WAITING, {"round": 2, "attempts": 0, "outcome": None, "body": b"anew"}),
    "Postpone": (State.WAITING, {}),
    "Edit": (State.WAITING, {"body": b"edited"}),
    "Resolve, happened": (State.WAITING, {"effects": {"charge": Effect(True, True, "receipt")}}),
    "Resolve, did not": (State.WAITING, {"effects": {"charge": Effect(True, False, None)}}),
    "Resolve to done": (
        State.DONE,
        {"effects": {"charge": Effect(True, False)}, "outcome": b"9", "body": None, "successes": 1},
    ),
    "Resolve to dead": (State.DEAD, {"effects": {"charge": Effect(True, False)}, "reason": "manual"}),
}
"""What each act makes of an item: the state, and every other field that changes."""


@pytest.mark.parametrize(("situation", "act"), LEGAL, ids=[f"{act} of {name}" for name, act in LEGAL])
async def test_what_a_person_does_is_written_with_everything_else_as_it_was(
    world: World, situation: str, act: str
) -> None:
    await SITUATIONS[situation](world)
    before = await world.item(KEY)
    answer = await world.settle(before, ACTS[act])
    after = await world.item(KEY)
    state, changes = EXPECTED[act]
    if act == "Discard":
        changes = {"discarded_from": State.DEAD if before.state is State.DEAD else State.WAITING}
    if act == "Reprocess" and before.carrier is Carrier.BROKER:
        changes = {**changes, "carrier": Carrier.LEDGER}
    expected = replace(
        before,
        **{  # type: ignore[arg-type]
            "state": state or before.discarded_from,
            "epoch": before.epoch + 1,
            "holder": None,
            **changes,
        },
    )
    assert _still(after) == _still(expected)
    assert answer == Settled(after.state, after.epoch)


@pytest.mark.parametrize(("situation", "act"), LEGAL, ids=[f"{act} of {name}" for name, act in LEGAL])
async def test_what_a_person_does_to_something_that_has_moved_since_is_lost(
    world: World, situation: str, act: str
) -> None:
    await SITUATIONS[situation](world)
    before = await world.item(KEY)
    await world.settle(before, ACTS[act])
    moved = await world.item(KEY)
    answer = await world.settle(before, ACTS[act])
    assert isinstance(answer, Lost)
    assert _still(await world.item(KEY)) == _still(moved)


async def test_an_edited_payload_runs_and_the_identity_stays(world: World) -> None:
    await SITUATIONS["due, ledger"](world)
    before = await world.item(KEY)
    await world.settle(before, ACTS["Edit"])
    [item] = await world.due()
    assert (item.body, item.id, item.fingerprint) == (b"edited", before.id, before.fingerprint)


async def test_a_postponed_wait_ends_at_its_new_time(world: World) -> None:
    await SITUATIONS["due, ledger"](world)
    await world.settle(await world.item(KEY), ACTS["Postpone"])
    world.pass_time(2 * LATER - 1)
    early = await world.due()
    world.pass_time(2)
    assert (early, [item.key for item in await world.due()]) == ([], [KEY])


async def test_stranded_work_that_was_discarded_before_anybody_saw_its_bytes_cannot_be_restored(world: World) -> None:
    await SITUATIONS["ran out, broker"](world)
    await world.settle(await world.item(KEY), ACTS["Discard"])
    with pytest.raises(IllegalMove):
        await world.settle(await world.item(KEY), ACTS["Restore"])


async def test_a_claim_takes_nothing_but_its_own_work(world: World) -> None:
    for key in (KEY, "another"):
        await world.won(key, lease=0.0)
    await world.won("another")
    assert (await world.item(KEY)).crashes == 0


async def test_a_settle_changes_nothing_but_its_own_work(world: World) -> None:
    await SITUATIONS["waiting, ledger"](world)
    before = await world.item(KEY)
    await world.settle(await world.won("another"), ACTS["Done"])
    assert _still(await world.item(KEY)) == _still(before)


async def test_a_settle_changes_nothing_that_was_taken_beside_its_work(world: World) -> None:
    for key in ("a", "b"):
        await world.settle(await world.won(key), ACTS["GiveBack"])
    settled, beside = await world.due()
    await world.settle(settled, ACTS["Done"])
    assert _still(await world.item(beside.key)) == _still(beside)


async def test_a_delivery_is_counted_for_nothing_but_its_own_work(world: World) -> None:
    await SITUATIONS["running, broker"](world)
    await world.won("another")
    await world.claim("another")
    assert (await world.item(KEY)).deliveries == 1


async def test_due_takes_only_what_it_is_asked_for(world: World) -> None:
    await SITUATIONS["due, ledger"](world)
    elsewhere = await world.ledger.due(["other.stage"], limit=10, lease=LEASE, holder=uuid.uuid4().hex)
    nobody = await world.ledger.due([], limit=10, lease=LEASE, holder=uuid.uuid4().hex)
    none = await world.due(STAGE, limit=0)
    assert (list(elsewhere), list(nobody), none) == ([], [], [])
    assert (await world.item(KEY)).state is State.WAITING


def test_every_answer_is_in_the_table() -> None:
    answers = {cell.split()[0] for _, _, cell in CELLS}
    assert {answer.__name__ for answer in claims.Answer.__args__} - {"Mismatch"} <= answers
