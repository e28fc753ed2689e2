"""Gates: list those of a run, decide them, and the inbox of all that are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from service.context import Call
from service.decide import CODES, RESULTS, Docket, decide, decide_batch, oldest_question
from service.operation import LIMIT, USER, ok, operation, text, whole
from service.render import Json, decided_body, open_request_body, page_body
from signoff.domain.decision import Decision
from signoff.domain.error import MissingError
from signoff.domain.gate import GateKind, GateState
from signoff.store.runs import place_of
from signoff.wire.decision import (
    Answer,
    Approve,
    DecideBatch,
    SubmitResults,
    read_batch,
    read_results,
)
from signoff.wire.gate import AnsweredBody, DecidedBody, OpenRequestBody, PermissionRequestBody
from signoff.wire.page import PageBody
from signoff.wire.shown import gate_body

#: How many open gates are read at a time; the oldest come first.
WINDOW = 500


@operation(ok(list[PermissionRequestBody]))
async def index(call: Call) -> Json:
    """All gates of a run, oldest first."""
    _, gates = await call.context.store.runs.load_with_gates(call.account, call.id("run_id"))
    return Json([gate_body(gate) for gate in gates])


@operation(ok(PermissionRequestBody), body=Approve, refuses=CODES)
async def approve(call: Call) -> Json:
    """Allows or denies one gate."""
    decision = (await call.body(Approve)).read()
    ruling = await decide(call.context, _docket(call, [decision]))
    return Json(gate_body(ruling.gates[0], resumed=ruling.resumed))


@operation(ok(AnsweredBody), body=Answer, refuses=(*CODES, "run_not_awaiting"))
async def answer(call: Call) -> Json:
    """Answers one question or plan: the named one, or the oldest that is open."""
    body = await call.body(Answer)
    request_id = body.request_id
    if request_id is None:
        runs = call.context.store.runs
        _, gates = await runs.load_with_gates(call.account, call.id("run_id"))
        request_id = oldest_question(gates).id
    decision = Decision(request_id=request_id, answers=body.answers)
    ruling = await decide(call.context, _docket(call, [decision]))
    return Json({"status": "ok", "resumed": ruling.resumed})


@operation(ok(DecidedBody), body=DecideBatch, refuses=CODES)
async def decisions(call: Call) -> Json:
    """Decides several gates of a run, all or none."""
    batch = read_batch((await call.body(DecideBatch)).decisions)
    ruling = await decide_batch(call.context, _docket(call, batch))
    return Json(decided_body(ruling.resumed, ruling.gates))


@operation(ok(DecidedBody), body=SubmitResults, refuses=CODES)
async def results(call: Call) -> Json:
    """Takes results of external calls of a run, all or none."""
    body = await call.body(SubmitResults)
    by_call: dict[str, str] = {}
    if body.by_call:
        runs = call.context.store.runs
        _, gates = await runs.load_with_gates(call.account, call.id("run_id"))
        # Call ids are unique within a step only: one that waits goes before those that do not.
        for gate in sorted(gates, key=lambda gate: gate.state is GateState.PENDING):
            if gate.kind is GateKind.EXTERNAL:
                by_call[gate.tool_use_id] = gate.id
    docket = _docket(call, read_results(body.results, by_call))
    ruling = await decide_batch(call.context, replace(docket, under=RESULTS))
    return Json(decided_body(ruling.resumed, ruling.gates))


@operation(
    ok(PageBody[OpenRequestBody]),
    parameters=(
        LIMIT,
        text("starting_after", "the `next_starting_after` of the page before"),
        USER,
        text("tool", "the tool that is asked for"),
        whole("agent_id", "whose runs"),
        whole("teammate_id", "the same under its other name"),
        whole("min_age", "how many seconds they are open at least", low=0),
    ),
    refuses=["not_found"],
)
async def inbox(call: Call) -> Json:
    """Open gates across runs, oldest first, filtered by user, agent, tool or age in seconds."""
    query, context = call.query, call.context
    limit, cursor = query.limit(), query.text("starting_after")
    user_id, tool = query.text("user_id"), query.text("tool")
    agent_id = query.integer("agent_id") or query.integer("teammate_id")
    age_s = query.integer("min_age", low=0) or 0
    newest = context.now_ms() - age_s * 1000
    store = context.store.runs
    after = None if cursor is None else await store.gate_place(call.account, cursor)
    if cursor is not None and after is None:
        raise MissingError("there is no request that the page could start after")
    rows: list[OpenRequestBody] = []
    while len(rows) <= limit and (
        gates := await store.open_gates(call.account, WINDOW, after=after)
    ):
        after = place_of(gates[-1])
        runs = await store.load_all(call.account, list({gate.run_id: None for gate in gates}))
        rows += [
            open_request_body(gate, run)
            for gate in gates
            if (run := runs.get(gate.run_id)) is not None
            and user_id in (None, run.user_id)
            and agent_id in (None, run.agent_id)
            and tool in (None, gate.listed[0])
            and (age_s == 0 or gate.created_ms <= newest)
        ]
    return Json(page_body(rows[:limit], more=len(rows) > limit))


def _docket(call: Call, decided: Sequence[Decision]) -> Docket:
    return Docket(
        account=call.account, run_id=call.id("run_id"), decisions=decided, decider=call.decider
    )
