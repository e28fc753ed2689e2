"""Bodies of agents."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from signoff.wire.body import (
    Approvers,
    ApproversBody,
    Body,
    ExpiryName,
    ExternalTool,
    GivenServers,
    ModeName,
    ServerBody,
    UserId,
    Wait,
)

Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"\S")]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
_Whole = Annotated[int, Field(ge=-(2**53), le=2**53)]


class ChangeAgent(Body):
    """PATCH /agents/{id}; what is omitted stays, null clears what can be empty."""

    name: Name | None = None
    instructions: str | None = None
    tools: list[str] | None = None
    external_tools: list[ExternalTool] | None = None
    mcp_servers: GivenServers | None = None
    role: str | None = None
    goals: str | None = None
    metadata: dict[str, Any] | None = None
    allowed_senders: list[str] | None = None
    default_permission_mode: ModeName | None = None
    model: str | None = None
    effort: Effort | None = None
    enable_memory: bool | None = None
    enable_history: bool | None = None
    enable_task_setup_tools: bool | None = None
    enable_feedback: bool | None = None
    enable_self_improvement: bool | None = None
    prompt_profile: Literal["platform", "bare"] | None = None
    disabled_builtin_tools: list[str] | None = None
    display_order: _Whole | None = None
    group_id: _Whole | None = None
    remind_after: Wait | None = None
    expires_in: Wait | None = None
    on_expiry: ExpiryName | None = None
    approvers: Approvers | None = None


class CreateAgent(ChangeAgent):
    """POST /agents/; without a name it gets one, without ``tools`` it has every loaded one."""

    user_id: UserId | None = None
    from_template: str | None = None


class AgentActivityFields(TypedDict):
    """What an agent does: its runs that are not over, the one if it is one, and when it moved."""

    active_run_count: int
    active_run_id: int | None
    last_active_at: str | None


class AgentBody(AgentActivityFields):
    """One agent; without ``tools`` it may use every loaded one."""

    id: int
    name: str
    instructions: str | None
    tools: NotRequired[list[str]]
    external_tools: list[dict[str, Any]]
    mcp_servers: list[str | ServerBody] | None
    role: str | None
    goals: str | None
    user_id: str | None
    metadata: dict[str, Any] | None
    allowed_senders: list[str] | None
    default_permission_mode: str
    status: str
    model: str | None
    effort: str | None
    enable_memory: bool | None
    enable_history: bool | None
    enable_task_setup_tools: bool | None
    enable_feedback: bool | None
    enable_self_improvement: bool | None
    prompt_profile: str
    disabled_builtin_tools: list[str]
    display_order: int | None
    group_id: int | None
    remind_after: float | None
    expires_in: float | None
    on_expiry: str | None
    approvers: ApproversBody | None
    created_at: str
    updated_at: str


class AgentSummaryBody(AgentActivityFields):
    """One agent in a roster."""

    id: int
    name: str
    role: str | None
    user_id: str | None
    default_permission_mode: str
    status: str
    display_order: int | None
    group_id: int | None
    created_at: str
    updated_at: str
