"""Times as text: RFC 3339 in UTC with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(ms: int) -> str:
    """Unix milliseconds as ``2026-01-01T00:00:00.000Z``."""
    moment = datetime.fromtimestamp(ms // 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
