"""A real worker process that does as its events say, and dies (or stands still) at a moment that is chosen.

    python -m tests.crash.worker --ledger URL --broker URL --log FILE --die-at RETURNED --on 3 --deaths 1

It is put together as `headway run` does it, with a probe. What its handlers do is in the data of each event, so that
one program serves all tests; handlers write what they do to the log.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headway import Context, Event, RetryPolicy, Service, SyncContext
from headway.adapters.sqlite.broker import SQLiteBroker
from headway.adapters.sqlite.ledger import SQLiteLedger
from headway.adapters.sqlite.turn import Turn
from headway.app.serve import serve, stop_on_signals
from headway.app.wiring import open_parts
from headway.core.event import Letter
from headway.errors import LeaseLost
from headway.ports.broker import Broker, Delivery
from headway.ports.points import Point
from headway.runtime import envelope
from headway.runtime.worker import Settings, Stopping
from tests.crash.log import Log

ASKED, ASKED_SYNC, FOLLOWED = "pipeline.Asked", "pipeline.AskedSync", "pipeline.Followed"
"""The stages. What succeeds at the first may be followed by an event for the third."""

POLICY = RetryPolicy(name="crash-tests", max_attempts=5, base_delay=0.05, max_delay=0.05, jitter="none")  # type: ignore[arg-type]
EFFECT = "INSERT INTO effect (stage, origin, attempt, epoch, pid) VALUES (?, ?, ?, ?, ?)"


class TryLater(ConnectionError):
    """A failure that says when to come back: beyond the threshold for waits in place, the ledger keeps the event."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("not now")
        self.retry_after = retry_after


@dataclass(slots=True)
class Doom:
    """The probe: sends this process a signal when it gets to a point for the nth time.

    All processes of a test share a number of deaths; who comes first takes one. `after` is a point that must have
    been passed before it counts at all.
    """

    log: Log
    at: Point | None
    on: int = 1
    after: Point | None = None
    deaths: int = 1
    signal: int = signal.SIGKILL
    trace: bool = False
    turns: list[Turn] = field(default_factory=list)
    _count: int = 0
    _passed: set[Point] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, point: Point) -> None:
        """Called from any thread."""
        with self._guard:
            if self.trace and point not in self._passed:
                self.log.write("point", point=point.name)
            armed = self.after is None or self.after in self._passed
            self._passed.add(point)
            if point is not self.at or not armed:
                return
            self._count += 1
            reached = self._count >= self.on
        if reached:
            self.strike(point.name)

    def strike(self, where: str) -> None:
        """Take one of the deaths, if one is left."""
        for number in range(self.deaths):
            try:
                os.close(os.open(f"{self.log.path}.death-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            self.log.write("dies", point=where)
            if self.signal == signal.SIGSTOP:
                self.stand_still()
            else:
                os.kill(os.getpid(), self.signal)
            return

    def stand_still(self) -> None:
        """Be stopped, but not in the middle of a commit: then the file would be locked for everybody until we go on."""
        with ExitStack() as stack:
            for turn in self.turns:
                turn.take(Turn.HANDLER)
                stack.callback(turn.pass_on)
            os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True, slots=True)
class WatchedBroker:
    """The broker, and a line in the log for all that is done to it."""

    inner: Broker
    log: Log

    async def publish(self, letter: Letter) -> None:
        """Publish, and say so once it is durable."""
        await self.inner.publish(letter)
        self.log.write("publish", event=letter.event_id, type=letter.event_type)

    async def receive(self, queue: str, limit: int) -> Sequence[Delivery]:
        """Receive, and say what came."""
        deliveries = await self.inner.receive(queue, limit)
        for delivery in deliveries:
            self._say("receive", delivery)
        return deliveries

    async def acknowledge(self, delivery: Delivery) -> None:
        """Say it, then acknowledge."""
        self._say("acknowledge", delivery)
        await self.inner.acknowledge(delivery)

    async def give_back(self, delivery: Delivery) -> None:
        """Say it, then give back."""
        self._say("give back", delivery)
        await self.inner.give_back(delivery)

    async def close(self) -> None:
        """End the session."""
        await self.inner.close()

    def _say(self, what: str, delivery: Delivery) -> None:
        event = envelope.decode(delivery.body).event_id
        self.log.write(what, event=event, tag=delivery.tag, deliveries=delivery.deliveries)


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a handler, and what its event tells it to do."""

    log: Log
    doom: Doom
    stage: str
    event: Event[Any]
    ctx: Context | SyncContext

    @property
    def act(self) -> str:
        """What to do."""
        return str(self.event.data.get("act", "work"))

    @property
    def seconds(self) -> float:
        """For how long."""
        return float(self.event.data.get("seconds", 0.0))

    @property
    def origin(self) -> str:
        """The event that a test has sent, from which this one comes."""
        return str(self.event.data.get("origin", self.event.event_id))

    @property
    def first(self) -> bool:
        """Whether no process has begun this work before."""
        return len(self.starts(self.event.event_id)) == 1

    @property
    def received_elsewhere(self) -> bool:
        """Whether another process was given this event's message."""
        received = self.log.lines("receive", event=self.event.event_id)
        return any(line["pid"] != os.getpid() for line in received)

    def starts(self, event: str) -> list[dict[str, Any]]:
        """Every execution of an event at this stage so far."""
        return self.log.lines("start", event=event, stage=self.stage)

    def say(self, what: str) -> None:
        """Write a line about this execution."""
        self.log.write(
            what,
            stage=self.stage,
            event=self.event.event_id,
            origin=self.origin,
            item=self.ctx.item_id,
            attempt=self.ctx.attempt,
            epoch=self.ctx.epoch,
        )

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say when the execution begins, and how it ends where no failure of its own ends it."""
        self.say("start")
        try:
            yield
        except (LeaseLost, asyncio.CancelledError):
            self.say("refused")
            raise
        self.say("end")

    def effect(self, db: Any) -> None:
        """The effect that must happen once."""
        db.execute(EFFECT, (self.stage, self.origin, self.ctx.attempt, self.ctx.epoch, os.getpid()))


def block_until(condition: Callable[[], bool], *, patience: float) -> None:
    """Keep the calling thread, and the event loop that runs on it, until something is true."""
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)


async def before_writing(run: Run) -> None:
    """What an event asks for, as far as it needs no transaction."""
    match run.act:
        case "work":
            await asyncio.sleep(run.seconds)
        case "linger" if run.first:
            await asyncio.sleep(run.seconds)
        case "block" if run.first:
            time.sleep(run.seconds)  # noqa: ASYNC251 - to block the loop is its purpose
        case "block until it comes again" if run.first:
            block_until(lambda: run.received_elsewhere, patience=run.seconds)
        case "pause" if run.first:
            run.doom.stand_still()
        case "innocent" if run.first:
            await asyncio.sleep(60.0)
        case "poison":
            beside = run.event.data["beside"]
            while run.first and not all(run.starts(event) for event in beside):  # noqa: ASYNC110 - a file tells no one
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)


async def while_writing(run: Run, db: Any) -> None:
    """What an event asks for while the transaction is open, or at the end where it has none."""
    match run.act:
        case "hold" if run.ctx.attempt == 1:
            await asyncio.sleep(run.seconds)
        case "hold and go on" if run.ctx.attempt == 1:
            await asyncio.sleep(run.seconds)
            db.execute("SELECT count(*) FROM effect")
        case "die writing":
            run.doom.strike("WRITING")
        case "fail" if run.ctx.attempt == 1:
            raise ConnectionError("not yet")
        case "fail later" if run.ctx.attempt == 1:
            raise TryLater(run.seconds)
        case "refuse":
            raise ValueError("never")


def pipeline(log: Log, doom: Doom) -> Service:
    """The service: two stages, the first of which emits to the second, and one whose handler is not async."""
    service = Service("pipeline")

    async def perform(run: Run) -> None:
        assert isinstance(run.ctx, Context)
        with run.told():
            await before_writing(run)
            if run.event.data.get("write", True):
                async with run.ctx.transaction() as db:
                    run.effect(db)
                    await while_writing(run, db)
            else:
                await while_writing(run, None)
            if run.event.data.get("follow"):
                run.ctx.emit("Followed", {"origin": run.event.event_id})

    @service.on("Asked", stage=ASKED, policy=POLICY)
    async def asked(event: Event[Any], ctx: Context) -> None:
        await perform(Run(log, doom, ASKED, event, ctx))

    @service.on("Followed", stage=FOLLOWED, policy=POLICY)
    async def followed(event: Event[Any], ctx: Context) -> None:
        await perform(Run(log, doom, FOLLOWED, event, ctx))

    @service.on("AskedSync", stage=ASKED_SYNC, policy=POLICY)
    def asked_sync(event: Event[Any], ctx: SyncContext) -> None:
        run = Run(log, doom, ASKED_SYNC, event, ctx)
        with run.told():
            if run.first and run.act == "pause":
                doom.stand_still()
            elif run.first:
                time.sleep(run.seconds)
            with ctx.transaction() as db:
                run.effect(db)

    return service


async def work(options: argparse.Namespace) -> None:
    """Serve until a signal."""
    log = Log(options.log)
    doom = Doom(
        log,
        None if options.die_at is None else Point[options.die_at],
        on=options.on,
        after=None if options.after is None else Point[options.after],
        deaths=options.deaths,
        signal=signal.Signals[options.signal],
        trace=options.trace,
    )
    settings = Settings(
        lease=options.lease,
        concurrency=options.concurrency,
        in_place=options.in_place,
        grace=options.grace,
        name=f"worker {os.getpid()}",
    )
    stopping = Stopping()
    stop_on_signals(stopping, say=print)
    async with open_parts(options.ledger, options.broker, session=options.session, probe=doom, make=True) as parts:
        stores = [
            part._store for part in (parts.ledger, parts.broker) if isinstance(part, (SQLiteLedger, SQLiteBroker))
        ]
        doom.turns = [store.turn for store in stores]
        log.write("up")
        watched = None if parts.broker is None else WatchedBroker(parts.broker, log)
        await serve([pipeline(log, doom)], replace(parts, broker=watched), settings, stopping, probe=doom)
    log.write("down")


def end_with_parent() -> None:
    """Leave no worker behind, however the tests end: standard input comes to its end with them."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Read the arguments and work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledger", required=True)
    parser.add_argument("--broker")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--die-at", choices=[point.name for point in Point])
    parser.add_argument("--on", type=int, default=1)
    parser.add_argument("--after", choices=[point.name for point in Point])
    parser.add_argument("--deaths", type=int, default=1)
    parser.add_argument("--signal", choices=["SIGKILL", "SIGSTOP"], default="SIGKILL")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--session", type=float, default=1.0)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--in-place", type=float, default=0.15)
    parser.add_argument("--grace", type=float, default=1.0)
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(levelname)s %(name)s: %(message)s")
    options = parser.parse_args()
    end_with_parent()
    asyncio.run(work(options))


if __name__ == "__main__":
    main()
