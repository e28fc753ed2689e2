"""What the client does to the world, as values; and one exchange with its bounded retries.

Everything that decides is a generator that yields these and gets their outcomes back. The sync
and the async client only carry them out, so both behave alike and tests need no network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from signoff.client.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    UnexpectedAnswerError,
    error_of,
)
from signoff.client.op import Op
from signoff.client.values import PermissionRequest
from signoff.domain.jsontext import compact

T = TypeVar("T")

_OK, _ERROR = 200, 400
_NO_CONTENT = 204
#: Answers after which the same request may do better.
RETRIED = frozenset({429, 500, 502, 503, 504})
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send these bytes; the outcome is an ``Answer`` or a ConnectionFailedError."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    #: How much longer than usual to wait for the answer.
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let this many seconds pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """The time in seconds of a clock that only goes forward."""


@dataclass(frozen=True, slots=True)
class Consult:
    """Ask a callback about a gate; the outcome is what it returned."""

    callback: Callable[[PermissionRequest], Any]
    request: PermissionRequest


@dataclass(frozen=True, slots=True)
class Perform:
    """Make one call, with its retries; the outcome is its result."""

    op: Op[Any]


Effect: TypeAlias = Send | Sleep | Now | Consult | Perform
Steps: TypeAlias = Generator[Effect, Any, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often a request that may be repeated is, and how the pauses between are spread."""

    retries: int
    new_key: Callable[[], str]
    #: From 0 to 1; many clients must not come back at the same moment.
    spread: Callable[[], float]


def exchange(op: Op[T], policy: Policy) -> Steps[T]:
    """The result of ``op``, or the exception that its refusal amounts to."""
    headers = {"accept": "application/json"}
    if op.keyed:
        headers["idempotency-key"] = op.idempotency_key or policy.new_key()
    body = None
    if op.body is not None:
        headers["content-type"] = "application/json"
        body = _encoded(op.body)
    send = Send(
        method=op.method,
        path=op.path,
        query=op.query,
        headers=headers,
        body=body,
        patience_s=op.patience_s,
    )
    tries = 1 + policy.retries if op.repeatable else 1
    for attempt in range(1, tries + 1):
        pause_s = FIRST_PAUSE_S * 2 ** (attempt - 1) * (0.5 + policy.spread() / 2)
        try:
            answer: Answer = yield send
        except ConnectionFailedError:
            if attempt == tries:
                raise
        else:
            if answer.status not in RETRIED or attempt == tries:
                return read(op, answer)
            pause_s = max(pause_s, _seconds(answer.retry_after) or 0.0)
            if pause_s > LONGEST_PAUSE_S:
                return read(op, answer)
        yield Sleep(pause_s)
    raise AssertionError


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return compact(body).encode()
    except (TypeError, ValueError, RecursionError) as error:
        for name, value in body.items():
            try:
                compact(value).encode()
            except (TypeError, ValueError, RecursionError):
                raise InvalidArgumentError(f"{name} has no JSON form: {error}") from error
        raise InvalidArgumentError(f"the request has no JSON form: {error}") from error


def read(op: Op[T], answer: Answer) -> T:
    """The result in ``answer``; raises ApiError or UnexpectedAnswerError, nothing else."""
    if answer.status >= _ERROR:
        raise error_of(
            answer.status,
            _decoded(answer.body),
            retry_after=_seconds(answer.retry_after),
            text=answer.body[:200].decode("utf-8", "replace"),
        )
    if not _OK <= answer.status < _OK + 100:
        msg = f"the server answered {answer.status}; redirects are not followed: check base_url"
        raise UnexpectedAnswerError(msg)
    if answer.status == _NO_CONTENT:
        return op.read(None)
    body = _decoded(answer.body)
    if body is None:
        raise UnexpectedAnswerError("the answer is not JSON")
    return op.read(body)


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; dates are not understood and stand for nothing."""
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else None  # noqa: PLR2004 - eleven days
