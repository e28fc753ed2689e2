"""The bodies that the fake answers with, in the service's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from signoff.client.errors import CODES
from signoff.domain.error import SignoffError
from signoff.domain.event import usage_payload
from signoff.domain.gate import Gate
from signoff.domain.message import block_json
from signoff.domain.rule import Judgement, Rule, Verdict
from signoff.domain.run import RETRYABLE
from signoff.domain.timestamp import iso
from signoff.testing.engine import FakeRun
from signoff.testing.world import NO_USAGE
from signoff.wire.shown import gate_body

_SERVER_ERROR = 500


def status_of(error: SignoffError) -> int:
    """The HTTP status of an error of the service."""
    known = CODES.get(error.code)
    return _SERVER_ERROR if known is None else known.status


def problem(error: SignoffError) -> dict[str, Any]:
    """The envelope of a refusal."""
    details: dict[str, Any] = {**error.details, "error_code": error.code}
    if error.field is not None:
        details["field"] = error.field
    return {
        "error": {
            "type": "fake",
            "message": error.message,
            "code": status_of(error),
            "request_id": "req_fake",
            "error_code": error.code,
            "details": details,
            "doc_url": None,
        }
    }


def run_body(run: FakeRun) -> dict[str, Any]:
    """A run."""
    return {
        "id": run.id,
        "teammate_id": run.agent_id,
        "agent_id": run.agent_id,
        "task_id": run.id,
        "status": run.status.value,
        "output": run.output,
        "output_data": run.output_data,
        "error": run.error,
        "error_code": run.error_code,
        "user_id": run.user_id,
        "metadata": run.metadata,
        "permission_mode": run.mode.value,
        "human_in_the_loop": run.human,
        "plan_approved": run.plan_approved,
        "model": "scripted",
        **run.limits.fields,
        "external_tools": run.external_tools,
        "mcp_servers": None,
        "turn": run.turn,
        "open_requests": len(run.open),
        "version": run.version,
        "usage": usage_payload(NO_USAGE),
        "created_at": iso(run.created_ms),
        "updated_at": iso(run.updated_ms),
        "archived": run.archived,
        "needs_reply": bool(run.open),
        "retryable": run.status in RETRYABLE,
        "repeats_actions": run.acted,
        "retry_of_run_id": run.retry_of,
        "retried_by_run_id": run.retried_by,
    }


def asked_body(gate: Gate) -> dict[str, Any]:
    """A gate as its event has it."""
    body: dict[str, Any] = {**gate_body(gate)}
    wanted = ("request_id", "kind", "tool_name", "tool_input", "digest", "suggested_rules")
    own = {name: body[name] for name in ("approvers", "remind_at", "expires_at")}
    own["output_schema"] = gate.output_schema
    shown = {name: body[name] for name in (*wanted, "created_at")}
    return {**shown, **{name: value for name, value in own.items() if value is not None}}


def message_bodies(run: FakeRun) -> list[dict[str, Any]]:
    """The history of a run."""
    return [
        {
            "id": n,
            "run_id": run.id,
            "sequence": n,
            "role": message.role,
            "content": message.text,
            "content_blocks": [block_json(block) for block in message.blocks],
            "created_at": iso(message.at_ms),
        }
        for n, message in enumerate(run.history, start=1)
    ]


def policy_body(rule: Rule) -> dict[str, Any]:
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
        "approvers": None if rule.approval is None else rule.approval.fields,
    }


def evaluation_body(found: Judgement) -> dict[str, Any]:
    """What would become of a call."""
    rule = found.rule
    verdict = "deny" if found.verdict is Verdict.PLAN_FIRST else found.verdict.value
    return {
        "verdict": verdict,
        "why": found.why,
        "rule": None
        if rule is None
        else {
            "id": rule.id if rule.id > 0 else None,
            "tool": rule.tool,
            "effect": rule.effect.value,
            "user_id": rule.user_id,
            "approvers": None if rule.approval is None else rule.approval.fields,
        },
    }


def page_body(items: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """The first ``limit`` of ``items`` as a page."""
    shown = list(items[:limit])
    more = len(items) > limit
    last = shown[-1] if more and shown else {}
    return {
        "data": shown,
        "has_more": more,
        "next_starting_after": last.get("id", last.get("request_id")),
    }
