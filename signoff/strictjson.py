"""The strict, bounded JSON reader for bytes from strangers: a value or MalformedBodyError."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from signoff.domain.error import MalformedBodyError
from signoff.domain.path import Path, dotted

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
# A double needs at most 767 significant digits, an amount of anything real far fewer; long
# numerals only serve to burn time in conversion, which is quadratic for integers.
MAX_NUMBER_CHARS = 400
# Far above any request of ours within 1 MiB; both bound the memory that such a body can cost.
MAX_KEYS = 10_000
MAX_CONTAINERS = 100_000

_SHOWN_TEXT = 40

_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
# Only an escape can bring a NUL or a surrogate past the UTF-8 decoder and json's own check.
_SUSPECT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def loads(raw: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """The value of ``raw``; raises MalformedBodyError and nothing else for any other bytes.

    Refused: more than ``max_bytes``, anything but UTF-8 without a byte order mark, duplicate keys,
    NaN and numbers that overflow a double, lone surrogates and NUL (also escaped, also in keys),
    numerals over 400 characters, more than ``max_depth`` nested containers, objects of more than
    10,000 keys and bodies of more than 100,000 containers.
    """
    if len(raw) > max_bytes:
        _refuse(f"the body is longer than {max_bytes} bytes")
    if raw.startswith(_BOM):
        _refuse("the body starts with a byte order mark")
    value = _decode(raw)
    # Brackets within strings only make the bound too high, never too low.
    brackets = raw.count(b"[") + raw.count(b"{")
    if brackets > min(max_depth, MAX_CONTAINERS):
        _check_shape(value, max_depth)
    if b"\\u" in raw and _SUSPECT_ESCAPE.search(raw):
        _check_strings(value)
    return value


def well_formed(text: str) -> str:
    """``text`` in a form that UTF-8 can carry: surrogate pairs joined, lone ones replaced."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _refuse(message: str, field: str | None = None) -> NoReturn:
    raise MalformedBodyError(message, field=field)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                _refuse(f"the key {_shown(key)} occurs twice in one object")
            seen.add(key)
    if len(found) > MAX_KEYS:
        _refuse(f"an object has more than {MAX_KEYS} keys")
    return found


def _integer(literal: str) -> int:
    if len(literal) > MAX_NUMBER_CHARS:
        _refuse(f"a number is longer than {MAX_NUMBER_CHARS} characters")
    return int(literal)


def _float(literal: str) -> float:
    if len(literal) > MAX_NUMBER_CHARS:
        _refuse(f"a number is longer than {MAX_NUMBER_CHARS} characters")
    number = float(literal)
    if math.isinf(number):
        _refuse(f"the number {_shown(literal)} is out of range")
    return number


def _constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON")


# Built once: json.loads() builds a decoder on every call that passes hooks.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
)


def _decode(raw: bytes) -> Any:
    try:
        return _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        _refuse(f"the body is not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        _refuse(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}")
    except RecursionError:
        _refuse("the body is nested too deeply")


def _check_shape(value: Any, max_depth: int) -> None:
    """Bound nesting and the number of containers, level by level instead of by recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    depth = containers = 0
    while level:
        depth += 1
        containers += len(level)
        if depth > max_depth:
            _refuse(f"the body is nested deeper than {max_depth} levels")
        if containers > MAX_CONTAINERS:
            _refuse(f"the body has more than {MAX_CONTAINERS} objects and arrays")
        below: list[Any] = []
        for item in level:
            children = item.values() if isinstance(item, dict) else item
            below.extend(child for child in children if isinstance(child, (dict, list)))
        level = below


def _check_strings(value: Any) -> None:
    stack: list[tuple[Any, Path]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        if isinstance(item, str):
            _check_string(item, path, "a string")
        elif isinstance(item, dict):
            for key, child in item.items():
                _check_string(key, path, "a key")
                stack.append((child, (*path, key)))
        elif isinstance(item, list):
            stack.extend((child, (*path, index)) for index, child in enumerate(item))


def _check_string(text: str, path: Path, what: str) -> None:
    if "\0" in text:
        _refuse(f"{what} contains NUL", dotted(path))
    if not text.isascii() and _SURROGATE.search(text):
        _refuse(f"{what} contains a lone surrogate", dotted(path))


def _shown(text: str) -> str:
    """``text`` as short ASCII: it is a stranger's and may itself hold surrogates or controls."""
    return ascii(text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + "...")
