"""What an outcome means for an item. `plan` turns what was seen and what was decided into everything that is written.

Rules of this file: a plan is derived from the item as its caller saw it and from nothing else; a ledger writes the
plan in one transaction if the item is still at that epoch, and adds no rule of its own. Used by module:
`settlements.Done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headway.core import states
from headway.core.decide import Reason
from headway.core.event import Letter
from headway.core.failure import REFUSED
from headway.core.item import Attempt, Effect, Item
from headway.core.states import Carrier, State
from headway.errors import IllegalMove


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It succeeded: its value, and the events that go out with it."""

    value: bytes | None = None
    emits: tuple[Letter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """It failed and runs again after `delay` seconds."""

    delay: float
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Park:
    """It waits for something that is known by name; it is looked for again after `delay` seconds at the latest."""

    on: str
    delay: float
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """It waits for a dependency to come back, uncharged."""

    dependency: str
    delay: float


@dataclass(frozen=True, slots=True)
class GiveBack:
    """It goes back untouched: uncharged, due at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """It is abandoned."""

    reason: Reason
    attempt: Attempt | None = None
    message: str = ""
    emits: tuple[Letter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Unsafe effects of it are open."""

    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A person gives it up; it can be restored until the horizon."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A discard is undone."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A dead letter gets a new round, with its own budget and time. `delay` spreads a large redrive."""

    reason: str
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprocess:
    """Work that was done is done again, from the bytes that are given."""

    reason: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    """A person gives it another due time."""

    reason: str
    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A person gives it another payload; its identity and first fingerprint stay."""

    reason: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Doubt ends: each open effect happened (with what it returned) or did not, and the work goes on as told."""

    reason: str
    happened: Mapping[str, str | None] = field(default_factory=dict)
    to: State = State.WAITING
    value: bytes | None = None
    emits: tuple[Letter, ...] = ()


Settlement = (
    Done
    | Retry
    | Park
    | Hold
    | GiveBack
    | DeadLetter
    | Doubt
    | Discard
    | Restore
    | Redrive
    | Reprocess
    | Postpone
    | Edit
    | Resolve
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that one settlement writes. `delay` is None where nobody may take the item."""

    item: Item
    delay: float | None = None
    fresh_round: bool = False
    only_if_free: bool = False
    attempt: Attempt | None = None
    dead_letter: DeadLetter | None = None
    emits: tuple[Letter, ...] = ()
    move: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """It is written: now, or, where `again` is true, by an earlier try of the same call whose answer was lost."""

    state: State
    epoch: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing was written: the item has moved since it was seen. `now` is what it has become, None if it is gone."""

    now: Item | None


def key_reused(key: str, item_id: str) -> DeadLetter:
    """What becomes of a letter whose key is known with another payload."""
    return DeadLetter(reason=Reason.KEY_REUSE, message=f"the key {key} is known with another payload (item {item_id})")


def plan(seen: Item, settlement: Settlement) -> Plan:
    """Say what `settlement` writes for an item that was seen so; refuse what the table of moves does not have."""
    planned = _plan(seen, settlement)
    if not states.allows(seen.state, planned.item.state, planned.move):
        raise IllegalMove(
            f"{planned.move} cannot bring item {seen.id} from {seen.state} to {planned.item.state}: "
            "look at it again with `headway why`"
        )
    return planned


def _plan(seen: Item, settlement: Settlement) -> Plan:
    match settlement:
        case Done() | Resolve(to=State.DONE):
            return _done(seen, settlement)
        case Retry() | Park() | Hold() | GiveBack():
            return _wait(seen, settlement)
        case DeadLetter():
            return _dead(seen, settlement, move="DeadLetter", note=settlement.message)
        case Doubt(attempt=attempt):
            item = replace(_kept(charged(seen, attempt), state=State.IN_DOUBT), waiting_for=None)
            return Plan(item=item, attempt=attempt, move="Doubt", note=", ".join(seen.open_effects))
        case Resolve():
            return _resolve(seen, settlement)
        case Redrive() | Reprocess():
            return _new_round(seen, settlement)
        case _:
            return _act(seen, settlement)


def _act(seen: Item, act: Discard | Restore | Postpone | Edit) -> Plan:
    """What a person does to an item within its round. A wait that is not named anew keeps its due time."""
    item = seen
    delay = act.delay if isinstance(act, Postpone) else None
    match act:
        case Discard():
            home = State.DEAD if seen.state is State.DEAD else State.WAITING
            item = replace(seen, state=State.DISCARDED, discarded_from=home)
        case Restore():
            item = replace(_kept(seen, state=seen.discarded_from or State.WAITING), discarded_from=None)
        case Edit(body=body):
            item = replace(seen, body=body)
    stranded = seen.state is State.RUNNING
    return Plan(item=item, delay=delay, only_if_free=stranded, move=type(act).__name__, note=act.reason)


def _kept(seen: Item, *, state: State) -> Item:
    """Into a state in which the ledger holds the work: it carries it from here on, and needs its bytes.

    A caller's work stays the caller's: only the caller can run it, so there are no bytes.
    """
    carrier = Carrier.LEDGER if seen.carrier is Carrier.BROKER else seen.carrier
    if carrier is Carrier.LEDGER and seen.body is None:
        raise IllegalMove(
            f"item {seen.id} cannot become {state} in the ledger: its bytes were never handed to it "
            "(they came with the delivery, or it was discarded before anybody saw them)"
        )
    return replace(seen, state=state, carrier=carrier)


def charged(seen: Item, attempt: Attempt | None) -> Item:
    """The item with a failed attempt charged. Where the receiver refused, what was begun there did not happen."""
    if attempt is None:
        return seen
    effects = seen.effects
    if attempt.kind in REFUSED:
        effects = effects | {name: replace(effects[name], happened=False) for name in seen.open_effects}
    return replace(seen, attempts=attempt.number, effects=effects)


def _done(seen: Item, settlement: Done | Resolve) -> Plan:
    item, note = seen, ""
    if isinstance(settlement, Resolve):
        item, note = _answered(seen, settlement), settlement.reason
    item = replace(
        item,
        state=State.DONE,
        successes=seen.successes + 1,
        body=None,
        outcome=settlement.value,
        reason=None,
        waiting_for=None,
    )
    return Plan(item=item, emits=settlement.emits, move=type(settlement).__name__, note=note)


def _wait(seen: Item, settlement: Retry | Park | Hold | GiveBack) -> Plan:
    attempt: Attempt | None = None
    delay, waiting_for = 0.0, None
    match settlement:
        case Retry(delay=delay, attempt=attempt):
            pass
        case Park(on=on, delay=delay, attempt=attempt):
            waiting_for = f"document:{on}"
        case Hold(dependency=dependency, delay=delay):
            waiting_for = f"dependency:{dependency}"
    item = replace(_kept(charged(seen, attempt), state=State.WAITING), waiting_for=waiting_for)
    return Plan(item=item, delay=delay, attempt=attempt, move=type(settlement).__name__)


def _dead(seen: Item, letter: DeadLetter, *, move: str, note: str) -> Plan:
    item = replace(_kept(charged(seen, letter.attempt), state=State.DEAD), reason=letter.reason.value, waiting_for=None)
    return Plan(item=item, attempt=letter.attempt, dead_letter=letter, emits=letter.emits, move=move, note=note)


def _new_round(seen: Item, settlement: Redrive | Reprocess) -> Plan:
    if seen.reason == Reason.KEY_REUSE:
        raise IllegalMove(
            f"item {seen.id} reused a key of other work: as it is it can only be discarded; "
            "to have it done, send its data as a new event under a key of its own"
        )
    delay = settlement.delay if isinstance(settlement, Redrive) else 0.0
    body = settlement.body if isinstance(settlement, Reprocess) else seen.body
    item = replace(
        _kept(replace(seen, body=body), state=State.WAITING),
        round=seen.round + 1,
        attempts=0,
        crashes=0,
        strikes=0,
        not_after_in=None,
        outcome=None,
        reason=None,
        waiting_for=None,
    )
    return Plan(item=item, delay=delay, fresh_round=True, move=type(settlement).__name__, note=settlement.reason)


def _resolve(seen: Item, settlement: Resolve) -> Plan:
    answered = _answered(seen, settlement)
    if settlement.to is State.DEAD:
        letter = DeadLetter(reason=Reason.MANUAL, message=settlement.reason, emits=settlement.emits)
        return _dead(answered, letter, move="Resolve", note=settlement.reason)
    item = _kept(answered, state=settlement.to)
    return Plan(item=item, delay=0.0, move="Resolve", note=settlement.reason)


def _answered(seen: Item, settlement: Resolve) -> Item:
    if seen.state is not State.IN_DOUBT:
        return seen  # which is no move, and refused as such
    unknown = set(settlement.happened) - set(seen.open_effects)
    if unknown:
        raise ValueError(f"item {seen.id} has no open effect named {', '.join(sorted(unknown))}")
    effects = dict(seen.effects)
    for name in seen.open_effects:
        happened = name in settlement.happened
        effects[name] = Effect(unsafe=True, happened=happened, value=settlement.happened.get(name))
    return replace(seen, effects=effects)
