"""The body of every refusal."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict


class Problem(TypedDict):
    """What was refused; ``code`` is the HTTP status, ``error_code`` the stable word."""

    type: str
    message: str
    code: int
    request_id: str
    error_code: str
    details: dict[str, Any]
    doc_url: str | None


class ProblemBody(TypedDict):
    """The envelope of a problem."""

    error: Problem
