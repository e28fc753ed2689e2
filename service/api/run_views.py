"""Runs in lists and summaries, their files, and what a share link shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope

from service.api.runs import load
from service.context import Call, Context
from service.dispatch import check_open
from service.operation import PAGED, SCOPED, USER, choice, flag, ok, operation, text, whole
from service.overview import activity_body, check_body, needs_you_item, outcome_body, shared_body
from service.query import Query
from service.render import Json, page_body, run_body
from signoff.domain.error import InvalidFieldError, MissingError
from signoff.domain.run import FILTER_ONLY, RunStatus
from signoff.store.listing import Archived, Filter, Page
from signoff.wire.overview import (
    ActivityBody,
    CheckBody,
    NeedsYouBody,
    OutcomeBody,
    SharedRunBody,
)
from signoff.wire.page import PageBody
from signoff.wire.run import RunBody, RunSummaryBody

SHARED_PATH = "/shared/{token}"
SHARED_MESSAGES = 500
NEEDS_YOU = 10
_STATUSES = frozenset(RunStatus) | FILTER_ONLY
#: What a list leaves out when only a summary is wanted.
_HEAVY = frozenset({"output", "output_data", "metadata", "tools", "external_tools", "mcp_servers"})
_SHELVES: Mapping[str, Archived] = {"exclude": "exclude", "only": "only", "include": "include"}
_ORDERS = ("created", "priority")
_PROJECTIONS = ("summary",)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")


@operation(
    ok(PageBody[RunBody | RunSummaryBody]),
    parameters=(
        *PAGED,
        text("user_id", "whose; without it those without a user"),
        flag("include_end_user_runs", "those of every user"),
        choice("status", tuple(_STATUSES), "in which state"),
        choice("archived", tuple(_SHELVES), "archived ones are left out otherwise"),
        whole("agent_id", "whose"),
        whole("teammate_id", "the same under its other name"),
        whole("task_id", "the run that is the only one of this task"),
        choice("sort", _ORDERS, "`priority`: those that wait for a person first"),
        choice("fields", _PROJECTIONS, "without output, metadata and tools"),
        flag("exclude_platform_runs", "makes no difference"),
    ),
    refuses=SCOPED,
)
async def index(call: Call) -> Json:
    """Runs newest first, or those that wait for a person first: of one user, of none, or of all."""
    query = call.query
    limit, cursor = query.limit(), query.cursor()
    wanted = _filter(query)
    if not wanted.every_user:
        await call.demand_user(wanted.user_id)
    task_id = query.integer("task_id")
    priority = query.choice("sort", _ORDERS) == "priority"
    summary = query.choice("fields", _PROJECTIONS) is not None
    # Every run here was asked for by the account.
    query.flag("exclude_platform_runs")
    if wanted.status in FILTER_ONLY:
        page = Page()
    elif task_id is not None:
        page = await _of_task(call, wanted, task_id, after=cursor)
    else:
        page = await call.context.store.listing.page(
            call.account, wanted, limit=limit, after=cursor, priority=priority
        )
    bodies: list[dict[str, Any]] = [{**run_body(run)} for run in page.runs]
    if summary:
        bodies = [
            {name: value for name, value in body.items() if name not in _HEAVY} for body in bodies
        ]
    return Json(page_body(bodies, more=page.more))


def _filter(query: Query) -> Filter:
    user_id = query.text("user_id")
    status = query.choice("status", _STATUSES)
    archived = _SHELVES[query.choice("archived", _SHELVES) or "exclude"]
    if status == "archived":
        status, archived = None, "only"
    agent_id, teammate_id = query.integer("agent_id"), query.integer("teammate_id")
    if None not in (agent_id, teammate_id) and agent_id != teammate_id:
        msg = "agent_id and teammate_id are one thing and must not differ"
        raise InvalidFieldError(msg, field="agent_id")
    return Filter(
        user_id=user_id,
        every_user=user_id is None and query.flag("include_end_user_runs") is True,
        status=status,
        agent_id=teammate_id if agent_id is None else agent_id,
        archived=archived,
    )


async def _of_task(call: Call, wanted: Filter, task_id: int, *, after: int | None) -> Page:
    """The page of one task: every run is the only one of its own."""
    if after is not None and after <= task_id:
        return Page()
    try:
        run = await call.context.store.runs.load(call.account, task_id)
    except MissingError:
        return Page()
    in_scope = wanted.every_user or run.user_id == wanted.user_id
    on_shelf = wanted.archived == "include" or run.marks.archived == (wanted.archived == "only")
    return Page(runs=[run] if in_scope and on_shelf and wanted.takes(run) else [])


async def _scope(call: Call) -> str | None:
    user_id = call.query.text("user_id")
    await call.demand_user(user_id)
    return user_id


@operation(ok(CheckBody), parameters=[USER], refuses=SCOPED)
async def check(call: Call) -> Json:
    """Whether anything changed: counts and times of one scope."""
    user_id, store = await _scope(call), call.context.store
    freshness = await store.listing.freshness(call.account, user_id)
    return Json(check_body(freshness, await store.agents.roster(call.account, user_id)))


@operation(ok(NeedsYouBody), parameters=[USER], refuses=SCOPED)
async def needs_you(call: Call) -> Json:
    """How many runs of one scope wait for a person, and the newest of them."""
    user_id, store = await _scope(call), call.context.store
    freshness = await store.listing.freshness(call.account, user_id)
    items = [
        needs_you_item(run, await store.runs.gates(run.id))
        for run in await store.listing.blocked(call.account, user_id, NEEDS_YOU)
    ]
    return Json({"count": freshness.awaiting, "items": items})


@operation(ok(ActivityBody), parameters=[USER], refuses=SCOPED)
async def activity(call: Call) -> Json:
    """What every agent of one scope does, and the last thing that it did."""
    runs = await call.context.store.listing.activity(call.account, await _scope(call))
    return Json({"data": activity_body(runs)})


@operation(ok(OutcomeBody), parameters=[USER])
async def outcome(call: Call) -> Json:
    """What a run came to."""
    run = await load(call, call.query)
    return Json(outcome_body(run, await call.context.store.runs.history_length(run.id)))


@operation(ok(list[dict[str, Any]]), parameters=[USER])
async def files(call: Call) -> Json:
    """The files of a run; there never are any, as agents have no file system of their own."""
    await load(call, call.query)
    return Json([])


@operation(parameters=[USER])
async def download(call: Call) -> Json:
    """A file of a run; there is none."""
    run = await load(call, call.query)
    raise MissingError(f"run {run.id} has no such file")


@operation(ok(SharedRunBody))
async def shared(context: Context, scope: Scope, receive: Receive) -> Json:
    """What was said in a run, for whoever has its link."""
    del receive
    check_open(context, scope)
    token: str = scope["path_params"]["token"]
    if _TOKEN.fullmatch(token) is None:
        raise MissingError("nothing is shared by this link")
    store = context.store
    run = await store.runs.load(*await store.marks.shared(token))
    start = max(0, await store.runs.history_length(run.id) - SHARED_MESSAGES)
    history = await store.runs.history(run.id, start)
    headers = {"referrer-policy": "no-referrer", "x-robots-tag": "noindex"}
    return Json(shared_body(run, history, start), headers=headers)
