"""`headway status` and `headway why`: where everything is, in words and for programs."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core import keys
from headway.core.decide import Reason
from headway.core.item import Attempt, Effect
from headway.core.settlements import DeadLetter, Discard, Done, Doubt, Hold, Park, Redrive, Retry
from headway.core.states import Carrier
from headway.ports.broker import Subscription
from headway.ports.ledger import Renewal
from tests.app.cli import Cli, dead
from tests.world import STAGE, World, letter

FAILED = Attempt(number=1, kind="transient", error_type="ConnectionError", message="refused")


async def running(world: World) -> None:
    await world.won("k")


async def stranded(world: World) -> None:
    await world.won("k", lease=-5.0)


async def taken_from_the_ledger(world: World) -> None:
    await due(world)
    await world.due(lease=-5.0)


async def waiting(world: World) -> None:
    await world.settle(await world.won("k"), Retry(delay=3600, attempt=FAILED))


async def due(world: World) -> None:
    await world.settle(await world.won("k"), Retry(delay=0))


async def parked(world: World) -> None:
    await world.settle(await world.won("k"), Park(on="orders/1", delay=60))


async def held(world: World) -> None:
    await world.settle(await world.won("k"), Hold(dependency="mail", delay=60))


async def a_callers(world: World) -> None:
    await world.settle(await world.won("k", carrier=Carrier.CALLER), Retry(delay=5))


async def done(world: World) -> None:
    await world.settle(await world.won("k"), Done(value=b"42"))


async def is_dead(world: World) -> None:
    await world.settle(await world.won("k"), DeadLetter(reason=Reason.MAX_ATTEMPTS, attempt=FAILED))


async def in_doubt(world: World) -> None:
    item = await world.won("k")
    effects = {"charge": Effect(unsafe=True)}
    await world.ledger.renew([Renewal(id=item.id, epoch=item.epoch, lease=10, effects=effects)])
    await world.settle(replace(item, effects=effects), Doubt())


async def discarded(world: World) -> None:
    await is_dead(world)
    await world.settle(await world.item("k"), Discard(reason="a test order"), by="ann")


async def in_a_second_round(world: World) -> None:
    await is_dead(world)
    await world.settle(await world.item("k"), Redrive(reason="mended"), by="ann")


@pytest.mark.parametrize(
    ("make", "where", "following", "may"),
    [
        (running, "running for", "its lease ends in", "wait"),
        (stranded, "stranded: its worker has been gone for 5", "the broker redelivers it", "see that it can"),
        (taken_from_the_ledger, "its worker has been gone for", "next free worker", "see that one is running"),
        (waiting, "waiting, after ConnectionError: refused", "attempt 2 is due in 60 min", "wait"),
        (due, "waiting; due for 0.", "the next free worker", "headway run"),
        (parked, "waiting for document:orders/1", "attempt 1 is due in", "wait"),
        (held, "waiting for dependency:mail", "attempt 1 is due in", "wait"),
        (a_callers, "waiting", "it runs at the next call with its key", "call it again"),
        (done, "ago with 42", "nothing", "nothing is needed"),
        (is_dead, "(max_attempts_exceeded) after 1 failed attempt: ConnectionError: refused", "nothing", "requeue it"),
        (in_doubt, "nobody knows whether charge happened", "nothing, until somebody says", "find out at the receiver"),
        (discarded, "ago by ann: a test order", "removed after its time", "restore it"),
        (in_a_second_round, "; in round 2", "the next free worker", "headway run"),
    ],
)
def test_every_state_is_told_in_words(cli: Cli, make: Any, where: str, following: str, may: str) -> None:
    cli.in_ledger(make)
    told = cli("why", "k")
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in told.out.splitlines() if line.startswith("  ")}
    assert told.code == 0
    assert where in lines["is"]
    assert following in lines["next"]
    assert may in lines["may"]


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_a_dead_letter_comes_with_what_to_do(cli: Cli, reason: Reason) -> None:
    dead(cli, "k", reason=reason.value)
    told = cli("why", "k")
    assert f"({reason.value})" in told.out
    assert "requeue" in told.out or "discard" in told.out


@pytest.mark.parametrize("name", ["item", "beginning of the item", "event", "key"])
def test_work_is_found_by_each_of_its_names(cli: Cli, name: str) -> None:
    async def make(world: World) -> None:
        await world.won("the-key", event_id="the-event")

    cli.in_ledger(make)
    item = keys.item_id("", STAGE, "the-key")
    named = {"item": item, "beginning of the item": item[:8], "event": "the-event", "key": "the-key"}[name]
    told = cli("why", named, "-o", "json")
    assert [found["item"]["id"] for found in told.json] == [item]


def test_one_event_at_two_stages_is_explained_twice(cli: Cli) -> None:
    async def make(world: World) -> None:
        await world.won("e1")
        await world.won("e1", stage="other", id=keys.item_id("", "other", "e1"))

    cli.in_ledger(make)
    assert sorted(found["item"]["stage"] for found in cli("why", "e1", "-o", "json").json) == [STAGE, "other"]


@pytest.mark.parametrize("name", ["nothing-like-it", "", "abc", "[bold]", "%"])
def test_what_is_not_there_ends_with_1_and_what_to_give(cli: Cli, name: str) -> None:
    cli.in_ledger(running)
    told = cli("why", name)
    assert (told.code, told.out) == (1, "")
    assert "give an item's id" in told.err


def test_the_explanation_for_programs_has_these_fields(cli: Cli) -> None:
    cli.in_ledger(is_dead)
    (told,) = cli("why", "k", "-o", "json").json
    assert list(told) == ["item", "where", "next", "may", "history"]
    assert {"id", "stage", "key", "event_id", "state", "epoch", "round", "attempts", "reason", "body"} <= set(
        told["item"]
    )
    assert [record["what"] for record in told["history"]] == ["attempt", "dead letter", "DeadLetter"]
    assert set(told["history"][0]) == {"at", "what", "round", "by", "note", "details"}


@pytest.mark.parametrize("name", ["a[/b]c", "[red]x[/red]", "[link=http://x]y", "e:smile:"])
def test_names_are_shown_as_they_are(cli: Cli, name: str) -> None:
    """An event's id and type come from anybody: they are text, not markup."""

    async def make(world: World) -> None:
        await world.won(name, event_type=name, stage=name, id=keys.item_id("", name, name))

    cli.in_ledger(make)
    told = cli("why", name)
    assert told.code == 0
    assert told.out.splitlines()[0] == f"{name} {name} at {name}"
    assert name in cli("status").out


def test_names_of_dead_letters_are_shown_as_they_are(cli: Cli) -> None:
    dead(cli, "k", stage="[red]x[/red]")
    assert "[red]x[/red]" in cli("dlq", "list").out


def test_status_counts_work_by_stage_and_state(cli: Cli) -> None:
    async def make(world: World) -> None:
        await waiting(world)
        for key in "abc":
            await world.won(key)

    cli.in_ledger(make)
    stages = cli("status", "-o", "json").json["stages"]
    assert {(row["stage"], row["state"]): row["count"] for row in stages} == {
        (STAGE, "running"): 3,
        (STAGE, "waiting"): 1,
    }


def test_status_for_programs_has_these_fields(cli: Cli) -> None:
    cli.in_ledger(running)
    told = cli("status", "-o", "json").json
    assert list(told) == ["stages", "outbox", "unrouted"]
    assert list(told["stages"][0]) == ["stage", "state", "count", "free", "oldest_at"]
    assert list(told["outbox"]) == ["pending", "oldest_at", "last_error"]


def test_status_says_what_needs_somebody(cli: Cli) -> None:
    async def make(world: World) -> None:
        await stranded(world)
        await world.ledger.declare({"shop": [Subscription("Ordered", "shop.Ordered", "shop")]})
        await world.ledger.publish(letter("e1", event_type="Ordered"))
        await world.ledger.publish(letter("e2", event_type="Unwanted"))

    cli.in_ledger(make)
    out = cli("status").out
    assert f"{STAGE}: 1 running by record" in out
    assert "shop.Ordered: 1 due now" in out
    assert "unrouted: 1 event " in out


def test_status_of_an_empty_ledger_says_so(cli: Cli) -> None:
    async def nothing(_: World) -> None:
        """The ledger is made, and that is all."""

    cli.in_ledger(nothing)
    assert "nothing is here yet" in cli("status").out


def digest(path: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.iterdir()) if file.is_file()
    }


LOOKING = [
    ["status"],
    ["why", "k"],
    ["dlq", "list"],
    ["dlq", "show", "abcdef"],
    ["dlq", "requeue", "abcdef", "--reason", "x"],
]


@pytest.mark.parametrize("command", LOOKING)
def test_who_looks_makes_no_ledger(cli: Cli, command: list[str]) -> None:
    told = cli(*command)
    assert told.code == 2
    assert "`headway run` and `headway send` make one" in told.err
    assert list(cli.path.iterdir()) == []


def test_who_looks_makes_no_broker(cli: Cli) -> None:
    cli.in_ledger(running)
    told = cli("status", "--broker", "sqlite:///broker.db")
    assert told.code == 2
    assert "broker.db" in told.err
    assert not (cli.path / "broker.db").exists()


@pytest.mark.parametrize("command", LOOKING)
@pytest.mark.parametrize("content", ["nothing", "somebody's tables"])
def test_who_looks_changes_no_file_that_is_no_ledger(cli: Cli, command: list[str], content: str) -> None:
    if content == "nothing":
        (cli.path / "ledger.db").touch()
    else:
        with closing(sqlite3.connect(cli.path / "ledger.db")) as db:
            db.execute("CREATE TABLE customer (id TEXT)")
            db.commit()
    before = digest(cli.path)
    told = cli(*command)
    assert digest(cli.path) == before
    assert told.code == 2


def test_who_looks_changes_nothing_in_a_ledger(cli: Cli) -> None:
    cli.in_ledger(is_dead)
    before = cli.in_ledger(everything)
    for command in (["status"], ["why", "k"], ["dlq", "list"], ["dlq", "show", "k"]):
        assert cli(*command).code == 0
    assert cli.in_ledger(everything) == before


async def everything(world: World) -> object:
    def dump(db: Any) -> list[Any]:
        return [
            tuple(row)
            for table in ("headway_item", "headway_audit", "headway_sequence")
            for row in db.execute(f"SELECT * FROM {table}")
        ]

    return await world.store.read(dump)
