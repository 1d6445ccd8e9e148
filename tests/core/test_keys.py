"""Two values have the same digest if and only if they are the same data."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import keys

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NAMES = st.text(alphabet="abcé", max_size=3)
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
ALIKE: list[Any] = [1, 1.0, True, "1", "1.0", "true", None, "", "null", 0, False, [], {}, [1], {"1": 1}]
COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def shuffled(data: Any, choose: st.DataObject) -> Any:
    """The same data, its dictionaries in another order at every depth."""
    if isinstance(data, dict):
        members = choose.draw(st.permutations(sorted(data.items(), key=repr)))
        return {name: shuffled(value, choose) for name, value in members}
    if isinstance(data, list):
        return [shuffled(value, choose) for value in data]
    return data


@given(data=DATA, choose=st.data())
def test_equal_data_has_equal_digests_in_any_order_of_its_members(data: Any, choose: st.DataObject) -> None:
    assert keys.digest(shuffled(data, choose)) == keys.digest(data)


@given(data=DATA)
def test_what_is_written_is_json_of_the_same_data(data: Any) -> None:
    def normal(value: Any) -> Any:
        return json.loads(keys.canonical_json(value))

    assert normal(normal(data)) == normal(data)
    assert keys.canonical_json(normal(data)) == keys.canonical_json(data)


@given(one=DATA, other=DATA)
def test_data_that_json_tells_apart_has_digests_of_its_own(one: Any, other: Any) -> None:
    same = keys.canonical_json(one) == keys.canonical_json(other)
    assert (keys.digest(one) == keys.digest(other)) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *itertools.combinations(ALIKE, 2),
        (["a-b", "c"], ["a", "b-c"]),
        (["a", "b"], ["b", "a"]),
        (["a,b"], ["a", "b"]),
        ([[1], 2], [1, [2]]),
        ([], [[]]),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ({"a": None}, {}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ("a", "A"),
        ("a", "a "),
        (2**53, 2**53 + 1),
        (0.1, 0.1 + 2**-55),
        ("\u2126", "Ω\u0301"),
    ],
)
def test_different_data_has_different_digests(one: Any, other: Any) -> None:
    assert keys.digest(one) != keys.digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        ((1, 2), [1, 2]),
        (COMPOSED, DECOMPOSED),
        ({COMPOSED: 1}, {DECOMPOSED: 1}),
        ({"a": [COMPOSED]}, {"a": [DECOMPOSED]}),
        (0.1 + 0.2, 0.30000000000000004),
    ],
)
def test_the_same_data_written_otherwise_has_the_same_digest(one: Any, other: Any) -> None:
    assert keys.digest(one) == keys.digest(other)


class Loud(float):
    """A float of somebody else's, as a numerical library has them."""

    def __repr__(self) -> str:
        return f"Loud({float(self)})"


class Named(int):
    """An integer of somebody else's, as an enumeration has them."""

    def __str__(self) -> str:
        return "Named.ONE"


@pytest.mark.parametrize(("value", "plain"), [(Loud(1.5), 1.5), (Named(1), 1)])
def test_a_number_of_somebody_elses_class_is_the_number(value: float, plain: float) -> None:
    assert keys.digest(value) == keys.digest(plain)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": {"b": math.inf}}])
def test_a_number_that_is_not_finite_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="finite"):
        keys.digest(value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset(),
        b"bytes",
        bytearray(b"x"),
        object(),
        decimal.Decimal(1),
        dt.date(2026, 1, 1),
        1j,
        range(3),
        [{1}],
        {"a": b"x"},
    ],
)
def test_what_json_cannot_say_is_refused_with_its_type(value: Any) -> None:
    named = value
    while isinstance(named, (list, dict)):
        named = next(iter(named.values() if isinstance(named, dict) else named))
    with pytest.raises(TypeError, match=type(named).__name__):
        keys.digest(value)


@pytest.mark.parametrize("name", [1, None, True, ("a",), b"a"])
def test_a_member_whose_name_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(TypeError, match="string keys"):
        keys.digest({name: 1})


def test_two_names_that_are_one_after_normalisation_are_refused() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        keys.digest({COMPOSED: 1, DECOMPOSED: 1})


def test_text_that_no_encoding_can_carry_is_refused() -> None:
    with pytest.raises(ValueError):
        keys.digest("\ud800")


def test_data_that_is_nested_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    try:
        with pytest.raises(ValueError, match="too deep"):
            keys.digest(deep)
    finally:
        while deep:  # one by one: to forget so deep a list at once is more than some interpreters can
            deep = deep.pop()


def test_parts_do_not_run_into_each_other() -> None:
    together = {keys.digest("a", "b"), keys.digest("ab"), keys.digest("a,b"), keys.digest(["a", "b"]), keys.digest()}
    assert len(together) == 5


def test_a_digest_is_sha256_over_parts_with_their_lengths() -> None:
    source = b'headway-key-13:"a"7:{"b":1}'
    assert keys.digest("a", {"b": 1}) == hashlib.sha256(source).hexdigest()


@given(*[st.text(max_size=4)] * 3, *[st.text(max_size=4)] * 3)
def test_two_items_have_one_id_only_if_they_are_the_same(
    tenant: str, stage: str, key: str, tenant_2: str, stage_2: str, key_2: str
) -> None:
    def normal(*names: str) -> list[str]:
        return [keys.canonical_json(name) for name in names]

    same = normal(tenant, stage, key) == normal(tenant_2, stage_2, key_2)
    assert (keys.item_id(tenant, stage, key) == keys.item_id(tenant_2, stage_2, key_2)) is same


def test_an_item_is_no_fingerprint_of_the_same_words() -> None:
    assert len({keys.item_id("", "a", "b"), keys.fingerprint(["", "a", "b"]), keys.digest("", "a", "b")}) == 3


def test_two_stages_of_one_event_are_two_items() -> None:
    assert keys.item_id("", "chunking", "event-1") != keys.item_id("", "embedding", "event-1")


@given(data=DATA)
def test_a_fingerprint_is_64_hex_digits(data: Any) -> None:
    assert len(bytes.fromhex(keys.fingerprint(data))) == 32


def test_the_same_bytes_refused_for_two_reasons_are_two_letters() -> None:
    assert keys.quarantine_key("poison", b"x") != keys.quarantine_key("no_handler", b"x")


def test_other_bytes_are_another_letter() -> None:
    assert keys.quarantine_key("poison", b"x") != keys.quarantine_key("poison", b"y")


def test_the_same_bytes_refused_again_are_the_same_letter() -> None:
    assert keys.quarantine_key("poison", b"x") == keys.quarantine_key("poison", b"x")


def test_each_service_has_a_quarantine_of_its_own() -> None:
    assert keys.quarantine_stage("chunking") == "chunking.quarantine"


def test_without_a_template_the_event_is_its_own_key() -> None:
    assert keys.identity(None, "event-1", {"id": 1}) == ("event-1", None)


def test_with_a_template_the_key_and_the_whole_payload_identify_the_work() -> None:
    data = {"id": 1, "text": "a"}
    assert keys.identity("{id}", "event-1", data) == ("{id}=[1]", keys.fingerprint(data))


# -- key templates


def test_a_template_names_its_fields() -> None:
    assert keys.template_fields("{order.id}-{version}") == ("order.id", "version")


@pytest.mark.parametrize("template", ["", "constant", "{}", "{ id }", "{1}", "{id", "id}", "{{id}}", "{id}{", "}{id}"])
def test_a_template_that_names_no_field_or_has_stray_braces_is_refused(template: str) -> None:
    with pytest.raises(ValueError) as refused:
        keys.template_fields(template)
    assert repr(template) in str(refused.value)


def test_a_template_is_filled_from_the_data() -> None:
    key = keys.key_from("{order.id}-{version}", {"order": {"id": "o-1"}, "version": 2, "other": 3})
    assert key == '{order.id}-{version}=["o-1",2]'


def test_what_a_template_does_not_name_changes_no_key() -> None:
    assert keys.key_from("{id}", {"id": 1, "x": 1}) == keys.key_from("{id}", {"x": 2, "id": 1})


@pytest.mark.parametrize(
    ("template", "one", "other"),
    [
        ("{id}", {"id": 1}, {"id": "1"}),
        ("{id}", {"id": 1}, {"id": True}),
        ("{id}", {"id": 1}, {"id": 1.0}),
        ("{id}", {"id": None}, {"id": ""}),
        ("{a}-{b}", {"a": "x-y", "b": "z"}, {"a": "x", "b": "y-z"}),
        ("{a}{b}", {"a": "1", "b": "23"}, {"a": "12", "b": "3"}),
    ],
)
def test_values_that_read_alike_make_different_keys(template: str, one: object, other: object) -> None:
    assert keys.key_from(template, one) != keys.key_from(template, other)


def test_two_templates_over_the_same_values_make_different_keys() -> None:
    data = {"a": 1, "b": 1}
    assert keys.key_from("{a}", data) != keys.key_from("{b}", data)


@pytest.mark.parametrize(
    "data", [{}, {"order": {}}, {"order": None}, {"order": [{"id": 1}]}, {"order.id": 1}, None, "x"]
)
def test_an_event_without_the_field_is_refused_with_its_path(data: object) -> None:
    with pytest.raises(ValueError, match=r"data\.order\.id"):
        keys.key_from("{order.id}", data)
