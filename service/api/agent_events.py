"""The answer events of AgentScope, taken as decisions."""

from __future__ import annotations

from service.agentscope import CONFIRMS, EXECUTIONS, check_reply, confirmed, executed
from service.body import check, read_json
from service.context import Call
from service.decide import CODES, Docket, decide_batch
from service.operation import ok, operation
from service.render import Json, decided_body
from signoff.wire.agentscope import (
    CONFIRM,
    AnswerEvent,
    EventKind,
    ExternalExecutionResult,
    UserConfirmResult,
)
from signoff.wire.gate import DecidedBody


@operation(
    ok(DecidedBody),
    body=AnswerEvent,
    refuses=(*CODES, "reply_not_found", "reply_not_current"),
)
async def post(call: Call) -> Json:
    """Takes one event: all that it answers, or nothing."""
    runs, run_id = call.context.store.runs, call.id("run_id")
    _, value = await read_json(call.scope, call.receive)
    known = await runs.load_with_gates(call.account, run_id)
    if check(EventKind, value).type == CONFIRM:
        answers = check(UserConfirmResult, value)
        check_reply(known[0], answers.reply_id)
        decisions, under = confirmed(*known, answers), CONFIRMS
    else:
        results = check(ExternalExecutionResult, value)
        check_reply(known[0], results.reply_id)
        decisions, under = executed(*known, results), EXECUTIONS
    docket = Docket(
        account=call.account,
        run_id=run_id,
        decisions=decisions,
        decider=call.decider,
        known=known,
        under=under,
    )
    ruling = await decide_batch(call.context, docket)
    return Json(decided_body(ruling.resumed, ruling.gates))
