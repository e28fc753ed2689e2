"""The whole exception tree of Signoff; each class has a stable ``code`` and no HTTP in it.

SignoffError
├── InvalidError            the request is malformed
│   ├── MalformedBodyError
│   ├── NotCanonicalError
│   ├── InvalidFieldError
│   ├── InvalidToolInputError
│   └── SettingsError
├── MissingError            the thing does not exist for this caller
├── ConflictError           the state does not allow it
├── LimitedError            a cap of the end user is reached
├── UnauthorizedError
├── GateRefusedError        a decision that cannot be applied; names the standing decision
├── IllegalMoveError        a state machine was asked for a move that its table lacks
├── StaleError              an optimistic version moved; read again and retry
├── LeaseLostError          another holder has the run; stop without committing
└── UnavailableError        the store or the broker cannot be reached
"""

from __future__ import annotations

from typing import Any


class SignoffError(Exception):
    """Root of all errors; ``code`` is stable, ``field`` is a dotted path into the input."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        field: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.details: dict[str, Any] = details or {}
        if code is not None:
            self.code = code


class InvalidError(SignoffError):
    """The input is wrong; retrying it unchanged can never succeed."""

    code = "invalid_request"


class MalformedBodyError(InvalidError):
    """The bytes are not strict, bounded JSON."""

    code = "malformed_body"


class NotCanonicalError(InvalidError):
    """The value has no RFC 8785 form, so no digest can bind it."""

    code = "not_canonical"


class InvalidFieldError(InvalidError):
    """One field of a well-formed body is wrong; ``field`` names it."""

    code = "validation_error"


class InvalidToolInputError(InvalidError):
    """A tool call's input does not fit the tool's schema; ``field`` names the parameter."""

    code = "invalid_tool_input"


class SettingsError(InvalidError):
    """An environment variable has a value that cannot be used; ``field`` is its name."""

    code = "invalid_setting"


class UnauthorizedError(SignoffError):
    """No acceptable credential was presented."""

    code = "unauthorized"


class MissingError(SignoffError):
    """The object does not exist within the caller's account and scope."""

    code = "not_found"


class ConflictError(SignoffError):
    """The object's state does not allow the operation."""

    code = "conflict"


class LimitedError(SignoffError):
    """A cap is reached; ``details['retry_after']`` says in how many seconds it is not any more.

    Without it waiting for it makes no sense. The codes are those of the reference platform.
    """

    code = "END_USER_RUN_LIMIT_REACHED"


class GateRefusedError(SignoffError):
    """A decision cannot be applied; ``details`` holds the standing decision, if there is one.

    Codes: ``gate_not_found``, ``gate_cancelled``, ``gate_resolved_otherwise``, ``gate_changed``,
    ``auto_continued``, ``run_not_active``, ``run_not_awaiting``, ``answer_required``,
    ``result_required``, ``not_an_approver``, ``requester_may_not_decide``.
    """

    code = "gate_not_found"


class IllegalMoveError(SignoffError):
    """A state table has no such move."""

    code = "illegal_move"

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"no move from {source!r} to {target!r}")
        self.source = source
        self.target = target


class StaleError(SignoffError):
    """A version that the caller decided on has moved; ``details['what']`` names it."""

    code = "stale"


class LeaseLostError(SignoffError):
    """The run's fence moved: this process no longer holds it and must not act for it."""

    code = "lease_lost"


class UnavailableError(SignoffError):
    """The store cannot be reached or refuses writes; nothing was half-done."""

    code = "unavailable"
