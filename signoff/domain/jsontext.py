"""Compact JSON text, and the size of JSON values.

The encoders are built once, as building one costs more than a small text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


#: So many characters of a text are as much work as one value.
_CHARS = 64


def size_of(value: Any, enough: int = 1_000_000) -> int:
    """The number of values in ``value``, texts by their length; not much beyond ``enough``."""
    size, pending = 0, [value]
    while pending and size <= enough:
        item = pending.pop()
        size += 1
        if isinstance(item, str):
            size += len(item) // _CHARS
        elif isinstance(item, Mapping):
            pending.extend(item.values())
            pending.extend(item)
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return size
