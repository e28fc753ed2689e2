"""Reads an answer event of AgentScope into decisions on the gates that its calls wait at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from service.body import check
from signoff.canonical import digest
from signoff.domain.agentscope import shown_name, suggested_rule, turn_of
from signoff.domain.decision import Decision
from signoff.domain.error import (
    ConflictError,
    GateRefusedError,
    InvalidFieldError,
    MalformedBodyError,
    MissingError,
    NotCanonicalError,
)
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.question import PLAN_HEADER, REVISE
from signoff.store.records import RunRecord
from signoff.strictjson import loads
from signoff.wire.agentscope import (
    AskUserAnswer,
    AskUserMetadata,
    ConfirmResult,
    ExternalExecutionResult,
    ResultBlock,
    UserConfirmResult,
)

T = TypeVar("T", ConfirmResult, ResultBlock)
CONFIRMS, EXECUTIONS = "confirm_results", "execution_results"
#: What each event may settle. A call whose outcome is unknown is not run again by an event that
#: does not name its gate: that may be the first one's, sent once more.
_CONFIRMED = frozenset({GateKind.TOOL_APPROVAL})
_SUPPLIED = frozenset(
    {GateKind.EXTERNAL, GateKind.QUESTION, GateKind.PLAN, GateKind.OUTCOME_UNKNOWN}
)


def check_reply(run: RunRecord, reply: str) -> None:
    """Raises unless ``reply`` is the run's current one."""
    turn = turn_of(run.id, reply)
    if turn is None or turn > run.turn:
        raise MissingError("the run has no such reply", code="reply_not_found", field="reply_id")
    if turn < run.turn:
        msg = "the reply is over: the run is in a later turn"
        raise ConflictError(msg, code="reply_not_current", field="reply_id")


def confirmed(run: RunRecord, gates: Sequence[Gate], event: UserConfirmResult) -> list[Decision]:
    """The decisions of a USER_CONFIRM_RESULT; raises for an event that cannot be meant."""
    results = event.confirm_results
    found = _gates(run, gates, CONFIRMS, [(r.tool_call.id, r.request_id) for r in results])
    return [
        _verdict(_pick(among, result, _CONFIRMED, at), result, at)
        for among, result, at in zip(found, results, _places(CONFIRMS, results), strict=True)
    ]


def executed(
    run: RunRecord, gates: Sequence[Gate], event: ExternalExecutionResult
) -> list[Decision]:
    """The decisions of an EXTERNAL_EXECUTION_RESULT; raises for an event that cannot be meant."""
    results = event.execution_results
    found = _gates(run, gates, EXECUTIONS, [(r.id, r.request_id) for r in results])
    return [
        _result(_pick(among, result, _SUPPLIED, at), result, at)
        for among, result, at in zip(found, results, _places(EXECUTIONS, results), strict=True)
    ]


def _places(under: str, results: Sequence[Any]) -> list[str]:
    return [f"{under}[{n}]" for n in range(len(results))]


def _gates(
    run: RunRecord, gates: Sequence[Gate], under: str, named: Sequence[tuple[str, str | None]]
) -> list[list[Gate]]:
    """The gates of this turn that each call has had; all calls must have had one."""
    seen: set[str] = set()
    for n, (call_id, _) in enumerate(named):
        if call_id in seen:
            at = f"{under}[{n}]"
            raise InvalidFieldError(f"{at}: the call is answered twice in one event", field=at)
        seen.add(call_id)
    found = [
        [
            gate
            for gate in gates
            if gate.tool_use_id == call_id
            and gate.created_ms >= run.turn_started_ms
            and request_id in (None, gate.id)
        ]
        for call_id, request_id in named
    ]
    unknown = [call_id for (call_id, _), among in zip(named, found, strict=True) if not among]
    if unknown:
        raise GateRefusedError(
            "the reply has no such call that waits, or has waited, for an answer",
            code="gate_not_found",
            field=under,
            details={"tool_call_ids": unknown},
        )
    return found


def _pick(among: Sequence[Gate], result: T, kinds: frozenset[GateKind], at: str) -> Gate:
    """The gate that is meant: the named one, else the open one, else the newest."""
    if result.request_id is not None and kinds is _CONFIRMED:
        kinds = kinds | {GateKind.OUTCOME_UNKNOWN}
    fitting = [gate for gate in among if gate.kind in kinds]
    if not fitting:
        kind = among[-1].kind
        if kind is GateKind.OUTCOME_UNKNOWN:
            msg = (
                "it is unknown what became of this call; to run it again, or not, name its "
                "request_id"
            )
            raise InvalidFieldError(f"{at}: {msg}", field=f"{at}.request_id")
        wanted = "USER_CONFIRM_RESULT" if kind in _CONFIRMED else "EXTERNAL_EXECUTION_RESULT"
        raise InvalidFieldError(f"{at}: the call waits for {wanted}", field=at)
    waiting = [gate for gate in fitting if gate.state is GateState.PENDING]
    return (waiting or fitting)[-1]


def _verdict(gate: Gate, result: ConfirmResult, at: str) -> Decision:
    call = result.tool_call
    _same_name(gate, call.name, f"{at}.tool_call.name")
    return Decision(
        request_id=gate.id,
        verdict="allow" if result.confirmed else "deny",
        reason=result.reason,
        input=_edited(gate, call.input, f"{at}.tool_call.input"),
        rules=tuple(
            suggested_rule(rule.tool_name, rule.rule_content, rule.behavior)
            for rule in result.rules or ()
        ),
    )


def _edited(gate: Gate, text: str, at: str) -> dict[str, Any] | None:
    """The input, if it is not the one that was asked for."""
    value = _told(lambda: loads(text.encode()), at)
    if not isinstance(value, dict):
        raise InvalidFieldError(f"{at}: must be the text of a JSON object", field=at)
    same = _told(lambda: digest(gate.tool, value), at) == gate.digest
    return None if same else value


def _told(read: Callable[[], Any], at: str) -> Any:
    try:
        return read()
    except (MalformedBodyError, NotCanonicalError) as error:
        raise InvalidFieldError(f"{at}: {error.message}", field=at) from None


def _result(gate: Gate, result: ResultBlock, at: str) -> Decision:
    _same_name(gate, result.name, f"{at}.name")
    if not gate.kind.answered:
        supplied = {"output": result.text, "state": result.state}
        return Decision(request_id=gate.id, result=supplied)
    if result.state != "success":
        msg = f"{at}.state: a question is answered, or stays open"
        raise InvalidFieldError(msg, field=f"{at}.state")
    under = f"{at}.metadata"
    metadata = check(AskUserMetadata, result.metadata or {}, under=under)
    answers: dict[str, Any] = {}
    for n, item in enumerate(metadata.answers):
        if item.question in answers:
            field = f"{under}.answers[{n}].question"
            raise InvalidFieldError(f"{field}: the question is answered twice", field=field)
        answers[item.question] = _answer(gate, item, f"{under}.answers[{n}]")
    return Decision(request_id=gate.id, answers=answers)


def _answer(gate: Gate, item: AskUserAnswer, at: str) -> list[str]:
    labels = _labels(gate, item.question)
    for n, label in enumerate(item.selected):
        if labels is not None and label not in labels:
            field = f"{at}.selected[{n}]"
            raise InvalidFieldError(f"{field}: no option has this label", field=field)
    if item.other is None:
        return list(item.selected)
    if gate.kind is GateKind.PLAN and item.selected == [REVISE]:
        return [item.other]
    return [*item.selected, item.other]


def _labels(gate: Gate, question: str) -> list[str] | None:
    """The labels of a question; None for one that is not asked, which is refused later."""
    for asked in gate.listed[1]["questions"]:
        if question == asked["question"] or (
            gate.kind is GateKind.PLAN and question == PLAN_HEADER
        ):
            return [option["label"] for option in asked["options"]]
    return None


def _same_name(gate: Gate, name: str, at: str) -> None:
    if name != shown_name(gate.kind, gate.tool):
        raise InvalidFieldError(f"{at}: the tool of a call cannot be changed", field=at)
