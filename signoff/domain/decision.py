"""What one decision means for its gate: the verdict, the call's consequence, and its identity."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from signoff.domain.call import MAX_RESULT_CHARS
from signoff.domain.error import GateRefusedError, InvalidFieldError
from signoff.domain.gate import AGENT_RULE, Gate, GateKind, GateState
from signoff.domain.jsontext import sorted_compact
from signoff.domain.question import (
    APPROVE,
    ASK_USER_TOOL,
    Question,
    answers_for_clients,
    answers_for_model,
    check_questions,
    normalise_answers,
    normalise_plan_answer,
    read_ask_user,
    selections_for_model,
)

Checked = tuple[str, str]
#: Checks an edited input of (tool, input) and returns its JSON text and digest, or raises
#: InvalidFieldError.
CheckInput = Callable[[str, Mapping[str, Any]], Checked]
#: The rules that are suggested for an input of a tool.
Suggest = Callable[[str, Mapping[str, Any]], Sequence[Mapping[str, Any]]]
#: Checks the output of an external call against what its gate says; raises InvalidFieldError.
CheckOutput = Callable[[Gate, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision as it was sent; exactly one of verdict, answers and result is given."""

    request_id: str
    verdict: Literal["allow", "deny"] | None = None
    answers: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    reason: str | None = None
    input: Mapping[str, Any] | None = None
    remember: bool = False
    rules: tuple[Mapping[str, Any], ...] = ()
    expected_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The consequence of a decision, ready for the store.

    ``fingerprint`` is what makes two decisions the same: the verdict and the effective digest,
    or the normalised answers, or the result; reason, remember and rules do not count.
    """

    state: GateState
    fingerprint: str
    allows: bool
    result: dict[str, str] | None = None
    input_json: str | None = None
    digest: str | None = None
    answers: dict[str, str] | None = None
    plan_approved: bool = False
    remember_tools: tuple[str, ...] = ()
    #: The suggested rules that were accepted, for the agent that suggested them.
    rules: tuple[dict[str, Any], ...] = ()


def settle(
    gate: Gate,
    decision: Decision,
    *,
    check_input: CheckInput,
    suggest: Suggest | None = None,
    check_output: CheckOutput | None = None,
) -> Settlement:
    """What ``decision`` does to ``gate``; raises when it does not fit the gate's kind.

    ``suggest`` makes the suggestions for an edited input; without it those of the gate stand.

    InvalidFieldError names the field; GateRefusedError ``answer_required`` is an allow or deny
    of a question.
    """
    if gate.kind.answered:
        return _answer(gate, decision)
    if gate.kind is GateKind.EXTERNAL and decision.result is None:
        msg = "an external call takes a result, not a verdict"
        raise InvalidFieldError(msg, field="result")
    if decision.result is not None:
        return _supply(gate, decision, check_output)
    if decision.answers is not None:
        raise InvalidFieldError("only questions and plans take answers", field="answers")
    if decision.verdict is None:
        raise InvalidFieldError("a decision is allow or deny", field="decision")
    if decision.verdict == "deny":
        return _deny(gate, decision)
    return _allow(gate, decision, check_input, suggest)


def questions_of(gate: Gate) -> tuple[Question, ...]:
    """What a question gate asks, in whichever form its model asked."""
    read = read_ask_user if gate.tool == ASK_USER_TOOL else check_questions
    return read(gate.tool_input)


def answer_settlement(
    gate: Gate, answers: Mapping[str, list[str]], *, note: str | None = None
) -> Settlement:
    """The consequence of normalised answers; ``note`` is what the model is told besides."""
    shown = selections_for_model if gate.tool == ASK_USER_TOOL else answers_for_model
    return Settlement(
        state=GateState.ALLOWED,
        fingerprint=_print("answers", answers),
        allows=False,
        result=_result("success", shown(questions_of(gate), answers, note=note)),
        answers=answers_for_clients(answers),
    )


def deny_settlement(gate: Gate, state: str, text: str) -> Settlement:
    """The consequence of a refusal, of which the model is told ``text``."""
    return Settlement(
        state=GateState.DENIED,
        fingerprint=_print("deny", gate.digest),
        allows=False,
        result=_result(state, text),
    )


def mode_fingerprint(gate: Gate) -> str:
    """The identity of an allow by a mode switch: the same as a person's plain allow."""
    return _print("allow", gate.digest)


def denied_text(reason: str | None) -> str:
    """What the model is told of a denied call."""
    return _with_reason("The user denied this tool call; it was not executed.", reason)


def _answer(gate: Gate, decision: Decision) -> Settlement:
    if decision.answers is None:
        if decision.result is not None:
            raise InvalidFieldError("a question takes answers, not a result", field="result")
        msg = "a question is settled by answers, not by allow or deny"
        raise GateRefusedError(msg, code="answer_required")
    _refuse_grant(decision, "does not apply to a question")
    if gate.kind is GateKind.PLAN:
        return _answer_plan(gate, decision.answers)
    answers = normalise_answers(questions_of(gate), decision.answers)
    return answer_settlement(gate, answers)


def _answer_plan(gate: Gate, answers: Mapping[str, Any]) -> Settlement:
    plan = gate.tool_input["plan"]
    answer = normalise_plan_answer(plan, answers)
    approved = answer == APPROVE
    text = (
        "The user approved the plan. Carry it out; calls with effects may still be asked."
        if approved
        else f"The user did not approve the plan. Feedback: {answer}\nRevise it, present it again."
    )
    return Settlement(
        state=GateState.ALLOWED,
        fingerprint=_print("answers", answer),
        allows=False,
        result=_result("success" if approved else "error", text),
        answers={plan: answer},
        plan_approved=approved,
    )


def _supply(gate: Gate, decision: Decision, check_output: CheckOutput | None) -> Settlement:
    if gate.kind not in (GateKind.EXTERNAL, GateKind.OUTCOME_UNKNOWN):
        raise InvalidFieldError("this gate takes no result", field="result")
    if decision.verdict is not None:
        raise InvalidFieldError("give a result or a decision, not both", field="decision")
    result = decision.result or {}
    for name in result:
        if name not in ("output", "state"):
            raise InvalidFieldError("unknown field", field=f"result.{name}")
    state = result.get("state", "success")
    if state not in ("success", "error"):
        raise InvalidFieldError("state is success or error", field="result.state")
    if "output" not in result:
        raise InvalidFieldError("output is missing", field="result.output")
    output = result["output"]
    content = output if isinstance(output, str) else _json(output)
    if len(content) > MAX_RESULT_CHARS:
        msg = f"an output has at most {MAX_RESULT_CHARS} characters"
        raise InvalidFieldError(msg, field="result.output")
    if check_output is not None and state == "success" and gate.kind is GateKind.EXTERNAL:
        check_output(gate, output)
    return Settlement(
        state=GateState.ALLOWED,
        fingerprint=_print("result", [state, output]),
        allows=False,
        result=_result(state, content),
    )


def _deny(gate: Gate, decision: Decision) -> Settlement:
    _refuse_grant(decision, "goes with allow only")
    text = denied_text(decision.reason)
    if gate.kind is GateKind.OUTCOME_UNKNOWN:
        text = _with_reason(
            "It is unknown whether this tool call took effect: it was interrupted, and the user "
            "chose not to run it again.",
            decision.reason,
        )
    return deny_settlement(gate, "denied", text)


def _allow(
    gate: Gate, decision: Decision, check_input: CheckInput, suggest: Suggest | None
) -> Settlement:
    retry = gate.kind is GateKind.OUTCOME_UNKNOWN
    if retry and (decision.remember or decision.rules):
        raise InvalidFieldError("a retry cannot be remembered", field="remember")
    if retry and decision.input is not None:
        raise InvalidFieldError("a retry runs the input that was approved", field="input")
    input_json = digest = None
    if decision.input is not None:
        text, edited = check_input(gate.tool, decision.input)
        if edited != gate.digest:
            input_json, digest = text, edited
    suggested: Sequence[Mapping[str, Any]] = gate.suggested_rules
    if digest is not None and decision.input is not None and suggest is not None:
        suggested = suggest(gate.tool, decision.input)
    accepted = _accepted(suggested, decision)
    return Settlement(
        state=GateState.ALLOWED,
        fingerprint=_print("allow", digest or gate.digest),
        allows=True,
        input_json=input_json,
        digest=digest,
        remember_tools=_remembered(accepted),
        rules=accepted,
    )


def _accepted(
    suggested: Sequence[Mapping[str, Any]], decision: Decision
) -> tuple[dict[str, Any], ...]:
    for n, rule in enumerate(decision.rules):
        if dict(rule) not in suggested:
            msg = "only rules that are suggested for what is approved can be accepted"
            raise InvalidFieldError(msg, field=f"rules[{n}]")
    if decision.remember:
        return tuple(dict(rule) for rule in suggested)
    accepted = [dict(rule) for rule in decision.rules]
    return tuple(dict(rule) for rule in suggested if dict(rule) in accepted)


def _remembered(accepted: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The tools that are allowed from now on; what only the agent can read is left to it."""
    return tuple(dict.fromkeys(str(r["tool"]) for r in accepted if AGENT_RULE not in r))


def _refuse_grant(decision: Decision, why: str) -> None:
    for name, given in (("input", decision.input), ("rules", decision.rules or None)):
        if given is not None:
            raise InvalidFieldError(f"{name} {why}", field=name)


def _with_reason(text: str, reason: str | None) -> str:
    return f"{text} Reason: {reason}" if reason else text


def _result(state: str, content: str) -> dict[str, str]:
    return {"state": state, "content": content}


def _print(kind: str, value: Any) -> str:
    return f"{kind}:{hashlib.sha256(_json(value).encode()).hexdigest()}"


def _json(value: Any) -> str:
    return sorted_compact(value)
