"""Event streams: frames out of bytes cut anywhere, and whether a stream that ends was whole."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.client.errors import UnexpectedAnswerError
from signoff.client.sse import MAX_EVENT, Reading


def event(kind, place=None, **fields):
    head = f"id: {place}\n" if place else ""
    return f"{head}data: {json.dumps({'type': kind, **fields})}\n\n".encode()


GATE = event("awaiting_approval", request_id="r", tool_use_id="c")
BODY = (
    b": hello\r\n\r\n"
    + event("text-delta", "1-0", delta="Hi \u2028")
    + event("text-delta", "1-1", delta="there")
    + event("done", "2-0")
    + b"data: [DONE]\n\n"
)


@given(st.sets(st.integers(min_value=1, max_value=len(BODY) - 1)))
def test_frames_do_not_depend_on_how_the_bytes_are_cut(cuts):
    """Any chunks give the same frames."""
    reading, places = Reading(), [0, *sorted(cuts), len(BODY)]
    chunks = [BODY[a:b] for a, b in itertools.pairwise(places)]
    frames = [frame for chunk in chunks for frame in reading.feed(chunk)]
    assert [frame.type for frame in frames] == ["text-delta", "text-delta", "done"]
    assert "".join(frame.text for frame in frames) == "Hi \u2028there"
    assert (reading.last_event_id, reading.whole) == ("2-0", True)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_are_read_without_an_exception(chunks):
    """Strange lines are skipped."""
    reading = Reading()
    for chunk in chunks:
        list(reading.feed(chunk))


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], False),
        ([event("text-delta", delta="a")], False),
        ([event("done")], True),
        ([event("error", error="x")], True),
        ([event("cancelled")], True),
        ([GATE], True),
        ([event("awaiting_approval")], False),
        ([GATE, event("permission_resolved", request_id="r")], False),
        ([GATE, event("permission_resolved", request_id="other")], True),
        ([GATE, event("tool-result-end", toolCallId="c")], False),
        ([GATE, event("tool-result-end", toolCallId="other")], True),
        ([GATE, event("text-delta", delta="a")], False),
        ([event("done"), event("message_start")], False),
    ],
)
def test_a_stream_may_end_after_its_turn_or_at_an_open_gate(parts, whole):
    """Anything else was cut off."""
    reading = Reading()
    list(reading.feed(b"".join(parts)))
    assert reading.whole is whole


def test_a_stream_is_taken_up_behind_its_last_frame():
    """A half frame is dropped with its connection, and its id with it."""
    reading = Reading()
    list(reading.feed(event("text-delta", "1-0", delta="a") + b"id: 2-0\ndata: {"))
    assert reading.headers() == {"accept": "text/event-stream", "last-event-id": "1-0"}
    assert [f.type for f in reading.feed(event("done", "2-0"))] == ["done"]


def test_an_event_without_end_is_refused():
    """Memory is bounded."""
    reading = Reading()
    chunk = b"x" * (MAX_EVENT // 2)
    list(reading.feed(b"data: " + chunk))
    with pytest.raises(UnexpectedAnswerError):
        list(reading.feed(chunk))
