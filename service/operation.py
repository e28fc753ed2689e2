"""What a handler says of itself: what it reads and every way in which it may answer.

``/openapi.json`` is built from these, and tests hold each answer of the service against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from service.query import MAX_PAGE, MAX_TEXT, MAX_WHOLE, PAGE

H = TypeVar("H", bound=Callable[..., object])
JSON = "application/json"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One query parameter or header of a request."""

    name: str
    schema: Mapping[str, Any]
    about: str
    place: Literal["query", "header"] = "query"
    required: bool = False


def text(name: str, about: str) -> Parameter:
    """A query parameter that is read by ``Query.text``."""
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
    return Parameter(name=name, schema=schema, about=about)


def whole(
    name: str, about: str, *, low: int = 1, high: int = MAX_WHOLE, default: int | None = None
) -> Parameter:
    """A query parameter that is read by ``Query.integer``."""
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name=name, schema=schema, about=about)


def flag(name: str, about: str) -> Parameter:
    """A query parameter that is read by ``Query.flag``."""
    return Parameter(name=name, schema={"type": "boolean"}, about=about)


def choice(name: str, options: Sequence[str], about: str) -> Parameter:
    """A query parameter that is read by ``Query.choice``."""
    return Parameter(name=name, schema={"type": "string", "enum": sorted(options)}, about=about)


def header(name: str, about: str, *, required: bool = False, **schema: Any) -> Parameter:
    """A header of the request, a string unless ``schema`` says more."""
    return Parameter(
        name=name,
        schema={"type": "string", **schema},
        about=about,
        place="header",
        required=required,
    )


USER = text("user_id", "the end user; what is not this user's is missing")
LIMIT = whole("limit", "how many at most", high=MAX_PAGE, default=PAGE)
CURSOR = whole("starting_after", "the `next_starting_after` of the page before", low=0)
PAGED = (LIMIT, CURSOR)
IDEMPOTENCY = header(
    "Idempotency-Key",
    "a repeated request with it answers with what the first one made",
    minLength=1,
    maxLength=255,
    pattern="^[ -~]+$",
)
#: The refusal of a request without a user in an account that forbids those.
SCOPED = ("end_user_required",)
RETRY_HEADER = {"Retry-After": "seconds after which to try again"}
RUN_ID_HEADER = {"X-Run-Id": "the id of the run"}
REPLAY_HEADER = {"Idempotent-Replay": "`true` when an earlier request had made it"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One way to succeed; without a model there is no body, or one that is not JSON."""

    status: int
    model: Any = None
    media: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    about: str = "Done."


def ok(model: Any, status: int = 200, **more: Any) -> Answer:
    """An answer with a JSON body of ``model``: a TypedDict, or anything that pydantic reads."""
    return Answer(status=status, model=model, media=JSON, **more)


NO_CONTENT = Answer(status=204)
STREAM = Answer(status=200, media=EVENT_STREAM, about="The events of the run as they come.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One handler: what it reads, how it answers, and the codes of its refusals.

    ``refuses`` names only codes of its own. What follows from the rest is added when the document
    is built: keys, bodies, parameters, paths, and failures of the store, which ``stored`` says
    that it needs.
    """

    answers: tuple[Answer, ...]
    body: type[BaseModel] | None = None
    media: str = JSON
    parameters: tuple[Parameter, ...] = ()
    refuses: tuple[str, ...] = ()
    stored: bool = True


class UndescribedError(LookupError):
    """A route's handler does not say what it reads and answers."""


_OPERATIONS: dict[Callable[..., object], Operation] = {}


def operation(
    *answers: Answer,
    body: type[BaseModel] | None = None,
    media: str = JSON,
    parameters: Sequence[Parameter] = (),
    refuses: Sequence[str] = (),
    stored: bool = True,
) -> Callable[[H], H]:
    """Describes the handler below it; its docstring is the text of the description."""
    described = Operation(
        answers=answers,
        body=body,
        media=media,
        parameters=tuple(parameters),
        refuses=tuple(refuses),
        stored=stored,
    )

    def keep(handler: H) -> H:
        _OPERATIONS[handler] = described
        return handler

    return keep


def operation_of(handler: Callable[..., object]) -> Operation:
    """The description of a handler; UndescribedError says how to give it one."""
    found = _OPERATIONS.get(handler)
    if found is None:
        name = f"{handler.__module__}.{getattr(handler, '__qualname__', handler)}"
        msg = (
            f"{name} is not described, so /openapi.json cannot tell of its route. Put"
            " @operation(ok(TheBodyThatItAnswers), body=..., parameters=..., refuses=...) of"
            " service/operation.py above it; CONTRIBUTING.md has more under 'A route'."
        )
        raise UndescribedError(msg)
    return found


#: How a placeholder of a path is read.
IDS = MappingProxyType({"type": "integer", "minimum": 1, "maximum": MAX_WHOLE})
TEXT = MappingProxyType({"type": "string", "minLength": 1, "maxLength": MAX_TEXT})
