"""One model call: streamed, retried where the provider asks for patience."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from signoff.domain.frame import frame
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL
from signoff.domain.message import Message
from signoff.domain.mode import Mode
from signoff.domain.question import ASK_SCHEMA, PLAN_SCHEMA
from signoff.store.records import RunRecord
from signoff.tooldef import Tool
from workers.engine import Engine
from workers.model.port import ModelError, ModelReply, ModelRequest, ToolSpec
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


def request_of(
    run: RunRecord, tools: Mapping[str, Tool], messages: Sequence[Message]
) -> ModelRequest:
    """What the model is asked for the next step of ``run``."""
    planning = run.mode is Mode.PLAN and not run.plan_approved
    specs = [
        ToolSpec(name=tool.name, description=tool.description, input_schema=tool.input_schema)
        for tool in tools.values()
    ]
    if run.human_in_the_loop:
        specs.append(
            ToolSpec(
                name=ASK_TOOL,
                description="Ask the user one to four questions with options; the run waits.",
                input_schema=ASK_SCHEMA,
            )
        )
    if planning:
        specs.append(
            ToolSpec(
                name=PLAN_TOOL,
                description="Present the plan for approval before any call with effects.",
                input_schema=PLAN_SCHEMA,
            )
        )
    return ModelRequest(
        run_id=run.id,
        turn=run.turn,
        model=run.config["model"],
        instructions=run.config.get("instructions"),
        messages=tuple(messages),
        tools=tuple(specs),
        metadata=run.config.get("metadata") or {},
        plan_mode=planning,
        output=output_spec(run),
    )


async def ask_model(
    engine: Engine, run: RunRecord, request: ModelRequest
) -> tuple[ModelReply, list[bytes]]:
    """The model's reply and its frames not yet written.

    Rate limits, overload and server errors are tried four times, 0.5·2ⁿ s apart; others end at
    once. Raises the last ModelError.
    """

    async def count(name: str) -> int:
        return await engine.store.runs.count(run.id, name)

    for attempt in range(TRIES):
        # A text that was cut off stays a block of its own.
        frames = TextFrames(engine, run.id, f"text_{run.step + 1}_{run.fence}_{attempt}")
        try:
            reply = await engine.model.reply(request, on_text=frames.on_text, count=count)
        except ModelError as error:
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
            return reply, await frames.rest()
    raise AssertionError  # pragma: no cover - the last try returns or raises
