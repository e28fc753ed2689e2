"""Refusals of stored rules."""

from __future__ import annotations

from signoff.client.errors_status import ConflictError, InvalidRequestError


class InvalidPatternError(InvalidRequestError):
    """The text of a rule states nothing that its tool's calls can be compared with."""

    code = "invalid_pattern"


class LookalikeNameError(InvalidRequestError):
    """A rule names what only looks like a tool."""

    code = "lookalike_name"


class PatternNeverMatchesError(InvalidRequestError):
    """An allow of this pattern could never cover a call."""

    code = "pattern_never_matches"


class PermissionDiffersError(ConflictError):
    """The policy stands with another expiry or number of uses; ``details`` has its id."""

    code = "permission_differs"


class ReservedToolError(InvalidRequestError):
    """The tool asks a person and is never allowed by a policy."""

    code = "reserved_tool"


class TooManyPermissionsError(InvalidRequestError):
    """The account has as many policies as it may."""

    code = "too_many_permissions"
