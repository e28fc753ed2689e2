"""What is kept of an answer: bounded text and a sane wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.delivery import MAX_RETRY_AFTER_S
from webhooks.answer import body_text, retry_after

NOW = 1_767_225_600.0  # Thu, 01 Jan 2026 00:00:00 GMT


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("999999", MAX_RETRY_AFTER_S),
        ("9" * 300, MAX_RETRY_AFTER_S),
        ("Thu, 01 Jan 2026 00:01:40 GMT", 100.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_seconds_and_dates_are_honoured_up_to_a_day(status, text, wait):
    """T23, S047: both spellings of the standard, clamped."""
    assert retry_after(status, [text], now=NOW) == wait


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "-5",
        "+5",
        "1.5",
        "1e3",
        "nan",
        "inf",
        "abc",
        "1" + "0" * 400,
        "\u0663",
        "Wed, 99 Jan 2026 00:00:00 GMT",
        "Thu, 01 Foo 2026 00:00:00 GMT",
        "Thu, 01 Jan 0000 00:00:00 GMT",
        "Thu, 01 Jan 2026 25:00:00 GMT",
        "Thu, 01 Jan 2026 00:01:40 CET",
        "Wed, 31 Dec 2025 23:59:59 GMT",
    ],
)
def test_garbage_and_the_past_are_ignored(text):
    """S048: the schedule decides then."""
    assert retry_after(429, [text], now=NOW) is None


@pytest.mark.parametrize("status", [None, 200, 301, 400, 500, 502, 504])
def test_other_answers_cannot_ask_for_a_wait(status):
    """Only 429 and 503 mean come back later."""
    assert retry_after(status, ["7"], now=NOW) is None


def test_a_repeated_header_asks_for_nothing():
    """Two waits are no wait."""
    assert retry_after(429, ["7", "7"], now=NOW) is None
    assert retry_after(429, [], now=NOW) is None


@given(text=st.text())
def test_the_header_reader_is_total(text):
    """Any text is a wait within bounds or nothing."""
    wait = retry_after(503, [text], now=NOW)
    assert wait is None or 0 <= wait <= MAX_RETRY_AFTER_S


@given(raw=st.binary(max_size=3000))
def test_body_text_is_storable(raw):
    """S040: bounded, no NUL, encodes as UTF-8."""
    text = body_text(raw)
    assert len(text) <= 1024
    assert "\x00" not in text
    text.encode()


def test_escape_sequences_are_kept_as_text():
    """S040: whoever shows it escapes it; the record is what was sent."""
    assert body_text(b"\x1b[31m<b>\x00\xff") == "\x1b[31m<b>\ufffd"
