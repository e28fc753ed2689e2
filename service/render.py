"""Turns values of the domain and the store into the bodies that clients read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from starlette.responses import Response

from service.watch import run_version
from signoff.domain.approval import Approval
from signoff.domain.delivery import DeliveryState
from signoff.domain.event import usage_payload
from signoff.domain.gate import Gate, GateState
from signoff.domain.jsontext import compact
from signoff.domain.message import Message, block_json
from signoff.domain.rule import Rule
from signoff.domain.run import RETRYABLE, RunStatus
from signoff.domain.timestamp import iso
from signoff.mcpserver import shown_servers
from signoff.store.endpoints import Endpoint
from signoff.store.outbox import DeliveryRecord
from signoff.store.records import RunRecord
from signoff.wire.gate import DecidedBody, OpenRequestBody, StandingBody
from signoff.wire.page import PageBody
from signoff.wire.policy import PolicyBody
from signoff.wire.run import MessageBody, RetryBody, RunBody
from signoff.wire.shown import approvers_body, gate_body
from signoff.wire.webhook import DeliveryBody, WebhookBody

T = TypeVar("T")
#: Reserved for names that never resolve.
NO_MAIL = "runs.signoff.invalid"
PREVIEW = 140
_LIMITS = frozenset({"model_rate_limit", "max_turns_exceeded"})
_NO_STORE = {"cache-control": "no-store"}


class Json(Response):
    """A compact JSON answer that no cache keeps."""

    media_type = "application/json"

    def __init__(
        self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            content, status, _NO_STORE if headers is None else {**_NO_STORE, **headers}
        )

    def render(self, content: Any) -> bytes:
        """The bytes of ``content``; bytes are taken as they are."""
        return content if isinstance(content, bytes) else compact(content).encode()


def run_body(run: RunRecord, waiting: Sequence[int] = ()) -> RunBody:
    """A run; ``waiting`` are the ids of the messages that wait for its next turn."""
    config = run.config
    created, updated = iso(run.created_ms), iso(run.updated_ms)
    marks = run.marks
    return {
        "id": run.id,
        "teammate_id": run.agent_id,
        "agent_id": run.agent_id,
        # Tasks are no part of this service; each run is the only run of its own task.
        "task_id": run.id,
        "status": run.status.value,
        "output": run.output,
        "output_data": run.output_data,
        "error": run.error,
        "error_code": run.error_code,
        "user_id": run.user_id,
        "metadata": config.get("metadata"),
        "permission_mode": run.mode.value,
        "human_in_the_loop": run.human_in_the_loop,
        "plan_approved": run.plan_approved,
        "model": config.get("model"),
        "tools": config.get("tools"),
        "external_tools": config.get("external_tools") or [],
        "mcp_servers": shown_servers(config.get("mcp_servers")),
        "max_turns": config.get("max_turns"),
        "remind_after": config.get("remind_after"),
        "expires_in": config.get("expires_in"),
        "on_expiry": config.get("on_expiry"),
        "approvers": approvers_body(Approval.read(config.get("approvers"))),
        "requested_by": config.get("requested_by", []),
        "turn": run.turn,
        "open_requests": run.open,
        "version": run_version(run),
        "usage": usage_payload(run.usage),
        "created_at": created,
        "updated_at": updated,
        "started_at": created,
        "turn_started_at": iso(run.turn_started_ms),
        "last_activity_at": updated,
        "last_viewed_at": None if marks.viewed_ms is None else iso(marks.viewed_ms),
        "billing_surface": "platform",
        "channel": "api",
        # No mail is received: a reserved domain, for clients that asked and insist on an address.
        "email_address": f"run-{run.id}@{NO_MAIL}" if config.get("email_inbox") else None,
        **_retry_body(run),
        "share_token": marks.share_token,
        "closing_preview": preview(run.output),
        "delivery": None,
        "queued_message_id": None,
        "pending_queued_message_ids": list(waiting),
        "cancelled_queued_message_ids": list(run.dropped),
        "needs_reply": run.open > 0,
        "archived": marks.archived,
    }


def preview(text: str | None) -> str | None:
    """The first line that says something, cut to fit a list; None when there is none."""
    lines = (line.strip() for line in (text or "").splitlines())
    first = next((line for line in lines if line), None)
    if first is None or len(first) <= PREVIEW:
        return first
    return f"{first[: PREVIEW - 1]}…"


def _retry_body(run: RunRecord) -> RetryBody:
    config, marks = run.config, run.marks
    over_early = run.status in RETRYABLE
    failure: Literal["limit", "error"] | None = None
    if run.status is RunStatus.FAILED:
        failure = "limit" if run.error_code in _LIMITS else "error"
    return {
        "failure_kind": failure,
        "retryable": over_early,
        "can_continue": over_early,
        "retry_of_run_id": config.get("retry_of"),
        "retry_count": config.get("retry_count", 0),
        "retried_by_run_id": marks.retried_by,
        "retried_at": None if marks.retried_ms is None else iso(marks.retried_ms),
        "repeats_actions": marks.acted,
    }


def open_request_body(gate: Gate, run: RunRecord) -> OpenRequestBody:
    """A gate of the inbox."""
    return {
        **gate_body(gate),
        "user_id": run.user_id,
        "agent_id": run.agent_id,
        "teammate_id": run.agent_id,
    }


def decided_body(resumed: bool, gates: tuple[Gate, ...]) -> DecidedBody:
    """The answer to a batch."""
    return {"status": "ok", "resumed": resumed, "requests": [gate_body(gate) for gate in gates]}


def standing_body(gate: Gate) -> StandingBody:
    """The decision that stands on a settled gate."""
    body: StandingBody = {
        "status": gate.state.value,
        "decided_by": gate.decided_by,
        "decided_at": None if gate.resolved_ms is None else iso(gate.resolved_ms),
        "verdict": _verdict(gate),
    }
    if gate.answers is not None:
        body["answers"] = gate.answers
    return body


def _verdict(gate: Gate) -> str | None:
    if gate.state is GateState.DENIED:
        return "deny"
    if gate.state is not GateState.ALLOWED:
        return None
    # Of an external call or an unknown outcome only the fingerprint says that a result came.
    kind = (gate.fingerprint or "allow").partition(":")[0]
    return "answer" if kind == "answers" else kind


def message_body(run_id: int, sequence: int, message: Message) -> MessageBody:
    """A message of a run's history."""
    return {
        "id": sequence,
        "run_id": run_id,
        "sequence": sequence,
        "role": message.role,
        "content": message.text,
        "content_blocks": [block_json(block) for block in message.blocks],
        "event_metadata": {"turn": message.turn, "step": message.step},
        "created_at": iso(message.at_ms),
        # Counted for the run as a whole only.
        "input_tokens": None,
        "output_tokens": None,
        "cache_creation_tokens": None,
        "cache_read_tokens": None,
        "claude_cost_usd": None,
        "sandbox_cost_usd": None,
        "execution_time_ms": None,
        "error_message": None,
    }


def policy_body(rule: Rule) -> PolicyBody:
    """A stored rule."""
    return {
        "id": rule.id,
        "user_id": rule.user_id,
        "tool_name": rule.tool,
        "effect": rule.effect.value,
        "source": rule.source,
        "created_at": iso(rule.created_ms),
        "author": rule.author,
        "expires_at": None if rule.expires_ms is None else iso(rule.expires_ms),
        "max_uses": rule.max_uses,
        "uses": rule.uses,
        "last_used_at": None if rule.last_used_ms is None else iso(rule.last_used_ms),
        "approvers": approvers_body(rule.approval),
    }


def webhook_body(endpoint: Endpoint, *, origin: str, reveal: bool) -> WebhookBody:
    """An endpoint; ``reveal`` shows the whole secret, which happens once."""
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "events": list(endpoint.events),
        "secret": endpoint.secret if reveal else f"{endpoint.secret[:4]}...",
        "signature": endpoint.signature,
        "active": endpoint.active,
        "disabled_reason": endpoint.disabled_reason,
        "user_id": endpoint.user_id,
        "callback_url": f"{origin}/v1/callbacks/{endpoint.id}",
        "created_at": iso(endpoint.created_ms),
        "updated_at": iso(endpoint.updated_ms),
    }


def delivery_body(delivery: DeliveryRecord) -> DeliveryBody:
    """A delivery with its attempts; one that is being sent is still pending to its reader."""
    state = delivery.state
    if state is DeliveryState.LEASED:
        state = DeliveryState.PENDING
    return {
        "id": delivery.id,
        "webhook_endpoint_id": delivery.endpoint_id,
        "event_type": delivery.event_type,
        "event_id": delivery.event_id,
        "run_id": delivery.run_id,
        "status": state.value,
        "response_status_code": delivery.status_code,
        "response_body": delivery.response_body,
        "error": delivery.error,
        "attempts": delivery.attempts,
        "next_retry_at": None if delivery.next_ms is None else iso(delivery.next_ms),
        "created_at": iso(delivery.created_ms),
        "log": delivery.log,
    }


def page_body(items: list[T], *, more: bool) -> PageBody[T]:
    """A page of items that have an ``id`` or a ``request_id``."""
    last: Any = items[-1] if more and items else {}
    return {
        "data": items,
        "has_more": more,
        "next_starting_after": last.get("id", last.get("request_id")),
    }
