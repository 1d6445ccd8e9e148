"""Ways to bring one piece of work into every situation that it can be in, through the ledger's ports alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from headway.core.decide import Reason
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
    Postpone,
    Redrive,
    Reprocess,
    Resolve,
    Restore,
    Retry,
    Settled,
    Settlement,
)
from headway.core.states import Carrier, State
from headway.ports.broker import Subscription
from headway.ports.ledger import Renewal
from tests.world import STAGE, World, letter

KEY = "k"
LEASE = 100.0
LATER = 1000.0
"""When waiting work is due: long after everything else in these tests."""


def attempt(number: int, *, delay: float | None = None) -> Attempt:
    """A charged execution."""
    return Attempt(number=number, kind="transient", error_type="OSError", message=f"failure {number}", delay=delay)


async def accepted(world: World, seen: Item, settlement: Settlement) -> None:
    """Settle, and insist that it was written."""
    answer = await world.settle(seen, settlement)
    assert isinstance(answer, Settled), answer


async def running(world: World, carrier: Carrier, *, alone: bool = False) -> Item:
    """Work in its holder's hands."""
    if carrier is Carrier.LEDGER:
        await accepted(world, await world.won(KEY, lease=LEASE), Retry(delay=0.0, attempt=attempt(1)))
        [item] = await world.due(lease=LEASE)
    else:
        item = await world.won(KEY, carrier=carrier, lease=LEASE)
    if alone:
        renewed = await world.ledger.renew([Renewal(id=item.id, epoch=item.epoch, lease=LEASE, alone=True)])
        assert list(renewed) == [True]
    return item


async def ran_out(world: World, carrier: Carrier, *, alone: bool = False) -> None:
    """Work whose lease is over and that nobody has taken."""
    await running(world, carrier, alone=alone)
    world.pass_time(LEASE + 1)


async def waiting(world: World, carrier: Carrier, delay: float) -> None:
    """Work that failed once, carried by its caller or (where the broker brought it) by the ledger."""
    await accepted(world, await running(world, carrier), Retry(delay=delay, attempt=attempt(1)))


async def done(world: World, carrier: Carrier = Carrier.BROKER) -> None:
    """Work that succeeded."""
    await accepted(world, await running(world, carrier), Done(value=b"7"))


async def dead(world: World, carrier: Carrier = Carrier.BROKER) -> None:
    """Work that was abandoned."""
    letter = DeadLetter(reason=Reason.MAX_ATTEMPTS, attempt=attempt(3), message="gave up")
    await accepted(world, await running(world, carrier), letter)


async def in_doubt(world: World) -> None:
    """Work with an open effect."""
    item = await running(world, Carrier.BROKER)
    effects = {"charge": Effect(unsafe=True)}
    assert await world.ledger.renew([Renewal(id=item.id, epoch=item.epoch, lease=LEASE, effects=effects)]) == [True]
    await accepted(world, replace(item, effects=effects), Doubt(attempt=attempt(1)))


async def discarded(world: World, before: Callable[[World], Awaitable[None]]) -> None:
    """Work that a person gave up."""
    await before(world)
    await accepted(world, await world.item(KEY), Discard(reason="not wanted"))


Maker = Callable[[World], Awaitable[object]]

SITUATIONS: dict[str, Maker] = {
    "running, caller": lambda world: running(world, Carrier.CALLER),
    "running, broker": lambda world: running(world, Carrier.BROKER),
    "running, ledger": lambda world: running(world, Carrier.LEDGER),
    "running, leader": lambda world: running(world, Carrier.LEADER),
    "ran out, caller": lambda world: ran_out(world, Carrier.CALLER),
    "ran out, broker": lambda world: ran_out(world, Carrier.BROKER),
    "ran out, ledger": lambda world: ran_out(world, Carrier.LEDGER),
    "ran out, leader": lambda world: ran_out(world, Carrier.LEADER),
    "ran out alone, broker": lambda world: ran_out(world, Carrier.BROKER, alone=True),
    "ran out alone, ledger": lambda world: ran_out(world, Carrier.LEDGER, alone=True),
    "waiting, caller": lambda world: waiting(world, Carrier.CALLER, LATER),
    "waiting, ledger": lambda world: waiting(world, Carrier.BROKER, LATER),
    "due, caller": lambda world: waiting(world, Carrier.CALLER, 0.0),
    "due, ledger": lambda world: waiting(world, Carrier.BROKER, 0.0),
    "due, leader": lambda world: waiting(world, Carrier.LEADER, 0.0),
    "done, caller": lambda world: done(world, Carrier.CALLER),
    "done, broker": done,
    "dead, caller": lambda world: dead(world, Carrier.CALLER),
    "dead, ledger": dead,
    "in doubt": in_doubt,
    "discarded waiting": lambda world: discarded(world, lambda at: waiting(at, Carrier.BROKER, LATER)),
    "discarded dead": lambda world: discarded(world, dead),
}

_BEGINNINGS = {
    "running": State.RUNNING,
    "ran out": State.RUNNING,
    "waiting": State.WAITING,
    "due": State.WAITING,
    "done": State.DONE,
    "dead": State.DEAD,
    "in doubt": State.IN_DOUBT,
    "discarded": State.DISCARDED,
}
STATES: dict[str, State] = {
    name: next(state for beginning, state in _BEGINNINGS.items() if name.startswith(beginning)) for name in SITUATIONS
}
"""The state of each situation."""

ACTS: dict[str, Settlement] = {
    "Done": Done(value=b"8"),
    "Retry": Retry(delay=5.0),
    "Park": Park(on="a", delay=5.0),
    "Hold": Hold(dependency="db", delay=5.0),
    "GiveBack": GiveBack(),
    "DeadLetter": DeadLetter(reason=Reason.MANUAL),
    "Doubt": Doubt(),
    "Discard": Discard(reason="by hand"),
    "Restore": Restore(reason="by hand"),
    "Redrive": Redrive(reason="by hand"),
    "Reprocess": Reprocess(reason="by hand", body=b"anew"),
    "Postpone": Postpone(reason="by hand", delay=LATER * 2),
    "Edit": Edit(reason="by hand", body=b"edited"),
    "Resolve, happened": Resolve(reason="by hand", happened={"charge": "receipt"}),
    "Resolve, did not": Resolve(reason="by hand"),
    "Resolve to done": Resolve(reason="by hand", to=State.DONE, value=b"9"),
    "Resolve to dead": Resolve(reason="by hand", to=State.DEAD),
}


async def declare(world: World, *stages: str, key: str | None = None, event_type: str = "JSONParsed") -> None:
    """Subscribe stages of the service "chunking" to an event, as its start does."""
    wanted = [Subscription(event_type, stage, "chunking", key) for stage in stages or (STAGE,)]
    await world.ledger.declare({"chunking": wanted})


async def publish(world: World, key: str, **parts: object) -> None:
    """Send the event of a key into an embedded ledger."""
    await world.ledger.publish(letter(key, **parts))  # type: ignore[arg-type]
