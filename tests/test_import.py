"""What importing Headway costs: nothing that is not used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headway

HEAVY = {"asyncio", "sqlite3", "msgspec", "click", "rich", "concurrent.futures", "logging"}


def fresh(code: str) -> set[str]:
    """The modules that these lines load in a new interpreter, beyond what it starts with."""
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, time\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.splitlines()[-1].split())


def test_importing_retry_loads_no_loop_no_driver_and_no_library() -> None:
    loaded = fresh("from headway import retry")
    assert "headway.runtime.call" in loaded
    assert not loaded & HEAVY


def test_retrying_a_function_that_is_not_async_loads_no_loop() -> None:
    loaded = fresh("from headway import retry\n@retry\ndef load(): return 1\nload()")
    assert not loaded & HEAVY


def test_importing_headway_loads_none_of_its_parts() -> None:
    assert {name for name in fresh("import headway") if name.startswith("headway")} == {"headway"}


def test_policies_are_had_without_the_rest() -> None:
    loaded = fresh("from headway import RetryPolicy, policies")
    assert not loaded & HEAVY


def test_the_time_that_importing_takes_is_told() -> None:
    code = "from time import perf_counter as now; t = now(); from headway import retry; print(now() - t)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"from headway import retry: {float(told.stdout) * 1000:.1f} ms")


@pytest.mark.parametrize("name", headway.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(headway, name)
    assert getattr(value, "__name__", "").rsplit(".", 1)[-1] == name


def test_every_public_name_is_listed() -> None:
    assert set(headway.__all__) <= set(dir(headway))
    assert set(headway.__all__) == set(headway._HOMES)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headway' has no attribute 'retries'"):
        headway.retries  # noqa: B018 - that it raises is the point


def test_a_name_is_looked_up_once() -> None:
    assert headway.RetryPolicy is vars(headway)["RetryPolicy"]


def test_it_says_that_it_is_typed() -> None:
    from importlib.resources import files

    assert files("headway").joinpath("py.typed").is_file()
