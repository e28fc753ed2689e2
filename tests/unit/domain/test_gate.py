"""A gate is a one-way register, and is listed as people see it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from signoff.domain.error import IllegalMoveError
from signoff.domain.gate import Gate, GateKind, GateState, listed_call


@pytest.mark.parametrize(
    ("source", "target"), [*itertools.product(GateState, GateState)], ids=lambda s: s.value
)
def test_only_a_pending_gate_moves_and_only_once(source: GateState, target: GateState) -> None:
    """The full product: pending to one of the others, and nothing after that."""
    if source is GateState.PENDING and target is not GateState.PENDING:
        assert source.to(target) is target
        return
    with pytest.raises(IllegalMoveError):
        source.to(target)


@pytest.mark.parametrize("kind", GateKind, ids=lambda k: k.value)
def test_questions_and_plans_take_answers(kind: GateKind) -> None:
    """The other kinds take a verdict or a result."""
    assert kind.answered == (kind.value in {"question", "plan"})


def gate(kind: GateKind, tool_input: dict[str, Any], **fields: Any) -> Gate:
    return Gate(
        id="req_1",
        run_id=1,
        kind=kind,
        state=GateState.PENDING,
        pause=1,
        tool="ExitPlanMode" if kind is GateKind.PLAN else "send",
        tool_use_id="a",
        tool_input=tool_input,
        digest="d",
        suggested_rules=(),
        created_ms=0,
        **fields,
    )


@pytest.mark.parametrize("kind", [k for k in GateKind if k is not GateKind.PLAN])
def test_a_call_is_listed_as_the_model_asked(kind: GateKind) -> None:
    """Only plans are shown as something else than they are."""
    assert listed_call(kind, "send", {"a": 1}) == ("send", {"a": 1})


def test_a_plan_is_listed_as_the_question_it_amounts_to() -> None:
    """One question: header Plan Approval, the plan as its text, Approve and Revise."""
    tool, tool_input = gate(GateKind.PLAN, {"plan": "do it"}).listed
    (question,) = tool_input["questions"]
    assert tool == "AskUserQuestion"
    assert (question["question"], question["header"]) == ("do it", "Plan Approval")
    assert [option["label"] for option in question["options"]] == ["Approve", "Revise"]
    assert question["multiSelect"] is False


def test_answers_are_merged_into_what_is_listed() -> None:
    """The stored input stays as it is."""
    stored: dict[str, list[str]] = {"questions": []}
    item = gate(GateKind.QUESTION, stored, answers={"Q": "A"})
    assert item.listed == ("send", {"questions": [], "answers": {"Q": "A"}})
    assert stored == {"questions": []}
