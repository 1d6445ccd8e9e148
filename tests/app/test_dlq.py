"""`headway dlq`: dead letters, one by one or many by their ids."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.settlements import Discard, Redrive
from headway.core.states import State
from headway.ops import dead_letters
from tests.app.cli import Cli, dead
from tests.world import STAGE, World


def states(cli: Cli, *items: Any) -> list[State | None]:
    async def look(world: World) -> list[State | None]:
        found = [await world.ledger.get(item.id) for item in items]
        return [None if item is None else item.state for item in found]

    return cli.in_ledger(look)


def test_the_list_shows_each_letter_with_its_reason(cli: Cli) -> None:
    (item,) = dead(cli, "a")
    told = cli("dlq", "list")
    assert told.code == 0
    for text in ("1 dead letter\n", item.id[:12], STAGE, "JSONParsed", "non_retryable"):
        assert text in told.out


def test_the_list_for_programs_has_whole_items(cli: Cli) -> None:
    items = dead(cli, "a", "b")
    told = cli("dlq", "list", "-o", "json").json
    assert [found["id"] for found in told] == sorted(item.id for item in items)
    assert {found["state"] for found in told} == {"dead"}


def test_the_list_of_ids_is_ready_to_be_piped(cli: Cli) -> None:
    items = dead(cli, "a", "b")
    assert cli("dlq", "list", "-o", "ids").out.split() == sorted(item.id for item in items)


def test_an_empty_list_is_no_failure(cli: Cli) -> None:
    dead(cli)
    assert cli("dlq", "list").code == 0
    assert cli("dlq", "list", "-o", "json").json == []
    assert cli("dlq", "list", "-o", "ids").out == ""


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--stage", "other"], {"b"}),
        (["--reason", "poison"], {"b"}),
        (["--reason", "non_retryable"], {"a"}),
        (["--stage", "other", "--reason", "non_retryable"], set()),
        (["--stage", "oth"], set()),
    ],
)
def test_the_list_is_narrowed_by_stage_and_reason(cli: Cli, filters: list[str], found: set[str]) -> None:
    dead(cli, "a")
    dead(cli, "b", reason="poison", stage="other")
    assert {item["key"] for item in cli("dlq", "list", *filters, "-o", "json").json} == found


def test_an_unknown_reason_is_refused_with_the_known_ones(cli: Cli) -> None:
    dead(cli)
    told = cli("dlq", "list", "--reason", "bad_luck")
    assert told.code == 2
    assert "crash_loop" in told.err


def test_pages_follow_each_other(cli: Cli) -> None:
    ids = sorted(item.id for item in dead(cli, *"abcde"))
    first = cli("dlq", "list", "--limit", "2", "-o", "ids").out.split()
    second = cli("dlq", "list", "--limit", "2", "--after", first[-1], "-o", "ids").out.split()
    assert first + second == ids[:4]
    assert f"--after {first[-1]}" in cli("dlq", "list", "--limit", "2").err


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_is_none_is_refused(cli: Cli, limit: str) -> None:
    dead(cli, "a")
    assert cli("dlq", "list", "--limit", limit).code == 2


def test_show_has_the_bytes_the_error_and_its_traceback(cli: Cli) -> None:
    (item,) = dead(cli, "a")
    out = cli("dlq", "show", "a").out
    for text in (item.id, "ValueError: no a", "at 1", '"event_id":"a"', "non_retryable"):
        assert text in out


def test_show_sends_nothing_to_the_terminal_that_it_would_obey(cli: Cli) -> None:
    async def poison(world: World) -> None:
        def put(db: Any) -> None:
            db.execute("UPDATE headway_item SET body = ?", (b"\x1b[2J\x07 gone \xff",))

        await world.store.write(put)

    dead(cli, "a")
    cli.in_ledger(poison)
    out = cli("dlq", "show", "a").out
    assert "gone" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_show_for_programs_has_bytes_that_are_no_text_as_hex(cli: Cli) -> None:
    async def poison(world: World) -> None:
        def put(db: Any) -> None:
            db.execute("UPDATE headway_item SET body = ?", (b"\xff\x00",))

        await world.store.write(put)

    dead(cli, "a")
    cli.in_ledger(poison)
    assert cli("dlq", "show", "a", "-o", "json").json["item"]["body"] == {"hex": "ff00"}


@pytest.mark.parametrize(("verb", "state"), [("requeue", State.WAITING), ("discard", State.DISCARDED)])
@pytest.mark.parametrize("name", ["id", "beginning", "event"])
def test_a_letter_is_acted_on_by_each_of_its_names(cli: Cli, verb: str, state: State, name: str) -> None:
    (item,) = dead(cli, "event-a")
    named = {"id": item.id, "beginning": item.id[:10], "event": "event-a"}[name]
    told = cli("dlq", verb, named, "--reason", "mended")
    assert told.code == 0
    assert states(cli, item) == [state]


@pytest.mark.parametrize(("verb", "move"), [("requeue", "Redrive"), ("discard", "Discard")])
def test_who_did_it_and_why_is_on_record(cli: Cli, verb: str, move: str) -> None:
    dead(cli, "a")
    cli("dlq", verb, "a", "--reason", "because of ticket 7")
    (told,) = cli("why", "a", "-o", "json").json
    acts = [record for record in told["history"] if record["what"] == move]
    assert [act["note"] for act in acts] == ["because of ticket 7"]
    assert acts[0]["by"].endswith("(command line)")


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_ids_come_from_standard_input(cli: Cli, verb: str) -> None:
    items = dead(cli, *"abc")
    told = cli("dlq", verb, "-", "--reason", "all of them", stdin=cli("dlq", "list", "-o", "ids").out)
    assert told.code == 0
    assert State.DEAD not in states(cli, *items)


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_a_dry_run_does_nothing(cli: Cli, verb: str) -> None:
    (item,) = dead(cli, "a")
    told = cli("dlq", verb, "a", "--reason", "to see", "--dry-run")
    assert told.code == 0
    assert f"would be {verb}" in told.out
    assert states(cli, item) == [State.DEAD]


def test_a_dry_run_of_what_cannot_be_requeued_says_so(cli: Cli) -> None:
    dead(cli, "a", reason="key_reuse")
    told = cli("dlq", "requeue", "a", "--reason", "to see", "--dry-run")
    assert told.code != 0
    assert "would be" not in told.out


def test_a_letter_that_reused_a_key_is_not_requeued(cli: Cli) -> None:
    (item,) = dead(cli, "a", reason="key_reuse")
    told = cli("dlq", "requeue", "a", "--reason", "again")
    assert told.code == 4
    assert "a key of its own" in told.err
    assert states(cli, item) == [State.DEAD]


@pytest.mark.parametrize("verb", ["requeue", "discard"])
@pytest.mark.parametrize(
    ("arguments", "says"), [(["a"], "--reason"), (["--reason", "x"], "-"), (["a", "--reason", ""], "reason")]
)
def test_an_act_needs_ids_and_a_reason(cli: Cli, verb: str, arguments: list[str], says: str) -> None:
    (item,) = dead(cli, "a")
    told = cli("dlq", verb, *arguments)
    assert told.code == 2
    assert says in told.err
    assert states(cli, item) == [State.DEAD]


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_an_id_that_is_nobodys_ends_with_1(cli: Cli, verb: str) -> None:
    dead(cli, "a")
    told = cli("dlq", verb, "nobody", "--reason", "x")
    assert told.code == 1
    assert "nothing here has the id nobody" in told.err


def test_a_letter_that_is_none_is_not_shown(cli: Cli) -> None:
    async def running(world: World) -> None:
        await world.won("k")

    cli.in_ledger(running)
    told = cli("dlq", "show", "k")
    assert told.code == 1
    assert "is running, no dead letter" in told.err


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_some_of_many_ends_with_6_and_says_which(cli: Cli, verb: str) -> None:
    (item,) = dead(cli, "a")
    told = cli("dlq", verb, "a", "nobody", "--reason", "x", "-o", "json")
    assert told.code == 6
    assert [(outcome["item"], outcome["ok"]) for outcome in told.json] == [(item.id, True), ("nobody", False)]
    assert list(told.json[0]) == ["item", "ok", "message", "unknown"]


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_a_letter_that_moves_meanwhile_is_left_as_it_is(cli: Cli, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else discards it between our look and our act."""
    (item,) = dead(cli, "a")
    find_dead = dead_letters.find_dead

    async def find_and_lose(reads: Any, identity: str) -> Any:
        seen = await find_dead(reads, identity)
        await reads.settle(seen, Discard(reason="faster"), by="ann", token="ann")
        return seen

    monkeypatch.setattr(dead_letters, "find_dead", find_and_lose)
    told = cli("dlq", verb, "a", "--reason", "x")
    assert told.code == 4
    assert "is discarded: look again" in told.err
    assert states(cli, item) == [State.DISCARDED]


def test_an_event_that_is_dead_at_two_stages_needs_an_items_id(cli: Cli) -> None:
    first, second = dead(cli, "a") + dead(cli, "a", stage="other")
    told = cli("dlq", "requeue", "a", "--reason", "x")
    assert told.code != 0
    assert first.id[:12] in told.err
    assert second.id[:12] in told.err
    assert states(cli, first, second) == [State.DEAD, State.DEAD]


def test_a_letter_is_requeued_again_after_it_died_again(cli: Cli) -> None:
    (item,) = dead(cli, "a")
    cli("dlq", "requeue", "a", "--reason", "once")

    async def die(world: World) -> None:
        from headway.core.decide import Reason
        from headway.core.settlements import DeadLetter

        (again,) = await world.due()
        await world.settle(again, DeadLetter(reason=Reason.MANUAL))

    cli.in_ledger(die)
    assert cli("dlq", "requeue", "a", "--reason", "twice").code == 0
    assert states(cli, item) == [State.WAITING]


def test_the_port_says_lost_for_a_letter_seen_before_it_moved(cli: Cli) -> None:
    (item,) = dead(cli, "a")

    async def act(world: World) -> dead_letters.Outcome:
        await world.settle(item, Redrive(reason="faster"))
        return await dead_letters.act_on(world.ledger, item, Redrive(reason="x"), by="test")

    outcome = cli.in_ledger(act)
    assert (outcome.ok, "is waiting" in outcome.message) == (False, True)
