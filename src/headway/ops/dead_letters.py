"""What people do with dead letters: find them, bring them back, give them up."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.item import Item
from headway.core.settlements import Discard, Lost, Redrive, plan
from headway.core.states import State
from headway.errors import Conflict, HeadwayError, NotFound
from headway.ports.ledger import Ledger, LedgerReads, Query


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item that a person acted on."""

    item: str
    ok: bool
    message: str
    unknown: bool = False


async def find(
    reads: LedgerReads, *, stage: str | None, reason: str | None, limit: int, after: str = ""
) -> Sequence[Item]:
    """A page of dead letters."""
    return await reads.find(Query(state=State.DEAD, stage=stage, reason=reason, limit=limit, after=after))


async def find_dead(reads: LedgerReads, identity: str) -> Item:
    """The one dead letter of this id; refuse what is no dead letter, or more than one."""
    known = await reads.find(Query(identity=identity))
    dead = [item for item in known if item.state is State.DEAD]
    if not known:
        raise NotFound(f"nothing here has the id {identity}: see `headway dlq list`")
    if not dead:
        raise NotFound(f"item {known[0].id} is {known[0].state}, no dead letter: see `headway why {identity}`")
    if len(dead) > 1:
        stages = ", ".join(f"{item.id[:12]} ({item.stage})" for item in dead)
        raise NotFound(f"{identity} names {len(dead)} dead letters, give one item's id: {stages}")
    return dead[0]


def check(item: Item, act: Redrive | Discard) -> Outcome:
    """Say whether this could be done to a dead letter, and do nothing."""
    try:
        plan(item, act)
    except Conflict as error:
        return Outcome(item.id, ok=False, message=str(error))
    return Outcome(item.id, ok=True, message=f"would be {_DID[type(act)]}")


async def act_on(ledger: Ledger, item: Item, act: Redrive | Discard, *, by: str) -> Outcome:
    """Requeue or discard a dead letter, if it is still as it was read."""
    try:
        answer = await ledger.settle(item, act, by=by, token=uuid.uuid4().hex)
    except HeadwayError as error:
        return Outcome(item.id, ok=False, message=str(error))
    if isinstance(answer, Lost):
        state = "gone" if answer.now is None else answer.now.state
        return Outcome(item.id, ok=False, message=f"it has moved meanwhile and is {state}: look again")
    return Outcome(item.id, ok=True, message=_DID[type(act)])


_DID = {Redrive: "requeued", Discard: "discarded"}
