"""A LangGraph graph behind the port: its interrupts are calls, what became of them resumes it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph._internal._serde import (  # pyright: ignore[reportMissingTypeStubs]
    build_serde_allowlist,
)
from langgraph.errors import GraphRecursionError
from langgraph.graph import StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.types import Command, Interrupt, StateSnapshot
from pydantic_core import to_jsonable_python

from signoff import strictjson
from signoff.agents import Advance, AgentCall, AgentFailedError, Outcome, Says, Step, Usage
from signoff.declared import external_tools
from signoff.domain.error import MalformedBodyError
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL
from signoff.domain.jsontext import compact
from signoff.interrupts import KEY
from signoff.tooldef import Tool
from workers.agent.graph_saver import RunSaver

GRAPHS = (StateGraph, Pregel)
#: The external tool of every interrupt that is not one of ours.
INTERRUPT_TOOL = "interrupt"
_SHOWN = {
    "name": INTERRUPT_TOOL,
    "description": "Waits for the value with which the graph is to go on.",
    "input_schema": {"type": "object", "properties": {"value": {}}, "required": ["value"]},
}


def tools_of(offered: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """What the engine may run for a graph: the run's own tools, and the one that only waits."""
    return {**offered, **external_tools([_SHOWN])}


class GraphAgent:
    """One graph, made for one demand; nothing of it outlives the demand but what it saves."""

    def __init__(self, graph: StateGraph[Any, Any, Any, Any] | Pregel[Any, Any, Any, Any]) -> None:
        """``graph`` stays as it is, so that one may be made once and used for all runs."""
        self._graph = graph.compile() if isinstance(graph, StateGraph) else graph

    async def advance(self, turn: Advance) -> Step:
        """Runs the graph until it ends or each of its branches waits."""
        saver = RunSaver(turn.saved, allowed=_types(self._graph))
        graph = self._graph.copy({"checkpointer": saver})
        meter = _Meter()
        config: Any = {"configurable": {"thread_id": str(turn.run.id)}, "callbacks": [meter]}
        before = await graph.aget_state(config)
        given = _resumed(before, turn) if turn.outcomes else _said(graph, turn)
        try:
            await graph.ainvoke(given, config, durability="sync")
        except GraphRecursionError as error:
            raise AgentFailedError("max_turns_exceeded", str(error)[:2000]) from error
        after = await graph.aget_state(config)
        if after.next and not after.interrupts:
            msg = f"the graph stopped before {', '.join(after.next)} without an interrupt"
            raise AgentFailedError("agent_error", msg)
        calls = tuple(_call(item, turn.run.tools) for item in after.interrupts)
        text = _new_text(before, after) if calls else _output(after)
        if text:
            await turn.on_text(text)
        saved = saver.dump({task.id for task in after.tasks})
        return Step(text=text, calls=calls, usage=meter.usage, saved=saved)


# -- in ------------------------------------------------------------------------------------------


def _said(graph: Pregel[Any, Any, Any, Any], turn: Advance) -> dict[str, Any]:
    """The message of a new turn, where the graph takes it."""
    text = turn.messages[-1].text
    if "messages" in graph.channels:
        return {"messages": [HumanMessage(text)]}
    if "input" in graph.channels:
        return {"input": text}
    msg = "the state of the graph has neither `messages` nor `input`"
    raise AgentFailedError("agent_error", msg)


def _resumed(before: StateSnapshot, turn: Advance) -> Command[Any]:
    """What became of each interrupt that waits, by its id."""
    known = {outcome.call_id: outcome for outcome in turn.outcomes}
    waiting = {item.id: item for item in before.interrupts if item.id in known}
    if not waiting:
        raise AgentFailedError("agent_error", "the graph waits for nothing that was decided")
    return Command(resume={key: _answer(item, known[key]) for key, item in waiting.items()})


def _answer(item: Interrupt[Any], outcome: Outcome) -> Any:
    ours = _ours(item.value)
    if ours is None and outcome.state == "success":
        return _value(outcome.content)
    answer: dict[str, Any] = {
        "state": outcome.state,
        "content": outcome.content,
        "approved": outcome.approved,
    }
    if outcome.edited_input is not None:
        answer["input"] = dict(outcome.edited_input)
    if ours == "question" and outcome.state == "success":
        answer["answers"] = {
            row["question"]: row["answer"] for row in _value(outcome.content)["answers"]
        }
    return answer


def _value(text: str) -> Any:
    """What was supplied: JSON where it is JSON, else the text."""
    try:
        raw = text.encode()
        return strictjson.loads(raw, max_bytes=len(raw))
    except (UnicodeEncodeError, MalformedBodyError):
        return text


# -- out -----------------------------------------------------------------------------------------


def _ours(value: Any) -> Any:
    return value.get(KEY) if isinstance(value, Mapping) else None


def _call(item: Interrupt[Any], tools: Mapping[str, Tool]) -> AgentCall:
    """The interrupt as a call; AgentFailedError for one that claims to be ours and is not."""
    waits = AgentCall(id=item.id, name=INTERRUPT_TOOL, input={"value": _json(item.value)})
    match item.value:
        case {"signoff": "tool", "tool": str(name), "input": dict(given), **rest}:
            says = Says.INSIST if rest.get("insist") is True else Says.ASK
            return AgentCall(id=item.id, name=name, input=_json(given), says=says)
        case {"signoff": "external", "tool": str(name), "input": dict(given)}:
            found = tools.get(name)
            # Any other tool of the deployment would run.
            if found is not None and found.external:
                return AgentCall(id=item.id, name=name, input=_json(given))
            return replace(waits, input={"value": {"tool": name, "input": _json(given)}})
        case {"signoff": "question", "questions": list(questions)}:
            return AgentCall(id=item.id, name=ASK_TOOL, input={"questions": _json(questions)})
        case {"signoff": "plan", "plan": str(plan)}:
            return AgentCall(id=item.id, name=PLAN_TOOL, input={"plan": plan})
        case _ if _ours(item.value) is not None:
            msg = f"an interrupt for {_ours(item.value)!a} has not the promised shape"
            raise AgentFailedError("agent_error", msg)
        case _:
            return waits


def _json(value: Any) -> Any:
    return to_jsonable_python(value, serialize_unknown=True)


def _messages(snapshot: StateSnapshot) -> list[Any]:
    values = snapshot.values
    found = values.get("messages") if isinstance(values, Mapping) else None
    return found if isinstance(found, list) else []


def _new_text(before: StateSnapshot, after: StateSnapshot) -> str:
    """What the graph's model said last, if it said it in this step."""
    known = {message.id for message in _messages(before) if isinstance(message, AIMessage)}
    last = _messages(after)[-1:]
    new = bool(last) and isinstance(last[0], AIMessage) and last[0].id not in known
    return str(last[0].text) if new else ""


def _output(after: StateSnapshot) -> str:
    """The final text: the channel ``output`` where there is one, else the last message."""
    values = after.values
    if isinstance(values, Mapping) and values.get("output") is not None:
        output = values["output"]
        return output if isinstance(output, str) else compact(_json(output))
    last = _messages(after)[-1:]
    return str(last[0].text) if last and isinstance(last[0], AIMessage) else ""


def _types(graph: Pregel[Any, Any, Any, Any]) -> set[tuple[str, ...]]:
    """The types that the states of the graph and of its subgraphs declare."""
    allowed: set[tuple[str, ...]] = set()
    inner = [item for _, item in graph.get_subgraphs(recurse=True) if isinstance(item, Pregel)]
    for item in (graph, *inner):
        schemas = [*getattr(getattr(item, "builder", None), "schemas", ())]
        allowed |= build_serde_allowlist(schemas=schemas, channels=dict(item.channels))
    return allowed


class _Meter(BaseCallbackHandler):
    """The tokens of all model calls of a step, those of subgraphs and of parallel nodes as well."""

    run_inline = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.usage = Usage()

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Adds what the answer says that it cost."""
        for generation in (item for row in response.generations for item in row):
            message = generation.message if isinstance(generation, ChatGeneration) else None
            used = message.usage_metadata if isinstance(message, AIMessage) else None
            if used is None:
                continue
            cached = used.get("input_token_details", {})
            with self._lock:
                now = self.usage
                self.usage = Usage(
                    input_tokens=now.input_tokens + used["input_tokens"],
                    output_tokens=now.output_tokens + used["output_tokens"],
                    cache_read_tokens=now.cache_read_tokens + cached.get("cache_read", 0),
                    cache_creation_tokens=now.cache_creation_tokens
                    + cached.get("cache_creation", 0),
                )
