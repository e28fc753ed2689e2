"""Paths into JSON values, as errors name them."""

from __future__ import annotations

Path = tuple[str | int, ...]

#: A stranger's keys may be long, and the path goes into answers and logs.
_SHOWN = 200


def dotted(path: Path) -> str | None:
    """``a.0.b`` for the place of a value within another, cut short; None for the whole."""
    return ".".join(str(part) for part in path)[:_SHOWN] or None
