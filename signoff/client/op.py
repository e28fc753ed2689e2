"""One call of the API as a value: what to send, and how to read the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter
from pydantic import ValidationError as ShapeError

from signoff.client.errors import InvalidArgumentError, UnexpectedAnswerError
from signoff.client.values import Page

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Scalar = str | int | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(Generic[T]):
    """One request; ``read`` turns the decoded body of a 2xx into the result.

    ``keyed`` requests carry an Idempotency-Key, ``idempotency_key`` or one made up for the call.
    ``patience_s`` is how long the service itself may take over the answer.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    keyed: bool = False
    idempotency_key: str | None = None
    patience_s: float = 0.0

    @property
    def repeatable(self) -> bool:
        """True when sending it twice has the effect of sending it once."""
        return self.method == "GET" or self.keyed


def at(*parts: str | int) -> str:
    """A path; each part is one segment of it, whatever characters it has."""
    return "/v1/" + "/".join(_segment(part) for part in parts)


def _segment(part: str | int) -> str:
    text = str(part)
    if text in ("", ".", "..") or "/" in text or isinstance(part, bool):
        raise InvalidArgumentError(f"no path can be built from {part!r}")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise InvalidArgumentError("an id is text that has a UTF-8 form") from None


def query(**values: Scalar) -> dict[str, str]:
    """Query parameters; None is left out and booleans are words."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def one(model: type[M]) -> Callable[[Any], M]:
    """Reads an object."""

    def read(body: Any) -> M:
        try:
            return model.model_validate(body)
        except ShapeError as error:
            raise _unexpected(error, model.__name__) from None

    return read


def many(model: type[M]) -> Callable[[Any], list[M]]:
    """Reads an array."""
    adapter = TypeAdapter(list[model])  # type: ignore[valid-type]

    def read(body: Any) -> list[M]:
        try:
            return adapter.validate_python(body)
        except ShapeError as error:
            raise _unexpected(error, f"list of {model.__name__}") from None

    return read


def page(model: type[M]) -> Callable[[Any], Page[M]]:
    """Reads a page."""
    return one(Page[model])  # type: ignore[valid-type]


def nothing(_body: Any) -> None:
    """Reads an answer without a body."""


def _unexpected(error: ShapeError, what: str) -> UnexpectedAnswerError:
    # Without the input: it may hold what must not be repeated into logs.
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"]))
    return UnexpectedAnswerError(f"the answer is no {what}: {path or 'body'}: {first['msg']}")
