"""Runs: make, read, list, end, change the mode, read the history."""

from __future__ import annotations

from starlette.responses import Response

from service import control
from service.context import Call
from service.create import CODES, ROUTE, create, create_once, rate_headers
from service.formats import DEFAULT, FORMATS
from service.idempotency import idempotency_key
from service.operation import (
    IDEMPOTENCY,
    REPLAY_HEADER,
    RUN_ID_HEADER,
    SCOPED,
    STREAM,
    USER,
    choice,
    flag,
    header,
    ok,
    operation,
    text,
    whole,
)
from service.order import read_order
from service.query import Query
from service.render import Json, message_body, run_body
from service.streaming import MARK, begun, joined
from service.watch import MAX_WAIT_S, run_version
from signoff.domain.error import InvalidFieldError, MissingError
from signoff.domain.mode import Mode
from signoff.store.records import RunRecord
from signoff.wire.run import CreateRun, MessageBody, ModeBody, RunBody, SwitchMode

MAX_MESSAGES = 500
#: The headers of an answer with a run that was started.
STARTED = {
    **RUN_ID_HEADER,
    **REPLAY_HEADER,
    "X-RateLimit-Limit": "how many runs the end user may start within a minute",
    "X-RateLimit-Remaining": "how many of them are left",
    "X-RateLimit-Reset": "Unix seconds of the time at which one more is",
}


async def load(call: Call, query: Query) -> RunRecord:
    """The run of the path; missing when a ``user_id`` is given that is not its own."""
    run_id = call.id("run_id")
    run = await call.context.store.runs.load(call.account, run_id)
    user_id = query.text("user_id")
    if user_id is not None and user_id != run.user_id:
        raise MissingError(f"no run {run_id}")
    return run


@operation(
    ok(RunBody, 201, headers=STARTED),
    STREAM,
    body=CreateRun,
    parameters=[IDEMPOTENCY],
    refuses=CODES,
)
async def post(call: Call) -> Response:
    """Makes a run and answers at once: its event stream, or the run, which is ``running``."""
    raw, body = await call.body_with_raw(CreateRun)
    return await start(call, body, raw=raw, route=ROUTE)


async def start(call: Call, body: CreateRun, *, raw: bytes, route: str) -> Response:
    """Makes the run of ``body``, once for each Idempotency-Key of the route."""
    key = idempotency_key(call.header(b"idempotency-key"))
    order = read_order(call.context, call.account, body, by=call.by)
    if key is None:
        made = await create(call.context, order)
    else:
        made = await create_once(call.context, order, key=key, raw=raw, route=route)
    headers = {"x-run-id": str(made.run.id), **await rate_headers(call.context, made.run)}
    if body.stream is True and not made.replay:
        return begun(call, made.run.id, headers=headers)
    if made.replay:
        headers["idempotent-replay"] = "true"
    return Json(run_body(made.run), 201, headers)


@operation(
    ok(RunBody),
    parameters=(
        USER,
        whole("wait_s", "wait so many seconds for it to change", low=0, high=MAX_WAIT_S),
        text("known", "the `version` that is known; else what it is when the request arrives"),
    ),
    refuses=SCOPED,
)
async def get(call: Call) -> Json:
    """One run; with ``wait_s`` as soon as it is not as ``known`` says, or when that time is up.

    Without ``known`` a run that is over is answered at once.
    """
    query = call.query
    await call.demand_user(query.text("user_id"))
    wait_s, known = query.integer("wait_s", low=0, high=MAX_WAIT_S), query.text("known")
    run = await load(call, query)
    if wait_s and (known is not None or not run.status.terminal):
        run = await call.context.watch.changed(
            lambda: load(call, query), run, known or run_version(run), wait_s=wait_s
        )
    waiting = await call.context.store.turns.inbox(run.id) if run.queued else []
    while len(waiting) != run.queued:
        # The next turn began between the two reads: what waits must fit the turn that is shown.
        run = await load(call, query)
        waiting = await call.context.store.turns.inbox(run.id) if run.queued else []
    return Json(run_body(run, [message.id for message in waiting]))


@operation(
    STREAM,
    parameters=(
        USER,
        choice("format", list(FORMATS), "how the events are written; `signoff` unless given"),
        header("Last-Event-ID", "the `id` of the event after which to go on", pattern=MARK),
    ),
    refuses=["run_not_active"],
)
async def stream(call: Call) -> Response:
    """The events of a run that is under way, from its start or from ``Last-Event-ID``."""
    query = call.query
    chosen = query.choice("format", FORMATS) or DEFAULT
    return await joined(call, await load(call, query), chosen)


@operation(ok(RunBody), parameters=[USER], refuses=("end_user_required", "run_not_active"))
async def cancel(call: Call) -> Json:
    """Ends a run that is not over."""
    await call.demand_user(call.query.text("user_id"))
    run = await load(call, call.query)
    await control.cancel(call.context, call.account, run.id, by=call.by)
    return Json(run_body(await call.context.store.runs.load(call.account, run.id)))


@operation(ok(ModeBody), body=SwitchMode, refuses=["run_not_active"])
async def permission_mode(call: Call) -> Json:
    """Changes the mode of a run that is not over."""
    run_id = call.id("run_id")
    mode = Mode((await call.body(SwitchMode)).permission_mode)
    await control.switch_mode(call.context, call.account, run_id, mode, by=call.by)
    return Json({"permission_mode": mode.value})


@operation(
    ok(list[MessageBody]),
    parameters=(
        USER,
        whole("after_sequence", "those behind this one", low=0),
        whole("before_sequence", "the last of those before this one"),
        flag("tail", "the last ones"),
        whole("limit", "how many at most", high=MAX_MESSAGES, default=MAX_MESSAGES),
    ),
)
async def messages(call: Call) -> Json:
    """The history, oldest first: a page after or before a sequence number, or the newest page."""
    query = call.query
    after, before = query.integer("after_sequence", low=0), query.integer("before_sequence")
    tail = query.flag("tail") is True
    limit = query.integer("limit", high=MAX_MESSAGES) or MAX_MESSAGES
    if (after is not None) + (before is not None) + tail > 1:
        msg = "give one of after_sequence, before_sequence and tail"
        raise InvalidFieldError(msg, field="tail" if tail else "before_sequence")
    run = await load(call, query)
    runs = call.context.store.runs
    start = after or 0
    if tail or before is not None:
        end = await runs.history_length(run.id)
        if before is not None:
            end = min(end, before - 1)
        start = max(0, end - limit)
        limit = end - start
    if limit == 0:
        return Json([])
    found = await runs.history(run.id, start, start + limit - 1)
    return Json(
        [message_body(run.id, start + n, message) for n, message in enumerate(found, start=1)]
    )
