"""What people do to a whole run: end it, or change its permission mode."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from service.context import TRIES, Context
from signoff.domain import event as events
from signoff.domain.decision import mode_fingerprint
from signoff.domain.error import ConflictError, StaleError, UnavailableError
from signoff.domain.frame import frame
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.mode import Mode
from signoff.domain.rule import Rule, denied_by
from signoff.store.records import RunRecord
from signoff.subject import subject
from webhooks.ending import end

logger = logging.getLogger(__name__)


async def cancel(context: Context, account: str, run_id: int, *, by: str) -> None:
    """Ends the run at once: open gates close, unfinished calls get an interrupted result.

    Raises ConflictError ``run_not_active`` when it has ended already.
    """
    for _ in range(TRIES):
        run = await context.store.runs.load(account, run_id)
        _check_active(run)
        try:
            await end(context.parts, run, by=by)
        except StaleError as error:
            _after_stale(context, account, error)
            continue
        logger.info("run_cancelled run=%d by=%s", run_id, by)
        return
    raise UnavailableError("the run keeps moving")


async def switch_mode(context: Context, account: str, run_id: int, mode: Mode, *, by: str) -> None:
    """Changes the mode; autonomous also allows the pending tool approvals that no rule denies."""
    store = context.store
    for _ in range(TRIES):
        run = await store.runs.load(account, run_id)
        _check_active(run)
        ruleset = await store.catalog.rules(account, run_id)
        allow: list[tuple[str, str]] = []
        if mode is Mode.AUTONOMOUS and run.open:
            allow = _allowed(context, run, await store.runs.gates(run_id), ruleset.rules)
        try:
            hint = await store.decisions.switch_mode(
                run,
                mode,
                by=by,
                allow=allow,
                rules_v=ruleset.version,
                resumed=context.publisher.run_event(
                    run,
                    events.RUN_RESUMED,
                    status="running",
                    extra={"permission_mode": mode.value},
                ),
                fanout=await context.publisher.fanout(run, events.RUN_RESUMED),
                frames=[frame("permission_resolved", request_id=item) for item, _ in allow],
            )
        except StaleError as error:
            if error.details["what"] == "expired":
                await context.lapse(account, run_id, int(error.details["more"][0]))
            _after_stale(context, account, error)
            continue
        if hint:
            context.hint(run_id)
        logger.info("mode_switched run=%d mode=%s by=%s", run_id, mode.value, by)
        return
    raise UnavailableError("the run keeps moving")


def _check_active(run: RunRecord) -> None:
    if run.status.terminal:
        raise _ended(run.status.value)


def _after_stale(context: Context, account: str, error: StaleError) -> None:
    if error.details.get("what") == "terminal":
        raise _ended(error.details["status"]) from None
    context.store.catalog.forget(account)


def _ended(status: str) -> ConflictError:
    return ConflictError(
        f"the run is {status}", code="run_not_active", details={"run_status": status}
    )


def _allowed(
    context: Context, run: RunRecord, gates: Sequence[Gate], rules: Sequence[Rule]
) -> list[tuple[str, str]]:
    """The pending approvals that no deny rule covers, or may cover as far as they can be read."""

    def forbidden(gate: Gate) -> bool:
        call = subject(gate.tool, context.toolbox.get(gate.tool), gate.tool_input)
        now_ms = context.now_ms()
        user_id = run.user_id
        return denied_by(call, user_id=user_id, rules=rules, now_ms=now_ms, maybe=True) is not None

    return [
        (gate.id, mode_fingerprint(gate))
        for gate in gates
        if gate.state is GateState.PENDING
        and gate.kind is GateKind.TOOL_APPROVAL
        # What named people have to decide is no matter of the mode.
        and gate.approval is None
        and not forbidden(gate)
    ]
