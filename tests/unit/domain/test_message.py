"""The stored form of messages reads back as it was written, and nothing else is read."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.message import (
    COMPRESS_ABOVE,
    VERSION,
    Message,
    MessageFormatError,
    NewerFormatError,
    Text,
    ToolResult,
    ToolUse,
    block_json,
    decode,
    encode,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
blocks = st.one_of(
    st.builds(Text, texts),
    st.builds(ToolUse, texts, texts, objects),
    st.builds(
        ToolResult,
        texts,
        texts,
        st.sampled_from(["success", "error", "denied", "interrupted"]),
        texts | st.integers(1, 4).map(lambda n: "long " * 300 * n),
    ),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool"]),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    turn=st.integers(1, 9),
    step=st.integers(0, 99),
    at_ms=st.integers(0, 2**45),
    extra=objects,
)


@given(messages)
def test_what_was_stored_reads_back(message: Message) -> None:
    """Any message of any size; what is long is compressed."""
    stored = encode(message)
    assert decode(stored) == message
    assert stored[:1] in (b"0", b"1")
    if stored[:1] == b"0":
        assert len(stored) <= COMPRESS_ABOVE + 1


def test_compression_begins_above_the_limit() -> None:
    """A long message is stored small, a short one plain."""
    long = Message(role="user", blocks=(Text("x" * 100_000),), turn=1, step=0)
    short = Message(role="user", blocks=(Text("x"),), turn=1, step=0)
    assert encode(long)[:1] == b"1"
    assert len(encode(long)) < 2000
    assert encode(short)[:1] == b"0"


def test_a_stored_message_of_version_one_is_readable_for_ever() -> None:
    """Bytes as release 0.1 wrote them; this row is never changed."""
    stored = (
        b'0{"v":1,"role":"tool","turn":2,"step":3,"at":4,"blocks":[{"type":"text","text":"a"},'
        b'{"type":"tool_use","id":"i","name":"n","input":{"k":1}},'
        b'{"type":"tool_result","tool_use_id":"i","name":"n","state":"denied","content":"c"}]}'
    )
    expected = Message(
        role="tool",
        blocks=(Text("a"), ToolUse("i", "n", {"k": 1}), ToolResult("i", "n", "denied", "c")),
        turn=2,
        step=3,
        at_ms=4,
    )
    assert decode(stored) == expected
    assert decode(b"1" + zlib.compress(stored[1:])) == expected


def body(**changed: Any) -> bytes:
    fields = {"v": VERSION, "role": "user", "turn": 1, "step": 0, "at": 0, "blocks": []}
    return b"0" + json.dumps({**fields, **changed}).encode()


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"2{}",
        b"\xff",
        body(v=VERSION + 1),
        body(v=None),
        body(v="1"),
        body(blocks=[{"type": "image"}]),
        body(blocks=[{"type": "text"}]),
        body(blocks=3),
        b"0",
        b"0[]",
        b"0{",
        b"0\xff",
        b"1not zlib",
    ],
)
def test_unknown_forms_are_refused(stored: bytes) -> None:
    """Newer versions, other formats, unknown blocks, damage: one error, the run is left alone."""
    with pytest.raises(MessageFormatError):
        decode(stored)


@pytest.mark.parametrize(
    ("stored", "newer"),
    [(body(v=VERSION + 1), True), (b"2abc", True), (body(v=None), False), (b"", False)],
)
def test_a_newer_form_is_told_from_damage(stored: bytes, *, newer: bool) -> None:
    """What a later release wrote is left to it; what nobody wrote is not."""
    with pytest.raises(MessageFormatError) as raised:
        decode(stored)
    assert isinstance(raised.value, NewerFormatError) == newer


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(stored: bytes) -> None:
    """The reader is total."""
    with pytest.raises(MessageFormatError):
        decode(stored)


def test_text_is_the_text_blocks_joined() -> None:
    """Calls and results are no text; blocks are shown as they are stored."""
    message = Message(
        role="assistant", blocks=(Text("a"), ToolUse("i", "n", {}), Text("b")), turn=1, step=1
    )
    assert message.text == "ab"
    assert [block_json(b)["type"] for b in message.blocks] == ["text", "tool_use", "text"]
