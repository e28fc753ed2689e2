"""Makes runs: once per request, and run and event in one move."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass

from service.context import TRIES, Context
from service.idempotency import body_digest, reused
from service.order import Order, Start, config_of, start_of
from signoff.domain import event as events
from signoff.domain.allowance import period_of
from signoff.domain.error import MissingError, SignoffError, StaleError, UnavailableError
from signoff.domain.event import run_payload
from signoff.domain.frame import TURN_START, frame
from signoff.domain.message import Message, Text
from signoff.store import keys
from signoff.store.records import RunRecord
from signoff.store.runs import NewRun, WrittenRun

ROUTE = "POST /runs"
#: What may keep a run from being started.
CODES = (
    "END_USER_RATE_LIMIT_REACHED",
    "END_USER_RUN_LIMIT_REACHED",
    "agent_archived",
    "agent_disabled",
    "end_user_required",
    "idempotency_key_reuse",
    "invalid_idempotency_key",
    "invalid_script",
    "invalid_url",
    "not_found",
    "unknown_approver",
    "unknown_model",
    "reserved_tool",
    "unknown_tool",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A run, and whether an earlier request had made it."""

    run: RunRecord
    replay: bool


async def create(context: Context, order: Order) -> Created:
    """Makes the run of ``order``."""
    run_id, start = await asyncio.gather(context.store.runs.next_id(), start_of(context, order))
    return Created(run=await _make(context, order, start, run_id), replay=False)


async def create_once(
    context: Context, order: Order, *, key: str, raw: bytes, route: str = ROUTE
) -> Created:
    """Makes the run of ``order``, or finds the one that ``key`` with the same body has made.

    Raises ConflictError ``idempotency_key_reuse`` when the key came with another body. What the
    agent refuses is refused before the key is claimed.
    """
    store = context.store
    place = keys.idempotency(order.account, route, key)
    try:
        fresh_id, start = await asyncio.gather(store.runs.next_id(), start_of(context, order))
    except SignoffError:
        # What would be refused now may have been made before.
        made = await _made(context, order, place, body_digest(raw))
        if made is None:
            raise
        return Created(run=made, replay=True)
    claim = await store.reservations.reserve(place, digest=body_digest(raw), value=str(fresh_id))
    if claim.kind == "other":
        raise reused()
    if claim.kind == "new":
        return Created(run=await _make(context, order, start, fresh_id), replay=False)
    run_id = int(claim.value)
    try:
        return Created(run=await store.runs.load(order.account, run_id), replay=True)
    except MissingError:
        # The first request died between its claim and its run: this one makes it.
        return Created(run=await _make(context, order, start, run_id), replay=True)


async def _made(context: Context, order: Order, place: str, digest: str) -> RunRecord | None:
    """The run that the same request has made, if there is one."""
    claim = await context.store.reservations.find(place)
    if claim is None or claim.digest != digest:
        return None
    try:
        return await context.store.runs.load(order.account, int(claim.value))
    except MissingError:
        return None


async def rate_headers(context: Context, run: RunRecord) -> dict[str, str]:
    """What the run's end user may still start within a minute, if that is bounded."""
    if run.user_id is None:
        return {}
    rate = await context.store.users.rate(run.account, run.user_id, run.id)
    if rate is None:
        return {}
    return {
        "x-ratelimit-limit": str(rate.limit),
        "x-ratelimit-remaining": str(rate.remaining),
        "x-ratelimit-reset": str(-(-rate.reset_ms // 1000)),
    }


async def _make(context: Context, order: Order, start: Start, run_id: int) -> RunRecord:
    agent, user_id = start.agent, start.user_id
    payload = run_payload(
        run_id=run_id, agent_id=agent.id, user_id=user_id, status="running", mode=start.mode.value
    )
    message = Message(
        role="user", blocks=(Text(order.body.message),), turn=1, step=0, at_ms=context.now_ms()
    )
    new = NewRun(
        id=run_id,
        account=order.account,
        agent_id=agent.id,
        user_id=user_id,
        mode=start.mode.value,
        human_in_the_loop=start.human,
        config=config_of(order, start),
        message=message,
        started=context.publisher.event(events.RUN_STARTED, payload),
        fanout=await context.publisher.fanout_for(
            order.account, run_id, user_id, events.RUN_STARTED
        ),
        frames=(frame(TURN_START, turn=1),),
    )
    return await write(context, new)


async def write(context: Context, new: NewRun) -> RunRecord:
    """Writes the run with its event and wakes a worker; idempotent by run id."""
    written = await _write(context, new)
    if written.hint:
        context.hint(new.id)
    return written.run or await context.store.runs.load(new.account, new.id)


async def _write(context: Context, new: NewRun) -> WrittenRun:
    for _ in range(TRIES):
        try:
            return await context.store.runs.create(await _allowed(context, new))
        except StaleError:
            context.store.catalog.forget(new.account)
            context.store.users.forget(new.account)
            fanout = await context.publisher.fanout_for(
                new.account, new.id, new.user_id, events.RUN_STARTED
            )
            new = dataclasses.replace(new, fanout=fanout)
    raise UnavailableError("the endpoints keep moving")


async def _allowed(context: Context, new: NewRun) -> NewRun:
    """The run with what it is held against."""
    if new.user_id is None:
        return new
    period = period_of(context.now_ms())
    allowance = await context.store.users.allowance(new.account, new.user_id, new.id, period=period)
    return dataclasses.replace(new, allowance=allowance)
