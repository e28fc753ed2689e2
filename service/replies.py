"""Replies: a message to a run starts its next turn, or waits until the one before has ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from service.context import TRIES, Context
from service.idempotency import body_digest, reused
from service.order import check_tools
from signoff.domain import event as events
from signoff.domain.call import TURN_ENDED, cut_off, results_message
from signoff.domain.error import (
    ConflictError,
    InvalidFieldError,
    StaleError,
    UnavailableError,
)
from signoff.domain.frame import TURN_START, frame
from signoff.domain.message import Message, Text
from signoff.domain.mode import Mode
from signoff.mcpserver import own_names
from signoff.store import keys
from signoff.store.records import RunRecord
from signoff.store.turns import Announcement, NewTurn, QueuedMessage
from signoff.wire.run import Reply

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """What became of a reply: the run as it stands, and whether the message waits."""

    run: RunRecord
    delivery: Literal["resumed", "queued"]
    message_id: int
    replay: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What a reply changes for its turn and all later ones."""

    mode: Mode | None
    human: bool | None
    tools: list[str] | None

    @property
    def given(self) -> bool:
        """True when anything is changed."""
        return not (self.mode is None and self.human is None and self.tools is None)


def read_override(context: Context, run: RunRecord, body: Reply) -> Override:
    """The changes that ``body`` asks for; raises InvalidFieldError for what cannot be.

    ``human_in_the_loop: false`` without a mode makes the run autonomous, as the other modes need
    a person. An empty list of tools leaves them as they are.
    """
    mode = None if body.permission_mode is None else Mode(body.permission_mode)
    human = body.human_in_the_loop
    if human is False and mode is None and run.mode.needs_person:
        mode = Mode.AUTONOMOUS
    stays = run.human_in_the_loop if human is None else human
    if mode is not None and mode.needs_person and not stays:
        msg = f"permission_mode {mode} needs human_in_the_loop: true"
        raise InvalidFieldError(msg, field="permission_mode")
    own = own_names(run.config.get("mcp_servers"))
    check_tools(context, body.tools or (), run.config.get("external_tools") or (), own=own)
    return Override(mode=mode, human=human, tools=list(body.tools) if body.tools else None)


async def reply(context: Context, run: RunRecord, body: Reply) -> Replied:
    """Delivers the message, or queues it; durable on return."""
    return await _deliver(context, run, body, await context.store.turns.next_message_id())


async def reply_once(
    context: Context, run: RunRecord, body: Reply, *, key: str, raw: bytes
) -> Replied:
    """The same, once for each Idempotency-Key; ConflictError for the key with another body."""
    store = context.store
    place = keys.idempotency(run.account, f"POST /runs/{run.id}/reply", key)
    fresh = await store.turns.next_message_id()
    claim = await store.reservations.reserve(place, digest=body_digest(raw), value=str(fresh))
    if claim.kind == "other":
        raise reused()
    if claim.kind == "new":
        try:
            return await _deliver(context, run, body, fresh)
        except (ConflictError, InvalidFieldError):
            await store.reservations.release(place)
            raise
    # Deliveries are idempotent by message id, so one that was cut off is made up for.
    done = await _deliver(context, run, body, int(claim.value))
    return Replied(run=done.run, delivery=done.delivery, message_id=done.message_id, replay=True)


async def _deliver(context: Context, run: RunRecord, body: Reply, message_id: int) -> Replied:
    override = read_override(context, run, body)
    for _ in range(TRIES):
        try:
            if run.status.terminal:
                await _start(context, run, body, override, message_id)
                delivery: Literal["resumed", "queued"] = "resumed"
            else:
                if override.given:
                    msg = "a run that is not over takes no changes with a reply"
                    raise ConflictError(msg, code="run_active")
                await _queue(context, run, body, message_id)
                delivery = "queued"
        except StaleError:
            context.store.catalog.forget(run.account)
            run = await context.store.runs.load(run.account, run.id)
            continue
        logger.info("message_received run=%d message=%d delivery=%s", run.id, message_id, delivery)
        run = await context.store.runs.load(run.account, run.id)
        return Replied(run=run, delivery=delivery, message_id=message_id)
    raise UnavailableError("the run keeps moving")


async def _start(
    context: Context, run: RunRecord, body: Reply, override: Override, message_id: int
) -> None:
    now_ms = context.now_ms()
    added = [
        Message(
            role="user",
            blocks=(Text(body.message),),
            turn=run.turn + 1,
            step=run.step,
            at_ms=now_ms,
        )
    ]
    if run.phase == "calls":
        closed = cut_off(await context.store.runs.calls(run.id), TURN_ENDED)
        added.insert(0, results_message(closed, turn=run.turn, step=run.step, at_ms=now_ms))
    config: dict[str, Any] | None = None
    if override.tools is not None:
        config = {**run.config, "tools": override.tools}
    turn = NewTurn(
        message_id=message_id,
        messages=added,
        announcements=[
            await _received(context, run, message_id, "resumed"),
            await _announce(context, run, events.RUN_STARTED, {"turn": run.turn + 1}),
        ],
        mode=None if override.mode is None else override.mode.value,
        human_in_the_loop=override.human,
        config=config,
        plan_again=override.mode is Mode.PLAN,
        frames=(frame(TURN_START, turn=run.turn + 1),),
    )
    if await context.store.turns.start(run, turn, queued=False):
        context.hint(run.id)


async def _queue(context: Context, run: RunRecord, body: Reply, message_id: int) -> None:
    message = QueuedMessage(id=message_id, text=body.message, at_ms=context.now_ms())
    await context.store.turns.queue(
        run, message, await _received(context, run, message_id, "queued")
    )


async def _received(
    context: Context, run: RunRecord, message_id: int, delivery: str
) -> Announcement:
    extra = {"message_id": message_id, "delivery": delivery}
    return await _announce(context, run, events.RUN_MESSAGE_RECEIVED, extra)


async def _announce(
    context: Context, run: RunRecord, kind: str, extra: dict[str, Any]
) -> Announcement:
    status = "running" if run.status.terminal else run.status.value
    return Announcement(
        event=context.publisher.run_event(run, kind, status=status, extra=extra),
        fanout=await context.publisher.fanout(run, kind),
    )
