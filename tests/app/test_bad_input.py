"""What cannot be used is refused before anything is made, and each refusal says what to write instead."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headway.app.serve import load
from headway.errors import ConfigError
from tests.app.cli import Cli
from tests.world import open_broker, open_world

COMMANDS = [["status"], ["send", "Ordered"], ["dlq", "list"]]


@pytest.fixture(autouse=True)
def shop(cli: Cli) -> None:
    cli.module('from headway import Service\napp = Service("shop")\napp.on("Ordered")(lambda event: None)\n')


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "HEADWAY_LEDGER=sqlite:///ledger.db"),
        ("postgres://localhost/x", "known is sqlite, as in --ledger sqlite:///ledger.db"),
        ("ledger.db", "known is sqlite"),
        ("/var/ledger.db", "known is sqlite"),
        ("sqlite://ledger.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:ledger.db", "three slashes"),
        ("sqlite:///:memory:", "memory"),
        ("sqlite:///ledger.db?mode=ro", "?"),
        ("sqlite:///ledger.db#1", "#"),
        ("sqlite://[ledger.db", "sqlite:///ledger.db"),
        ("sqlite:///led%00ger.db", "file"),
    ],
)
def test_a_url_that_names_no_ledger_is_refused(cli: Cli, command: list[str], url: str, says: str) -> None:
    before = sorted(cli.path.iterdir())
    told = cli(*command, ledger=url)
    assert told.code == 2
    assert says in told.err
    assert [path for path in sorted(cli.path.iterdir()) if path.name != "__pycache__"] == before


@pytest.mark.parametrize(
    "options", [["--ledger", "postgres://x/y"], ["--ledger", "sqlite:///:memory:"], ["--broker", "amqp://x"]]
)
def test_a_service_with_a_part_that_there_is_not_does_not_start(cli: Cli, options: list[str]) -> None:
    with cli.process("run", "shop", *options, wait_for="") as process:
        _, error = process.communicate(timeout=10)
        assert process.returncode == 2
    assert "Traceback" not in error
    assert not (cli.path / "ledger.db").exists()


@pytest.mark.parametrize("command", [["send", "Ordered"], ["run", "shop"]])
@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("missing/ledger.db", "missing does not exist: create it"),
        ("folder", "it is a directory: name a file in it"),
        ("notes.txt", "it is no SQLite database: name another file"),
        ("notes.txt/ledger.db", "notes.txt does not exist"),
        ("/proc/ledger.db", "/proc/ledger.db"),
    ],
)
def test_a_file_that_can_be_no_ledger_is_refused(cli: Cli, command: list[str], file: str, says: str) -> None:
    (cli.path / "folder").mkdir()
    (cli.path / "notes.txt").write_text("Remember the milk.\n" * 100)
    told = cli(*command, ledger=f"sqlite:///{file}")
    assert told.code == 2
    assert says in told.err
    assert (cli.path / "notes.txt").read_text() == "Remember the milk.\n" * 100
    assert list((cli.path / "folder").iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broker_is_no_ledger(cli: Cli, command: list[str]) -> None:
    async def make() -> None:
        async with open_broker(cli.path / "broker.db"):
            pass

    asyncio.run(make())
    told = cli(*command, ledger="sqlite:///broker.db")
    assert told.code == 2
    assert "broker.db" in told.err
    assert "holds a broker, not a ledger" in told.err


@pytest.mark.parametrize("command", [["send", "Ordered"], ["run", "shop"]])
def test_a_ledger_is_no_broker(cli: Cli, command: list[str]) -> None:
    async def make() -> None:
        async with open_world(cli.path / "other.db"):
            pass

    asyncio.run(make())
    told = cli(*command, "--broker", "sqlite:///other.db")
    assert told.code == 2
    assert "holds a ledger, not a broker" in told.err


@pytest.mark.parametrize("table", ["meta", "item", "outbox", "session"])
def test_a_database_with_tables_of_ones_own_can_be_the_ledger_too(cli: Cli, table: str) -> None:
    with closing(sqlite3.connect(cli.path / "ledger.db")) as db:
        db.execute(f"CREATE TABLE {table} (mine INTEGER)")
    assert cli("send", "Ordered").code == 0
    assert "1 event" in cli("status").out


def test_a_ledger_that_is_the_broker_too_is_not_run_beside_another(cli: Cli) -> None:
    assert cli("send", "Ordered").code == 0
    told = cli("send", "Ordered", "--broker", "sqlite:///broker.db")
    assert told.code == 2
    assert "leave out --broker" in told.err


def test_a_ledger_beside_a_broker_takes_no_events_by_itself(cli: Cli) -> None:
    assert cli("send", "Ordered", "--broker", "sqlite:///broker.db").code == 0
    told = cli("send", "Ordered")
    assert told.code == 2
    assert "give --broker" in told.err


def test_a_ledger_of_a_later_version_is_refused(cli: Cli) -> None:
    async def make() -> None:
        async with open_world(cli.path / "ledger.db") as world:
            await world.store.write(
                lambda db: db.execute("UPDATE headway_meta SET value = '99' WHERE name = 'version'")
            )

    asyncio.run(make())
    told = cli("status")
    assert told.code == 2
    assert "99" in told.err


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("missing", "there is no module 'missing' here: run `headway run module:app`"),
        ("missing:app", "there is no module 'missing' here"),
        ("missing.part:app", "there is no module"),
        ("shop.py", "there is no module 'shop.py'"),
        ("shop:other", "has no service 'other'; it has: app"),
        ("shop:Service", "has no service 'Service'"),
        ("empty", 'make one with `app = Service("name")`'),
        ("empty:app", "it has: none"),
        ("", "module:app"),
        (":app", "module:app"),
        (".shop", "module:app"),
        ("../shop", "module:app"),
    ],
)
def test_a_target_that_is_no_service_is_refused(cli: Cli, target: str, says: str) -> None:
    cli.module("", "empty")
    told = cli("run", target)
    assert told.code == 2
    assert says in told.err
    assert not (cli.path / "ledger.db").exists()


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("import not_installed_here", ModuleNotFoundError, "not_installed_here"),
        ("from json import no_such_name", ImportError, "no_such_name"),
        ("import broken.part", ModuleNotFoundError, "broken"),
        ("1 / 0", ZeroDivisionError, "division"),
        ("def (", SyntaxError, "invalid syntax"),
    ],
)
def test_a_module_that_fails_shows_its_own_error(cli: Cli, text: str, error: type[Exception], says: str) -> None:
    cli.module(text, "broken")
    with pytest.raises(error, match=says):
        cli("run", "broken:app")
    assert not (cli.path / "ledger.db").exists()


def test_a_service_under_two_names_runs_once(cli: Cli) -> None:
    cli.module(
        'from headway import Service\napp = Service("twice")\napp.on("X")(lambda event: None)\nalso = app\n', "twice"
    )
    assert [service.name for service in load("twice")] == ["twice"]


def test_two_services_of_one_name_are_refused(cli: Cli) -> None:
    """The second would silently take the first one's subscriptions away."""
    cli.module(
        'from headway import Service\nfirst = Service("same")\nsecond = Service("same")\n'
        'first.on("A")(lambda event: None)\nsecond.on("B")(lambda event: None)\n',
        "same",
    )
    with pytest.raises(ConfigError, match="same"):
        load("same")


def test_two_services_with_one_stage_are_refused(cli: Cli) -> None:
    """Both would take the other's work."""
    cli.module(
        'from headway import Service\nfirst = Service("one")\nsecond = Service("two")\n'
        'first.on("A", stage="work")(lambda event: None)\nsecond.on("A", stage="work")(lambda event: None)\n',
        "stages",
    )
    with pytest.raises(ConfigError, match="work"):
        load("stages")


def test_a_service_without_handlers_is_refused(cli: Cli) -> None:
    cli.module('from headway import Service\napp = Service("idle")\n', "idle")
    with pytest.raises(ConfigError, match=r"@app\.on|handler"):
        load("idle")


@pytest.mark.parametrize(
    "options",
    [
        ["--concurrency", "0"],
        ["--concurrency", "many"],
        ["--lease", "0"],
        ["--lease", "nan"],
        ["--lease", "inf"],
        ["--grace", "-1"],
        ["--grace", "nan"],
    ],
)
def test_settings_that_could_never_work_are_refused(cli: Cli, options: list[str]) -> None:
    with cli.process("run", "shop", *options, wait_for="") as process:
        _, error = process.communicate(timeout=10)
        code = process.returncode
    assert code == 2
    assert "Traceback" not in error
    assert options[0].strip("-") in error
    assert not (cli.path / "ledger.db").exists()


def test_no_command_prints_help() -> None:
    cli = Cli(Path())
    told = cli("--help")
    assert told.code == 0
    for command in ("run", "send", "status", "why", "dlq"):
        assert command in told.out


@pytest.mark.parametrize("command", [["nonsense"], ["status", "--nonsense"], ["why"], ["dlq", "nonsense"], ["send"]])
def test_wrong_usage_ends_with_2(cli: Cli, command: list[str]) -> None:
    assert cli(*command).code == 2
