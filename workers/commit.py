"""Puts together what one move of the holder writes: a step, the pause it opens, the turn's end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from signoff.agents import AgentCall, Step
from signoff.domain import event as events
from signoff.domain.event import Event
from signoff.domain.expiry import GateTimes, Limits
from signoff.domain.frame import MODEL_END, frame
from signoff.domain.jsontext import compact
from signoff.domain.message import Message
from signoff.domain.output import OUTPUT_INVALID
from signoff.store.records import RunRecord
from signoff.store.runs import Fanout
from signoff.store.steps import Ending, StepCommit
from workers.engine import Engine
from workers.frames import end_frames, step_frames
from workers.judging import JudgedStep, OpenedGate
from workers.output import TurnAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An agent's step on its way into the store; a repeated try commits the same one."""

    commit_id: str
    step: Step
    owed: TurnAnswer
    #: What the history gains, the results of the step before included.
    messages: Sequence[Message]
    #: What watchers are shown before the step's calls.
    frames: Sequence[bytes]

    @property
    def calls(self) -> Sequence[AgentCall]:
        """The calls to judge; none where the turn ends with the reply."""
        return () if self.owed.last else self.step.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """What is told of gates that open together, and when they are due."""

    rows: Sequence[Mapping[str, Any]]
    event: Event
    fanout: Fanout
    times: GateTimes | None


async def pause_of(engine: Engine, run: RunRecord, opened: Sequence[OpenedGate]) -> Pause:
    """The pause that ``opened`` amount to, as of now."""
    times = await _times(engine, run)
    rows = [_row(engine, one, times) for one in opened]
    return Pause(
        rows=rows,
        event=engine.publisher.awaiting_input(run, rows),
        fanout=await engine.insist(engine.publisher.fanout, run, events.RUN_AWAITING_INPUT),
        times=times,
    )


async def step_commit(
    engine: Engine, run: RunRecord, reply: Reply, judged: JudgedStep, *, rules_v: str
) -> StepCommit:
    """The commit of ``reply`` as ``judged`` under version ``rules_v`` of the account's rules."""
    usage = asdict(reply.step.usage)
    pause = await pause_of(engine, run, judged.gates) if judged.gates else None
    ending = None
    last: list[bytes] = []
    if not judged.calls and reply.owed.request is None:
        total = added(run.usage, usage)
        ending = await _answered(engine, run, reply, total)
        last = end_frames(ending, engine.now_ms() - run.turn_started_ms, total)
    shown = step_frames(judged, frame(MODEL_END, step=run.step + 1, usage=usage))
    return StepCommit(
        commit_id=reply.commit_id,
        messages=reply.messages,
        usage=usage,
        rules_v=rules_v,
        calls=judged.calls,
        gates=[opened.gate for opened in judged.gates],
        pause=None if pause is None else pause.event,
        times=None if pause is None else pause.times,
        fanout=None if pause is None else pause.fanout,
        ending=ending,
        frames=[*reply.frames, *shown, *last],
        saved=reply.step.saved,
    )


async def failed(
    engine: Engine, run: RunRecord, code: str, text: str, *, usage: Mapping[str, int] | None = None
) -> Ending:
    """The end of a turn that failed; ``usage`` where the run's own does not count its last step."""
    return Ending(
        status="failed",
        event=engine.publisher.ended(run, "failed", error=text, error_code=code, usage=usage),
        fanout=await engine.insist(engine.publisher.fanout, run, events.RUN_FAILED),
        error=text,
        error_code=code,
    )


def added(total: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """A run's usage with that of one more step."""
    return {name: n + more.get(name, 0) for name, n in total.items()}


async def _answered(
    engine: Engine, run: RunRecord, reply: Reply, usage: Mapping[str, int]
) -> Ending:
    owed = reply.owed
    if owed.failure is not None:
        return await failed(engine, run, OUTPUT_INVALID, owed.failure, usage=usage)
    output = reply.step.text
    if owed.found is not None and not output:
        output = compact(owed.found)
    return Ending(
        status="completed",
        event=engine.publisher.ended(
            run, "completed", output=output, output_data=owed.found, usage=usage
        ),
        fanout=await engine.insist(engine.publisher.fanout, run, events.RUN_COMPLETED),
        output=output,
        output_data=owed.found,
    )


async def _times(engine: Engine, run: RunRecord) -> GateTimes | None:
    """When gates that open now are due; by the store's clock, which also acts on it."""
    limits = Limits.read(run.config)
    if limits.times(0) is None:
        return None
    return limits.times(await engine.insist(engine.store.timing.clock))


def _row(engine: Engine, opened: OpenedGate, times: GateTimes | None) -> dict[str, Any]:
    gate = opened.gate
    declared = gate.output_schema
    return engine.publisher.request_payload(
        request_id=gate.id,
        kind=gate.kind,
        tool=opened.tool,
        tool_input=opened.tool_input,
        digest=opened.digest,
        suggested_rules=gate.suggested_rules,
        approval=gate.approval,
        times=times,
        output_schema=None if declared is None else json.loads(declared),
    )
