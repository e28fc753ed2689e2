"""Bodies that say of runs what is worth knowing without reading them."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from signoff.wire.body import Body, ModeName


class FirstSession(Body):
    """POST /runs/first-session."""

    teammate_id: int | None = None
    agent_id: int | None = None
    stream: bool | None = None
    human_in_the_loop: bool | None = None
    permission_mode: ModeName | None = None


class ShareBody(TypedDict):
    """The public link to a run."""

    share_token: str
    share_url: str


class SharedMessageBody(TypedDict):
    """What was said, without tool calls and their results."""

    sequence: int
    role: str
    content: str
    created_at: str


class SharedRunBody(TypedDict):
    """A run as anybody with its link sees it."""

    status: str
    output: str | None
    created_at: str
    messages: list[SharedMessageBody]


class CheckBody(TypedDict):
    """Counts and times that move when a list does."""

    total_count: int
    latest_run_id: int | None
    awaiting_count: int
    latest_change_at: str | None
    roster_count: int
    roster_change_at: str | None
    teams_count: int
    teams_change_at: str | None


class NeedsYouItemBody(TypedDict):
    """One run that waits for a person; nothing in it was written by a user or a model."""

    run_id: int
    title: str
    mate_name: str


class NeedsYouBody(TypedDict):
    """How many runs wait for a person, and the newest of them."""

    count: int
    items: list[NeedsYouItemBody]


class RunActivityBody(TypedDict):
    """A run's part in its agent's activity."""

    id: int
    status: str
    created_at: str
    task_id: int
    last_activity_at: str
    error_code: str | None
    next_retry_at: str | None
    auto_retry_count: int
    cancelled_at: str | None
    needs_reply: bool


class AgentActivityBody(TypedDict):
    """What one agent does, and the last thing it did."""

    agent_id: int
    runs: list[RunActivityBody]


class ActivityBody(TypedDict):
    """What every agent of a scope does."""

    data: list[AgentActivityBody]


class OutcomeBody(TypedDict):
    """What a run came to."""

    run_id: int
    status: str
    summary: str | None
    headline: str | None
    needs_reply: bool
    needs_reply_count: int
    delivery_channel: str
    output_data: Any
    message_count: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cost_usd: str | None
