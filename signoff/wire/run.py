"""Bodies of runs and their messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from signoff.domain.event import UsageBody
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

MAX_TURNS = 2000


class CreateRun(Body):
    """POST /runs/."""

    message: Annotated[str, Field(min_length=1)]
    stream: bool | None = None
    teammate_id: int | None = None
    agent_id: int | None = None
    name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    instructions: str | None = None
    user_id: UserId | None = None
    metadata: dict[str, Any] | None = None
    tools: list[str] | None = None
    external_tools: list[ExternalTool] | None = None
    mcp_servers: GivenServers | None = None
    memory: bool | None = None
    history: bool | None = None
    task_setup_tools: bool | None = None
    feedback: bool | None = None
    human_in_the_loop: bool | None = None
    permission_mode: ModeName | None = None
    model: str | None = None
    effort: str | None = None
    email_inbox: bool | None = None
    email_notifications: bool | None = None
    output_schema: dict[str, Any] | None = None
    max_turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] | None = None
    skill: str | None = None
    remind_after: Wait | None = None
    expires_in: Wait | None = None
    on_expiry: ExpiryName | None = None
    approvers: Approvers | None = None


class Reply(Body):
    """POST /runs/{id}/reply."""

    message: Annotated[str, Field(min_length=1)]
    stream: bool | None = None
    tools: list[str] | None = None
    permission_mode: ModeName | None = None
    human_in_the_loop: bool | None = None


class SwitchMode(Body):
    """PATCH /runs/{id}/permission-mode."""

    permission_mode: ModeName


class ModeBody(TypedDict):
    """The mode that a run is in now."""

    permission_mode: ModeName


class RetryBody(TypedDict):
    """How a run stands to being tried again."""

    failure_kind: Literal["limit", "error"] | None
    retryable: bool
    can_continue: bool
    retry_of_run_id: int | None
    retry_count: int
    retried_by_run_id: int | None
    retried_at: str | None
    repeats_actions: bool


class RunSummaryBody(RetryBody):
    """One run in a list, without what may be long."""

    id: int
    teammate_id: int
    agent_id: int
    task_id: int
    status: str
    error: str | None
    error_code: str | None
    user_id: str | None
    permission_mode: str
    human_in_the_loop: bool
    plan_approved: bool
    model: str | None
    max_turns: int | None
    remind_after: float | None
    expires_in: float | None
    on_expiry: str | None
    approvers: ApproversBody | None
    requested_by: list[str]
    turn: int
    open_requests: int
    version: str
    usage: UsageBody
    created_at: str
    updated_at: str
    started_at: str
    turn_started_at: str | None
    last_activity_at: str
    last_viewed_at: str | None
    billing_surface: Literal["platform"]
    channel: Literal["api"]
    email_address: str | None
    share_token: str | None
    closing_preview: str | None
    delivery: str | None
    queued_message_id: int | None
    pending_queued_message_ids: list[int]
    cancelled_queued_message_ids: list[int]
    needs_reply: bool
    archived: bool


class RunBody(RunSummaryBody):
    """One run; ``id`` comes first, so that a body cut short still names the run."""

    output: str | None
    output_data: dict[str, Any] | None
    metadata: dict[str, Any] | None
    tools: list[str] | None
    external_tools: list[dict[str, Any]]
    mcp_servers: list[str | ServerBody] | None


class MessageBody(TypedDict):
    """One message of a run's history; ``sequence`` counts from 1."""

    id: int
    run_id: int
    sequence: int
    role: str
    content: str
    content_blocks: list[dict[str, Any]]
    event_metadata: dict[str, Any]
    created_at: str
    input_tokens: int | None
    output_tokens: int | None
    cache_creation_tokens: int | None
    cache_read_tokens: int | None
    claude_cost_usd: str | None
    sandbox_cost_usd: str | None
    execution_time_ms: int | None
    error_message: str | None
