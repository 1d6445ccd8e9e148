"""Identity: canonical JSON, keys, item ids and payload fingerprints.

Two values have the same digest if and only if they are the same data: keys are sorted at every depth, strings are
NFC, an integer is no float and no boolean, `None` is no empty string. What JSON cannot say without loss is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping

KEY_VERSION = "headway-key-1"
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")


def canonical_json(value: object) -> str:
    """Write `value` in the one form that all equal values share."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(unicodedata.normalize("NFC", value), ensure_ascii=False)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} has no canonical form: a key takes finite numbers only")
        return repr(float(value))
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(canonical_json(member) for member in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(_members(value)) + "}"
    raise TypeError(
        f"a {type(value).__name__} has no canonical form: use str, int, float, bool, None, lists and dicts of them"
    )


def _members(mapping: Mapping[object, object]) -> list[str]:
    members: dict[str, str] = {}
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise TypeError(f"the key {name!r} is a {type(name).__name__}: a mapping needs string keys here")
        written = canonical_json(name)
        if written in members:
            raise ValueError(f"the key {name!r} stands twice after Unicode normalisation")
        members[written] = canonical_json(value)
    return [f"{name}:{members[name]}" for name in sorted(members)]


def digest(*parts: object) -> str:
    """64 hex characters over the canonical parts, each with its length before it, so that no two lists collide."""
    state = hashlib.sha256(KEY_VERSION.encode())
    for part in parts:
        try:
            written = canonical_json(part).encode()
        except RecursionError as error:
            raise ValueError("this data is nested too deep for a key or a fingerprint") from error
        state.update(b"%d:" % len(written))
        state.update(written)
    return state.hexdigest()


def item_id(tenant: str, stage: str, key: str) -> str:
    """The identity of one event at one stage."""
    return digest("item", tenant, stage, key)


def fingerprint(data: object) -> str:
    """What must be equal for two payloads under one key to be the same work."""
    return digest("fingerprint", data)


def quarantine_stage(service: str) -> str:
    """Where a service keeps what cannot become work for any of its stages."""
    return f"{service}.quarantine"


def quarantine_key(reason: str, raw: bytes) -> str:
    """The key of bytes that are kept as they came: the same bytes, refused for the same reason, are one letter."""
    return f"{reason}:{hashlib.sha256(raw).hexdigest()}"


def identity(template: str | None, event_id: str, data: object) -> tuple[str, str | None]:
    """The key of an event at a stage, and its payload's fingerprint where the key is made from the data.

    `ValueError` where the data cannot give a key.
    """
    if template is None:
        return event_id, None
    return key_from(template, data), fingerprint(data)


def template_fields(template: str) -> tuple[str, ...]:
    """The fields that a key template such as `"{order.id}-{version}"` reads; refuse a template that reads none."""
    fields = tuple(_FIELD.findall(template))
    if not fields or "{" in _FIELD.sub("", template) or "}" in _FIELD.sub("", template):
        raise ValueError(
            f"the key template {template!r} must name at least one field of the event's data in braces, "
            'as in key="{order.id}"; a constant key would make all events one piece of work'
        )
    return fields


def key_from(template: str, data: object) -> str:
    """Fill a key template from an event's data. Each value is written canonically, so `1` and `"1"` differ."""
    values = [_value_at(field, data, template) for field in template_fields(template)]
    return f"{template}={canonical_json(values)}"


def _value_at(field: str, data: object, template: str) -> object:
    value = data
    for name in field.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise ValueError(f"the key template {template!r} needs data.{field}, which the event does not have")
        value = value[name]
    return value
