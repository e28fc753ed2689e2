"""Tries a run that failed or was cancelled again, as a new run that asks for the same work."""

from __future__ import annotations

import logging

from service.context import TRIES, Context
from service.create import Created, write
from service.order import check_enabled
from signoff.domain import event as events
from signoff.domain.error import ConflictError, MissingError, StaleError, UnavailableError
from signoff.domain.event import run_payload
from signoff.domain.frame import TURN_START, frame
from signoff.domain.gate import GateKind, GateState
from signoff.domain.message import Message, Text
from signoff.domain.run import RETRYABLE
from signoff.store.records import RunRecord
from signoff.store.runs import NewRun

logger = logging.getLogger(__name__)


async def retry(context: Context, run: RunRecord, *, by: str, confirm: bool) -> Created:
    """The new run; while one is in flight, that one (``replay``).

    Raises ConflictError: ``run_not_retryable`` unless the run failed or was cancelled,
    ``retry_needs_confirmation`` when it had begun to act and ``confirm`` is not given; and for an
    agent that takes no runs.
    """
    store = context.store
    for _ in range(TRIES):
        if run.status not in RETRYABLE:
            msg = f"the run is {run.status.value}; only a failed or cancelled run is retried"
            details = {"run_status": run.status.value}
            raise ConflictError(msg, code="run_not_retryable", details=details)
        child_id = run.marks.retried_by
        if child_id is not None:
            try:
                child = await store.runs.load(run.account, child_id)
            except MissingError:
                # The first request died between its claim and its run: this one makes it.
                return Created(run=await _make(context, run, child_id, by=by), replay=True)
            if not child.status.terminal:
                return Created(run=child, replay=True)
        if not confirm and await _acted(context, run):
            msg = "the run had begun to act; a retry may do it again: confirm=true"
            raise ConflictError(msg, code="retry_needs_confirmation")
        check_enabled(await store.agents.get(run.account, run.agent_id))
        fresh_id = await store.runs.next_id()
        try:
            await store.marks.claim_retry(run, fresh_id)
        except StaleError:
            run = await store.runs.load(run.account, run.id)
            continue
        logger.info("run_retried run=%d by_run=%d", run.id, fresh_id)
        return Created(run=await _make(context, run, fresh_id, by=by), replay=False)
    raise UnavailableError("the run keeps moving")


async def _acted(context: Context, run: RunRecord) -> bool:
    """True when a call with effects was started here, or an outside system reported a result."""
    if run.marks.acted:
        return True
    return any(
        gate.kind is GateKind.EXTERNAL and gate.state is GateState.ALLOWED
        for gate in await context.store.runs.gates(run.id)
    )


async def _make(context: Context, run: RunRecord, child_id: int, *, by: str) -> RunRecord:
    mode = run.mode.value
    payload = run_payload(
        run_id=child_id, agent_id=run.agent_id, user_id=run.user_id, status="running", mode=mode
    )
    publisher, config = context.publisher, run.config
    model = config["model"]
    return await write(
        context,
        NewRun(
            id=child_id,
            account=run.account,
            agent_id=run.agent_id,
            user_id=run.user_id,
            mode=mode,
            human_in_the_loop=run.human_in_the_loop,
            config={
                **config,
                "model": model
                if context.models.configured(model)
                else context.models.resolve(None),
                "requested_by": sorted({*await context.store.decisions.requesters(run), by}),
                "retry_of": run.id,
                "retry_count": config.get("retry_count", 0) + 1,
            },
            message=await _request(context, run),
            started=publisher.event(events.RUN_STARTED, payload),
            fanout=await publisher.fanout_for(
                run.account, child_id, run.user_id, events.RUN_STARTED
            ),
            frames=(frame(TURN_START, turn=1),),
        ),
    )


async def _request(context: Context, run: RunRecord) -> Message:
    """All that the user had said to the run, as one message."""
    history = await context.store.runs.history(run.id, 0, 0 if run.turn == 1 else -1)
    said = [message.text for message in history if message.role == "user" and not message.extra]
    blocks = [Text(text if n == 0 else f"\n\n{text}") for n, text in enumerate(said)]
    return Message(role="user", blocks=tuple(blocks), turn=1, step=0, at_ms=context.now_ms())
