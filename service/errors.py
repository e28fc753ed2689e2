"""The one table from error codes to HTTP, and the envelope of every refusal."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from service.render import Json
from signoff.domain.error import SignoffError
from signoff.wire.problem import ProblemBody

logger = logging.getLogger(__name__)

#: Every code that an error of ours may carry. A missing one is a 500, and a failing test.
STATUS: Mapping[str, int] = MappingProxyType(
    {
        "files_not_supported": 400,
        "malformed_body": 400,
        "agent_not_archived": 400,
        "from_template_conflict": 400,
        "unauthorized": 401,
        "invalid_signature": 401,
        "END_USER_RUN_LIMIT_REACHED": 402,
        "END_USER_COST_LIMIT_REACHED": 402,
        "not_an_approver": 403,
        "requester_may_not_decide": 403,
        "not_found": 404,
        "gate_not_found": 404,
        "gate_cancelled": 404,
        "gate_resolved_otherwise": 404,
        "reply_not_found": 404,
        "method_not_allowed": 405,
        "conflict": 409,
        "auto_continued": 409,
        "agent_archived": 409,
        "agent_disabled": 409,
        "answer_required": 409,
        "gate_changed": 409,
        "permission_differs": 409,
        "idempotency_key_reuse": 409,
        "reply_not_current": 409,
        "retry_needs_confirmation": 409,
        "run_active": 409,
        "run_not_active": 409,
        "run_not_awaiting": 409,
        "run_not_retryable": 409,
        "user_exists": 409,
        "webhook_inactive": 409,
        "body_too_large": 413,
        "unsupported_media_type": 415,
        "blocked_address": 422,
        "denied_by_rule": 422,
        "end_user_required": 422,
        "invalid_idempotency_key": 422,
        "invalid_pattern": 422,
        "invalid_request": 422,
        "invalid_script": 422,
        "invalid_secret": 422,
        "invalid_tool_input": 422,
        "invalid_url": 422,
        "lookalike_name": 422,
        "not_canonical": 422,
        "pattern_never_matches": 422,
        "reserved_tool": 422,
        "too_many_permissions": 422,
        "too_many_webhooks": 422,
        "unknown_approver": 422,
        "unknown_model": 422,
        "unknown_tool": 422,
        "validation_error": 422,
        "END_USER_RATE_LIMIT_REACHED": 429,
        # Ours or the operator's fault: the caller did nothing wrong and learns nothing of it.
        "error": 500,
        "illegal_move": 500,
        "internal_error": 500,
        "invalid_setting": 500,
        "invalid_tool": 500,
        "lease_lost": 500,
        "message_format": 500,
        "no_tool_call": 500,
        "tool_failed": 500,
        "tool_timeout": 500,
        # Worth another try: nothing was half-done.
        "sealed_value": 503,
        "stale": 503,
        "unavailable": 503,
        "volatile_store": 503,
    }
)
_TYPES = {
    400: "invalid_request",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "payload_too_large",
    415: "unsupported_media_type",
    422: "validation_error",
    429: "rate_limit_error",
    500: "internal_error",
    503: "unavailable",
}
_SERVER_ERROR = 500
_UNAVAILABLE = 503
_UNAUTHORIZED = 401
_TOO_LARGE = 413
_HIDDEN = {
    _SERVER_ERROR: "Something went wrong here; it has been logged.",
    _UNAVAILABLE: "The service cannot reach its store; nothing was half-done. Try again.",
}


def status_of(error: SignoffError) -> int:
    """The HTTP status of an error."""
    return STATUS.get(error.code, _SERVER_ERROR)


def problem(error: SignoffError, *, request_id: str) -> ProblemBody:
    """The envelope of ``error``; of a failure of ours it tells the kind only."""
    status = status_of(error)
    code, message, details = error.code, error.message, dict(error.details)
    if status >= _SERVER_ERROR:
        code = "unavailable" if status == _UNAVAILABLE else "internal_error"
        message, details = _HIDDEN[status], {}
    elif error.field is not None:
        details["field"] = error.field
    details["error_code"] = code
    return {
        "error": {
            "type": _TYPES[status],
            "message": message,
            "code": status,
            "request_id": request_id,
            "error_code": code,
            "details": details,
            "doc_url": None,
        }
    }


def refusal(error: SignoffError, *, request_id: str, route: str) -> Json:
    """The answer to a request that ends in ``error``, logged once."""
    status = status_of(error)
    level = logging.ERROR if status >= _SERVER_ERROR else logging.INFO
    logger.log(
        level,
        "refused status=%d code=%s route=%s request=%s",
        status,
        error.code,
        route,
        request_id,
        exc_info=error if status == _SERVER_ERROR else None,
    )
    headers: dict[str, str] = {}
    if status == _UNAVAILABLE:
        headers["retry-after"] = "1"
    elif "retry_after" in error.details:
        headers["retry-after"] = str(error.details["retry_after"])
    elif status == _UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    elif status == _TOO_LARGE:
        # The rest of the body is not wanted.
        headers["connection"] = "close"
    return Json(problem(error, request_id=request_id), status, headers)
