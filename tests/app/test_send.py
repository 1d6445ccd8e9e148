"""`headway send`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing

import pytest

from headway.ports.broker import Subscription
from tests.app.cli import SCRIPT, Cli
from tests.world import World


def kept(cli: Cli, file: str = "ledger.db") -> list[dict[str, object]]:
    """The events that nobody has asked for yet."""
    with closing(sqlite3.connect(cli.path / file)) as db:
        return [json.loads(body) for (body,) in db.execute("SELECT body FROM headway_unrouted ORDER BY id")]


def test_an_event_is_on_disk_when_send_returns(cli: Cli) -> None:
    told = cli("send", "Ordered", "--data", '{"id": 1}')
    (event,) = kept(cli)
    assert told.code == 0
    assert (event["event_type"], event["data"]) == ("Ordered", {"id": 1})
    assert told.out == f"sent Ordered as {event['event_id']}\n"


def test_data_is_empty_by_default(cli: Cli) -> None:
    cli("send", "Ordered")
    assert kept(cli)[0]["data"] == {}


def test_data_comes_from_a_file(cli: Cli) -> None:
    (cli.path / "order.json").write_text('{"id": "ü"}', encoding="utf-8")
    assert cli("send", "Ordered", "--file", "order.json").code == 0
    assert kept(cli)[0]["data"] == {"id": "ü"}


def test_data_comes_from_standard_input(cli: Cli) -> None:
    told = subprocess.run(
        [SCRIPT, "send", "Ordered", "--file", "-", "--ledger", cli.ledger], input=b"[1, 2]", check=False
    )
    assert told.returncode == 0
    assert kept(cli)[0]["data"] == [1, 2]


def test_json_says_the_id(cli: Cli) -> None:
    told = cli("send", "Ordered", "--id", "e1", "-o", "json")
    assert told.json == {"event_id": "e1", "event_type": "Ordered"}


def test_the_same_id_twice_is_one_piece_of_work(cli: Cli) -> None:
    async def declare(world: World) -> None:
        await world.ledger.declare({"shop": [Subscription("Ordered", "shop.Ordered", "shop")]})

    cli.in_ledger(declare)
    assert cli("send", "Ordered", "--id", "e1").code == 0
    assert cli("send", "Ordered", "--id", "e1").code == 0
    assert [(row["stage"], row["state"], row["count"]) for row in cli("status", "-o", "json").json["stages"]] == [
        ("shop.Ordered", "waiting", 1)
    ]


def test_a_limit_is_sent_with_the_event(cli: Cli) -> None:
    assert cli("send", "Ordered", "--not-after", "2030-01-01T00:00:00Z").code == 0
    assert kept(cli)[0]["headers"] == {"not_after": "2030-01-01T00:00:00Z"}


def test_with_a_broker_the_event_is_in_its_file(cli: Cli) -> None:
    broker = f"sqlite:///{cli.path / 'broker.db'}"
    assert cli("send", "Ordered", "--id", "e1", "--broker", broker).code == 0
    assert [event["event_id"] for event in kept(cli, "broker.db")] == ["e1"]
    assert kept(cli) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "{id: 1}"], "--data '{\"id\": 1}'"),
        (["--data", "{}", "--file", "-"], "not both"),
        (["--file", "missing.json"], "missing.json"),
        (["--data", "NaN"], "JSON"),
        (["--data", '{"a": Infinity}'], "JSON"),
        (["--data", "1e999"], "JSON"),
        (["--data", '"\\ud800"'], ""),
        (["--not-after", "tomorrow"], "ISO date"),
        (["--id", ""], "id"),
        (["--id", "x" * 1000], "512"),
    ],
)
def test_what_cannot_be_sent_is_refused_and_leaves_nothing(cli: Cli, arguments: list[str], says: str) -> None:
    told = cli("send", "Ordered", *arguments)
    assert told.code == 2
    assert says in told.err
    assert not (cli.path / "ledger.db").exists()


def test_an_event_without_a_type_is_refused(cli: Cli) -> None:
    assert cli("send", "").code == 2


def test_whole_numbers_of_any_size_are_sent_as_they_are(cli: Cli) -> None:
    assert cli("send", "Ordered", "--data", '{"n": 123456789012345678901234567890}').code == 0
    assert kept(cli)[0]["data"] == {"n": 123456789012345678901234567890}
