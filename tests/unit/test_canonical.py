"""RFC 8785 bytes: the standard's own examples, and what has no form."""

import enum
import hashlib
import json
import struct
from decimal import Decimal

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from signoff.canonical import MAX_DEPTH, canonical, digest
from signoff.domain.error import NotCanonicalError

SAFE = 2**53 - 1
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20
)

# RFC 8785, appendix B: the bits of a double and its one spelling.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


def _double(literal):
    return int(literal) if abs(int(literal)) <= SAFE else float(literal)


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_are_spelled_as_the_standard_says(bits, text):
    """Every double of the standard's table has its spelling."""
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == text.encode()


def test_the_standards_example_is_met():
    """The object of section 3.2.2 with numbers, escapes and literals."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical(value) == expected.encode()


def test_keys_are_ordered_by_utf16_units():
    """The standard's example: an astral character sorts below one of the last BMP rows."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical(dict.fromkeys(keys, 1)))) == ordered


@given(VALUES)
def test_both_writers_agree(value):
    """The fast writer gives exactly the bytes of the package, wherever it is used."""
    assert canonical(value) == rfc8785.dumps(value)


@given(VALUES)
def test_the_form_is_stable(value):
    """Reading the bytes as doubles and writing them again changes nothing."""
    once = canonical(value)
    assert canonical(json.loads(once, parse_int=_double)) == once


@given(st.dictionaries(TEXT, LEAVES))
def test_key_order_does_not_count(value):
    """The same members in another order have the same bytes."""
    assert canonical(dict(reversed(value.items()))) == canonical(value)


def test_booleans_are_not_numbers():
    """True and 1 differ in the bytes, as does everything that differs in type."""
    forms = [canonical(value) for value in (True, 1, "1", "true", None, "null", [1], {"1": 1})]
    assert len(set(forms)) == len(forms)
    assert canonical(1.0) == canonical(1)
    assert canonical((1, 2)) == canonical([1, 2])


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"a": [1, {"b": 2**53}]}, "a[1].b"),
        ({"n": -(2**53)}, "n"),
        ({"n": 10**400}, "n"),
        ({"n": float("nan")}, "n"),
        ([float("inf")], "[0]"),
        ([1, -float("inf")], "[1]"),
        ({"s": "\ud800"}, "s"),
        ({"s": {"\udfff": 1}}, "s"),
        ("\ud800", None),
        ({"a": {1: 2}}, "a"),
        ({"a": {True: 2}}, "a"),
        ({"a": Decimal(1)}, "a"),
        ({"a": b"x"}, "a"),
        ({"a": {1, 2}}, "a"),
        ({"a": Colour.RED}, "a"),
        ({"a": object()}, "a"),
    ],
)
def test_what_has_no_form_is_refused_by_path(value, field):
    """Our own error, with the path of the value; nothing raw from any writer."""
    with pytest.raises(NotCanonicalError) as caught:
        canonical(value)
    assert caught.value.code == "not_canonical"
    assert caught.value.field == field
    caught.value.message.encode()


def test_depth_is_bounded():
    """The deepest allowed value is written, deeper and endless ones are refused."""
    value: list[object] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert canonical(value) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    with pytest.raises(NotCanonicalError, match="deeper"):
        canonical([value])
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(NotCanonicalError):
        canonical(endless)


def test_the_digest_is_the_hash_of_tool_and_input():
    """Anyone can recompute it with nothing but a JSON writer and SHA-256."""
    expected = hashlib.sha256(b'{"input":{"a":1,"b":"x"},"tool":"send_email"}').hexdigest()
    assert digest("send_email", {"b": "x", "a": 1}) == expected


def test_the_digest_tells_tools_and_inputs_apart():
    """Another tool, value, type or key is another digest."""
    calls = [("a", {}), ("b", {}), ("a", {"x": 1}), ("a", {"x": "1"}), ("a", {"y": 1}), ("a", None)]
    assert len({digest(name, tool_input) for name, tool_input in calls}) == len(calls)
