"""Replies to a run."""

from __future__ import annotations

from starlette.responses import Response

from service.api.runs import load
from service.context import Call
from service.idempotency import idempotency_key
from service.operation import (
    IDEMPOTENCY,
    REPLAY_HEADER,
    RUN_ID_HEADER,
    STREAM,
    USER,
    ok,
    operation,
)
from service.render import Json, run_body
from service.replies import reply, reply_once
from service.streaming import begun, joined
from signoff.wire.run import Reply, RunBody


@operation(
    ok(RunBody, headers={**RUN_ID_HEADER, **REPLAY_HEADER}),
    STREAM,
    body=Reply,
    parameters=(USER, IDEMPOTENCY),
    refuses=("idempotency_key_reuse", "invalid_idempotency_key", "run_active", "unknown_tool"),
)
async def post(call: Call) -> Response:
    """Starts the next turn of the run, or queues the message for it.

    ``stream: true`` is answered with the stream of the turn, or of the one that is under way.
    """
    key = idempotency_key(call.header(b"idempotency-key"))
    raw, body = await call.body_with_raw(Reply)
    run = await load(call, call.query)
    seen = await call.context.store.frames.end(run.id) if body.stream is True else None
    if key is None:
        done = await reply(call.context, run, body)
    else:
        done = await reply_once(call.context, run, body, key=key, raw=raw)
    queued = done.delivery == "queued"
    if seen is not None and not done.replay:
        return await joined(call, done.run) if queued else begun(call, run.id, after=seen)
    shown = {
        **run_body(done.run),
        "delivery": done.delivery,
        "queued_message_id": done.message_id if queued else None,
    }
    headers = {"x-run-id": str(done.run.id)}
    if done.replay:
        headers["idempotent-replay"] = "true"
    return Json(shown, 200, headers)
