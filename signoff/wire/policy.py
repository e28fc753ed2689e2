"""Bodies of stored rules, which the wire calls permissions."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from signoff.wire.body import Body, UserId


class CreatePolicy(Body):
    """POST /permissions/."""

    tool: str
    user_id: UserId | None = None
    effect: Literal["allow", "ask", "deny"] | None = None


class PolicyBody(TypedDict):
    """One stored rule."""

    id: int
    user_id: str | None
    tool_name: str
    effect: str
    source: str
    created_at: str
