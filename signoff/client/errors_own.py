"""What a call of the SDK can end in without a refusal of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from signoff.domain.error import SignoffError

if TYPE_CHECKING:
    from signoff.client.values import PermissionRequest, Run


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
