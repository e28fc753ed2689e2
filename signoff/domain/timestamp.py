"""Times as text: RFC 3339 in UTC with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def iso(ms: int) -> str:
    """Unix milliseconds as ``2026-01-01T00:00:00.000Z``."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


def read_iso(text: str) -> int | None:
    """The Unix milliseconds of an ISO 8601 time with its offset; None for anything else."""
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else int(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%dT%H:%M:%S}"
