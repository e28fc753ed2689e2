"""Limits of time on gates, and what becomes of a gate that nobody settled."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.decision import Decision, settle
from signoff.domain.error import InvalidFieldError
from signoff.domain.expiry import Limits, OnExpiry, auto_resolved, settle_expired
from signoff.domain.gate import Gate, GateKind, GateState

seconds = st.one_of(st.none(), st.floats(0.001, 2_592_000))
limits = st.builds(
    Limits,
    remind_after=seconds,
    expires_in=seconds,
    on_expiry=st.one_of(st.none(), st.sampled_from(OnExpiry)),
)


def a_gate(kind: GateKind = GateKind.TOOL_APPROVAL, tool_input: Any = None) -> Gate:
    return Gate(
        id="req_1",
        run_id=1,
        kind=kind,
        state=GateState.PENDING,
        pause=1,
        tool="AskUserQuestion" if kind is GateKind.QUESTION else "send",
        tool_use_id="c",
        tool_input=tool_input or {},
        digest="d",
        suggested_rules=(),
        created_ms=1,
    )


def asking(*labels: str, multi: bool = False) -> dict[str, Any]:
    options = [{"label": label} for label in labels]
    return {"question": "Q?", "header": "H", "multiSelect": multi, "options": options}


def asked(*questions: dict[str, Any]) -> Gate:
    return a_gate(GateKind.QUESTION, {"questions": list(questions)})


@given(limits, limits, limits)
def test_the_nearer_word_wins(run: Limits, agent: Limits, account: Limits) -> None:
    """Field by field: the run's own, else the agent's, else the account's."""
    found = run.over(agent).over(account)
    for name in ("remind_after", "expires_in", "on_expiry"):
        given_ = [getattr(level, name) for level in (run, agent, account)]
        expected = next((value for value in given_ if value is not None), None)
        assert getattr(found, name) == expected


@given(limits)
def test_limits_are_read_as_they_are_kept(made: Limits) -> None:
    """A run keeps its limits; a policy without an expiry is kept as none, none as deny."""
    kept = Limits.read(made.fields)
    assert (kept.remind_after, kept.expires_in) == (made.remind_after, made.expires_in)
    assert (kept.on_expiry is None) == (made.expires_in is None)
    if made.expires_in is not None:
        assert kept.on_expiry is (made.on_expiry or OnExpiry.DENY)


@given(limits, st.integers(0, 2**42))
def test_times_follow_the_opening(made: Limits, opened: int) -> None:
    """Nothing is due at once, and nobody is reminded of what has expired by then."""
    times = made.times(opened)
    if times is None:
        assert made.expires_in is None
        assert made.remind_after is None
        return
    assert all(at > opened for at in (times.remind_ms, times.expires_ms) if at is not None)
    if times.remind_ms is not None and times.expires_ms is not None:
        assert times.remind_ms < times.expires_ms


def test_without_limits_nothing_is_ever_due() -> None:
    """The default waits for ever."""
    assert Limits().times(1) is None
    assert Limits.read({}) == Limits()


def test_a_policy_needs_an_expiry() -> None:
    """What happens after a time that never comes is a mistake."""
    with pytest.raises(InvalidFieldError) as caught:
        Limits(on_expiry=OnExpiry.CANCEL).checked()
    assert caught.value.field == "on_expiry"


@pytest.mark.parametrize("policy", [OnExpiry.DENY, OnExpiry.ANSWER])
@pytest.mark.parametrize("kind", [k for k in GateKind if k is not GateKind.QUESTION])
def test_what_is_no_question_is_denied(kind: GateKind, policy: OnExpiry) -> None:
    """The model is told that nobody decided, never that a person refused."""
    found = settle_expired(a_gate(kind), policy)
    assert found.state is GateState.DENIED
    assert not found.allows
    assert not found.plan_approved
    assert found.result is not None
    assert "obody" in found.result["content"]
    assert "The user" not in found.result["content"]
    asked_people = kind in (GateKind.TOOL_APPROVAL, GateKind.OUTCOME_UNKNOWN)
    assert found.result["state"] == ("denied" if asked_people else "error")


def test_a_deny_by_time_is_the_same_as_a_late_deny() -> None:
    """So that a person who denies a moment too late is not told off."""
    gate = a_gate()
    mine = settle(gate, Decision(request_id="req_1", verdict="deny"), check_input=_no_edit)
    assert settle_expired(gate, OnExpiry.DENY).fingerprint == mine.fingerprint


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (asking("A", "B (Recommended)"), "B (Recommended)"),
        (asking("A (Recommended) ", "B"), "A (Recommended) "),
        (asking("A (Recommended)", "B", "C (Recommended)", multi=True), None),
        (asking("A (Recommended)", "B (Recommended)"), ""),
        (asking("(Recommended) A", "B"), ""),
        (asking("A", "B"), ""),
        (asking("A", "B", multi=True), ""),
    ],
)
def test_the_recommended_option_answers(question: dict[str, Any], answer: str | None) -> None:
    """The one that is marked, or all of several choices; without one nothing is guessed."""
    gate = asked(question)
    found = settle_expired(gate, OnExpiry.ANSWER)
    if answer == "":
        assert (found.state, found.answers) == (GateState.DENIED, None)
        return
    expected = "A (Recommended), C (Recommended)" if answer is None else answer
    assert found.answers == {"Q?": expected}
    assert found.result is not None
    assert found.result["state"] == "success"
    assert "Nobody answered in time" in found.result["content"]
    decision = Decision(request_id="req_1", answers={"Q?": expected})
    assert settle(gate, decision, check_input=_no_edit).fingerprint == found.fingerprint


def test_an_ask_user_call_is_answered_in_its_own_form() -> None:
    """The same for the questions of an AskUser call, whose model reads labels apart."""
    options = [{"label": "A (Recommended)", "description": "a"}, {"label": "B", "description": "b"}]
    questions = [{"question": "Q?", "header": "H", "options": options}]
    gate = replace(a_gate(GateKind.QUESTION, {"questions": questions}), tool="AskUser")
    found = settle_expired(gate, OnExpiry.ANSWER)
    assert found.answers == {"Q?": "A (Recommended)"}
    assert found.result is not None
    said = json.loads(found.result["content"])
    assert said["answers"] == [{"question": "Q?", "selected": ["A (Recommended)"]}]
    assert "Nobody answered" in said["note"]


def test_one_question_without_a_recommendation_denies_all() -> None:
    """Half an answer is none."""
    both = asked(asking("A (Recommended)", "B"), {**asking("A", "B"), "question": "R?"})
    assert settle_expired(both, OnExpiry.ANSWER).state is GateState.DENIED
    assert settle_expired(asked(asking("A (Recommended)", "B")), OnExpiry.DENY).answers is None


def test_only_time_resolves_by_itself() -> None:
    """A mode, a key and a callback are somebody."""
    deciders = ["key:1", "webhook:1", "mode", None]
    assert not any(auto_resolved(replace(a_gate(), decided_by=by)) for by in deciders)
    assert auto_resolved(replace(a_gate(), decided_by="expiry"))


def _no_edit(tool: str, value: Any) -> tuple[str, str]:
    raise AssertionError(tool)
