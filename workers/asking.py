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
from signoff.domain.output import ASKED_BY
from signoff.store.records import RunRecord
from signoff.strictjson import well_formed
from signoff.tooldef import Tool
from workers.agent.terms import step_of, told, tools_of
from workers.engine import Engine
from workers.judging import storable
from workers.output import output_spec

TRIES = 4
FIRST_PAUSE_S = 0.5
#: Deltas that come within this time of the answer's end travel in the commit itself.
FLUSH_S = 0.03


class TextFrames:
    """Text deltas on their way to the run's stream, a few at a time."""

    def __init__(self, engine: Engine, run_id: int, block: str) -> None:
        self._engine = engine
        self._run_id = run_id
        self._block = block
        self._waiting: list[str] = []
        self._flusher: asyncio.Task[None] | None = None
        self._opened = self._closed = False

    async def on_text(self, delta: object) -> None:
        """Takes one delta; AgentFailedError for anything else. Behind the end it is dropped."""
        if not isinstance(delta, str):
            msg = f"on_text takes a str, not {type(delta).__name__}"
            raise AgentFailedError("agent_error", msg)
        if self._closed:
            return
        self._waiting.append(delta)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_soon())

    async def rest(self) -> list[bytes]:
        """The frames that have not been written yet, and the end of the block."""
        self._closed = True
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


async def tools_for(agent: Agent, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
    """The tools that the engine may run for ``agent``; raises AgentFailedError and no other."""
    try:
        return tools_of(await agent.tools(run, saved))
    except AgentFailedError as error:
        raise told(error) from error


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
            step = step_of(await agent.advance(replace(turn, on_text=frames.on_text)))
        except AgentFailedError as raised:
            error = told(raised)
            for item in await frames.rest():
                await engine.insist(engine.store.runs.append_frame, run.id, item)
            if not error.retryable or attempt == TRIES - 1:
                raise error from raised
            pause = FIRST_PAUSE_S * 2**attempt
            await engine.sleep(max(pause, min(error.retry_after_s or 0.0, 30.0)))
        except BaseException:
            await frames.rest()
            raise
        else:
            return step, await frames.rest()
    raise AssertionError  # pragma: no cover - the last try returns or raises


def demand(
    run: AgentRun,
    messages: Sequence[Message],
    calls: Sequence[Call],
    *,
    saved: bytes | None,
    count: Count,
) -> Advance:
    """What an agent is asked for its next step; ``calls`` are those of the step before."""
    last = messages[-1] if messages else None
    return Advance(
        run=run,
        messages=tuple(messages),
        outcomes=outcomes(calls),
        saved=saved,
        on_text=_unheard,
        count=count,
        correction=last.text if last is not None and last.extra.get("by") == ASKED_BY else None,
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
