"""A gate and its results as the service shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from signoff.domain.decision import Decision, Settlement, settle
from signoff.domain.error import GateRefusedError
from signoff.domain.expiry import auto_resolved
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.jsontext import compact, sorted_compact
from signoff.domain.message import ToolResult
from signoff.domain.subject import Subject
from signoff.testing.refusal import refused


def gate_digest(tool: str, tool_input: Any) -> str:
    """The digest that binds a call.

    The service's own, for inputs of text, whole numbers, booleans and null under ASCII keys; the
    RFC 8785 form of other numbers takes a package that the SDK does not need.
    """
    return hashlib.sha256(sorted_compact({"tool": tool, "input": tool_input}).encode()).hexdigest()


def shown_call(tool: str, tool_input: Mapping[str, Any]) -> Subject:
    """The call as rules see it."""
    return Subject(tool, tool_input, digest=gate_digest(tool, dict(tool_input)))


def results_text(results: Iterable[ToolResult]) -> str:
    """The results of a step as a script may quote them."""
    return compact(
        [
            {
                "tool_use_id": item.tool_use_id,
                "name": item.name,
                "state": item.state,
                "content": item.content,
            }
            for item in results
        ]
    )


def settlement_of(gates: Mapping[str, Gate], decision: Decision) -> Settlement:
    """What ``decision`` means for its gate; raises GateRefusedError or InvalidError."""
    gate = gates.get(decision.request_id)
    if gate is None:
        raise GateRefusedError("the run has no such request", code="gate_not_found")
    found = settle(
        gate,
        decision,
        check_input=lambda name, value: (compact(value), gate_digest(name, dict(value))),
    )
    if gate.state is GateState.CANCELLED:
        raise refused("the request was cancelled with its run", "gate_cancelled", gate)
    if decision.expected_digest not in (None, gate.digest):
        raise refused("the request is not the one that was seen", "gate_changed", gate)
    if gate.state is not GateState.PENDING and gate.fingerprint != found.fingerprint:
        if gate.kind is GateKind.QUESTION and auto_resolved(gate):
            raise refused("the time of the question was over", "auto_continued", gate)
        msg = "the request was already decided otherwise"
        raise refused(msg, "gate_resolved_otherwise", gate)
    return found
