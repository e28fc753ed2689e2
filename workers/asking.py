"""One step of an agent: streamed, retried where that may help, checked before it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from signoff.agents import (
    Advance,
    Agent,
    AgentCall,
    AgentFailedError,
    AgentRun,
    Count,
    Outcome,
    Step,
)
from signoff.domain.call import Call
from signoff.domain.frame import frame
from signoff.domain.message import Block, Message, Role, Text, ToolResult
from signoff.store.records import RunRecord
from signoff.strictjson import well_formed
from signoff.tooldef import Tool
from workers.engine import Engine
from workers.judging import storable
from workers.output import output_spec

TRIES = 4
FIRST_PAUSE_S = 0.5
#: Deltas that come within this time of the answer's end travel in the commit itself.
FLUSH_S = 0.03
#: A state is written with each step and read with each takeover.
MAX_SAVED = 8 * 1024 * 1024
#: All that one step may ask for; the script that commits it takes some thousand values at once.
MAX_CALLS = 256


class TextFrames:
    """Text deltas on their way to the run's stream, a few at a time."""

    def __init__(self, engine: Engine, run_id: int, block: str) -> None:
        self._engine = engine
        self._run_id = run_id
        self._block = block
        self._waiting: list[str] = []
        self._flusher: asyncio.Task[None] | None = None
        self._opened = False

    async def on_text(self, delta: str) -> None:
        """Takes one delta."""
        self._waiting.append(delta)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_soon())

    async def rest(self) -> list[bytes]:
        """The frames that have not been written yet, and the end of the block."""
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
            self._flusher = None
        frames = self._take()
        return [*frames, frame("text-end", id=self._block)] if self._opened else []

    def _take(self) -> list[bytes]:
        text, self._waiting = "".join(self._waiting), []
        if not text:
            return []
        frames = [] if self._opened else [frame("text-start", id=self._block)]
        self._opened = True
        return [*frames, frame("text-delta", id=self._block, delta=text)]

    async def _flush_soon(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            for item in self._take():
                await self._engine.store.runs.append_frame(self._run_id, item)


def agent_run(run: RunRecord, tools: Mapping[str, Tool]) -> AgentRun:
    """The run as its agent sees it; ``tools`` are those of the deployment that it may use."""
    return AgentRun(
        id=run.id,
        turn=run.turn,
        step=run.step,
        model=run.config["model"],
        user_id=run.user_id,
        instructions=run.config.get("instructions"),
        metadata=run.config.get("metadata") or {},
        mode=run.mode,
        plan_approved=run.plan_approved,
        human_in_the_loop=run.human_in_the_loop,
        tools=tools,
        output=output_spec(run),
    )


async def ask_agent(
    engine: Engine, run: RunRecord, agent: Agent, turn: Advance
) -> tuple[Step, list[bytes]]:
    """The agent's step and its frames not yet written.

    What may pass (rate limits, overload, server errors) is tried four times, 0.5·2ⁿ s apart; the
    rest ends at once. Raises the last AgentFailedError.
    """
    for attempt in range(TRIES):
        # A text that was cut off stays a block of its own.
        frames = TextFrames(engine, run.id, f"text_{run.step + 1}_{run.fence}_{attempt}")
        try:
            step = checked(await agent.advance(replace(turn, on_text=frames.on_text)))
        except AgentFailedError as error:
            for item in await frames.rest():
                await engine.insist(engine.store.runs.append_frame, run.id, item)
            if not error.retryable or attempt == TRIES - 1:
                raise
            pause = FIRST_PAUSE_S * 2**attempt
            await engine.sleep(max(pause, min(error.retry_after_s or 0.0, 30.0)))
        except BaseException:
            await frames.rest()
            raise
        else:
            return step, await frames.rest()
    raise AssertionError  # pragma: no cover - the last try returns or raises


def checked(step: Step) -> Step:
    """The step with texts that can be stored; AgentFailedError if it breaks the port's terms."""
    for part in step.earlier:
        if any(call.settled is None for call in part.calls):
            raise AgentFailedError("agent_error", "an earlier round has a call without a result")
    count = len(step.calls) + sum(1 + len(part.calls) for part in step.earlier)
    if count > MAX_CALLS:
        msg = f"one step has {count} calls and earlier rounds; at most {MAX_CALLS} are taken"
        raise AgentFailedError("agent_error", msg)
    seen: set[str] = set()
    for call in step.calls:
        if not _storable(call.id) or call.id in seen:
            raise AgentFailedError("agent_error", "the ids of calls must be unique texts")
        if not _storable(call.name):
            raise AgentFailedError("agent_error", f"a call of {call.name!a} cannot be stored")
        seen.add(call.id)
    if step.saved is not None and len(step.saved) > MAX_SAVED:
        msg = f"the agent saves {len(step.saved)} bytes; at most {MAX_SAVED} are kept"
        raise AgentFailedError("agent_error", msg)
    earlier = tuple(replace(part, text=well_formed(part.text)) for part in step.earlier)
    return replace(step, text=well_formed(step.text), earlier=earlier)


def _storable(text: str) -> bool:
    return bool(text) and text == well_formed(text)


def demand(
    run: AgentRun,
    messages: Sequence[Message],
    calls: Sequence[Call],
    *,
    saved: bytes | None,
    count: Count,
) -> Advance:
    """What an agent is asked for its next step; ``calls`` are those of the step before."""
    return Advance(
        run=run,
        messages=tuple(messages),
        outcomes=outcomes(calls),
        saved=saved,
        on_text=_unheard,
        count=count,
    )


async def _unheard(_: str) -> None:
    """Each try of a step has a listener of its own."""


def outcomes(calls: Sequence[Call]) -> tuple[Outcome, ...]:
    """What the agent is told of the calls of its last step; every one has its result."""
    return tuple(_outcome(call, call.result) for call in calls if call.result is not None)


def _outcome(call: Call, result: Mapping[str, Any]) -> Outcome:
    edited = call.run_input_json
    return Outcome(
        call_id=call.id,
        tool=call.tool,
        state=result["state"],
        content=result["content"],
        # A call that had started was approved, whatever was decided about its unknown outcome.
        approved=result["state"] != "denied" or call.attempt > 0,
        edited_input=None if edited is None else json.loads(edited),
        rules=call.rules,
    )


def spoken(step: Step, run: RunRecord, at_ms: int) -> list[Message]:
    """What the step adds to the conversation; the results of its last calls come later."""
    added: list[Message] = []

    def say(role: Role, blocks: Sequence[Block]) -> None:
        added.append(
            Message(role=role, blocks=tuple(blocks), turn=run.turn, step=run.step + 1, at_ms=at_ms)
        )

    for part in step.earlier:
        say("assistant", _said(part.text, part.calls))
        results = [
            ToolResult(call.id, call.name, call.settled.state, well_formed(call.settled.content))
            for call in part.calls
            if call.settled is not None
        ]
        if results:
            say("tool", results)
    say("assistant", _said(step.text, step.calls))
    return added


def _said(text: str, calls: Sequence[AgentCall]) -> list[Block]:
    return [*([Text(text)] if text else []), *map(storable, calls)]
