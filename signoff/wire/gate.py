"""Bodies of gates, which the wire calls permission requests."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from signoff.wire.body import ApproversBody


class ApprovalBody(TypedDict):
    """One approver's allow, of a gate that needs several."""

    by: str
    at: str
    digest: str


class PermissionRequestBody(TypedDict):
    """One gate.

    ``resumed`` is set in the answer to a decision only. ``tool_name`` and ``tool_input`` are what
    the digest covers; answers are merged into the listed input afterwards.
    """

    request_id: str
    run_id: int
    kind: str
    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    digest: str
    suggested_rules: list[dict[str, Any]]
    pause: int
    status: str
    decided_by: str | None
    reason: str | None
    edited_input: dict[str, Any] | None
    effective_digest: str | None
    created_at: str
    resolved_at: str | None
    remind_at: str | None
    expires_at: str | None
    approvers: ApproversBody | None
    approvals: list[ApprovalBody]
    auto_resolved: bool
    resumed: bool | None
    remembered: bool | None
    agent_type: str | None
    display_name: str
    mate_name: str | None
    task_name: str | None
    consequence: str
    ask_reason: str
    surface: str
    surface_label: str | None
    fields: list[list[str]] | None
    prose: str | None
    can_remember: bool
    remember_default: bool
    timeout_seconds: int
    script: dict[str, str] | None
    #: Of external calls that declare what their result looks like.
    output_schema: NotRequired[dict[str, Any]]


class OpenRequestBody(PermissionRequestBody):
    """One gate of the inbox, with whose run it stops."""

    user_id: str | None
    agent_id: int
    teammate_id: int


class AnsweredBody(TypedDict):
    """The answer to an answer."""

    status: Literal["ok"]
    resumed: bool


class DecidedBody(TypedDict):
    """The answer to a batch and to a signed callback."""

    status: str
    resumed: bool
    requests: list[PermissionRequestBody]


class StandingBody(TypedDict, total=False):
    """The decision that stands in the way of another one."""

    status: str
    decided_by: str | None
    decided_at: str | None
    verdict: str | None
    answers: dict[str, Any]
