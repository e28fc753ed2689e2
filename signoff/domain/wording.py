"""What is wrong with a value, in our own words where those of the libraries speak of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIZES = {
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
}
NO_CHOICE = "is none of the forms that the schema offers"
SEVERAL_CHOICES = "is of more than one of the forms of which the schema wants exactly one"


def worded(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """The text for a failure of this ``kind``; ``message`` where the library's own will do."""
    if kind not in _SIZES:
        return message
    bound, key, what = _SIZES[kind]
    size = context.get(key)
    if size is None:
        return message
    return f"must have {bound} {size} {what}{'' if size == 1 else 's'}"
