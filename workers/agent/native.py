"""The agent that every run has unless it names another: one model call a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from signoff.agents import Advance, AgentCall, AgentFailedError, AgentRun, Step, ToolSpec
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL
from signoff.domain.message import Message, ToolUse
from signoff.domain.question import ASK_SCHEMA, PLAN_SCHEMA
from signoff.strictjson import well_formed
from signoff.tooldef import Tool
from workers.model.port import Model, ModelError, ModelRequest


class NativeAgent:
    """Asks a model with the whole conversation; it has no state of its own."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        """The tools that the run may use."""
        del saved
        return run.tools

    async def advance(self, turn: Advance) -> Step:
        """The model's next answer."""
        try:
            reply = await self._model.reply(
                request_of(turn.run, turn.messages), on_text=turn.on_text, count=turn.count
            )
        except ModelError as error:
            raise AgentFailedError(
                f"model_{error.kind}",
                error.message,
                retryable=error.retryable,
                retry_after_s=error.retry_after_s,
            ) from error
        return Step(
            text=reply.text,
            calls=named(reply.tool_calls, turn.run.step + 1),
            usage=reply.usage,
            correctable=True,  # the model is asked with the whole conversation
        )


def request_of(run: AgentRun, messages: Sequence[Message]) -> ModelRequest:
    """What the model is asked for the next step."""
    specs = [
        ToolSpec(name=tool.name, description=tool.description, input_schema=tool.input_schema)
        for tool in run.tools.values()
    ]
    if run.human_in_the_loop:
        specs.append(
            ToolSpec(
                name=ASK_TOOL,
                description="Ask the user one to four questions with options; the run waits.",
                input_schema=ASK_SCHEMA,
            )
        )
    if run.planning:
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
        model=run.model,
        instructions=run.instructions,
        messages=tuple(messages),
        tools=tuple(specs),
        metadata=run.metadata,
        plan_mode=run.planning,
        output=run.output,
    )


def named(uses: Sequence[ToolUse], step: int) -> tuple[AgentCall, ...]:
    """The calls under names that can be stored, with ids that are unique within the step."""
    seen: set[str] = set()
    fixed: list[AgentCall] = []
    for n, use in enumerate(uses):
        call_id = well_formed(use.id)
        if not call_id or call_id in seen:
            call_id = f"call_{step}_{n}_{len(seen)}"
        seen.add(call_id)
        fixed.append(AgentCall(id=call_id, name=well_formed(use.name), input=use.input))
    return tuple(fixed)
