"""RFC 8785 bytes and the digest that binds what is approved to what runs."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NoReturn

import rfc8785

from signoff.domain.error import NotCanonicalError
from signoff.domain.path import Path, dotted

# RFC 8785 numbers are IEEE 754 doubles: beyond this, two integers would share one form.
MAX_SAFE_INTEGER = 2**53 - 1
# Twice what a body may nest, and well below Python's own limit, as the writers recurse.
MAX_DEPTH = 128

_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value; raises NotCanonicalError that names the path otherwise.

    Equal values have equal bytes whatever their key order; ``1`` and ``1.0`` are equal. The bytes
    are for hashing: ``1e20`` is written as an integer, which is refused when it is read as one.
    """
    # The walk stands before the writer, whose own errors name no path and partly escape raw.
    if _check(value, (), 1):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return text.encode()
    return rfc8785.dumps(value)


def digest(tool: str, tool_input: Any) -> str:
    """Lower-case hex SHA-256 of the canonical form of ``{"tool", "input"}``."""
    return hashlib.sha256(canonical({"tool": tool, "input": tool_input})).hexdigest()


def _check(value: Any, path: Path, depth: int) -> bool:
    """Refuse what has no form; true if json's C encoder, ten times as fast, writes that form.

    It differs in two points only: the spelling of floats, and the order of keys beyond ASCII
    (code points instead of UTF-16 units).
    """
    # Exact types: a subclass (an enum, say) may print as something else than it compares.
    kind = type(value)
    if kind is str:
        return _check_text(value, path)
    if kind is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            _refuse("an integer beyond 2^53 - 1 has no exact form", path)
        return True
    if kind is float:
        if not math.isfinite(value):
            _refuse("a number that is not finite has no form", path)
        return False
    if kind in (dict, list, tuple):
        if depth > MAX_DEPTH:
            _refuse(f"nested deeper than {MAX_DEPTH} levels", ())
        return _check_items(value, path, depth)
    if value is not None and kind is not bool:
        _refuse(f"a value of type {kind.__name__} is not JSON", path)
    return True


def _check_items(value: Any, path: Path, depth: int) -> bool:
    plain = True
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                _refuse("a key that is not a string is not JSON", path)
            _check_text(key, path)
            plain = _check(item, (*path, key), depth + 1) and key.isascii() and plain
    else:
        for index, item in enumerate(value):
            plain = _check(item, (*path, index), depth + 1) and plain
    return plain


def _check_text(text: str, path: Path) -> bool:
    if not text.isascii() and _SURROGATE.search(text):
        _refuse("a lone surrogate has no UTF-8 form", path)
    return True


def _refuse(message: str, path: Path) -> NoReturn:
    field = dotted(path)
    raise NotCanonicalError(f"{field}: {message}" if field else message, field=field)
