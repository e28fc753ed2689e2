"""What people do with runs besides deciding: try again, file away, share, look at, begin with."""

from __future__ import annotations

import contextlib

from starlette.responses import Response

from service.api.runs import STARTED, load, start
from service.body import BodyTooLargeError, read_raw
from service.context import Call
from service.create import CODES
from service.operation import (
    IDEMPOTENCY,
    NO_CONTENT,
    RUN_ID_HEADER,
    SCOPED,
    STREAM,
    USER,
    flag,
    ok,
    operation,
)
from service.render import Json, run_body
from service.retry import retry
from signoff.domain.error import InvalidError, InvalidFieldError
from signoff.store.records import RunRecord
from signoff.wire.overview import FirstSession, ShareBody
from signoff.wire.run import CreateRun, RunBody

FIRST_SESSION = "POST /runs/first-session"
#: What an agent is told when it is to speak first.
OPENING = (
    "This is the first session. Introduce yourself in a few words, say what you can do, "
    "and ask what to begin with."
)


class FilesNotSupportedError(InvalidError):
    """Files have nowhere to go: agents run without a file system of their own."""

    code = "files_not_supported"


@operation(
    ok(RunBody, 201, headers=RUN_ID_HEADER),
    ok(RunBody, headers=RUN_ID_HEADER, about="The one that is under way already."),
    parameters=(
        USER,
        flag("confirm", "also if it had begun to act"),
        flag("use_credits", "makes no difference"),
    ),
    refuses=(
        "run_not_retryable",
        "retry_needs_confirmation",
        "END_USER_RATE_LIMIT_REACHED",
        "END_USER_RUN_LIMIT_REACHED",
        "agent_archived",
        "agent_disabled",
        "unknown_model",
    ),
)
async def retry_run(call: Call) -> Json:
    """Starts the work of a failed or cancelled run again, as a new run."""
    query = call.query
    confirm = query.flag("confirm") is True
    # There are no credits here, so it makes no difference.
    query.flag("use_credits")
    made = await retry(call.context, await load(call, query), confirm=confirm)
    return Json(run_body(made.run), 200 if made.replay else 201, {"x-run-id": str(made.run.id)})


@operation(ok(RunBody), parameters=[USER])
async def archive(call: Call) -> Json:
    """Takes a run out of the lists; it stays readable by its id."""
    return await _shelve(call, archived=True)


@operation(ok(RunBody), parameters=[USER])
async def unarchive(call: Call) -> Json:
    """Puts an archived run back into the lists."""
    return await _shelve(call, archived=False)


async def _shelve(call: Call, *, archived: bool) -> Json:
    run = await load(call, call.query)
    await call.context.store.marks.archive(run, archived=archived)
    return Json(run_body(await _again(call, run)))


@operation(ok(RunBody), parameters=[USER], refuses=SCOPED)
async def view(call: Call) -> Json:
    """Notes that a run was looked at."""
    await call.demand_user(call.query.text("user_id"))
    run = await load(call, call.query)
    await call.context.store.marks.view(run, call.context.now_ms())
    return Json(run_body(await _again(call, run)))


@operation(ok(ShareBody), parameters=[USER])
async def share(call: Call) -> Json:
    """The public link to what is said in a run; the same one until it is revoked."""
    run = await load(call, call.query)
    fresh = call.context.new_id()
    token = await call.context.store.marks.share(run, fresh)
    url = f"{call.origin}{call.surface.prefix}/shared/{token}"
    return Json(ShareBody(share_token=token, share_url=url))


@operation(NO_CONTENT, parameters=[USER])
async def unshare(call: Call) -> Response:
    """Revokes the public link."""
    await call.context.store.marks.unshare(await load(call, call.query))
    return Response(status_code=204)


@operation(
    ok(RunBody, 201, headers=STARTED),
    STREAM,
    body=FirstSession,
    parameters=[IDEMPOTENCY],
    refuses=CODES,
)
async def first_session(call: Call) -> Response:
    """Makes a run in which the agent speaks first."""
    raw, body = await call.body_with_raw(FirstSession)
    if body.teammate_id is None and body.agent_id is None:
        raise InvalidFieldError("teammate_id: is required", field="teammate_id")
    order = CreateRun(message=OPENING, **body.model_dump(exclude_none=True))
    return await start(call, order, raw=raw, route=FIRST_SESSION)


@operation(media="multipart/form-data", refuses=["files_not_supported"])
async def with_files(call: Call) -> Json:
    """Refuses a run with files."""
    return await _refuse_files(call)


@operation(media="multipart/form-data", parameters=[USER], refuses=["files_not_supported"])
async def reply_with_files(call: Call) -> Json:
    """Refuses a reply with files."""
    await load(call, call.query)
    return await _refuse_files(call)


async def _refuse_files(call: Call) -> Json:
    with contextlib.suppress(BodyTooLargeError):
        # Read to its end, so that the client gets to read the answer.
        await read_raw(call.scope, call.receive)
    msg = "files need a sandbox to put them into, and there is none here"
    raise FilesNotSupportedError(msg)


async def _again(call: Call, run: RunRecord) -> RunRecord:
    return await call.context.store.runs.load(call.account, run.id)
