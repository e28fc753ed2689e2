"""Ends a whole run at once: one way for people and for time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from signoff.domain import event as events
from signoff.domain.call import CANCELLED, CallState, cut_off, results_message
from signoff.domain.frame import frame
from signoff.store.decisions import Lapse
from signoff.store.facade import Store
from signoff.store.records import RunRecord
from signoff.store.turns import Announcement
from webhooks.publish import Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What it takes to move a run that nobody holds."""

    store: Store
    publisher: Publisher
    now_ms: Callable[[], int]


async def end(parts: Parts, run: RunRecord, *, by: str, lapse: Lapse | None = None) -> None:
    """Cancels ``run`` as it was read: gates close, unfinished calls get an interrupted result.

    With ``lapse`` it ends because nobody settled that pause in time. Raises StaleError when the
    run or the endpoints moved.
    """
    store, publisher = parts.store, parts.publisher
    # The run was read first: what the calls do afterwards moves its revision, and is noticed.
    calls = await store.runs.calls(run.id) if run.phase == "calls" else []
    closed = cut_off(calls, CANCELLED)
    waiting = await store.turns.inbox(run.id) if run.queued else []
    message = None
    if calls:
        message = results_message(closed, turn=run.turn, step=run.step, at_ms=parts.now_ms())
    await store.decisions.cancel(
        run,
        by=by,
        results={
            call.n: done.result
            for call, done in zip(calls, closed, strict=True)
            if call.state is not CallState.DONE and done.result is not None
        },
        message=message,
        cancelled=publisher.ended(run, "cancelled"),
        fanout=await publisher.fanout(run, events.RUN_CANCELLED),
        frames=[frame("cancelled")],
        dropped={item.id: await _dropped(publisher, run, item.id) for item in waiting},
        lapse=lapse,
    )


async def _dropped(publisher: Publisher, run: RunRecord, message_id: int) -> Announcement:
    kind = events.RUN_MESSAGE_CANCELLED
    extra = {"message_id": message_id, "reason": "run_cancelled"}
    return Announcement(
        event=publisher.run_event(run, kind, status="cancelled", extra=extra),
        fanout=await publisher.fanout(run, kind),
    )
