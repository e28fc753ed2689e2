"""The keyword arguments that several calls share, with their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

from signoff.client.errors import InvalidArgumentError
from signoff.client.values import Mode, OnExpiry


class CreateOptions(TypedDict, total=False):
    """What a run is made from besides its message."""

    agent_id: int | None
    name: str | None
    instructions: str | None
    user_id: str | None
    metadata: Mapping[str, Any] | None
    tools: Sequence[str] | None
    #: Each a mapping: name, description, input_schema and, if results are to be checked,
    #: output_schema.
    external_tools: Sequence[Mapping[str, Any]] | None
    mcp_servers: Sequence[str | Mapping[str, Any]] | None
    human_in_the_loop: bool | None
    permission_mode: Mode | None
    model: str | None
    effort: str | None
    output_schema: Mapping[str, Any] | None
    max_turns: int | None
    #: Seconds until people are reminded of a gate, and until it expires; None waits for ever.
    remind_after: float | None
    expires_in: float | None
    on_expiry: OnExpiry | None
    #: Who may decide: ``{"any_of": ["key:…"], "quorum": 2, "exclude_requester": True}``.
    approvers: Mapping[str, Any] | None
    #: Made up for each call unless given; repeating a call with the same one makes no second run.
    idempotency_key: str | None


class ReplyOptions(TypedDict, total=False):
    """What goes with a reply; what is not given stays as it was."""

    tools: Sequence[str] | None
    permission_mode: Mode | None
    human_in_the_loop: bool | None
    idempotency_key: str | None


class AgentOptions(TypedDict, total=False):
    """What an agent is made of."""

    instructions: str | None
    tools: Sequence[str] | None
    external_tools: Sequence[Mapping[str, Any]] | None
    mcp_servers: Sequence[str | Mapping[str, Any]] | None
    role: str | None
    goals: str | None
    metadata: Mapping[str, Any] | None
    allowed_senders: Sequence[str] | None
    default_permission_mode: Mode | None
    model: str | None
    effort: str | None
    remind_after: float | None
    expires_in: float | None
    on_expiry: OnExpiry | None
    approvers: Mapping[str, Any] | None
    display_order: int | None


class UserOptions(TypedDict, total=False):
    """What is known about an end user, and what they may use; None clears a limit."""

    name: str | None
    email: str | None
    company: str | None
    metadata: Mapping[str, Any] | None
    run_limit: int | None
    cost_limit_cents: int | None
    rate_per_minute: int | None


class SettingsOptions(TypedDict, total=False):
    """What can be set for an account; None clears a cap."""

    per_end_user_run_limit: int | None
    per_end_user_cost_limit_cents: int | None
    per_end_user_rate_per_minute: int | None
    require_end_user_id: bool
    retention_mode: Literal["standard", "metadata_only"]
    approval_email_enabled: bool
    approval_slack_enabled: bool
    result_email_enabled: bool
    result_slack_enabled: bool


def known(options: Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """``options``; raises TypeError for a name that ``shape`` does not have, as a call does."""
    for name in options:
        if name not in shape.__optional_keys__:
            raise TypeError(f"unexpected keyword argument {name!r}")
    return dict(options)


def moment(name: str, value: str | datetime | None) -> str | None:
    """A time as the service reads it; raises InvalidArgumentError for one without an offset."""
    if not isinstance(value, datetime):
        return value
    if value.utcoffset() is None:
        msg = f"{name}: a datetime without a time zone says no moment; give it one, such as UTC"
        raise InvalidArgumentError(msg)
    return value.isoformat()


def given(**options: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in options.items() if value is not None}
