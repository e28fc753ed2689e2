"""Every kind of gate takes exactly the decisions that fit it, and sameness is by content."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from signoff.canonical import canonical, digest
from signoff.domain.decision import Decision, Settlement, denied_text, mode_fingerprint, settle
from signoff.domain.error import GateRefusedError, InvalidFieldError, SignoffError
from signoff.domain.gate import Gate, GateKind, GateState

QUESTIONS = {
    "questions": [
        {
            "question": "Which?",
            "header": "H",
            "multiSelect": True,
            "options": [{"label": "A"}, {"label": "B"}],
        }
    ]
}
INPUTS: dict[str, dict[str, Any]] = {
    "tool_approval": {"what": "x"},
    "question": QUESTIONS,
    "plan": {"plan": "the plan"},
    "external": {"what": "x"},
    "outcome_unknown": {"what": "x"},
}
SUGGESTED = {"tool": "send", "effect": "allow"}


def gate(kind: str, **fields: Any) -> Gate:
    return Gate(
        id="req_1",
        run_id=1,
        kind=GateKind(kind),
        state=GateState.PENDING,
        pause=1,
        tool="send",
        tool_use_id="a",
        tool_input=INPUTS[kind],
        digest=digest("send", INPUTS[kind]),
        suggested_rules=fields.pop("suggested_rules", (SUGGESTED,)),
        created_ms=0,
        **fields,
    )


def check_input(tool: str, value: Mapping[str, Any]) -> tuple[str, str]:
    if "what" not in value:
        raise InvalidFieldError("what is missing", field="input.what")
    return canonical(dict(value)).decode(), digest(tool, dict(value))


def decide(kind: str, **fields: Any) -> Settlement:
    decision = Decision(request_id="req_1", **fields)
    return settle(gate(kind), decision, check_input=check_input)


FORMS: dict[str, dict[str, Any]] = {
    "allow": {"verdict": "allow"},
    "deny": {"verdict": "deny"},
    "answers": {"answers": {"Which?": "A"}},
    "plan answers": {"answers": {"Plan Approval": "Approve"}},
    "result": {"result": {"output": "out"}},
    "nothing": {},
    "allow with input": {"verdict": "allow", "input": {"what": "y"}},
    "allow with bad input": {"verdict": "allow", "input": {}},
    "allow with rules": {"verdict": "allow", "rules": (SUGGESTED,)},
    "allow with other rules": {
        "verdict": "allow",
        "rules": (SUGGESTED, {"tool": "other", "effect": "allow"}),
    },
    "allow remembered": {"verdict": "allow", "remember": True},
    "deny with input": {"verdict": "deny", "input": {"what": "y"}},
    "deny with rules": {"verdict": "deny", "rules": (SUGGESTED,)},
    "answers with input": {"answers": {"Which?": "A"}, "input": {}},
    "answers with rules": {"answers": {"Which?": "A"}, "rules": (SUGGESTED,)},
    "result and allow": {"verdict": "allow", "result": {"output": 1}},
}
# Per kind what each form means: (state, runs the call) or the field or code it is refused for.
ALLOWED, DENIED, SUPPLIED = ("allowed", True), ("denied", False), ("allowed", False)
TABLE: dict[str, dict[str, Any]] = {
    "tool_approval": {
        "allow": ALLOWED,
        "deny": DENIED,
        "answers": "answers",
        "plan answers": "answers",
        "result": "result",
        "nothing": "decision",
        "allow with input": ALLOWED,
        "allow with bad input": "input.what",
        "allow with rules": ALLOWED,
        "allow with other rules": "rules[1]",
        "allow remembered": ALLOWED,
        "deny with input": "input",
        "deny with rules": "rules",
        "answers with input": "answers",
        "answers with rules": "answers",
        "result and allow": "result",
    },
    "question": {
        "answers": SUPPLIED,
        "plan answers": "answers",
        "result": "result",
        "result and allow": "result",
        "answers with input": "input",
        "answers with rules": "rules",
    },
    "plan": {
        "answers": "answers",
        "plan answers": SUPPLIED,
        "result": "result",
        "result and allow": "result",
        "answers with input": "input",
        "answers with rules": "rules",
    },
    "external": {"result": SUPPLIED, "result and allow": "decision"},
    "outcome_unknown": {
        "allow": ALLOWED,
        "deny": DENIED,
        "answers": "answers",
        "plan answers": "answers",
        "result": SUPPLIED,
        "nothing": "decision",
        "allow with input": "input",
        "allow with bad input": "input",
        "allow with rules": "remember",
        "allow with other rules": "remember",
        "allow remembered": "remember",
        "deny with input": "input",
        "deny with rules": "rules",
        "answers with input": "answers",
        "answers with rules": "answers",
        "result and allow": "decision",
    },
}
# What is not in the table: an allow or deny of a question, and anything else for an external call.
ELSE = {"question": "answer_required", "plan": "answer_required", "external": "result"}


@pytest.mark.parametrize(("kind", "form"), list(itertools.product(INPUTS, FORMS)))
def test_every_form_has_its_outcome_or_its_error(kind: str, form: str) -> None:
    """The full product of gate kinds and forms of a decision."""
    expected = TABLE[kind].get(form, ELSE.get(kind))
    if isinstance(expected, tuple):
        found = decide(kind, **FORMS[form])
        assert (found.state.value, found.allows) == expected
        # A call that does not run has its result; one that runs has none yet.
        assert (found.result is None) == found.allows
        return
    with pytest.raises(SignoffError) as caught:
        decide(kind, **FORMS[form])
    if expected == "answer_required":
        assert isinstance(caught.value, GateRefusedError)
        assert caught.value.code == "answer_required"
    else:
        assert isinstance(caught.value, InvalidFieldError)
        assert caught.value.field == expected


def test_an_answer_is_the_result_that_the_model_sees() -> None:
    """Questions with answers for the model, joined texts for clients."""
    found = decide("question", answers={"Which?": ["B", "A"]})
    assert found.answers == {"Which?": "A, B"}
    assert found.result is not None
    assert found.result["state"] == "success"
    (row,) = json.loads(found.result["content"])["answers"]
    assert row == {"question": "Which?", "header": "H", "answer": ["A", "B"]}


def test_only_approve_approves_a_plan() -> None:
    """Anything else is feedback, which the model gets as an error."""
    approved = decide("plan", answers={"the plan": "Approve"})
    assert approved.plan_approved
    assert approved.answers == {"the plan": "Approve"}
    revised = decide("plan", answers={"Plan Approval": "use fewer steps"})
    assert not revised.plan_approved
    assert revised.result is not None
    assert revised.result["state"] == "error"
    assert "use fewer steps" in revised.result["content"]


def test_a_denial_tells_the_model_the_reason() -> None:
    """With none, only that the user denied it; an unknown outcome is never called unrun."""
    assert decide("tool_approval", verdict="deny").result == {
        "state": "denied",
        "content": denied_text(None),
    }
    with_reason = decide("tool_approval", verdict="deny", reason="too late").result
    assert with_reason is not None
    assert with_reason["content"].endswith("Reason: too late")
    unknown = decide("outcome_unknown", verdict="deny", reason="too late").result
    assert unknown is not None
    assert "not executed" not in unknown["content"]
    assert "too late" in unknown["content"]


@pytest.mark.parametrize("kind", ["external", "outcome_unknown"])
def test_a_result_is_checked_and_keeps_its_types(kind: str) -> None:
    """Texts as they are, other JSON compact; state success unless it says error."""
    assert decide(kind, result={"output": "text"}).result == {
        "state": "success",
        "content": "text",
    }
    found = decide(kind, result={"output": {"b": [1, None], "a": True}, "state": "error"}).result
    assert found == {"state": "error", "content": '{"a":true,"b":[1,null]}'}
    assert decide(kind, result={"output": None}).result == {"state": "success", "content": "null"}


@pytest.mark.parametrize("kind", ["external", "outcome_unknown"])
@pytest.mark.parametrize(
    ("result", "field"),
    [
        ({}, "result.output"),
        ({"state": "success"}, "result.output"),
        ({"output": 1, "state": "done"}, "result.state"),
        ({"output": 1, "state": None}, "result.state"),
        ({"output": 1, "extra": 1}, "result.extra"),
    ],
)
def test_a_malformed_result_names_its_field(kind: str, result: dict[str, Any], field: str) -> None:
    """Nothing is stored of it."""
    with pytest.raises(InvalidFieldError) as caught:
        decide(kind, result=result)
    assert caught.value.field == field


def test_an_edit_is_bound_by_its_own_digest() -> None:
    """An edit that changes nothing is a plain allow."""
    edited = decide("tool_approval", verdict="allow", input={"what": "y"})
    assert (edited.input_json, edited.digest) == ('{"what":"y"}', digest("send", {"what": "y"}))
    same = decide("tool_approval", verdict="allow", input={"what": "x"})
    plain = decide("tool_approval", verdict="allow")
    assert same == plain
    assert (plain.input_json, plain.digest) == (None, None)


def test_what_does_not_count_for_sameness() -> None:
    """Reason, remember and accepted rules."""
    plain = decide("tool_approval", verdict="allow").fingerprint
    for extra in ({"reason": "r"}, {"remember": True}, {"rules": (SUGGESTED,)}):
        assert decide("tool_approval", verdict="allow", **extra).fingerprint == plain
    denied = decide("tool_approval", verdict="deny").fingerprint
    assert decide("tool_approval", verdict="deny", reason="r").fingerprint == denied
    assert decide("question", answers={"Which?": "A, B"}).fingerprint == (
        decide("question", answers={"Which?": ["B", "A"]}, reason="r").fingerprint
    )
    result = decide("external", result={"output": 1}).fingerprint
    assert decide("external", result={"output": 1, "state": "success"}).fingerprint == result
    by_text = decide("plan", answers={"the plan": "Approve"}).fingerprint
    assert decide("plan", answers={"Plan Approval": ["Approve"]}).fingerprint == by_text


def test_what_counts_for_sameness() -> None:
    """The verdict, the effective digest, the answers, the result with its state and types."""
    prints = [
        decide("tool_approval", verdict="allow").fingerprint,
        decide("tool_approval", verdict="deny").fingerprint,
        decide("tool_approval", verdict="allow", input={"what": "y"}).fingerprint,
        decide("question", answers={"Which?": "A"}).fingerprint,
        decide("question", answers={"Which?": "A, B"}).fingerprint,
        decide("question", answers={"Which?": "a"}).fingerprint,
        decide("plan", answers={"the plan": "Approve"}).fingerprint,
        decide("plan", answers={"the plan": "Revise"}).fingerprint,
        decide("external", result={"output": 1}).fingerprint,
        decide("external", result={"output": "1"}).fingerprint,
        decide("external", result={"output": 1, "state": "error"}).fingerprint,
        decide("external", result={"output": [1]}).fingerprint,
    ]
    assert len(set(prints)) == len(prints)


def test_a_mode_switch_is_the_same_as_a_plain_allow() -> None:
    """A person who allows afterwards gets a 200, one who denies or edits does not."""
    item = gate("tool_approval")
    assert mode_fingerprint(item) == decide("tool_approval", verdict="allow").fingerprint
    other = replace(item, digest="other")
    assert mode_fingerprint(other) != mode_fingerprint(item)


def test_remember_covers_what_was_suggested_and_nothing_else() -> None:
    """Accepted rules alone, or all suggestions; with none, nothing is remembered."""
    assert decide("tool_approval", verdict="allow").remember_tools == ()
    for fields in ({"remember": True}, {"rules": (SUGGESTED,)}):
        assert decide("tool_approval", verdict="allow", **fields).remember_tools == ("send",)
    both = decide("tool_approval", verdict="allow", remember=True, rules=(SUGGESTED,))
    assert both.remember_tools == ("send",)
    bare = gate("tool_approval", suggested_rules=())
    decision = Decision(request_id="req_1", verdict="allow", remember=True)
    assert settle(bare, decision, check_input=check_input).remember_tools == ()
    assert decide("tool_approval", verdict="deny", remember=True).remember_tools == ()
