"""The tools of an AgentScope agent: shown to it as external, run by the engine."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import jsonschema
from agentscope.agent import Agent
from agentscope.message import TextBlock, ToolCallBlock, ToolResultState
from agentscope.permission import (
    PermissionBehavior,
    PermissionContext,
    PermissionDecision,
    PermissionRule,
)
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, RegisteredTool, ToolBase, Toolkit, ToolResponse

from signoff.agents import AgentRun, ToolSpec
from signoff.domain.error import InvalidFieldError, InvalidToolInputError
from signoff.domain.gate import PLAN_TOOL
from signoff.domain.jsontext import sorted_compact
from signoff.domain.path import dotted
from signoff.domain.question import PLAN_SCHEMA
from signoff.shape import shape_of
from signoff.tooldef import Tool, ToolFailedError

Listing = Callable[[list[str] | None], Awaitable[dict[str, RegisteredTool]]]
#: Runs a coroutine function where agents live, and hands its result back.
Elsewhere = Callable[[Callable[[], Awaitable[str]]], Awaitable[str]]

# What the framework needs for itself: these change nothing but the agent's own state.
_BOOKKEEPING = (
    "agentscope.agent.",
    "agentscope.tool._task.",
    "agentscope.tool._builtin._meta",
    "agentscope.tool._builtin._skill",
)
_RUN_BY_AGENT = "It was approved; the agent runs this tool itself."


class Workshop:
    """One agent's tools, as the agent is to see them and as the engine may run them."""

    def __init__(self, agent: Agent, run: AgentRun) -> None:
        """Puts itself between the agent and its toolkit, which may be shared and stays as is."""
        self._agent = agent
        self._kit: Toolkit = agent.toolkit
        self._run = run
        #: Calls (name, canonical input) for which a tool demands a person whatever rules say.
        self.insisted: set[tuple[str, str]] = set()
        shown = copy.copy(self._kit)
        # The one place that all of its lookups pass; a copy, so that nobody else sees it.
        setattr(shown, "_get_available_tools", self._shown)  # noqa: B010 - a method, to mypy
        agent.toolkit = shown

    async def tools(self, elsewhere: Elsewhere) -> Mapping[str, Tool]:
        """All tools of all groups, ready to be run by the engine."""
        return {
            name: self._for_engine(item.tool, elsewhere)
            for name, item in (await self._all()).items()
        }

    async def find(self, name: str) -> ToolBase | None:
        """The tool ``name`` itself, whatever its group."""
        found = (await self._all()).get(name)
        return None if found is None else found.tool

    async def _all(self) -> dict[str, RegisteredTool]:
        return await self._listed([group.name for group in self._kit.tool_groups])

    async def _listed(self, groups: list[str] | None) -> dict[str, RegisteredTool]:
        listed = self._kit._get_available_tools  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return await listed(groups)

    async def _shown(self, groups: list[str] | None = None) -> dict[str, RegisteredTool]:
        shown = {name: self._veiled(item) for name, item in (await self._listed(groups)).items()}
        if self._run.planning:
            shown[PLAN_TOOL] = RegisteredTool(tool=_Offered(_PLAN))
        if self._run.output is not None:
            shown[self._run.output.name] = RegisteredTool(tool=_Offered(self._run.output))
        return shown

    def _veiled(self, item: RegisteredTool) -> RegisteredTool:
        if item.tool.is_external_tool or self._is_inside(item.tool):
            return item
        veiled = copy.copy(item)
        veiled.tool = _Veiled(item.tool, self.insisted)
        return veiled

    def _is_inside(self, tool: ToolBase) -> bool:
        """True for a tool that the agent runs itself, since it has no effect but on its state."""
        if tool is getattr(self._agent, "_compression_tool", None):
            return True
        if f"{type(tool).__module__}.".startswith(_BOOKKEEPING):
            return True
        return tool.is_state_injected and tool.is_read_only

    def _for_engine(self, tool: ToolBase, elsewhere: Elsewhere) -> Tool:
        inside = self._is_inside(tool)
        kit, state = self._kit, self._agent.state

        async def run(**arguments: Any) -> str:
            if inside:
                return _RUN_BY_AGENT
            return await elsewhere(lambda: _run(kit, state, tool, arguments))

        return Tool(
            name=tool.name,
            description=tool.description,
            function=run,
            parameters=SchemaCheck(tool.input_schema),
            read_only=inside or tool.is_read_only,
            idempotent=False,
            timeout=None,
            external=tool.is_external_tool,
            # Only the agent knows which rules fit a call, so the engine suggests none.
            patterns="shell",
            output_schema=_promised(tool),
            loaded=False,
        )


class SchemaCheck:
    """Input as a JSON schema describes it, checked as AgentScope checks it."""

    __slots__ = ("schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = dict(schema)

    @property
    def first(self) -> str | None:
        """None: the order of a schema's properties means nothing."""
        return None

    def check(self, tool_input: object) -> dict[str, Any]:
        """``tool_input`` as it is; raises InvalidToolInputError otherwise."""
        if not isinstance(tool_input, Mapping):
            raise InvalidToolInputError("the input must be an object")
        try:
            jsonschema.validate(dict(tool_input), self.schema)
        except jsonschema.ValidationError as error:
            raise InvalidToolInputError(
                error.message[:500], field=dotted(tuple(error.absolute_path))
            ) from None
        except jsonschema.SchemaError as error:
            msg = f"the tool's schema cannot be used: {error.message[:500]}"
            raise InvalidToolInputError(msg) from error
        return dict(tool_input)


def key_of(name: str, tool_input: Mapping[str, Any]) -> tuple[str, str]:
    """What a call is known by between the tool's word and the agent's event."""
    return name, sorted_compact(tool_input)


async def _run(kit: Toolkit, state: AgentState, tool: ToolBase, arguments: dict[str, Any]) -> str:
    """One execution by the toolkit, with all its groups; ToolFailedError for an error result."""

    async def play() -> ToolResponse | None:
        own = state.model_copy(deep=True)
        own.tool_context.activated_groups = [group.name for group in kit.tool_groups]
        block = ToolCallBlock(id="call", name=tool.name, input=json.dumps(arguments))
        response: ToolResponse | None = None
        async for chunk in kit.call_tool(block, own):
            if isinstance(chunk, ToolResponse):
                response = chunk
        return response

    function = getattr(tool, "_func", None)
    if isinstance(tool, FunctionTool) and not inspect.iscoroutinefunction(function):
        # The framework calls a plain function where it stands: in a thread it stops nobody else.
        response = await asyncio.to_thread(lambda: asyncio.run(play()))
    else:
        response = await play()
    if response is None:
        raise ToolFailedError(f"{tool.name} gave no result")
    text = "".join(
        block.text if isinstance(block, TextBlock) else f"[{block.source.media_type} left out]"
        for block in response.content
    )
    if response.state != ToolResultState.SUCCESS:
        raise ToolFailedError(text)
    return text


class _Veiled(ToolBase):
    """A tool that the agent knows in every respect, but cannot run."""

    is_external_tool = True
    is_state_injected = False
    metadata_schema = None

    def __init__(self, inner: ToolBase, insisted: set[tuple[str, str]]) -> None:
        super().__init__()
        self._inner = inner
        self._insisted = insisted
        self.name = inner.name
        self.description = inner.description
        self.input_schema = inner.input_schema
        self.is_concurrency_safe = inner.is_concurrency_safe
        self.is_read_only = inner.is_read_only
        self.is_mcp = inner.is_mcp
        self.mcp_name = inner.mcp_name

    async def check_permissions(
        self, tool_input: dict[str, Any], context: PermissionContext
    ) -> PermissionDecision:
        """The tool's own word; that it cannot be overruled is noted for the engine."""
        decision = await self._inner.check_permissions(tool_input, context)
        if decision.behavior == PermissionBehavior.ASK and decision.bypass_immune:
            self._insisted.add(key_of(self.name, tool_input))
        return decision

    async def check_read_only(self, tool_input: dict[str, Any]) -> bool:
        """The tool's own word."""
        return bool(await _maybe(self._inner.check_read_only(tool_input)))

    async def match_rule(self, rule_content: str | None, tool_input: dict[str, Any]) -> bool:
        """The tool's own word."""
        return bool(await _maybe(self._inner.match_rule(rule_content, tool_input)))

    async def generate_suggestions(self, tool_input: dict[str, Any]) -> list[PermissionRule]:
        """The tool's own word."""
        return list(await _maybe(self._inner.generate_suggestions(tool_input)))


_PLAN = ToolSpec(
    name=PLAN_TOOL,
    description=(
        "Present the plan for approval. Until a plan is approved, every call with effects is "
        "refused; calls that only read are not."
    ),
    input_schema=PLAN_SCHEMA,
)


class _Offered(ToolBase):
    """A tool that the engine itself answers: the plan, or the final answer in its form."""

    is_concurrency_safe = False
    is_read_only = True
    is_external_tool = True

    def __init__(self, spec: ToolSpec) -> None:
        super().__init__()
        self.name = spec.name
        self.description = spec.description
        # The agent's toolkit wants properties, which a schema may do without.
        self.input_schema = {"properties": {}, **spec.input_schema}

    async def check_permissions(
        self, tool_input: dict[str, Any], context: PermissionContext
    ) -> PermissionDecision:
        """Nobody needs to be asked before it."""
        del tool_input, context
        return PermissionDecision(behavior=PermissionBehavior.ALLOW, message="the engine answers")


def _promised(tool: ToolBase) -> Mapping[str, Any] | None:
    """What a result from outside is checked against already when it is sent."""
    if not tool.is_external_tool or tool.metadata_schema is None:
        return None
    try:
        shape_of(tool.metadata_schema, field="metadata_schema")
    except InvalidFieldError:
        return None  # then only the tool itself checks it
    return tool.metadata_schema


async def _maybe(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
