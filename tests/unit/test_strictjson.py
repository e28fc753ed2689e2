"""The strict JSON reader: what it takes, and what it refuses by its own error only."""

import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import MalformedBodyError
from signoff.strictjson import MAX_CONTAINERS, MAX_DEPTH, MAX_KEYS, loads, well_formed

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)  # fmt: skip

REFUSED = {
    "empty": b"",
    "blank": b"  \n",
    "not JSON": b"{",
    "trailing": b"{} {}",
    "single quotes": b"{'a': 1}",
    "trailing comma": b"[1,]",
    "comment": b"[1] // one",
    "duplicate, deny then allow": b'{"decision": "deny", "decision": "allow"}',
    "duplicate, allow then deny": b'{"decision": "allow", "decision": "deny"}',
    "duplicate, escaped": b'{"decision": "deny", "d\\u0065cision": "allow"}',
    "duplicate, below": b'{"a": [{"b": 1, "b": 1}]}',
    "NaN": b'{"n": NaN}',
    "Infinity": b"[Infinity]",
    "-Infinity": b"[-Infinity]",
    "1e999": b"[1e999]",
    "-1e999": b"[-1e999]",
    "long integer": b"[" + b"9" * 401 + b"]",
    "long fraction": b"[0." + b"1" * 400 + b"]",
    "surrogate in value": b'{"a": "\\ud800"}',
    "surrogate in key": b'{"\\uDFFF": 1}',
    "surrogates reversed": b'["\\udc00\\ud800"]',
    "surrogate as bytes": b'["\xed\xa0\x80"]',
    "NUL escaped": b'{"a": "x\\u0000"}',
    "NUL in key": b'{"\\u0000": 1}',
    "NUL raw": b'["\0"]',
    "NUL after": b"[]\0",
    "control character": b'["\x01"]',
    "UTF-16": '{"a": 1}'.encode("utf-16-le"),
    "UTF-16 with mark": '{"a": 1}'.encode("utf-16"),
    "UTF-32": '{"a": 1}'.encode("utf-32-be"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "over-long slash": b'["\xc0\xaf"]',
    "latin-1": '["é"]'.encode("latin-1"),
    "beyond Unicode": b'["\xf5\x80\x80\x80"]',
}


@given(VALUES)
def test_what_json_writes_is_read_as_it_was(value):
    """Every finite JSON value comes back the same, with its types, escaped or not."""
    for ascii_only in (True, False):
        read = loads(json.dumps(value, ensure_ascii=ascii_only).encode())
        assert json.dumps(read) == json.dumps(value)


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_give_a_value_or_our_error(raw):
    """No bytes make anything escape but MalformedBodyError, and no value is bad inside."""
    try:
        value = loads(raw)
    except MalformedBodyError as error:
        error.message.encode()
    else:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


FRAGMENTS = [b"[", b"{", b'"a":', b'"', b"\\u", b"d800", b"dc00", b"0000", b"1e999", b"-", b"1"]
FRAGMENTS += [b",", b"]", b"}", b"\\", b"NaN"]


@given(st.lists(st.sampled_from(FRAGMENTS)))
def test_hostile_fragments_give_a_value_or_our_error(fragments):
    """The same holds for bytes that come closer to JSON than random ones do."""
    try:
        value = loads(b"".join(fragments))
    except MalformedBodyError:
        return
    assert "\\u0000" not in json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("raw", REFUSED.values(), ids=list(REFUSED))
def test_it_refuses(raw):
    """Everything that readers disagree about is refused with a message in plain text."""
    with pytest.raises(MalformedBodyError) as caught:
        loads(raw)
    assert caught.value.code == "malformed_body"
    caught.value.message.encode("ascii")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"null", None),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\u0000 \\\\ud800"', "\\u0000 \\ud800"),
        (b"[1e308, 1E-400, -0, -0.0]", [1e308, 0.0, 0, -0.0]),
        (b' {"a" : [ ] } \r\n', {"a": []}),
        (b'[{"a": 1}, {"a": 1}]', [{"a": 1}, {"a": 1}]),
        (b'"\x7f"', "\x7f"),
        (b"9" * 400, int("9" * 400)),
    ],
)
def test_it_takes(raw, value):
    """What is only unusual is read: pairs, escaped backslashes, equal keys in two objects."""
    assert loads(raw) == value


def test_the_field_of_a_bad_string_is_named():
    """The path of a lone surrogate or NUL is known and given."""
    with pytest.raises(MalformedBodyError) as caught:
        loads(b'{"decisions": [{"reason": "ok"}, {"reason": "\\ud800"}]}')
    assert caught.value.field == "decisions[1].reason"
    with pytest.raises(MalformedBodyError) as caught:
        loads(b'{"input": {"\\u0000": 1}}')
    assert caught.value.field == "input"


def test_a_duplicate_key_is_named_in_ascii():
    """The message names the key even if its characters could not be sent."""
    with pytest.raises(MalformedBodyError, match=r"'\\ud800' occurs twice"):
        loads(b'{"\\ud800": 1, "\\ud800": 2}')


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_bounded_exactly(opening, closing):
    """64 levels are read, 65 are refused, and closing brackets in strings do not count."""
    assert loads(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH)
    deepest = opening * (MAX_DEPTH - 1) + b"1" + closing * (MAX_DEPTH - 1)
    assert loads(b"[[], " + deepest + b"]")
    with pytest.raises(MalformedBodyError, match="deep"):
        loads(opening * (MAX_DEPTH + 1) + b"1" + closing * (MAX_DEPTH + 1))
    assert loads(b'["' + b"[" * 1000 + b'"]') == ["[" * 1000]
    assert loads(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


def test_length_is_bounded_exactly():
    """The limit counts bytes, and the last one allowed is allowed."""
    assert loads(b'"1234"', max_bytes=6) == "1234"
    with pytest.raises(MalformedBodyError, match="longer than 5 bytes"):
        loads(b'"1234"', max_bytes=5)


BOMBS = {
    "depth 1,000": b"[" * 1_000 + b"]" * 1_000,
    "depth 100,000": b"[" * 100_000 + b"]" * 100_000,
    "depth 100,000, unclosed": b'{"a":' * 100_000,
    "1,000,000 digits": b"1" * 1_000_000,
    "1,000,000 decimals": b"0." + b"1" * 1_000_000,
    "200,000 empty objects": b"[" + b"{}," * 199_999 + b"{}]",
    "100,000 keys": b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}",
    "170,000 escapes": b'["' + b"\\u0000" * 170_000 + b'"]',
}


@pytest.mark.parametrize("raw", BOMBS.values(), ids=list(BOMBS))
def test_bombs_are_refused_fast_and_small(raw):
    """A bomb costs less than a second and 64 MB, and never a RecursionError."""
    tracemalloc.start()
    started = time.thread_time()
    try:
        with pytest.raises(MalformedBodyError):
            loads(raw)
        took, peak = time.thread_time() - started, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert took < 1
    assert peak < 64 << 20


def test_the_limits_on_keys_and_containers_are_exact():
    """10,000 keys and 100,000 containers are still read."""
    keys = b"{" + b",".join(b'"%d":1' % n for n in range(MAX_KEYS)) + b"}"
    assert len(loads(keys)) == MAX_KEYS
    containers = b"[" + b"{}," * (MAX_CONTAINERS - 2) + b"{}]"
    assert len(loads(containers)) == MAX_CONTAINERS - 1


@given(st.text())
def test_well_formed_text_can_be_encoded_and_keeps_what_was_good(text):
    """Every text comes out encodable; good text comes out as it was."""
    found = well_formed(text)
    found.encode()
    if not any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        assert found == text


def test_well_formed_text_joins_pairs():
    """The halves of a pair become their character, a lone half the replacement character."""
    assert well_formed("a\ud83d\ude00b\ud83d") == "a\U0001f600b\ufffd"
