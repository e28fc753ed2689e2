"""An AgentScope agent behind the port: it decides, the engine asks and acts.

Its REQUIRE_* events become calls; what became of them goes back as USER_CONFIRM_RESULT and
EXTERNAL_EXECUTION_RESULT; its state is what is saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentscope import event as ev
from agentscope._utils._common import (
    _json_loads_with_repair,  # pyright: ignore[reportPrivateUsage]  # as the agent itself reads input
)
from agentscope.agent import Agent
from agentscope.message import (
    Msg,
    ToolCallBlock,
    ToolCallState,
    ToolResultBlock,
    ToolResultState,
    UserMsg,
)
from agentscope.permission import PermissionBehavior, PermissionRule
from agentscope.state import AgentState

from signoff.agents import (
    Advance,
    AgentCall,
    AgentFailedError,
    AgentRun,
    OnText,
    Outcome,
    Round,
    Says,
    Settled,
    Step,
    Usage,
)
from signoff.domain.gate import AGENT_RULE
from signoff.domain.message import Message, ResultState, ToolResult
from signoff.tooldef import Tool
from workers.agent.scope_tools import Elsewhere, Workshop, key_of

VERSION = 1
CLOSED = (
    "<system-reminder>The tool call was interrupted: the turn ended before it.</system-reminder>"
)
_STATES: Mapping[str, ResultState] = {
    "success": "success",
    "error": "error",
    "denied": "denied",
    "interrupted": "interrupted",
}


class ScopeAgent:
    """One agent, made for one demand; nothing of it outlives the demand but what it saves."""

    def __init__(self, agent: Agent, run: AgentRun, saved: bytes | None) -> None:
        """``agent`` goes on from ``saved``; without it, from the state that it was made with."""
        self._agent = agent
        if saved is not None:
            # Where its permission context and the rules that were accepted come back as well.
            agent.state = _state(agent.name, saved)
            # There is no public way.
            engine = agent._engine  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            engine.context = agent.state.permission_context
        self._workshop = Workshop(agent, run)

    async def tools(self, elsewhere: Elsewhere) -> Mapping[str, Tool]:
        """What the engine may run for the agent."""
        return await self._workshop.tools(elsewhere)

    async def advance(self, turn: Advance) -> Step:
        """The step that the agent comes to; it has run no tool with effects on the way."""
        play = _Play(self._agent, self._workshop, turn)
        if turn.outcomes:
            await play.go_on()
        else:
            await play.start()
        return play.step(_saved(self._agent))


class _Open:
    """The round that is being played: text as it comes, calls as they surface."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: dict[str, AgentCall] = {}


class _Play:
    """One demand: what goes in, and what comes out of the agent's stream of events."""

    def __init__(self, agent: Agent, workshop: Workshop, turn: Advance) -> None:
        self._agent = agent
        self._workshop = workshop
        self._turn = turn
        self._fed = {outcome.call_id: outcome for outcome in turn.outcomes}
        self._on_text: OnText = turn.on_text
        self._earlier: list[Round] = []
        self._round = _Open()
        self._refused: set[str] = set()
        self._results: dict[str, list[str]] = {}
        self._usage = Usage()
        self._ended = False

    # -- in ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """A new turn: what the last one left open is closed, then the message goes in."""
        await self._close()
        said: list[Msg] = []
        for message in reversed(self._turn.messages):
            if message.role != "user":
                break
            said.insert(0, UserMsg(self._turn.run.user_id or "user", message.text))
        await self._feed(said)

    async def go_on(self) -> None:
        """What became of the calls of the step before, confirmations first."""
        confirmed = [
            await self._confirmation(block, self._fed[block.id])
            for block in self._waiting(ToolCallState.ASKING)
        ]
        self._refused = {item.tool_call.id for item in confirmed if not item.confirmed}
        if confirmed:
            await self._feed(
                ev.UserConfirmResultEvent(
                    reply_id=self._agent.state.reply_id, confirm_results=confirmed
                )
            )
        # A confirmed call surfaces as one to be executed outside; its result is here already.
        while submitted := self._waiting(ToolCallState.SUBMITTED):
            results = [await self._result(block, self._fed[block.id]) for block in submitted]
            await self._feed(
                ev.ExternalExecutionResultEvent(
                    reply_id=self._agent.state.reply_id, execution_results=results
                )
            )

    def _waiting(self, state: ToolCallState) -> list[ToolCallBlock]:
        """The calls in ``state`` of which the outcome is known."""
        waiting = self._agent.state.get_awaiting_tool_calls(self._agent.name)
        return [block for block in waiting if block.state == state and block.id in self._fed]

    async def _confirmation(self, block: ToolCallBlock, outcome: Outcome) -> ev.ConfirmResult:
        given = block
        if outcome.edited_input is not None:
            # The name is never taken from outside.
            text = json.dumps(outcome.edited_input, ensure_ascii=False)
            given = block.model_copy(update={"input": text})
        rules = [_agent_rule(rule) for rule in outcome.rules] if outcome.approved else []
        return ev.ConfirmResult(confirmed=outcome.approved, tool_call=given, rules=rules or None)

    async def _result(self, block: ToolCallBlock, outcome: Outcome) -> ToolResultBlock:
        metadata: dict[str, Any] = {}
        state, output = outcome.state, outcome.content
        tool = await self._workshop.find(block.name)
        if state == "success" and tool is not None and tool.metadata_schema is not None:
            # Also of AskUser, whose gate is answered in exactly that shape.
            metadata = _object(output)
        result = ToolResultBlock(
            id=block.id,
            name=block.name,
            output=output,
            state=ToolResultState(state),
            metadata=metadata,
        )
        if tool is not None:
            try:
                await tool.check_external_result(result)
            except Exception as error:  # noqa: BLE001 - whatever the tool's own check raises
                result.state = ToolResultState.ERROR
                result.output = f"The result does not have the promised shape: {error}"[:2000]
        return result

    async def _close(self) -> None:
        """Closes calls that the last turn left open, with what is known of them."""
        state = self._agent.state
        known = _results_of(self._turn.messages)
        for block in state.get_unfinished_tool_calls(self._agent.name):
            result = known.get(block.id)
            if result is not None and result.state != "interrupted":
                self._finish(block, result.content, result.state)
        if state.has_awaiting_tool_calls(self._agent.name):
            interrupt = ev.UserInterruptEvent(reply_id=state.reply_id)
            async for _ in self._agent.reply_stream(interrupt):
                pass
        for block in state.get_unfinished_tool_calls(self._agent.name):
            self._finish(block, CLOSED, "interrupted")

    def _finish(self, block: ToolCallBlock, output: str, state: ResultState) -> None:
        block.state = ToolCallState.FINISHED
        self._agent.state.context[-1].content.append(
            ToolResultBlock(
                id=block.id, name=block.name, output=output, state=ToolResultState(state)
            )
        )

    # -- out -----------------------------------------------------------------------------------

    async def _feed(self, given: Any) -> None:
        async for event in self._agent.reply_stream(given):
            await self._note(event)

    async def _note(self, event: Any) -> None:
        match event:
            case ev.ModelCallStartEvent():
                await self._next_round()
            case ev.TextBlockDeltaEvent():
                self._round.text.append(event.delta)
                await self._on_text(event.delta)
            case ev.ModelCallEndEvent():
                self._use(event)
            case ev.RequireUserConfirmEvent() | ev.RequireExternalExecutionEvent():
                for block in event.tool_calls:
                    if block.id not in self._fed:
                        asks = isinstance(event, ev.RequireUserConfirmEvent)
                        self._round.calls[block.id] = await self._call(block, asks=asks)
            case ev.ToolResultTextDeltaEvent():
                self._results.setdefault(event.tool_call_id, []).append(event.delta)
            case ev.ToolResultEndEvent():
                await self._settled(event)
            case ev.ReplyEndEvent():
                self._end(event)
            case _:
                pass

    async def _next_round(self) -> None:
        done = self._round
        if done.text or done.calls:
            self._earlier.append(Round(text="".join(done.text), calls=tuple(done.calls.values())))
        if done.text:
            await self._on_text("\n\n")
        self._round = _Open()

    def _use(self, event: Any) -> None:
        used = self._usage
        self._usage = Usage(
            input_tokens=used.input_tokens + event.input_tokens,
            output_tokens=used.output_tokens + event.output_tokens,
            cache_read_tokens=used.cache_read_tokens + event.cache_input_tokens,
            cache_creation_tokens=used.cache_creation_tokens + event.cache_creation_input_tokens,
        )

    async def _call(self, block: ToolCallBlock, *, asks: bool) -> AgentCall:
        tool = await self._workshop.find(block.name)
        tool_input = _input(block, {} if tool is None else tool.input_schema)
        says = Says.ALLOW
        if asks:
            says = Says.INSIST if await self._insists(block.name, tool_input) else Says.ASK
        return AgentCall(
            id=block.id,
            name=block.name,
            input=tool_input,
            says=says,
            suggested_rules=tuple(_suggested(rule) for rule in block.suggested_rules),
        )

    async def _insists(self, name: str, tool_input: dict[str, Any]) -> bool:
        """True where the agent's engine lets no allow rule answer: a safety ask, or an ask rule."""
        if key_of(name, tool_input) in self._workshop.insisted:
            return True
        rules = self._agent.state.permission_context.ask_rules.get(name, [])
        tool = await self._agent.toolkit.get_tool(name)
        if tool is None:
            return bool(rules)
        for rule in rules:
            if await tool.match_rule(rule.rule_content, tool_input):
                return True
        return False

    async def _settled(self, event: Any) -> None:
        """A call that is over: ours is known, any other is recorded with its result."""
        outcome = self._fed.get(event.tool_call_id)
        if outcome is not None:
            if outcome.call_id in self._refused:
                self._explain(outcome)
            return
        block = self._block(event.tool_call_id)
        if block is None:
            return
        tool = await self._workshop.find(block.name)
        self._round.calls[block.id] = AgentCall(
            id=block.id,
            name=block.name,
            input=_input(block, {} if tool is None else tool.input_schema),
            settled=Settled(
                state=_STATES.get(str(event.state), "error"),
                content="".join(self._results.pop(block.id, [])),
            ),
        )

    def _explain(self, outcome: Outcome) -> None:
        """Puts what the reviewer said behind the agent's own words, before its model reads them."""
        for block in reversed(self._agent.state.context[-1].content):
            if isinstance(block, ToolResultBlock) and block.id == outcome.call_id:
                if isinstance(block.output, str):
                    block.output = f"{block.output}\n{outcome.content}"
                return

    def _block(self, call_id: str) -> ToolCallBlock | None:
        context = self._agent.state.context
        for block in reversed(context[-1].content if context else []):
            if isinstance(block, ToolCallBlock) and block.id == call_id:
                return block
        return None

    def _end(self, event: Any) -> None:
        match str(event.finished_reason):
            case "completed":
                self._ended = True
            case "exceed_max_iters":
                msg = "the agent reached its limit of iterations"
                raise AgentFailedError("max_turns_exceeded", msg)
            case "error" if event.error is not None:
                raise _reported(str(event.error.type), str(event.error.message))
            case reason:
                raise AgentFailedError("agent_error", f"the agent's reply ended: {reason}")

    def step(self, saved: bytes) -> Step:
        """What the stream amounted to."""
        calls = tuple(self._round.calls.values())
        if not calls and not self._ended:
            msg = "the agent neither answered nor asked for anything"
            raise AgentFailedError("agent_error", msg)
        text = "".join(self._round.text)
        earlier = tuple(self._earlier)
        if self._ended and calls:
            earlier, text, calls = (*earlier, Round(text=text, calls=calls)), "", ()
        return Step(
            text=text,
            calls=calls,
            earlier=earlier,
            usage=self._usage,
            saved=saved,
            correctable=True,  # its context holds what was done
        )


def _input(block: ToolCallBlock, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The input as the agent itself reads it, with its repairs."""
    try:
        return dict(_json_loads_with_repair(block.input, dict(schema)))
    except Exception:  # noqa: BLE001 - it then is an error result of the agent's own
        return {}


def _suggested(rule: PermissionRule) -> dict[str, str]:
    shown = {"tool": rule.tool_name, "effect": str(rule.behavior.value)}
    if rule.rule_content is not None:
        shown[AGENT_RULE] = rule.rule_content
    return shown


def _agent_rule(rule: Mapping[str, Any]) -> PermissionRule:
    return PermissionRule(
        tool_name=rule["tool"],
        rule_content=rule.get(AGENT_RULE),
        behavior=PermissionBehavior(rule["effect"]),
        source="suggested",
    )


def _results_of(messages: Sequence[Message]) -> dict[str, ToolResult]:
    """The results that were last told, by call."""
    found: dict[str, ToolResult] = {}
    for message in messages:
        found.update({b.tool_use_id: b for b in message.blocks if isinstance(b, ToolResult)})
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _saved(agent: Agent) -> bytes:
    kept = {"v": VERSION, "name": agent.name, "state": agent.state.model_dump(mode="json")}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _state(name: str, saved: bytes) -> AgentState:
    """The state of ``saved``; AgentFailedError if it is not this agent's or cannot be read."""
    try:
        kept = json.loads(saved.decode("utf-8", "surrogatepass"))
        if kept["v"] != VERSION:
            raise AgentFailedError("agent_error", f"the agent's state has version {kept['v']!a}")
        if kept["name"] != name:
            # Its calls are looked up by the name under which it made them.
            msg = f"the agent was called {kept['name']!a} when it paused and is {name!a} now"
            raise AgentFailedError("agent_error", msg)
        return AgentState.model_validate(kept["state"])
    except (ValueError, LookupError, TypeError) as error:
        msg = f"the agent's state cannot be read: {type(error).__name__}"
        raise AgentFailedError("agent_error", msg) from error


_REPORTED = {
    "authentication": "auth",
    "permission": "auth",
    "rate_limit": "rate_limit",
    "upstream": "server",
    "connection": "server",
}


def _reported(kind: str, message: str) -> AgentFailedError:
    known = _REPORTED.get(kind)
    if known is None:
        return AgentFailedError("agent_error", f"{kind}: {message}"[:2000])
    retryable = known in ("rate_limit", "server")
    return AgentFailedError(f"model_{known}", message[:2000], retryable=retryable)
