"""Reminds of pauses that wait, and settles those whose time is over; no worker is needed.

Any number of these may run at once: what is due is done by one script each, and a person who
decides in the same moment wins or loses against it as against another person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from signoff.domain import event as events
from signoff.domain.decision import Settlement
from signoff.domain.error import StaleError, UnavailableError
from signoff.domain.expiry import NOBODY, Limits, OnExpiry, settle_expired
from signoff.domain.frame import frame, result_frames
from signoff.domain.gate import EXPIRY, Gate, GateState
from signoff.store.decisions import Lapse, Resolution
from signoff.store.records import RunRecord
from signoff.store.timing import Entry
from signoff.store.turns import Announcement
from webhooks.ending import Parts, end

logger = logging.getLogger(__name__)
#: Wake-ups can be lost; the next due time is slept towards, but never longer than this.
POLL_S = 1.0
#: How many entries are done side by side.
BATCH = 64
TRIES = 20
_RETRY_S = 0.5
_POSTPONE_MS = 5000


class Timekeeper:
    """Does what is due in one shard."""

    def __init__(self, shard: int, *, parts: Parts, hint: Callable[[int, int], None]) -> None:
        self._shard = shard
        self._parts = parts
        self._hint = hint
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """A pause was opened that may be due before anything else."""
        self._changed.set()

    async def run(self) -> None:
        """Goes on until it is cancelled; an unreachable store is tried again soon."""
        while True:
            self._changed.clear()
            try:
                wait_s = await self.round()
            except UnavailableError:
                logger.warning("timing_failed shard=%d", self._shard)
                wait_s = _RETRY_S
            if wait_s > 0:
                try:
                    await asyncio.wait_for(self._changed.wait(), wait_s)
                except TimeoutError:
                    continue

    async def round(self) -> float:
        """Does what is due now; returns how long nothing more is, in seconds."""
        due = await self._parts.store.timing.due(self._shard, BATCH)
        if due.entries:
            done = await asyncio.gather(
                *(self._do(entry) for entry in due.entries), return_exceptions=True
            )
            for failure in done:
                if failure is not None:
                    raise failure
            return 0.0
        # A millisecond late, never early: what is due is asked by the store's clock.
        return POLL_S if due.next_ms is None else min((due.next_ms + 1) / 1000, POLL_S)

    async def _do(self, entry: Entry) -> None:
        store = self._parts.store
        try:
            account = await store.timing.account_of(entry.run_id)
            if account is None:
                await store.timing.drop(entry)
            elif entry.what == "remind":
                await remind(self._parts, account, entry)
            elif await expire(self._parts, account, entry):
                self._hint(self._shard, entry.run_id)
        except UnavailableError:
            raise
        except Exception:
            # One pause that cannot be settled must not hold the others up.
            logger.exception("timing_stuck entry=%s", entry.member)
            await store.timing.postpone(entry, _POSTPONE_MS)


async def remind(parts: Parts, account: str, entry: Entry) -> None:
    """Announces once that the pause still waits, with the gates that are open."""
    store, publisher = parts.store, parts.publisher
    for _ in range(TRIES):
        run = await store.runs.load(account, entry.run_id)
        gates = await _waiting(parts, run, entry.pause)
        if run.status.terminal or not gates:
            await store.timing.drop(entry)
            return
        extra = {"pause": entry.pause, "requests": [publisher.gate_payload(g) for g in gates]}
        event = publisher.run_event(
            run, events.RUN_INPUT_REMINDER, status=run.status.value, extra=extra
        )
        fanout = await publisher.fanout(run, events.RUN_INPUT_REMINDER)
        try:
            written = await store.timing.remind(
                run, entry.pause, [gate.id for gate in gates], event=event, fanout=fanout
            )
        except StaleError:
            store.catalog.forget(account)
            continue
        if written:
            logger.info("pause_reminded run=%d pause=%d", run.id, entry.pause)
        return
    raise UnavailableError("the run keeps moving")


async def expire(parts: Parts, account: str, entry: Entry) -> bool:
    """Settles what is open of a pause whose time is over; True when a worker is to be woken.

    Nothing happens when somebody else was faster.
    """
    store = parts.store
    for _ in range(TRIES):
        run = await store.runs.load(account, entry.run_id)
        gates = await _waiting(parts, run, entry.pause)
        if run.status.terminal or not gates:
            await store.timing.drop(entry)
            return False
        policy = Limits.read(run.config).on_expiry or OnExpiry.DENY
        hint: bool | None = False
        try:
            if policy is OnExpiry.CANCEL:
                lapse = await _lapse(parts, run, entry.pause, gates, [])
                await end(parts, run, by=EXPIRY, lapse=lapse)
            else:
                hint = await _settle(parts, run, entry.pause, gates, policy)
        except StaleError:
            store.catalog.forget(account)
            continue
        if hint is not None:
            logger.info("pause_expired run=%d pause=%d do=%s", run.id, entry.pause, policy.value)
        return hint is True
    raise UnavailableError("the run keeps moving")


async def _settle(
    parts: Parts, run: RunRecord, pause: int, gates: Sequence[Gate], policy: OnExpiry
) -> bool | None:
    publisher = parts.publisher
    settlements = [settle_expired(gate, policy) for gate in gates]
    resumed = None
    if run.open == len(gates):
        resumed = Announcement(
            event=publisher.run_event(run, events.RUN_RESUMED, status="running"),
            fanout=await publisher.fanout(run, events.RUN_RESUMED),
        )
    frames: list[bytes] = []
    for gate, settlement in zip(gates, settlements, strict=True):
        frames.append(frame("permission_resolved", request_id=gate.id))
        if settlement.result is not None:
            frames.extend(result_frames(gate.tool_use_id, settlement.result))
    return await parts.store.timing.expire(
        run,
        await _lapse(parts, run, pause, gates, settlements),
        [
            Resolution(
                gate_id=gate.id,
                settlement=settlement,
                by=EXPIRY,
                reason=NOBODY,
                expected_digest=None,
                grant="",
            )
            for gate, settlement in zip(gates, settlements, strict=True)
        ],
        resumed=resumed,
        frames=frames,
    )


async def _lapse(
    parts: Parts,
    run: RunRecord,
    pause: int,
    gates: Sequence[Gate],
    settlements: Sequence[Settlement],
) -> Lapse:
    """The expiry with its event; without settlements the whole run ends."""
    publisher, requests = parts.publisher, []
    for n, gate in enumerate(gates):
        row = publisher.gate_payload(gate)
        row["status"] = settlements[n].state.value if settlements else GateState.CANCELLED.value
        row["answers"] = settlements[n].answers if settlements else None
        requests.append(row)
    status = "cancelled"
    if settlements:
        status = "running" if run.open == len(gates) else "awaiting_approval"
    policy = Limits.read(run.config).on_expiry or OnExpiry.DENY
    extra = {"pause": pause, "on_expiry": policy.value, "requests": requests}
    return Lapse(
        pause=pause,
        event=publisher.run_event(run, events.RUN_INPUT_EXPIRED, status=status, extra=extra),
        fanout=await publisher.fanout(run, events.RUN_INPUT_EXPIRED),
    )


async def _waiting(parts: Parts, run: RunRecord, pause: int) -> list[Gate]:
    gates = await parts.store.runs.gates(run.id)
    return [g for g in gates if g.pause == pause and g.state is GateState.PENDING]
