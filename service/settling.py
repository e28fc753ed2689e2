"""What decisions come to: each is checked against its gate before anything is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from service.context import Context
from service.render import standing_body
from signoff.canonical import digest
from signoff.declared import SchemaInputs
from signoff.domain.approval import Decider
from signoff.domain.decision import Checked, CheckInput, Decision, Settlement, settle
from signoff.domain.error import (
    GateRefusedError,
    InvalidFieldError,
    InvalidToolInputError,
    NotCanonicalError,
    SignoffError,
)
from signoff.domain.expiry import auto_resolved
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.path import below
from signoff.domain.rule import Rule, Verdict, denied_by
from signoff.domain.suggestion import suggested_rules
from signoff.shape import shape_of
from signoff.store.records import RunRecord
from signoff.store.runs import dumps
from signoff.subject import subject
from signoff.tooldef import Tool
from signoff.toolschema import Inputs

_WHY = {
    "gate_not_found": "the run has no such request",
    "gate_cancelled": "the request was cancelled with its run",
    "gate_changed": "the request is not the one that was seen: its digest differs",
    "gate_resolved_otherwise": "the request was already decided otherwise",
    "run_not_active": "the run has ended; nothing can be decided any more",
}


class RefusedError(Exception):
    """At least one decision cannot be applied, so none was: (position, why)."""

    def __init__(self, refusals: Sequence[tuple[int, SignoffError]]) -> None:
        super().__init__()
        self.refusals = refusals


async def settle_all(
    context: Context,
    run: RunRecord,
    gates: Mapping[str, Gate],
    decisions: Sequence[Decision],
    decider: Decider,
) -> list[Settlement]:
    """What each decision comes to, in their order; raises RefusedError if any cannot be applied."""
    rules: Sequence[Rule] = ()
    if any(decision.input is not None for decision in decisions):
        # An edit is rare and a deny rule may be a moment old, so nothing cached is believed.
        context.store.catalog.forget(run.account)
        rules = (await context.store.catalog.rules(run.account, run.id)).rules
    settled: list[Settlement] = []
    refusals: list[tuple[int, SignoffError]] = []
    for n, decision in enumerate(decisions):
        gate = gates.get(decision.request_id)
        if gate is None:
            refusals.append((n, refusal(run, "gate_not_found", None)))
            continue
        try:
            await _check_decider(context, run, gate, decider)
            settled.append(
                settle(
                    gate,
                    decision,
                    check_input=_checker(context, run, gate, rules),
                    check_output=_check_output,
                    suggest=partial(_suggest, context.toolbox, gate),
                )
            )
        except SignoffError as error:
            refusals.append((n, error))
    if refusals:
        raise RefusedError(refusals)
    return settled


async def _check_decider(context: Context, run: RunRecord, gate: Gate, decider: Decider) -> None:
    """Raises GateRefusedError for one who may not decide the gate; the audit has it then."""
    approval = gate.approval
    if approval is None:
        return
    if not approval.admits(decider):
        msg = "only the approvers of the request may decide it"
        error = GateRefusedError(msg, code="not_an_approver")
    elif approval.exclude_requester and decider.by in await context.store.decisions.requesters(run):
        msg = "whoever asked for the work may not decide this request"
        error = GateRefusedError(msg, code="requester_may_not_decide")
    else:
        return
    await context.store.decisions.refused(run, gate.id, by=decider.by, code=error.code)
    raise error


def _suggest(
    toolbox: Mapping[str, Tool], gate: Gate, name: str, tool_input: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The suggestions for an edited input; of a tool that only workers know, the ones for any."""
    tool = toolbox.get(name)
    if tool is None:
        whole = {"tool": name, "effect": Verdict.ALLOW.value}
        return [rule for rule in gate.suggested_rules if rule == whole]
    return [*suggested_rules(subject(name, tool, tool_input))]


def _checker(context: Context, run: RunRecord, gate: Gate, rules: Sequence[Rule]) -> CheckInput:
    """Checks an edited input; of a settled gate it is only compared, never judged again."""

    def check(name: str, tool_input: Mapping[str, Any]) -> Checked:
        if gate.state is GateState.PENDING:
            _check_edit(_inputs(context.toolbox, gate), tool_input)
            _check_rules(context, run, rules, name, tool_input)
        try:
            return dumps(tool_input), digest(name, tool_input)
        except NotCanonicalError as error:
            raise InvalidFieldError(error.message, code=error.code, field="input") from error

    return check


def _inputs(toolbox: Mapping[str, Tool], gate: Gate) -> Inputs:
    """What an edited input is checked against: as it stood when the gate was opened, if kept."""
    if gate.input_schema is not None:
        return SchemaInputs(json.loads(gate.input_schema))
    tool = toolbox.get(gate.tool)
    if tool is None:
        msg = "the tool is not loaded any more, so an edited input cannot be checked"
        raise InvalidFieldError(msg, code="unknown_tool", field="input")
    return tool.parameters


def _check_edit(inputs: Inputs, tool_input: Mapping[str, Any]) -> None:
    try:
        inputs.check(tool_input)
    except InvalidToolInputError as error:
        field = below("input", error.field)
        msg = f"input: {error.message}"
        raise InvalidFieldError(msg, code=error.code, field=field) from error


def _check_rules(
    context: Context,
    run: RunRecord,
    rules: Sequence[Rule],
    name: str,
    tool_input: Mapping[str, Any],
) -> None:
    call = subject(name, context.toolbox.get(name), tool_input)
    deny = denied_by(call, user_id=run.user_id, rules=rules, now_ms=context.now_ms())
    if deny is not None:
        msg = f"deny rule {deny.id} forbids the edited call"
        raise InvalidFieldError(msg, code="denied_by_rule", field="input")


def _check_output(gate: Gate, output: Any) -> None:
    """Of a settled gate the output is only compared, never judged again."""
    if gate.output_schema is None or gate.state is not GateState.PENDING:
        return
    wrong = shape_of(gate.output_schema, field="output_schema").misfit(output)
    if wrong is not None:
        field = below("result.output", wrong.field)
        msg = f"the output is not what the tool declares: {wrong}"
        raise InvalidFieldError(msg, field=field)


def refusal(run: RunRecord, code: str, gate: Gate | None) -> GateRefusedError:
    """The error for ``code``, with what is known of the gate as it stands."""
    details: dict[str, Any] = {}
    late = code == "gate_resolved_otherwise" and gate is not None and auto_resolved(gate)
    if gate is not None and gate.state is not GateState.PENDING:
        details["standing"] = standing_body(gate)
    if late and gate is not None and gate.kind is GateKind.QUESTION:
        msg = "the time of the question was over before it was answered"
        return GateRefusedError(msg, code="auto_continued", details=details)
    if gate is not None and code == "gate_changed":
        details["digest"] = gate.digest
    if code == "run_not_active":
        details["run_status"] = run.status.value
    return GateRefusedError(_WHY[code], code=code, details=details)
