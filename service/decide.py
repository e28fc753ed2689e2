"""Decides gates: one way for reviewers with a key and for signed callbacks."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.context import TRIES, Context
from service.errors import status_of
from service.settling import RefusedError, refusal, settle_all
from signoff.domain import event as events
from signoff.domain.approval import Decider, settles
from signoff.domain.decision import Decision, Settlement
from signoff.domain.error import (
    GateRefusedError,
    SignoffError,
    StaleError,
    UnavailableError,
)
from signoff.domain.frame import frame, result_frames
from signoff.domain.gate import Gate, GateState
from signoff.domain.path import below
from signoff.domain.rule import Verdict
from signoff.store import decisions as stored
from signoff.store.records import RunRecord

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


async def decide(context: Context, docket: Docket) -> Ruling:
    """Applies one decision, durable on return; raises the error that it amounts to."""
    try:
        return await _decide(context, docket)
    except RefusedError as refused:
        raise refused.refusals[0][1] from None


async def decide_batch(context: Context, docket: Docket) -> Ruling:
    """Applies all decisions or none; the error names the first in the way, ``decisions[i]``.

    Of results the items are ``results[i]``, whose fields stand in the item itself.
    """
    try:
        return await _decide(context, docket)
    except RefusedError as refused:
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
            field=below(at, field),
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
        settlements = await settle_all(context, run, gates, docket.decisions, docket.decider)
        resolutions = [
            _resolution(docket, gates[decision.request_id], decision, settlement)
            for decision, settlement in zip(docket.decisions, settlements, strict=True)
        ]
        resumed = context.publisher.run_event(run, events.RUN_RESUMED, status="running")
        try:
            decided = await store.decisions.decide(
                run,
                resolutions,
                resumed=resumed,
                fanout=await context.publisher.fanout(run, events.RUN_RESUMED),
                frames=_frames([gates[d.request_id] for d in docket.decisions], resolutions),
            )
        except StaleError as error:
            if error.details["what"] == "expired":
                await context.lapse(run.account, run.id, int(error.details["more"][0]))
            store.catalog.forget(run.account)
            continue
        if not decided.accepted:
            raise RefusedError(_refusals(run, decided.outcomes))
        if decided.hint:
            context.hint(run.id)
        applied = sum(outcome.applied for outcome in decided.outcomes)
        logger.info("gates_decided run=%d count=%d by=%s", run.id, applied, docket.decider.by)
        standing = await _remember(context, docket, run, settlements, decided.outcomes)
        return Ruling(resumed=decided.resumed, gates=standing)
    raise UnavailableError("the run keeps moving")


def _frames(gates: Sequence[Gate], resolutions: Sequence[stored.Resolution]) -> list[bytes]:
    """What watchers are shown; of gates that were settled before they were shown it then."""
    frames: list[bytes] = []
    for gate, resolution in zip(gates, resolutions, strict=True):
        noted = resolution.tally is not None and not resolution.tally.last
        if gate.state is GateState.PENDING and not noted:
            frames.append(frame("permission_resolved", request_id=gate.id))
            if resolution.settlement.result is not None:
                frames.extend(result_frames(gate.tool_use_id, resolution.settlement.result))
    return frames


def _resolution(
    docket: Docket, gate: Gate, decision: Decision, settlement: Settlement
) -> stored.Resolution:
    tally = None
    if settlement.allows and gate.approval is not None and gate.approval.quorum > 1:
        bound = settlement.digest or gate.digest
        tally = stored.Tally(
            who=docket.decider.who,
            digest=bound,
            seen=gate.assent_changes,
            last=settles(gate.approval, gate.assents, docket.decider, bound),
        )
    return stored.Resolution(
        gate_id=decision.request_id,
        settlement=settlement,
        by=docket.decider.by,
        reason=decision.reason,
        expected_digest=decision.expected_digest,
        grant=f"gate:{decision.request_id}",
        tally=tally,
    )


def _refusals(run: RunRecord, outcomes: Sequence[stored.Outcome]) -> list[tuple[int, SignoffError]]:
    return [
        (n, refusal(run, outcome.code, outcome.gate))
        for n, outcome in enumerate(outcomes)
        if outcome.code
    ]


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
