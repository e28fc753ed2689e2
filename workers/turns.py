"""The holder's way from one turn to the next: the oldest queued message starts it."""

from __future__ import annotations

from signoff.domain import event as events
from signoff.domain.call import TURN_ENDED, Call, cut_off, results_message
from signoff.domain.frame import TURN_START, frame
from signoff.domain.message import Message, Text
from signoff.store.records import RunRecord
from signoff.store.turns import Announcement, NewTurn
from workers.engine import Engine


async def next_turn(engine: Engine, run: RunRecord, calls: list[Call]) -> bool:
    """Starts the turn of the oldest message that waits; False when none does.

    Raises StaleError when the run or the endpoints moved, LeaseLostError without the lease.
    """
    waiting = await engine.insist(engine.store.turns.inbox, run.id)
    if not waiting:
        return False
    message, now_ms = waiting[0], engine.now_ms()
    said = Text(message.text)
    added = [Message(role="user", blocks=(said,), turn=run.turn + 1, step=run.step, at_ms=now_ms)]
    if run.phase == "calls":
        closed = cut_off(calls, TURN_ENDED)
        added.insert(0, results_message(closed, turn=run.turn, step=run.step, at_ms=now_ms))
    turn = NewTurn(
        message_id=message.id,
        messages=added,
        announcements=[
            Announcement(
                event=engine.publisher.run_event(
                    run, events.RUN_STARTED, status="running", extra={"turn": run.turn + 1}
                ),
                fanout=await engine.insist(engine.publisher.fanout, run, events.RUN_STARTED),
            )
        ],
        frames=(frame(TURN_START, turn=run.turn + 1),),
    )
    await engine.insist(engine.store.turns.start, run, turn, queued=True)
    return True
