"""`headway run`: real processes, from start to exit code."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.app.cli import Cli, until

SHOP = """
import asyncio, pathlib, time
from headway import Service

app = Service("shop")

@app.on("Ordered")
async def ordered(event, ctx):
    ctx.emit("Paid", {"id": event.data["id"]})

@app.on("Paid")
def paid(event):
    pathlib.Path(f"paid-{event.data['id']}").touch()

@app.on("Slow")
async def slow(event):
    pathlib.Path("slow-began").touch()
    await asyncio.sleep(event.data.get("seconds", 3600))
    pathlib.Path("slow-ended").touch()
"""


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(20)


@pytest.mark.parametrize("mode", ["embedded", "two files"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_works_until_it_is_told_to_stop(cli: Cli, mode: str, number: signal.Signals) -> None:
    cli.module(SHOP)
    broker = [] if mode == "embedded" else ["--broker", f"sqlite:///{cli.path / 'broker.db'}"]
    with cli.process("run", "shop:app", *broker) as process:
        assert cli("send", "Ordered", "--data", '{"id": 7}', *broker).code == 0
        until((cli.path / "paid-7").exists)
        assert stop(process, number) == 0


def test_what_was_sent_before_it_started_is_done(cli: Cli) -> None:
    cli.module(SHOP)
    cli("send", "Ordered", "--data", '{"id": 1}')
    with cli.process("run", "shop") as process:
        until((cli.path / "paid-1").exists)
        assert stop(process) == 0


def test_what_runs_may_end_when_it_stops(cli: Cli) -> None:
    cli.module(SHOP)
    cli("send", "Slow", "--id", "s", "--data", '{"seconds": 0.5}')
    with cli.process("run", "shop") as process:
        until((cli.path / "slow-began").exists)
        assert stop(process) == 0
    assert (cli.path / "slow-ended").exists()
    assert "done" in cli("why", "s").out


def test_a_second_signal_cuts_off_what_runs_and_hands_it_back(cli: Cli) -> None:
    cli.module(SHOP)
    cli("send", "Slow", "--id", "s")
    with cli.process("run", "shop", "--grace", "60") as process:
        until((cli.path / "slow-began").exists)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        assert stop(process) == 0
    (told,) = cli("why", "s", "-o", "json").json
    assert (told["item"]["state"], told["item"]["attempts"], told["item"]["crashes"]) == ("waiting", 0, 0)


def test_after_its_grace_what_runs_is_handed_back(cli: Cli) -> None:
    cli.module(SHOP)
    cli("send", "Slow", "--id", "s")
    with cli.process("run", "shop", "--grace", "0.1") as process:
        until((cli.path / "slow-began").exists)
        assert stop(process) == 0
    (told,) = cli("why", "s", "-o", "json").json
    assert (told["item"]["state"], told["item"]["attempts"]) == ("waiting", 0)


@pytest.mark.parametrize("options", [[], ["-v"]])
def test_it_says_what_it_runs_and_that_it_stopped(cli: Cli, options: list[str]) -> None:
    cli.module(SHOP)
    with cli.process("run", "shop:app", *options, wait_for="") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        while "running shop" not in lines[-1]:
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=20)
    assert "stop with Ctrl-C" in lines[-1]
    assert "Traceback" not in "".join(lines) + rest
    assert "headway: stopped" in rest
