"""Decides gates: one way for reviewers with a key and for signed callbacks."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from service.context import TRIES, Context
from service.errors import status_of
from service.render import standing_body
from signoff.canonical import digest
from signoff.declared import SchemaInputs
from signoff.domain import event as events
from signoff.domain.approval import Decider, settles
from signoff.domain.decision import Checked, CheckInput, Decision, Settlement, settle
from signoff.domain.error import (
    GateRefusedError,
    InvalidFieldError,
    InvalidToolInputError,
    NotCanonicalError,
    SignoffError,
    StaleError,
    UnavailableError,
)
from signoff.domain.expiry import auto_resolved
from signoff.domain.frame import frame, result_frames
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.rule import Rule, Verdict, denied_by
from signoff.domain.suggestion import suggested_rules
from signoff.shape import shape_of
from signoff.store import decisions as stored
from signoff.store.records import RunRecord
from signoff.store.runs import dumps
from signoff.subject import subject
from signoff.tooldef import Tool
from signoff.toolschema import Inputs

logger = logging.getLogger(__name__)
#: What a request calls its items that are nothing but results.
RESULTS = "results"

#: What may be wrong with a decision.
CODES = (
    "auto_continued",
    "not_an_approver",
    "requester_may_not_decide",
    "answer_required",
    "denied_by_rule",
    "gate_cancelled",
    "gate_changed",
    "gate_not_found",
    "gate_resolved_otherwise",
    "invalid_tool_input",
    "not_canonical",
    "run_not_active",
    "unknown_tool",
)
_GATE_ID = re.compile(r"req_[A-Za-z0-9_-]{1,64}")
_WHY = {
    "gate_not_found": "the run has no such request",
    "gate_cancelled": "the request was cancelled with its run",
    "gate_changed": "the request is not the one that was seen: its digest differs",
    "gate_resolved_otherwise": "the request was already decided otherwise",
    "run_not_active": "the run has ended; nothing can be decided any more",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What became of accepted decisions: the gates as they stand, in the order asked."""

    resumed: bool
    gates: tuple[Gate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Docket:
    """Decisions on gates of one run, and who makes them.

    ``known`` is the run and those of its gates that are decided, if the caller has just read
    them; what is outdated is noticed and read again.
    """

    account: str
    run_id: int
    decisions: Sequence[Decision]
    decider: Decider
    known: tuple[RunRecord, Sequence[Gate]] | None = None
    #: What the list is called in the request.
    under: str = "decisions"


class _RefusedError(Exception):
    """At least one decision cannot be applied, so none was: (position, why)."""

    def __init__(self, refusals: Sequence[tuple[int, SignoffError]]) -> None:
        super().__init__()
        self.refusals = refusals


async def decide(context: Context, docket: Docket) -> Ruling:
    """Applies one decision, durable on return; raises the error that it amounts to."""
    try:
        return await _decide(context, docket)
    except _RefusedError as refused:
        raise refused.refusals[0][1] from None


async def decide_batch(context: Context, docket: Docket) -> Ruling:
    """Applies all decisions or none; the error names the first in the way, ``decisions[i]``.

    Of results the items are ``results[i]``, whose fields stand in the item itself.
    """
    try:
        return await _decide(context, docket)
    except _RefusedError as refused:
        rows = [
            {
                "index": n,
                "request_id": docket.decisions[n].request_id,
                "status": status_of(error),
                "error_code": error.code,
            }
            for n, error in refused.refusals
        ]
        n, first = refused.refusals[0]
        at, field = f"{docket.under}[{n}]", first.field
        if field is not None and docket.under == RESULTS:
            field = field.removeprefix("result").removeprefix(".")
        raise SignoffError(
            f"{at}: {first.message}",
            code=first.code,
            field=f"{at}.{field}" if field else at,
            details={**first.details, RESULTS if docket.under == RESULTS else "decisions": rows},
        ) from None


def oldest_question(gates: Sequence[Gate]) -> Gate:
    """The open question or plan that an answer without a request_id is for."""
    for gate in gates:
        if gate.state is GateState.PENDING and gate.kind.answered:
            return gate
    raise GateRefusedError("no question of the run is open", code="run_not_awaiting")


async def read_decided(
    context: Context, account: str, run_id: int, decisions: Sequence[Decision]
) -> tuple[RunRecord, Sequence[Gate]]:
    """The run and those of its gates that ``decisions`` name, in one round trip."""
    runs = context.store.runs
    ids = [d.request_id for d in decisions if _GATE_ID.fullmatch(d.request_id)]
    return await asyncio.gather(runs.load(account, run_id), runs.gates_by_id(run_id, ids))


async def _decide(context: Context, docket: Docket) -> Ruling:
    store = context.store
    known = docket.known
    for _ in range(TRIES):
        run, found = known or await read_decided(
            context, docket.account, docket.run_id, docket.decisions
        )
        known = None
        gates = {gate.id: gate for gate in found}
        settlements = await _settle_all(context, run, gates, docket)
        verdicts = [
            _verdict(docket, gates[decision.request_id], decision, settlement)
            for decision, settlement in zip(docket.decisions, settlements, strict=True)
        ]
        resumed = context.publisher.run_event(run, events.RUN_RESUMED, status="running")
        try:
            decided = await store.decisions.decide(
                run,
                verdicts,
                resumed=resumed,
                fanout=await context.publisher.fanout(run, events.RUN_RESUMED),
                frames=_frames([gates[d.request_id] for d in docket.decisions], verdicts),
            )
        except StaleError as error:
            if error.details["what"] == "expired":
                await context.lapse(run.account, run.id, int(error.details["more"][0]))
            store.catalog.forget(run.account)
            continue
        if not decided.accepted:
            raise _RefusedError(_refusals(run, decided.outcomes))
        if decided.hint:
            context.hint(run.id)
        applied = sum(outcome.applied for outcome in decided.outcomes)
        logger.info("gates_decided run=%d count=%d by=%s", run.id, applied, docket.decider.by)
        standing = await _remember(context, docket, run, settlements, decided.outcomes)
        return Ruling(resumed=decided.resumed, gates=standing)
    raise UnavailableError("the run keeps moving")


def _frames(gates: Sequence[Gate], verdicts: Sequence[stored.Verdict]) -> list[bytes]:
    """What watchers are shown; of gates that were settled before they were shown it then."""
    frames: list[bytes] = []
    for gate, verdict in zip(gates, verdicts, strict=True):
        noted = verdict.tally is not None and not verdict.tally.last
        if gate.state is GateState.PENDING and not noted:
            frames.append(frame("permission_resolved", request_id=gate.id))
            if verdict.settlement.result is not None:
                frames.extend(result_frames(gate.tool_use_id, verdict.settlement.result))
    return frames


def _verdict(
    docket: Docket, gate: Gate, decision: Decision, settlement: Settlement
) -> stored.Verdict:
    tally = None
    if settlement.allows and gate.approval is not None and gate.approval.quorum > 1:
        bound = settlement.digest or gate.digest
        tally = stored.Tally(
            who=docket.decider.who,
            digest=bound,
            seen=gate.assent_changes,
            last=settles(gate.approval, gate.assents, docket.decider, bound),
        )
    return stored.Verdict(
        gate_id=decision.request_id,
        settlement=settlement,
        by=docket.decider.by,
        reason=decision.reason,
        expected_digest=decision.expected_digest,
        grant=f"gate:{decision.request_id}",
        tally=tally,
    )


async def _settle_all(
    context: Context,
    run: RunRecord,
    gates: Mapping[str, Gate],
    docket: Docket,
) -> list[Settlement]:
    decisions = docket.decisions
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
            refusals.append((n, _refusal(run, "gate_not_found", None)))
            continue
        try:
            await _check_decider(context, run, gate, docket.decider)
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
        raise _RefusedError(refusals)
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
        field = f"input.{error.field}" if error.field else "input"
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
        field = f"result.output.{wrong.field}" if wrong.field else "result.output"
        msg = f"the output is not what the tool declares: {wrong}"
        raise InvalidFieldError(msg, field=field)


def _refusals(run: RunRecord, outcomes: Sequence[stored.Outcome]) -> list[tuple[int, SignoffError]]:
    return [
        (n, _refusal(run, outcome.code, outcome.gate))
        for n, outcome in enumerate(outcomes)
        if outcome.code
    ]


def _refusal(run: RunRecord, code: str, gate: Gate | None) -> GateRefusedError:
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


async def _remember(
    context: Context,
    docket: Docket,
    run: RunRecord,
    settlements: Sequence[Settlement],
    outcomes: Sequence[stored.Outcome],
) -> tuple[Gate, ...]:
    """Stores the policies of remembered decisions, also of repeated ones; the gates with them."""
    standing: list[Gate] = []
    for settlement, outcome in zip(settlements, outcomes, strict=True):
        gate = outcome.gate
        if gate is None:
            continue
        if settlement.remember_tools and not outcome.noted:
            policies: dict[str, int] = {}
            for tool in settlement.remember_tools:
                put = await context.store.policies.put(
                    account=run.account,
                    user_id=run.user_id,
                    tool=tool,
                    effect=Verdict.ALLOW,
                    source="run_approval",
                    author=docket.decider.by,
                    now_ms=context.now_ms(),
                )
                policies[tool] = put.rule.id
            await context.store.decisions.remembered(run, gate.id, policies)
            gate = dataclasses.replace(gate, remembered=True)
        standing.append(gate)
    return tuple(standing)
