"""AgentScope agents with a model that plays a script, for tests in and out of process."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from agentscope.agent import Agent
from agentscope.credential import CredentialBase
from agentscope.message import Msg, TextBlock, ToolCallBlock, ToolResultBlock, ToolResultState
from agentscope.model import ChatModelBase, ChatResponse, ChatUsage
from agentscope.permission import PermissionBehavior, PermissionDecision, PermissionRule
from agentscope.tool import AskUser, FunctionTool, TaskCreate, ToolBase, ToolChunk, Toolkit
from pydantic import BaseModel

from signoff import current_call
from signoff.agents import AgentRun

Turn = dict[str, Any]
WHAT = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}


class _Formatter:
    supported_input_media_types: Sequence[str] = ()


class _Parameters(BaseModel):
    pass


class VendorError(Exception):
    """As the clients of vendors raise it."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


class ScriptedModel(ChatModelBase):
    """Answers by its script; the turn is the number of answers that the context holds."""

    def __init__(self, script: Sequence[Turn], seen: Path | None = None) -> None:
        super().__init__(CredentialBase(), "scripted", _Parameters(), stream=False)
        self._script = script
        self._seen = seen
        self.formatter = _Formatter()

    async def _call_api(
        self, model_name: str, messages: list[Msg], *args: Any, **kwargs: Any
    ) -> ChatResponse | AsyncGenerator[ChatResponse, None]:
        del model_name, args, kwargs
        calls = [b.id for m in messages for b in m.content if isinstance(b, ToolCallBlock)]
        texts = [
            b.text
            for m in messages
            if m.role == "assistant"
            for b in m.content
            if isinstance(b, TextBlock)
        ]
        if self._seen is not None:
            results = {
                b.id: {"state": str(b.state), "text": _text(b)}
                for m in messages
                for b in m.content
                if isinstance(b, ToolResultBlock)
            }
            said = [m.get_text_content() for m in messages if m.role == "user"]
            line = json.dumps({"results": results, "said": said})
            with self._seen.open("a") as file:
                file.write(line + "\n")
        turn = next(
            t
            for t in self._script
            if not ({c[0] for c in t.get("calls", [])} & set(calls)) and t.get("text") not in texts
        )
        if "status" in turn:
            raise VendorError(turn["status"])
        content: list[Any] = [TextBlock(text=turn["text"])] if turn.get("text") else []
        content += [
            ToolCallBlock(id=i, name=n, input=v if isinstance(v, str) else json.dumps(v))
            for i, n, v in turn.get("calls", [])
        ]
        usage = ChatUsage(input_tokens=10, output_tokens=5, time=0.1)
        return ChatResponse(content=content, is_last=True, usage=usage)


def _text(block: ToolResultBlock) -> str:
    if isinstance(block.output, str):
        return block.output
    return "".join(b.text for b in block.output if isinstance(b, TextBlock))


class Outside(ToolBase):
    """An external tool of the agent's own."""

    name = "lookup"
    description = "Asks another system."
    input_schema = WHAT
    is_concurrency_safe = True
    is_read_only = True
    is_external_tool = True

    async def check_permissions(self, *_: Any, **__: Any) -> PermissionDecision:
        return PermissionDecision(behavior=PermissionBehavior.ALLOW, message="")


def ledger(line: str) -> None:
    """Notes a start, where the test looks."""
    with Path(os.environ["SCOPE_LEDGER"]).open("a") as file:
        file.write(f"{current_call().run_id} {current_call().tool_use_id} {line}\n")


def pay(to: str, amount: int = 1) -> Any:
    """Pays somebody.

    Args:
        to: who
        amount: how much
    """
    ledger(f"pay {to} {amount}")
    return f"paid {amount} to {to}"


async def note(text: str) -> Any:
    """Notes a text."""
    ledger(f"note {text}")
    return f"noted {text}"


def make_agent(run: AgentRun) -> Agent:
    """The desk agent; its script comes with the run, as the scripted model's does."""
    seen = os.environ.get("SCOPE_SEEN")
    toolkit = Toolkit(
        tools=[
            FunctionTool(pay),
            FunctionTool(note, is_concurrency_safe=False),
            Outside(),
            AskUser(),
            TaskCreate(),
        ]
    )
    return Agent(
        name="desk",
        system_prompt="You work at the desk.",
        model=ScriptedModel(run.metadata["script"], Path(seen) if seen else None),
        toolkit=toolkit,
    )


class Wipe(ToolBase):
    """A tool that demands a person, whatever rules say."""

    name = "wipe"
    description = "Deletes a folder."
    input_schema = PATH
    is_concurrency_safe = False
    is_read_only = False

    async def check_permissions(self, *_: Any, **__: Any) -> PermissionDecision:
        return PermissionDecision(
            behavior=PermissionBehavior.ASK, message="dangerous", bypass_immune=True
        )

    async def call(self, path: str = "") -> ToolChunk:
        ledger(f"wipe {path}")
        if path == "/":
            return ToolChunk(content=[TextBlock(text="refused")], state=ToolResultState.ERROR)
        return ToolChunk(content=[TextBlock(text="wiped")])


def careful(run: AgentRun) -> Agent:
    """The desk agent with a dangerous tool, and an ask rule of its own."""
    agent = make_agent(run)
    agent.toolkit.tool_groups[0].tools.append(Wipe())
    rule = PermissionRule(
        tool_name="note", rule_content=None, behavior=PermissionBehavior.ASK, source="owner"
    )
    agent.state.permission_context.ask_rules["note"] = [rule]
    return agent
