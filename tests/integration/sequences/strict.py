"""A provider stub that refuses what real ones refuse: calls and results that are no pairs."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from pydantic_ai import messages as wire

from signoff.domain.message import Block, Message, Text, ToolResult, ToolUse
from workers.model.port import Count, ModelReply, ModelRequest, OnText, Usage
from workers.model.provider import _history

QUESTION = {
    "question": "Which?",
    "header": "H",
    "multiSelect": False,
    "options": [{"label": "A (Recommended)"}, {"label": "B"}],
}
#: The same in the form of a declared tool.
ASKED = {
    "question": QUESTION["question"],
    "header": "H",
    "options": [
        {"label": "A (Recommended)", "description": "a"},
        {"label": "B", "description": "b"},
    ],
}
TOOLS = (
    "look", "send", "send", "put", "outside", "declared", "AskUser", "AskUserQuestion", "nonsense",
)  # fmt: skip


class StrictProvider:
    """Answers with random calls, the same again for a repeated step; notes every violation."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.requests = 0
        self.seed = 0

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        """A reply that depends on the run and its number of answers so far only."""
        del count
        self.requests += 1
        found = [*unpaired(request.messages), *refused_on_the_wire(_history(request))]
        self.violations += [f"run {request.run_id}: {problem}" for problem in found]
        answers = sum(message.role == "assistant" for message in request.messages)
        rng = random.Random(f"{self.seed}:{request.run_id}:{answers}")
        calls = tuple(self._call(rng, answers, n) for n in range(rng.choice((0, 0, 1, 2, 3))))
        text = f"answer {answers}" if rng.random() < 0.7 or not calls else ""
        if text:
            await on_text(text)
        usage = Usage(input_tokens=1, output_tokens=1)
        return ModelReply(text=text, tool_calls=calls, usage=usage)

    def _call(self, rng: random.Random, answers: int, n: int) -> ToolUse:
        name = rng.choice(TOOLS)
        tool_input: dict[str, Any] = {"what": rng.choice("xyz")}
        if name == "AskUserQuestion":
            tool_input = {"questions": [QUESTION]}
        elif name == "AskUser":
            tool_input = {"questions": [ASKED]}
        elif rng.random() < 0.1:
            tool_input = {"what": 7}
        # Providers number within an answer; some repeat ids from answer to answer.
        call_id = f"c{n}" if rng.random() < 0.2 else f"c{answers}_{n}"
        return ToolUse(call_id, name, tool_input)


def unpaired(messages: Sequence[Message]) -> list[str]:
    """What is wrong with the history by the rules that providers share."""
    problems: list[str] = []
    if not messages or messages[0].role != "user":
        problems.append("the first message is not the user's")
    open_ids: list[str] = []
    for n, message in enumerate(messages):
        results = [b.tool_use_id for b in message.blocks if isinstance(b, ToolResult)]
        if message.role == "tool" and sorted(results) != sorted(open_ids):
            problems.append(f"message {n} answers {results}, asked were {open_ids}")
        elif message.role != "tool" and open_ids:
            problems.append(f"message {n} comes before the results of {open_ids}")
        open_ids = []
        if message.role == "assistant":
            open_ids = [b.id for b in message.blocks if isinstance(b, ToolUse)]
            if len(set(open_ids)) != len(open_ids):
                problems.append(f"message {n} repeats an id in {open_ids}")
            if n and messages[n - 1].role == "assistant":
                problems.append(f"message {n} is a second answer in a row")
        if message.role != "tool" and not any(_says_something(b) for b in message.blocks):
            problems.append(f"message {n} is empty")
    if messages and messages[-1].role == "assistant":
        problems.append("the last message is an answer")
    return problems + [
        f"message {n} shows our own id" for n, m in enumerate(messages) if "req_" in _shown(m)
    ]


def refused_on_the_wire(history: Sequence[wire.ModelMessage]) -> list[str]:
    """The same once more, in the form that goes to the provider."""
    problems: list[str] = []
    asked: list[str] = []
    for n, message in enumerate(history):
        if isinstance(message, wire.ModelRequest):
            answered = [p.tool_call_id for p in message.parts if isinstance(p, wire.ToolReturnPart)]
            if sorted(answered) != sorted(asked):
                problems.append(f"request {n} answers {answered}, asked were {asked}")
            asked = []
            first = next((type(p) for p in message.parts), None)
            if answered and first is not wire.ToolReturnPart:
                problems.append(f"request {n} says something before its results")
        else:
            if asked:
                problems.append(f"response {n} comes before the results of {asked}")
            asked = [p.tool_call_id for p in message.parts if isinstance(p, wire.ToolCallPart)]
    return problems


def _says_something(block: Block) -> bool:
    return isinstance(block, ToolUse) or (isinstance(block, Text) and block.text != "")


def _shown(message: Message) -> str:
    return json.dumps([str(block) for block in message.blocks])
