"""Events as bytes: JSON with the envelope's names. What does not read is refused with the path to the trouble."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec

from headway.core.event import Event, Letter
from headway.errors import CodecError, PayloadError

T = TypeVar("T")
FORMAT = 1

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class _Wire(msgspec.Struct, kw_only=True):
    event_id: Name
    event_type: Name
    data: Any
    timestamp: str = ""
    version: str = "1.0"
    headers: dict[str, str] = {}
    format: int = FORMAT


_decoder = msgspec.json.Decoder(_Wire)


def encode(event: Event[Any]) -> Letter:
    """An event, ready to be carried."""
    wire = _Wire(
        event_id=event.event_id,
        event_type=event.event_type,
        data=event.data,
        timestamp=event.timestamp,
        version=event.version,
        headers=dict(event.headers),
    )
    try:
        body = msgspec.json.encode(wire)
    except (TypeError, ValueError) as error:
        raise PayloadError(f"the data of {event.event_type} cannot be written as JSON: {error}") from error
    return Letter(event.event_id, event.event_type, body, event.order_key, not_after(event))


def new_letter(
    event_type: str, data: object, *, event_id: str | None = None, headers: dict[str, str] | None = None
) -> Letter:
    """An event of now, ready to be carried."""
    event: Event[object] = Event(
        event_type=event_type,
        data=data,
        event_id=event_id or str(uuid.uuid4()),
        timestamp=timestamp(time.time()),
        headers=headers or {},
    )
    letter = encode(event)
    decode(letter.body)  # what no service could read is refused here, by its sender
    return letter


def decode(body: bytes) -> Event[Any]:
    """The event in these bytes; `CodecError` where there is none."""
    try:
        wire = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"these bytes are no event: {error}") from error
    if wire.format > FORMAT:
        raise CodecError(f"this event has format {wire.format}; this Headway reads up to {FORMAT}")
    event = Event(
        event_type=wire.event_type,
        data=wire.data,
        event_id=wire.event_id,
        timestamp=wire.timestamp,
        version=wire.version,
        headers=wire.headers,
    )
    not_after(event)
    return event


def data_of(body: bytes) -> object:
    """Only the data of the event in these bytes."""
    return decode(body).data


def fit(data: object, wanted: type[T]) -> T:
    """The data as the type that a handler declares."""
    try:
        return msgspec.convert(data, wanted)
    except msgspec.ValidationError as error:
        raise PayloadError(f"the event's data is no {wanted.__name__}: {error}") from error


def plain(value: object) -> object:
    """A typed object as the dictionaries and lists that go over the wire."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError) as error:
        raise PayloadError(f"a {type(value).__name__} cannot be an event's data: {error}") from error


def not_after(event: Event[Any]) -> float | None:
    """The moment after which the sender wants nothing done any more, in seconds since 1970."""
    written = event.headers.get("not_after")
    if written is None:
        return None
    try:
        moment = datetime.fromisoformat(written)
    except ValueError as error:
        raise CodecError(f"the header not_after={written!r} is no ISO date") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def timestamp(wall: float) -> str:
    """A moment as events carry it."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
