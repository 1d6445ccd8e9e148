"""Every error that Headway raises of its own.

    HeadwayError
    ├── ConfigError            a setting, URL or file that cannot be used
    ├── ServiceUnavailable     a store or broker that cannot be reached now; what was asked may be asked again
    ├── CodecError             bytes that are no event
    ├── PayloadError           an event's data does not fit the type that its handler declares
    ├── NotFound               nothing has this id
    ├── Conflict               what was asked no longer fits what is
    │   ├── LeaseLost          the right to work on this item has passed to somebody else
    │   ├── KeyReuseError      the same key was used with another payload
    │   └── IllegalMove        an item cannot go from this state to that one
    └── TransactionExpired     a `ctx.transaction()` block was open for too long and was rolled back

`DocumentNotFoundError` is a signal that handlers raise, not an error of Headway's, and stands apart.
Mistakes of the programmer (a handler with a wrong signature, an impossible policy) are `TypeError` and `ValueError`.
"""

from __future__ import annotations

from typing import ClassVar


class HeadwayError(Exception):
    """The root of Headway's own errors; `code` is stable and safe to match on."""

    code: ClassVar[str] = "headway.error"


class ConfigError(HeadwayError):
    """A setting, URL or file cannot be used; the message says what to write instead."""

    code = "headway.config"


class ServiceUnavailable(HeadwayError):
    """A store or broker did not answer; whether the last step happened may be unknown, so it is asked again."""

    code = "headway.unavailable"


class CodecError(HeadwayError):
    """Bytes that are no event."""

    code = "headway.codec"


class PayloadError(HeadwayError):
    """An event's data does not fit the type that its handler declares; the message has the path to it."""

    code = "headway.payload"


class NotFound(HeadwayError):
    """Nothing has this id."""

    code = "headway.not_found"


class Conflict(HeadwayError):
    """What was asked no longer fits what is; read it again and decide anew."""

    code = "headway.conflict"


class LeaseLost(Conflict):
    """The right to work on this item has passed to somebody else; nothing was written."""

    code = "headway.lease_lost"


class KeyReuseError(Conflict):
    """The same key was used with another payload."""

    code = "headway.key_reuse"


class IllegalMove(Conflict):
    """An item cannot go from the state it is in to the one that was asked for."""

    code = "headway.illegal_move"


class TransactionExpired(HeadwayError):
    """A `ctx.transaction()` block was open for longer than its lease allows; it was rolled back."""

    code = "headway.transaction_expired"


class DocumentNotFoundError(Exception):
    """Raise this in a handler whose document is not there yet: the event is tried again, on the schedule of a race."""
