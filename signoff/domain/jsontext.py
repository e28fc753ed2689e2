"""Compact JSON text; the encoders are built once, as building one costs more than a small text."""

from __future__ import annotations

import json
from typing import Any

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)
_SORTED = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True
)


def compact(value: Any) -> str:
    """``value`` without spaces; text as it is. Raises ValueError for NaN and infinities."""
    return _COMPACT.encode(value)


def ascii_compact(value: Any) -> str:
    """The same in ASCII, so that no character of it can end a line."""
    return _ASCII.encode(value)


def sorted_compact(value: Any) -> str:
    """The same with sorted keys, for comparing values of our own making."""
    return _SORTED.encode(value)
