"""What kind of failure an error is.

The most specific type in the error's own method resolution order decides; where nothing but `Exception` is known of
it, its `__cause__`, then the members of an exception group. At a tie the kind that is not retried wins.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum

from headway import errors


class Kind(StrEnum):
    """The closed set of failure kinds."""

    NOT_VISIBLE = "not_visible"
    TRANSIENT = "transient"
    THROTTLED = "throttled"
    DEPENDENCY_DOWN = "dependency_down"
    CONFLICT = "conflict"
    PERMANENT = "permanent"
    POISON = "poison"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    UNKNOWN = "unknown"


FINAL = frozenset({Kind.PERMANENT, Kind.POISON})
"""Kinds that are tried once."""

UNCHARGED = frozenset({Kind.CANCELLED, Kind.LEASE_LOST})
"""Kinds that say nothing about the work itself: no attempt is charged."""

REFUSED = frozenset({Kind.THROTTLED, Kind.PERMANENT, Kind.CONFLICT})
"""Kinds that say that the receiver refused: an effect that ended so did not happen."""

BUILT_IN: dict[type[BaseException], Kind] = {
    errors.DocumentNotFoundError: Kind.NOT_VISIBLE,
    errors.CodecError: Kind.POISON,
    errors.PayloadError: Kind.PERMANENT,
    errors.LeaseLost: Kind.LEASE_LOST,
    errors.KeyReuseError: Kind.PERMANENT,
    errors.Conflict: Kind.CONFLICT,
    errors.ConfigError: Kind.PERMANENT,
    errors.HeadwayError: Kind.TRANSIENT,
    ConnectionError: Kind.TRANSIENT,
    TimeoutError: Kind.TRANSIENT,
    FileNotFoundError: Kind.PERMANENT,
    PermissionError: Kind.PERMANENT,
    IsADirectoryError: Kind.PERMANENT,
    NotADirectoryError: Kind.PERMANENT,
    OSError: Kind.TRANSIENT,
    TypeError: Kind.PERMANENT,
    ValueError: Kind.PERMANENT,
    AttributeError: Kind.PERMANENT,
    LookupError: Kind.PERMANENT,
    NameError: Kind.PERMANENT,
    AssertionError: Kind.PERMANENT,
    ArithmeticError: Kind.PERMANENT,
    ImportError: Kind.PERMANENT,
    SyntaxError: Kind.PERMANENT,
    NotImplementedError: Kind.PERMANENT,
    RecursionError: Kind.PERMANENT,
}


BY_NAME = {"IntegrityError": Kind.PERMANENT, "DataError": Kind.PERMANENT, "ProgrammingError": Kind.PERMANENT}
"""Errors that every database driver has under the same name, with no class that they share."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed execution: its kind, the rule that said so, and what is kept of the error for people."""

    kind: Kind
    rule: str
    error_type: str
    message: str
    retry_after: float | None = None


def classify(error: BaseException) -> Failure:
    """Say what kind of failure `error` is, and which rule decided."""
    kind, rule = _kind_of(error, frozenset())
    return Failure(kind, rule, storable(type(error).__name__), _message_of(error), _retry_after(error))


def _message_of(error: BaseException) -> str:
    """What the error says, as text that any store takes; an error that cannot say it does not fail twice."""
    try:
        message = str(error)
    except Exception as failed:  # noqa: BLE001 - whatever a strange error does when it is asked
        message = f"(its message cannot be read: {type(failed).__name__})"
    return storable(message)


def storable(text: str) -> str:
    """Text as every store takes it: halves of surrogate pairs, as in names of files that are no UTF-8, are escaped."""
    return text.encode(errors="backslashreplace").decode()


def _retry_after(error: BaseException) -> float | None:
    try:
        after = getattr(error, "retry_after", None)
    except Exception:  # noqa: BLE001 - the same
        return None
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not 0 <= after <= sys.float_info.max:
        return None
    return float(after)


def _kind_of(error: BaseException, seen: frozenset[int]) -> tuple[Kind, str]:
    if not isinstance(error, (Exception, BaseExceptionGroup)):
        return Kind.CANCELLED, type(error).__name__
    for cls in type(error).__mro__:
        known = BUILT_IN.get(cls) or BY_NAME.get(cls.__name__)
        if known is not None:
            return known, cls.__name__
    seen |= {id(error)}
    if error.__cause__ is not None and id(error.__cause__) not in seen:
        kind, rule = _kind_of(error.__cause__, seen)
        if kind is not Kind.UNKNOWN:
            return kind, f"{rule} (cause)"
    if isinstance(error, BaseExceptionGroup):
        return _kind_of_group(error, seen)
    return Kind.UNKNOWN, "nothing known"


def _kind_of_group(group: BaseExceptionGroup[BaseException], seen: frozenset[int]) -> tuple[Kind, str]:
    members = [_kind_of(member, seen) for member in group.exceptions if id(member) not in seen]
    cancelled = [found for found in members if found[0] is Kind.CANCELLED]
    final = [found for found in members if found[0] in FINAL]
    known = [found for found in members if found[0] is not Kind.UNKNOWN]
    kind, rule = (cancelled or final or known or [(Kind.UNKNOWN, "nothing known")])[0]
    return kind, f"{rule} (in group)"
