"""Paths into JSON values, as errors name them."""

from __future__ import annotations

Path = tuple[str | int, ...]

#: A stranger's keys may be long, and the path goes into answers and logs.
_SHOWN = 200


def dotted(path: Path) -> str | None:
    """``a[0].b`` for the place of a value within another, cut short; None for the whole."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text[:_SHOWN] or None


def below(place: str, field: str | None) -> str:
    """The path of ``field`` within the value at ``place``."""
    if not field:
        return place
    return f"{place}{field}" if field.startswith("[") else f"{place}.{field}"
