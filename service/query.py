"""Reads query parameters: each at most once, strictly typed; unknown ones are ignored."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import parse_qsl

from starlette.types import Scope

from signoff.domain.error import InvalidFieldError

PAGE = 20
MAX_PAGE = 100
MAX_TEXT = 255
#: The largest whole number that is read: as many digits as any id has.
MAX_WHOLE = 10**15 - 1
_MAX_FIELDS = 50
_INTEGER = re.compile(r"[0-9]{1,15}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Query:
    """The parameters of one request."""

    __slots__ = ("_fields",)

    def __init__(self, scope: Scope) -> None:
        """Read the query string; raises InvalidFieldError for a malformed one."""
        self._fields: dict[str, str] = {}
        raw: bytes = scope["query_string"]
        if not raw:
            return
        try:
            pairs = parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_FIELDS,
            )
        except ValueError:
            raise InvalidFieldError("the query string is malformed", field="query") from None
        for name, value in pairs:
            if name in self._fields:
                raise _wrong(name[:MAX_TEXT], "must be given once")
            self._fields[name] = value

    def text(self, name: str) -> str | None:
        """A text of 1 to 255 characters; None when it is absent."""
        value = self._fields.get(name)
        if value is not None and not 1 <= len(value) <= MAX_TEXT:
            raise _wrong(name, f"must have 1 to {MAX_TEXT} characters")
        return value

    def integer(self, name: str, *, low: int = 1, high: int = MAX_WHOLE) -> int | None:
        """A whole number within the bounds; None when it is absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        if _INTEGER.fullmatch(value) is None or not low <= int(value) <= high:
            raise _wrong(name, f"must be a whole number from {low} to {high}")
        return int(value)

    def flag(self, name: str) -> bool | None:
        """True or false; None when it is absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        if value.lower() not in _FLAGS:
            raise _wrong(name, "must be true or false")
        return _FLAGS[value.lower()]

    def choice(self, name: str, options: Collection[str]) -> str | None:
        """One of ``options``; None when it is absent."""
        value = self._fields.get(name)
        if value is not None and value not in options:
            raise _wrong(name, f"must be one of {', '.join(sorted(options))}")
        return value

    def limit(self) -> int:
        """The page size, 20 unless said otherwise."""
        return self.integer("limit", low=1, high=MAX_PAGE) or PAGE

    def cursor(self) -> int | None:
        """The id of the last item of the page before."""
        return self.integer("starting_after", low=0)


def _wrong(name: str, problem: str) -> InvalidFieldError:
    return InvalidFieldError(f"{name} {problem}", field=name)
