"""Gates: one tool call that waits for an outside answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from signoff.domain.approval import Approval, Assent
from signoff.domain.error import IllegalMoveError
from signoff.domain.question import ASK_USER_TOOL, ask_user_questions, plan_questions

ASK_TOOL = "AskUserQuestion"
PLAN_TOOL = "ExitPlanMode"
#: The decider of a gate that nobody decided in time.
EXPIRY = "expiry"
#: The key of a suggested rule that means something to the agent only, which asked with it.
AGENT_RULE = "agent_rule"


class GateKind(StrEnum):
    """What a gate asks for."""

    #: May this call run?
    TOOL_APPROVAL = "tool_approval"
    #: The agent's questions to a person.
    QUESTION = "question"
    #: The agent's plan, to be approved or sent back.
    PLAN = "plan"
    #: A call that an outside system executes.
    EXTERNAL = "external"
    #: A call that started and never reported: retry, skip, or supply the result.
    OUTCOME_UNKNOWN = "outcome_unknown"

    @property
    def answered(self) -> bool:
        """True when ``answers`` settle it."""
        return self in (GateKind.QUESTION, GateKind.PLAN)


class GateState(StrEnum):
    """A gate is a one-way register: pending, then exactly one of the others for ever."""

    PENDING = "pending"
    #: Allowed, answered, or supplied with a result.
    ALLOWED = "allowed"
    DENIED = "denied"
    #: Its run was cancelled.
    CANCELLED = "cancelled"

    def to(self, target: GateState) -> GateState:
        """``target``, or IllegalMoveError when the table has no such move."""
        if target not in GATE_MOVES[self]:
            raise IllegalMoveError(self, target)
        return target


GATE_MOVES: Mapping[GateState, frozenset[GateState]] = {
    GateState.PENDING: frozenset({GateState.ALLOWED, GateState.DENIED, GateState.CANCELLED}),
    GateState.ALLOWED: frozenset(),
    GateState.DENIED: frozenset(),
    GateState.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate as the store keeps it; times are Unix milliseconds."""

    id: str
    run_id: int
    kind: GateKind
    state: GateState
    pause: int
    tool: str
    tool_use_id: str
    tool_input: dict[str, Any]
    digest: str
    suggested_rules: tuple[dict[str, Any], ...]
    created_ms: int
    resolved_ms: int | None = None
    decided_by: str | None = None
    reason: str | None = None
    answers: dict[str, Any] | None = None
    fingerprint: str | None = None
    edited_input: dict[str, Any] | None = None
    effective_digest: str | None = None
    remembered: bool = False
    #: Who may decide it, and who has allowed it while more are needed.
    approval: Approval | None = None
    assents: tuple[Assent, ...] = ()
    #: How often ``assents`` changed; a count of them would not show an allow that moved.
    assent_changes: int = 0
    remind_ms: int | None = None
    expires_ms: int | None = None
    #: JSON text; of a tool that only the worker knows. It is read when somebody edits the input.
    input_schema: str | None = None
    #: What the result of an external call must look like, if that was declared.
    output_schema: dict[str, Any] | None = None

    @property
    def listed(self) -> tuple[str, dict[str, Any]]:
        """The tool name and input as clients list them, answers merged in."""
        tool, tool_input = listed_call(self.kind, self.tool, self.tool_input)
        if self.answers is not None:
            tool_input = {**tool_input, "answers": self.answers}
        return tool, tool_input


def listed_call(
    kind: GateKind, tool: str, tool_input: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The tool name and input that people see, and that the digest covers.

    A plan is shown as the one question it amounts to, questions in the form that people's clients
    know; everything else as the model asked.
    """
    if kind is GateKind.PLAN:
        return ASK_TOOL, {"questions": plan_questions(tool_input["plan"])}
    if kind is GateKind.QUESTION and tool == ASK_USER_TOOL:
        return ASK_TOOL, {"questions": ask_user_questions(tool_input)}
    return tool, tool_input
