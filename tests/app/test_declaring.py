"""Handlers and stages that could never work are refused when they are declared, with what to write instead."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headway import Context, Event, RetryPolicy, Service, SyncContext


def nothing() -> None: ...
def three(event: Any, ctx: Any, more: Any) -> None: ...
def keyword(event: Any, *, database: Any) -> None: ...
def stars(*events: Any) -> None: ...
def only_keywords(**named: Any) -> None: ...
async def three_async(event: Any, ctx: Any, more: Any) -> None: ...


@pytest.mark.parametrize("handler", [nothing, three, keyword, stars, only_keywords])
def test_a_sync_handler_that_cannot_be_called_is_told_its_signature(handler: Any) -> None:
    with pytest.raises(TypeError, match=rf"write `def {handler.__name__}\(event, ctx\)`, or leave out ctx"):
        Service("shop").on("Ordered")(handler)


def test_an_async_handler_that_cannot_be_called_is_told_its_signature() -> None:
    with pytest.raises(TypeError, match=r"write `async def three_async\(event, ctx\)`"):
        Service("shop").on("Ordered")(three_async)


def generator(event: Any) -> Iterator[int]:
    yield 1


async def async_generator(event: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("handler", [generator, async_generator])
def test_a_generator_is_told_to_emit(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"use ctx\.emit\(…\) instead of yield"):
        Service("shop").on("Ordered")(handler)


async def wrong_async(event: Event[Any], ctx: SyncContext) -> None: ...
def wrong_sync(event: Event[Any], ctx: Context) -> None: ...


@pytest.mark.parametrize(("handler", "wanted"), [(wrong_async, "Context"), (wrong_sync, "SyncContext")])
def test_a_context_of_the_other_colour_is_refused(handler: Any, wanted: str) -> None:
    with pytest.raises(TypeError, match=rf"write `ctx: {wanted}`"):
        Service("shop").on("Ordered")(handler)


class Callable:
    async def __call__(self, event: Any) -> None: ...


class Handlers:
    async def method(self, event: Any) -> None: ...


async def with_options(prefix: str, event: Any) -> None: ...


@pytest.mark.parametrize("handler", [Callable(), Handlers().method, functools.partial(with_options, "x")])
def test_whatever_is_called_as_async_is_taken_as_async(handler: Any) -> None:
    app = Service("shop")
    app.on("Ordered")(handler)
    assert app.stages[0].is_async


def test_a_second_argument_with_a_default_that_is_no_context_is_left_alone() -> None:
    def handle(event: Any, retries: int = 3) -> None: ...

    app = Service("shop")
    app.on("Ordered")(handle)
    assert not app.stages[0].takes_context


@pytest.mark.parametrize("handler", [None, 7, "handle"])
def test_what_is_no_function_is_refused(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"put @app\.on\(…\) on a function"):
        Service("shop").on("Ordered")(handler)


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_a_service_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match=r'as in Service\("chunking"\)'):
        Service(name)


@pytest.mark.parametrize("event_type", ["", None, 7, object()])
def test_an_event_type_is_a_name_or_a_class(event_type: Any) -> None:
    with pytest.raises(TypeError, match="give an event type's name, or the class of its data"):
        Service("shop").on(event_type)


def test_on_without_its_brackets_is_told_to_have_them() -> None:
    """`@app.on` puts the function where the event type belongs."""

    def handle(event: Any) -> None: ...

    with pytest.raises(TypeError, match="on"):
        Service("shop").on(handle)  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", [7, "  ", b"bytes"])
def test_a_stage_needs_a_name(stage: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="stage"):
        Service("shop").on("Ordered", stage=stage)(lambda event: None)


def test_a_second_stage_of_the_same_name_is_told_how_to_be_another() -> None:
    app = Service("shop")
    app.on("Ordered")(lambda event: None)
    with pytest.raises(ValueError, match=r'@app\.on\("Ordered", stage="shop\.Ordered\.second"\)'):
        app.on("Ordered")(lambda event: None)


@pytest.mark.parametrize("stage", ["shop.quarantine", "other.quarantine", "headway.relay"])
def test_a_stage_name_of_headways_own_is_refused(stage: str) -> None:
    with pytest.raises(ValueError, match="Headway's own"):
        Service("shop").on("Ordered", stage=stage)(lambda event: None)


@pytest.mark.parametrize("policy", [3, "event_race", None, RetryPolicy])
def test_a_policy_is_a_retry_policy(policy: Any) -> None:
    with pytest.raises(TypeError, match=r"a RetryPolicy, such as policies\.EVENT_RACE"):
        Service("shop").on("Ordered", policy=policy)


@pytest.mark.parametrize("key", ["constant", "", "{", "{}", "{0}", "{a b}", "{a}}"])
def test_a_key_that_reads_nothing_of_the_event_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r'as in key="\{order\.id\}"'):
        Service("shop").on("Ordered", key=key)


@pytest.mark.parametrize("key", [7, lambda data: data["id"]])
def test_a_key_is_a_template(key: Any) -> None:
    with pytest.raises(TypeError, match="template"):
        Service("shop").on("Ordered", key=key)


@dataclass
class Ordered:
    id: int


def test_a_class_names_its_event() -> None:
    app = Service("shop")
    app.on(Ordered)(lambda event: None)
    assert (app.stages[0].name, app.stages[0].event_type, app.stages[0].data_type) == (
        "shop.Ordered",
        "Ordered",
        Ordered,
    )
