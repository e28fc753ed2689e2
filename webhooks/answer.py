"""What is kept of a receiver's answer: a short text and the wait it asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from signoff.domain.delivery import MAX_RETRY_AFTER_S

TEXT_LIMIT = 1024

# 429 Too Many Requests, 503 Service Unavailable: where the header means "come back later".
_WAITING = frozenset({429, 503})
_SECONDS = re.compile(r"[0-9]{1,300}", re.ASCII)
# IMF-fixdate, the only form that senders may generate (RFC 9110, 5.6.7).
_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT",
    re.ASCII,
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def body_text(raw: bytes | bytearray) -> str:
    """Return the start of the body as text that every store takes: no NUL, always UTF-8."""
    return raw[:TEXT_LIMIT].decode("utf-8", "replace").replace("\x00", "")


def retry_after(status: int | None, values: Sequence[str], *, now: float) -> float | None:
    """Return the seconds a 429 or 503 asks to wait, at most a day; None if it asks nothing sane.

    Garbage, a repeated header and dates in the past are ignored: the schedule decides then.
    """
    if status not in _WAITING or len(values) != 1:
        return None
    text = values[0].strip()
    wait = float(text) if _SECONDS.fullmatch(text) else _until(text, now)
    return None if wait is None or wait < 0 else min(wait, MAX_RETRY_AFTER_S)


def _until(text: str, now: float) -> float | None:
    parts = _DATE.fullmatch(text)
    if parts is None or parts[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(parts[place]) for place in (1, 3, 4, 5, 6))
    try:
        moment = datetime(year, _MONTHS.index(parts[2]) + 1, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp() - now
