"""Bodies of end users: profiles and use."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from signoff.wire.body import Body, UserId

_Text = Annotated[str, Field(max_length=255)]
#: A cap; 0 blocks.
Cap = Annotated[int, Field(ge=0, le=10**9)]


class ChangeUser(Body):
    """PATCH /users/{user_id}; what is omitted stays, null clears, metadata is replaced whole."""

    name: _Text | None = None
    email: _Text | None = None
    company: _Text | None = None
    metadata: dict[str, Any] | None = None
    run_limit: Cap | None = None
    cost_limit_cents: Cap | None = None
    rate_per_minute: Cap | None = None


class CreateUser(ChangeUser):
    """POST /users/."""

    user_id: UserId


class EndUserBody(TypedDict):
    """One profile; a cap of null is the account's."""

    id: int
    user_id: str
    name: str | None
    email: str | None
    company: str | None
    metadata: dict[str, Any] | None
    run_limit: int | None
    cost_limit_cents: int | None
    rate_per_minute: int | None
    created_at: str
    updated_at: str


class EndUserUsageBody(TypedDict):
    """What one end user has used this month, and the caps that hold."""

    id: int
    user_id: str
    runs_used: int
    cost_used: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    last_active_at: str | None
    runs_limit: int | None
    cost_limit_cents: int | None
    rate_per_minute: int | None
    period_end: str
