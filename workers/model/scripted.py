"""The scripted model: plays ``metadata.script``, for tests and demos; off in production."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from signoff.domain.error import SignoffError
from signoff.domain.jsontext import compact
from signoff.domain.message import Message, Text, ToolResult, ToolUse
from signoff.script import script_length, script_turn
from workers.model.port import Count, ModelError, ModelReply, ModelRequest, OnText, Usage

END_OF_SCRIPT = "(end of script)"
NO_SCRIPT = "You said: {{message}}"

_PLACEHOLDER = re.compile(r"\{\{(last_results|message)\}\}")
_PIECES = 4
_MIN_PIECE = 16
# The rule of thumb for English text; the counts are plausible, not any tokenizer's.
_CHARS_PER_TOKEN = 4


class ScriptedModel:
    """Turn ``n`` of the script answers the request that has ``n`` assistant messages so far.

    A step that is repeated therefore gets the same answer, and replies go on down the list.
    """

    def __init__(
        self,
        *,
        default_delay_ms: float = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``default_delay_ms`` is waited before an answer without a script."""
        self._default_delay_ms = default_delay_ms
        self._sleep = sleep

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        """The turn's text and calls; ModelError while the turn's ``error`` has tries left.

        The usage is made up: a token for every four characters sent and received.
        """
        index = sum(message.role == "assistant" for message in request.messages)
        try:
            length = script_length(request.metadata)
            if length is None:
                await self._wait(self._default_delay_ms)
                return await _speak(request, NO_SCRIPT, (), on_text)
            if index >= length:
                return await _speak(request, END_OF_SCRIPT, (), on_text)
            turn = script_turn(request.metadata, index)
        except SignoffError as error:
            # Checked when the run was created; here it can only fail again on every try.
            raise ModelError("context", str(error)) from error
        await self._wait(turn.delay_ms)
        if turn.error is not None and await count(f"script_error:{index}") <= turn.error.times:
            raise ModelError(turn.error.kind, f"scripted error: {turn.error.kind}")
        return await _speak(request, turn.text, turn.tool_calls, on_text)

    async def _wait(self, delay_ms: float) -> None:
        if delay_ms > 0:
            await self._sleep(delay_ms / 1000)


async def _speak(
    request: ModelRequest, template: str, calls: tuple[ToolUse, ...], on_text: OnText
) -> ModelReply:
    text = _fill(template, request.messages)
    size = max(_MIN_PIECE, -(-len(text) // _PIECES))
    for start in range(0, len(text), size):
        await on_text(text[start : start + size])
    return ModelReply(text=text, tool_calls=calls, usage=_usage(request, text, calls))


def _fill(template: str, messages: tuple[Message, ...]) -> str:
    """Replace the placeholders in one pass, so that what a user wrote is never one itself."""

    def value(found: re.Match[str]) -> str:
        return _last_results(messages) if found[1] == "last_results" else _last_message(messages)

    return _PLACEHOLDER.sub(value, template)


def _last_message(messages: tuple[Message, ...]) -> str:
    return next((m.text for m in reversed(messages) if m.role == "user" and not m.extra), "")


def _last_results(messages: tuple[Message, ...]) -> str:
    """The results since the last answer, as JSON; they stand in the order they were asked for."""
    results: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        results[:0] = [_shown(item) for item in message.blocks if isinstance(item, ToolResult)]
    return compact(results)


def _shown(result: ToolResult) -> dict[str, Any]:
    return {
        "tool_use_id": result.tool_use_id,
        "name": result.name,
        "state": result.state,
        "content": result.content,
    }


def _usage(request: ModelRequest, text: str, calls: tuple[ToolUse, ...]) -> Usage:
    sent = len(request.instructions or "") + sum(
        _length(block) for message in request.messages for block in message.blocks
    )
    received = len(text) + sum(_length(call) for call in calls)
    return Usage(
        input_tokens=max(1, sent // _CHARS_PER_TOKEN),
        output_tokens=max(1, received // _CHARS_PER_TOKEN),
    )


def _length(block: Text | ToolUse | ToolResult) -> int:
    if isinstance(block, Text):
        return len(block.text)
    if isinstance(block, ToolUse):
        return len(block.name) + len(json.dumps(block.input))
    return len(block.content)
