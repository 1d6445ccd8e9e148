"""Where a piece of work is, since when, what happens next, and what a person may do: one sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.decide import CRASH_LIMIT, Reason
from headway.core.item import Item
from headway.core.states import Carrier, State
from headway.errors import NotFound
from headway.ports.ledger import LedgerReads, Query, Record


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to "why is this here?"."""

    item: Item
    where: str
    next: str
    may: str
    history: Sequence[Record]


async def why(reads: LedgerReads, identity: str, *, now: float) -> list[Explanation]:
    """Explain every item of this id, event id or key. `now` is the wall-clock time that ages are told from."""
    items = await reads.find(Query(identity=identity))
    if not items:
        raise NotFound(
            f"nothing here has the id {identity}: give an item's id (or its first 6 characters or more), an event's "
            "id, or a key. It may have been removed after its time, or its event is still with the broker, in the "
            "outbox, or kept for want of a stage (`headway status` counts those), or it never arrived"
        )
    return [explain(item, await reads.history(item.id), now=now) for item in items]


def explain(item: Item, history: Sequence[Record], *, now: float) -> Explanation:
    """Say it of one item."""
    where, following, may = {
        State.RUNNING: _running,
        State.WAITING: _waiting,
        State.DONE: _done,
        State.DEAD: _dead,
        State.IN_DOUBT: _in_doubt,
        State.DISCARDED: _discarded,
    }[item.state](item, history, now)
    return Explanation(item, where + _past(item), following, may, history)


Told = tuple[str, str, str]


def _running(item: Item, _: Sequence[Record], now: float) -> Told:
    since = span(now - item.moved_at)
    if item.free_in > 0:
        return (
            f"running for {since}",
            f"its lease ends in {span(item.free_in)} unless its worker renews it; then somebody else takes it over",
            "wait",
        )
    gone = f"its worker has been gone for {span(-item.free_in)}"
    if item.carrier is Carrier.LEDGER:
        return gone, f"the next free worker of {item.stage} takes it over", "see that one is running"
    carrier = "the broker redelivers it" if item.carrier is Carrier.BROKER else "its caller calls again"
    return f"stranded: {gone}", f"it is taken over when {carrier}", "see that it can: its worker is gone"


def _waiting(item: Item, history: Sequence[Record], _: float) -> Told:
    attempts = [record for record in history if record.what == "attempt" and record.round == item.round]
    after = f", after {attempts[-1].note}" if attempts else ""
    what = f" for {item.waiting_for}" if item.waiting_for else ""
    if item.carrier is Carrier.CALLER:
        return (
            f"waiting{what}{after}",
            "it runs at the next call with its key",
            "call it again",
        )
    if item.free_in > 0:
        return (
            f"waiting{what}{after}",
            f"attempt {item.attempts + 1} is due in {span(item.free_in)}",
            "wait",
        )
    return (
        f"waiting{what}{after}; due for {span(-item.free_in)}",
        f"the next free worker of {item.stage} takes it",
        "see that one is running: `headway run`",
    )


def _done(item: Item, _: Sequence[Record], now: float) -> Told:
    value = f" with {item.outcome.decode(errors='replace')}" if item.outcome else ""
    return f"done {span(now - item.moved_at)} ago{value}", "nothing", "nothing is needed"


_ADVICE = {
    Reason.MAX_ATTEMPTS: "see to what it failed on, then requeue it",
    Reason.TTL: "requeue it if it is still wanted: it gets its whole time again",
    Reason.NON_RETRYABLE: "mend the handler and requeue it, or discard it and have it sent again",
    Reason.POISON: "look at the bytes with `headway dlq show`; requeue it once they can be read, or discard it",
    Reason.NO_HANDLER: "deploy a handler for its type, then requeue it, or discard it",
    Reason.CRASH_LOOP: "find out why it kills its worker, mend that, then requeue it",
    Reason.KEY_REUSE: "discard it, and send its data again as a new event with a key of its own",
}


def _dead(item: Item, history: Sequence[Record], now: float) -> Told:
    letters = [record for record in history if record.what == "dead letter"]
    note = f": {letters[-1].note}" if letters and letters[-1].note else ""
    reason = Reason(item.reason) if item.reason else Reason.MANUAL
    where = f"dead for {span(now - item.moved_at)} ({reason}) after {times(item.attempts, 'failed attempt')}{note}"
    advice = _ADVICE.get(reason, "requeue it, or discard it")
    commands = f"`headway dlq requeue {item.id[:12]} --reason …`, or `discard`"
    return where, "nothing, until a person acts", f"{advice}: {commands}"


def _in_doubt(item: Item, _: Sequence[Record], now: float) -> Told:
    effects = ", ".join(item.open_effects)
    return (
        f"in doubt for {span(now - item.moved_at)}: nobody knows whether {effects} happened",
        "nothing, until somebody says",
        "find out at the receiver; the command line cannot resolve it yet",
    )


def _discarded(item: Item, history: Sequence[Record], now: float) -> Told:
    acts = [record for record in history if record.what == "Discard"]
    act = f" by {acts[-1].by}: {acts[-1].note}" if acts else ""
    return (
        f"discarded {span(now - item.moved_at)} ago{act}",
        "it is removed after its time",
        "the command line cannot restore it yet",
    )


def _past(item: Item) -> str:
    told = ""
    if item.round > 1:
        told += f"; in round {item.round}"
    if item.crashes:
        told += f"; {times(item.crashes, 'crash', 'crashes')} of its worker"
    if item.strikes:
        told += f", {item.strikes} of at most {CRASH_LIMIT} while it ran alone"
    if item.deliveries > 1:
        told += f"; delivered {times(item.deliveries, 'time')}"
    return told


def times(count: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """A length of time, as short as people say it."""
    seconds = max(seconds, 0.0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
