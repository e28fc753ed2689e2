"""The classes of refusals, one for each status; ``errors`` has those of single codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from signoff.domain.error import SignoffError

SERVER, UNAVAILABLE = 500, 503


class ApiError(SignoffError):
    """The service refused the request; ``details`` and ``request_id`` are as it said."""

    status = 0

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        details: dict[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        found = details or {}
        field = found.get("field")
        super().__init__(
            message, code=code, field=field if isinstance(field, str) else None, details=found
        )
        if status is not None:
            self.status = status
        self.request_id = request_id
        #: Seconds that the service asks to be left alone for.
        self.retry_after = retry_after

    @property
    def standing(self) -> Mapping[str, Any] | None:
        """The decision that stands in the way, who made it and when."""
        found = self.details.get("standing")
        return found if isinstance(found, dict) else None


class InvalidRequestError(ApiError):
    """The request is wrong as it is; ``field`` names what."""

    code, status = "invalid_request", 422


class AuthenticationError(ApiError):
    """There is no such API key."""

    code, status = "unauthorized", 401


class LimitReachedError(ApiError):
    """What may be used is used up."""

    code, status = "limit_reached", 402


class PermissionDeniedError(ApiError):
    """The key may not do this."""

    code, status = "forbidden", 403


class NotFoundError(ApiError):
    """There is no such object for this key and user."""

    code, status = "not_found", 404


class ConflictError(ApiError):
    """The state does not allow it."""

    code, status = "conflict", 409


class RateLimitError(ApiError):
    """Too much at once; see ``retry_after``."""

    code, status = "rate_limited", 429


class ServerError(ApiError):
    """The service failed; its log has ``request_id``."""

    code, status = "internal_error", SERVER


class UnavailableError(ServerError):
    """The service cannot reach its store; nothing was half-done."""

    code, status = "unavailable", UNAVAILABLE
