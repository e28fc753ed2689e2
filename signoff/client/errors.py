"""What a call of the SDK can end in: one exception for each code of the service, and its own.

SignoffError
├── ApiError                    the service refused; ``status``, ``code``, ``details``
│   ├── InvalidRequestError     400, 405, 413, 415, 422: the request is wrong as it is
│   ├── AuthenticationError     401
│   ├── LimitReachedError       402
│   ├── PermissionDeniedError   403
│   ├── NotFoundError           404
│   ├── ConflictError           409
│   ├── RateLimitError          429
│   └── ServerError             5xx
├── ConnectionFailedError       no answer came
│   └── RequestTimeoutError     not in time
├── UnexpectedAnswerError       an answer came that is not this service's
├── StreamInterruptedError      an event stream broke off
├── WaitTimeoutError            the run did not end in time; ``run`` is how it stood
├── RunFailedError              the run failed, and ``raise_on_error`` was asked for
├── NoCallbackError             a gate is open that no callback was given for
├── CallbackResultError         a callback returned something that is no decision
└── InvalidArgumentError        an argument that no request can be built from

Codes with a class of their own are in ``CODES``; a code of a newer service is raised as the class
of its status, with ``code`` as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from signoff.domain.error import SignoffError

if TYPE_CHECKING:
    from signoff.client.values import PermissionRequest, Run

_BAD_REQUEST, _CONFLICT, _UNPROCESSABLE = 400, 409, 422
_SERVER, _UNAVAILABLE = 500, 503


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

    code, status = "invalid_request", _UNPROCESSABLE


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

    code, status = "conflict", _CONFLICT


class RateLimitError(ApiError):
    """Too much at once; see ``retry_after``."""

    code, status = "rate_limited", 429


class ServerError(ApiError):
    """The service failed; its log has ``request_id``."""

    code, status = "internal_error", _SERVER


class UnavailableError(ServerError):
    """The service cannot reach its store; nothing was half-done."""

    code, status = "unavailable", _UNAVAILABLE


class InvalidSignatureError(AuthenticationError):
    """A callback is not signed by an endpoint that may decide."""

    code = "invalid_signature"


class GateNotFoundError(NotFoundError):
    """The run has no such request."""

    code = "gate_not_found"


class GateCancelledError(NotFoundError):
    """The request was cancelled with its run."""

    code = "gate_cancelled"


class GateResolvedOtherwiseError(NotFoundError):
    """Another decision stands; see ``standing``."""

    code = "gate_resolved_otherwise"


class AnswerRequiredError(ConflictError):
    """The request is a question: ``answer`` it."""

    code = "answer_required"


class GateChangedError(ConflictError):
    """The request is not the one that was seen: its digest differs."""

    code = "gate_changed"


class IdempotencyKeyReuseError(ConflictError):
    """The key came with another request before."""

    code = "idempotency_key_reuse"


class RunNotActiveError(ConflictError):
    """The run has ended."""

    code = "run_not_active"


class RunNotAwaitingError(ConflictError):
    """No question of the run is open."""

    code = "run_not_awaiting"


class WebhookInactiveError(ConflictError):
    """The webhook endpoint is switched off."""

    code = "webhook_inactive"


class EndUserRunLimitError(LimitReachedError):
    """The end user has had as many runs as they may."""

    code = "END_USER_RUN_LIMIT_REACHED"


class EndUserCostLimitError(LimitReachedError):
    """The end user's runs have cost what they may."""

    code = "END_USER_COST_LIMIT_REACHED"


class EndUserRateLimitError(RateLimitError):
    """The end user starts runs too fast; see ``retry_after``."""

    code = "END_USER_RATE_LIMIT_REACHED"


class AgentArchivedError(ConflictError):
    """The agent is archived and takes no runs."""

    code = "agent_archived"


class AgentDisabledError(ConflictError):
    """The agent is disabled and takes no runs."""

    code = "agent_disabled"


class RetryNeedsConfirmationError(ConflictError):
    """The run has acted already: retry it with ``confirm``."""

    code = "retry_needs_confirmation"


class RunActiveError(ConflictError):
    """The run is under way."""

    code = "run_active"


class RunNotRetryableError(ConflictError):
    """The run did not end in a way that can be tried again."""

    code = "run_not_retryable"


class UserExistsError(ConflictError):
    """There is a profile of this end user already."""

    code = "user_exists"


class AgentNotArchivedError(InvalidRequestError):
    """The agent is not archived."""

    code, status = "agent_not_archived", _BAD_REQUEST


class EndUserRequiredError(InvalidRequestError):
    """The account is strict: every request names a ``user_id``."""

    code = "end_user_required"


class FilesNotSupportedError(InvalidRequestError):
    """There is no place for files here."""

    code, status = "files_not_supported", _BAD_REQUEST


class FromTemplateConflictError(InvalidRequestError):
    """An agent is not made from a template here."""

    code, status = "from_template_conflict", _BAD_REQUEST


class MalformedBodyError(InvalidRequestError):
    """The body was not strict JSON."""

    code, status = "malformed_body", _BAD_REQUEST


class MethodNotAllowedError(InvalidRequestError):
    """The path takes other methods."""

    code, status = "method_not_allowed", 405


class BodyTooLargeError(InvalidRequestError):
    """The body was over 1 MiB."""

    code, status = "body_too_large", 413


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body was not plain JSON."""

    code, status = "unsupported_media_type", 415


class BlockedAddressError(InvalidRequestError):
    """Webhooks may not be sent to this address."""

    code = "blocked_address"


class DeniedByRuleError(InvalidRequestError):
    """A deny rule forbids the edited call."""

    code = "denied_by_rule"


class InvalidIdempotencyKeyError(InvalidRequestError):
    """The key is not 1 to 255 printable ASCII characters."""

    code = "invalid_idempotency_key"


class InvalidScriptError(InvalidRequestError):
    """``metadata.script`` has a wrong form."""

    code = "invalid_script"


class InvalidSecretError(InvalidRequestError):
    """A webhook secret has a wrong form."""

    code = "invalid_secret"


class InvalidToolInputError(InvalidRequestError):
    """The edited input does not fit the tool."""

    code = "invalid_tool_input"


class InvalidUrlError(InvalidRequestError):
    """Webhooks cannot be sent to this URL."""

    code = "invalid_url"


class NotCanonicalError(InvalidRequestError):
    """The edited input has no canonical form, so nothing can bind it."""

    code = "not_canonical"


class PatternNotSupportedError(InvalidRequestError):
    """Policies are by tool name."""

    code = "pattern_not_supported"


class ReservedToolError(InvalidRequestError):
    """The tool asks a person and is never allowed by a policy."""

    code = "reserved_tool"


class TooManyPermissionsError(InvalidRequestError):
    """The account has as many policies as it may."""

    code = "too_many_permissions"


class TooManyWebhooksError(InvalidRequestError):
    """There are as many webhook endpoints as may be."""

    code = "too_many_webhooks"


class UnknownModelError(InvalidRequestError):
    """No model of this name is configured."""

    code = "unknown_model"


class UnknownToolError(InvalidRequestError):
    """No tool of this name is loaded."""

    code = "unknown_tool"


class ValidationError(InvalidRequestError):
    """A field of the request is wrong."""

    code = "validation_error"


class ConnectionFailedError(SignoffError):
    """No answer came; whether the request was carried out is not known."""

    code = "connection_failed"


class RequestTimeoutError(ConnectionFailedError):
    """No answer came in time; whether the request was carried out is not known."""

    code = "request_timeout"


class UnexpectedAnswerError(SignoffError):
    """What answered does not speak this service's language: check ``base_url`` and proxies."""

    code = "unexpected_answer"


class StreamInterruptedError(SignoffError):
    """The stream ended before the run did; ``last_event_id`` is where to go on."""

    code = "stream_interrupted"

    def __init__(self, message: str, *, last_event_id: str | None) -> None:
        super().__init__(message)
        self.last_event_id = last_event_id


class WaitTimeoutError(SignoffError):
    """The run did not end in time; ``run`` is how it stood, None if it was never read."""

    code = "wait_timeout"

    def __init__(self, message: str, *, run: Run | None) -> None:
        super().__init__(message)
        self.run = run


class RunFailedError(SignoffError):
    """The run failed; ``run.error`` and ``run.error_code`` say why."""

    code = "run_failed"

    def __init__(self, run: Run) -> None:
        super().__init__(run.error or f"run {run.id} failed")
        self.run = run


class NoCallbackError(SignoffError):
    """The run waits for a decision that no callback was given for; it stays parked."""

    code = "no_callback"

    def __init__(self, request: PermissionRequest) -> None:
        super().__init__(
            f"run {request.run_id} waits on {request.request_id} ({request.kind}, "
            f"{request.tool_name}) and there is no callback for it; pass one, or "
            "decided_elsewhere=True"
        )
        self.request = request


class CallbackResultError(SignoffError):
    """A callback returned something that is no decision on its request."""

    code = "callback_result"


class InvalidArgumentError(SignoffError, ValueError):
    """No request can be built from this argument."""

    code = "invalid_argument"


def _below(root: type[ApiError]) -> Iterator[type[ApiError]]:
    for child in root.__subclasses__():
        yield child
        yield from _below(child)


#: Code to class, for every code that the service answers with.
CODES: Mapping[str, type[ApiError]] = {found.code: found for found in _below(ApiError)}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: AuthenticationError,
    402: LimitReachedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitError,
}


def error_of(
    status: int, body: Any, *, retry_after: float | None = None, text: str = ""
) -> ApiError:
    """The exception of a refusal; total: whatever ``body`` is, it becomes an ``ApiError``."""
    problem = body.get("error") if isinstance(body, dict) else None
    if not isinstance(problem, dict):
        # Not ours: a proxy, or another server at that address.
        message = problem if isinstance(problem, str) else f"the server answered {status}: {text}"
        return _by_status(status)(message, status=status, retry_after=retry_after)
    details = problem.get("details")
    code = problem.get("error_code")
    named = isinstance(code, str)
    kind = CODES.get(code) if isinstance(code, str) else None
    if kind is None or (kind.status != status and not issubclass(kind, _by_status(status))):
        kind = _by_status(status)
    return kind(
        str(problem.get("message") or f"the server answered {status}"),
        status=status,
        code=str(code) if named else None,
        details=details if isinstance(details, dict) else None,
        request_id=str(problem["request_id"]) if problem.get("request_id") else None,
        retry_after=retry_after,
    )


def _by_status(status: int) -> type[ApiError]:
    if status >= _SERVER:
        return UnavailableError if status == _UNAVAILABLE else ServerError
    return _BY_STATUS.get(status, InvalidRequestError)
