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
from typing import Any

from signoff.client.errors_own import CallbackResultError as CallbackResultError
from signoff.client.errors_own import ConnectionFailedError as ConnectionFailedError
from signoff.client.errors_own import InvalidArgumentError as InvalidArgumentError
from signoff.client.errors_own import NoCallbackError as NoCallbackError
from signoff.client.errors_own import RequestTimeoutError as RequestTimeoutError
from signoff.client.errors_own import RunFailedError as RunFailedError
from signoff.client.errors_own import StreamInterruptedError as StreamInterruptedError
from signoff.client.errors_own import UnexpectedAnswerError as UnexpectedAnswerError
from signoff.client.errors_own import WaitTimeoutError as WaitTimeoutError
from signoff.client.errors_rules import InvalidPatternError as InvalidPatternError
from signoff.client.errors_rules import LookalikeNameError as LookalikeNameError
from signoff.client.errors_rules import PatternNeverMatchesError as PatternNeverMatchesError
from signoff.client.errors_rules import PermissionDiffersError as PermissionDiffersError
from signoff.client.errors_rules import ReservedToolError as ReservedToolError
from signoff.client.errors_rules import TooManyPermissionsError as TooManyPermissionsError
from signoff.client.errors_status import SERVER, UNAVAILABLE
from signoff.client.errors_status import ApiError as ApiError
from signoff.client.errors_status import AuthenticationError as AuthenticationError
from signoff.client.errors_status import ConflictError as ConflictError
from signoff.client.errors_status import InvalidRequestError as InvalidRequestError
from signoff.client.errors_status import LimitReachedError as LimitReachedError
from signoff.client.errors_status import NotFoundError as NotFoundError
from signoff.client.errors_status import PermissionDeniedError as PermissionDeniedError
from signoff.client.errors_status import RateLimitError as RateLimitError
from signoff.client.errors_status import ServerError as ServerError
from signoff.client.errors_status import UnavailableError as UnavailableError

_BAD_REQUEST = 400


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


class NotAnApproverError(PermissionDeniedError):
    """Only the approvers of the request may decide it."""

    code = "not_an_approver"


class RequesterMayNotDecideError(PermissionDeniedError):
    """Whoever asked for the work may not decide this request."""

    code = "requester_may_not_decide"


class AutoContinuedError(ConflictError):
    """Nobody answered the question in time, so the run went on; see ``standing``."""

    code = "auto_continued"


class ReplyNotFoundError(NotFoundError):
    """The run has no reply of this id."""

    code = "reply_not_found"


class ReplyNotCurrentError(ConflictError):
    """The reply belongs to a turn that is over."""

    code = "reply_not_current"


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


class TooManyWebhooksError(InvalidRequestError):
    """There are as many webhook endpoints as may be."""

    code = "too_many_webhooks"


class UnknownApproverError(InvalidRequestError):
    """An approver is no key or endpoint of the account that could decide."""

    code = "unknown_approver"


class UnknownModelError(InvalidRequestError):
    """No model of this name is configured."""

    code = "unknown_model"


class UnknownToolError(InvalidRequestError):
    """No tool of this name is loaded."""

    code = "unknown_tool"


class ValidationError(InvalidRequestError):
    """A field of the request is wrong."""

    code = "validation_error"


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
    if status >= SERVER:
        return UnavailableError if status == UNAVAILABLE else ServerError
    return _BY_STATUS.get(status, InvalidRequestError)
