"""What the service tells of runs and accounts in summary, as frozen values."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from signoff.client.values import Value


class Share(Value):
    """The public link to a run; whoever has it may read what was said."""

    share_token: str = Field(repr=False)
    share_url: str = Field(repr=False)


class Outcome(Value):
    """What a run came to."""

    run_id: int
    status: str
    summary: str | None = None
    headline: str | None = None
    needs_reply: bool = False
    needs_reply_count: int = 0
    output_data: Any = None
    message_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class Check(Value):
    """Counts and times that move when a list of runs or of agents does."""

    total_count: int
    awaiting_count: int = 0
    latest_run_id: int | None = None
    latest_change_at: str | None = None
    roster_count: int = 0
    roster_change_at: str | None = None


class NeedsYouItem(Value):
    """One run that waits for a person; nothing in it was written by a user or a model."""

    run_id: int
    title: str
    mate_name: str | None = None


class NeedsYou(Value):
    """How many runs wait for a person, and the newest of them."""

    count: int
    items: list[NeedsYouItem] = Field(default_factory=list)


class RunActivity(Value):
    """A run's part in its agent's activity."""

    id: int
    status: str
    created_at: str | None = None
    last_activity_at: str | None = None
    error_code: str | None = None
    cancelled_at: str | None = None
    needs_reply: bool = False


class AgentActivity(Value):
    """What one agent does, and the last thing it did."""

    agent_id: int
    runs: list[RunActivity] = Field(default_factory=list)


class Activity(Value):
    """What every agent of a scope does."""

    data: list[AgentActivity] = Field(default_factory=list)


class Settings(Value):
    """The settings of the account; a cap of None holds nobody back."""

    per_end_user_run_limit: int | None = None
    per_end_user_cost_limit_cents: int | None = None
    per_end_user_rate_per_minute: int | None = None
    require_end_user_id: bool = False
    retention_mode: str | None = None
    approval_email_enabled: bool | None = None
    approval_slack_enabled: bool | None = None
    result_email_enabled: bool | None = None
    result_slack_enabled: bool | None = None


class EndUserUsage(Value):
    """What one end user has used this month, and the caps that hold."""

    id: int
    user_id: str
    runs_used: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    last_active_at: str | None = None
    runs_limit: int | None = None
    cost_limit_cents: int | None = None
    rate_per_minute: int | None = None
    period_end: str | None = None


class Event(Value):
    """One event of the account, as webhooks get it."""

    id: str
    type: str
    timestamp: str
    data: dict[str, Any] = Field(default_factory=dict)


class AuditEntry(Value):
    """One thing that was done in a run; ``by`` is who did it, None the service."""

    id: str
    created_at: str
    action: str
    run_id: int
    by: str | None = None
    details: dict[str, str] = Field(default_factory=dict)
