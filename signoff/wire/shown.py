"""Gates as clients read them, from the service and from the fake that stands in for it."""

from __future__ import annotations

from signoff.domain.approval import Approval
from signoff.domain.expiry import auto_resolved
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.timestamp import iso
from signoff.wire.body import ApproversBody
from signoff.wire.gate import PermissionRequestBody

#: What the reference platform shows of a gate; what counts here is ``expires_at``.
TIMEOUT_HINT_S = 55


def approvers_body(approval: Approval | None) -> ApproversBody | None:
    """Who may decide; None when nothing is restricted."""
    if approval is None:
        return None
    return {
        "any_of": None if approval.any_of is None else list(approval.any_of),
        "quorum": approval.quorum,
        "exclude_requester": approval.exclude_requester,
    }


def gate_body(gate: Gate, *, resumed: bool | None = None) -> PermissionRequestBody:
    """A gate as clients list it; its name comes from the server, never from the agent."""
    tool, tool_input = gate.listed
    pending = gate.state is GateState.PENDING
    can_remember = gate.kind is GateKind.TOOL_APPROVAL and bool(gate.suggested_rules)
    body: PermissionRequestBody = {
        "request_id": gate.id,
        "run_id": gate.run_id,
        "kind": gate.kind.value,
        "tool_name": tool,
        "tool_input": tool_input,
        "tool_use_id": gate.tool_use_id,
        "digest": gate.digest,
        "suggested_rules": list(gate.suggested_rules),
        "pause": gate.pause,
        "status": gate.state.value,
        "decided_by": gate.decided_by,
        "reason": gate.reason,
        "edited_input": gate.edited_input,
        "effective_digest": gate.effective_digest or (None if pending else gate.digest),
        "created_at": iso(gate.created_ms),
        "resolved_at": None if gate.resolved_ms is None else iso(gate.resolved_ms),
        "remind_at": None if gate.remind_ms is None else iso(gate.remind_ms),
        "expires_at": None if gate.expires_ms is None else iso(gate.expires_ms),
        "approvers": approvers_body(gate.approval),
        "approvals": [
            {"by": item.by, "at": iso(item.at_ms), "digest": item.digest} for item in gate.assents
        ],
        "auto_resolved": auto_resolved(gate),
        "resumed": resumed,
        "remembered": None if pending else gate.remembered,
        "agent_type": None,
        "display_name": tool,
        "mate_name": None,
        "task_name": None,
        "consequence": "",
        "ask_reason": "",
        "surface": "command",
        "surface_label": None,
        "fields": None,
        "prose": None,
        "can_remember": can_remember,
        "remember_default": can_remember,
        "timeout_seconds": TIMEOUT_HINT_S,
        "script": None,
    }
    if gate.output_schema is not None:
        body["output_schema"] = gate.output_schema
    return body
