"""What a run comes to, who is waited for, what goes on: bodies that leave out the details."""

from __future__ import annotations

from collections.abc import Sequence

from service.render import preview
from signoff.domain.event import usage_payload
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.message import Message
from signoff.domain.run import RunStatus
from signoff.domain.timestamp import iso
from signoff.store.listing import Freshness
from signoff.store.records import RunRecord
from signoff.wire.overview import (
    AgentActivityBody,
    CheckBody,
    NeedsYouItemBody,
    OutcomeBody,
    RunActivityBody,
    SharedRunBody,
)

#: Roles whose words are shown to whoever has the link; results of tools are nobody else's.
_SPEAKERS = frozenset({"user", "assistant"})


def check_body(freshness: Freshness, roster: tuple[int, int | None]) -> CheckBody:
    """Counts and times of one scope; ``roster``: its agents, and when one last changed."""
    changed = freshness.changed_ms
    agents, agents_changed = roster
    return {
        "total_count": freshness.total,
        "latest_run_id": freshness.latest_run_id,
        "awaiting_count": freshness.awaiting,
        "latest_change_at": None if changed is None else iso(changed),
        "roster_count": agents,
        "roster_change_at": None if agents_changed is None else iso(agents_changed),
        "teams_count": 0,
        "teams_change_at": None,
    }


def needs_you_item(run: RunRecord, gates: Sequence[Gate]) -> NeedsYouItemBody:
    """A run that waits for a person, in words that a lock screen may show."""
    pending = [gate for gate in gates if gate.state is GateState.PENDING]
    name: str = run.config.get("name") or "An agent"
    title = _title(pending[0]) if pending else f"{name} needs you"
    if len(pending) > 1:
        title += f" and {len(pending) - 1} more"
    return {"run_id": run.id, "title": title, "mate_name": name}


def _title(gate: Gate) -> str:
    match gate.kind:
        case GateKind.QUESTION:
            return "A question for you"
        case GateKind.PLAN:
            return "A plan to approve"
        case GateKind.EXTERNAL:
            return f"The result of {gate.tool}"
        case GateKind.OUTCOME_UNKNOWN:
            return f"{gate.tool} was cut off"
        case GateKind.TOOL_APPROVAL:
            return f"Approval of {gate.tool}"


def activity_body(runs: Sequence[RunRecord]) -> list[AgentActivityBody]:
    """Runs by agent, in the order in which the agents come up."""
    agents: dict[int, list[RunActivityBody]] = {}
    for run in runs:
        agents.setdefault(run.agent_id, []).append(_activity(run))
    return [{"agent_id": agent_id, "runs": found} for agent_id, found in agents.items()]


def _activity(run: RunRecord) -> RunActivityBody:
    updated = iso(run.updated_ms)
    return {
        "id": run.id,
        "status": run.status.value,
        "created_at": iso(run.created_ms),
        "task_id": run.id,
        "last_activity_at": updated,
        "error_code": run.error_code,
        "next_retry_at": None,
        "auto_retry_count": 0,
        "cancelled_at": updated if run.status is RunStatus.CANCELLED else None,
        "needs_reply": run.open > 0,
    }


def outcome_body(run: RunRecord, message_count: int) -> OutcomeBody:
    """What a run came to, without its history."""
    usage = usage_payload(run.usage)
    return {
        "run_id": run.id,
        "status": run.status.value,
        "summary": run.output,
        "headline": preview(run.output),
        "needs_reply": run.open > 0,
        "needs_reply_count": run.open,
        "delivery_channel": "none",
        "output_data": run.output_data,
        "message_count": message_count,
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "cost_usd": usage["cost_usd"] if run.usage["cost_micros"] else None,
    }


def shared_body(run: RunRecord, history: Sequence[Message], before: int) -> SharedRunBody:
    """What was said in a run behind ``before`` messages; never what its tools got and gave."""
    return {
        "status": run.status.value,
        "output": run.output,
        "created_at": iso(run.created_ms),
        "messages": [
            {
                "sequence": n,
                "role": message.role,
                "content": message.text,
                "created_at": iso(message.at_ms),
            }
            for n, message in enumerate(history, start=before + 1)
            if message.role in _SPEAKERS and message.text and not message.extra.get("by")
        ],
    }
