"""The conversation's stored form: versioned, provider-neutral, append-only messages.

A stored message is one format byte and its body: ``0`` plain JSON, ``1`` zlib. The JSON object
carries ``v``; readers accept every version up to their own and refuse newer ones, so a worker
of an older release leaves a newer run alone.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.domain.error import SignoffError
from signoff.domain.jsontext import compact

VERSION = 1
COMPRESS_ABOVE = 1024
PLAIN, ZLIB = b"0", b"1"

Role = Literal["user", "assistant", "tool"]
ResultState = Literal["success", "error", "denied", "interrupted"]


class MessageFormatError(SignoffError):
    """A stored message cannot be read."""

    code = "message_format"


class NewerFormatError(MessageFormatError):
    """A stored message is of a newer release; the run is left as it is, for that one."""


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call of the model, with the provider's call id."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model sees of one tool call."""

    tool_use_id: str
    name: str
    state: ResultState
    content: str


Block = Text | ToolUse | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One entry of a run's history; ``at_ms`` is Unix time in milliseconds."""

    role: Role
    blocks: tuple[Block, ...]
    turn: int
    step: int
    at_ms: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text blocks joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))


def block_json(block: Block) -> dict[str, Any]:
    """The block as the JSON object that is stored and shown."""
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, ToolUse):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    return {
        "type": "tool_result",
        "tool_use_id": block.tool_use_id,
        "name": block.name,
        "state": block.state,
        "content": block.content,
    }


def encode(message: Message) -> bytes:
    """The stored bytes of ``message``; compressed when that pays."""
    body: dict[str, Any] = {
        "v": VERSION,
        "role": message.role,
        "turn": message.turn,
        "step": message.step,
        "at": message.at_ms,
        "blocks": [block_json(block) for block in message.blocks],
    }
    if message.extra:
        body["extra"] = message.extra
    return pack(compact(body).encode())


def pack(raw: bytes) -> bytes:
    """The stored form of ``raw``: its format byte, and it compressed where that pays."""
    if len(raw) <= COMPRESS_ABOVE:
        return PLAIN + raw
    return ZLIB + zlib.compress(raw, 6)


def unpack(stored: bytes) -> bytes:
    """What ``pack`` was given; raises MessageFormatError for unknown forms and damage."""
    kind, raw = stored[:1], stored[1:]
    if kind not in (PLAIN, ZLIB):
        msg = f"unknown message format {kind!r}"
        raise NewerFormatError(msg) if kind.isdigit() else MessageFormatError(msg)
    try:
        return zlib.decompress(raw) if kind == ZLIB else raw
    except zlib.error as error:
        raise MessageFormatError("the stored bytes are damaged") from error


def decode(stored: bytes) -> Message:
    """The message of ``stored``; raises MessageFormatError for unknown forms and damage."""
    try:
        return _message(json.loads(unpack(stored)))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise MessageFormatError("the stored message is damaged") from error


def _message(body: dict[str, Any]) -> Message:
    if body.get("v") != VERSION:
        version = body.get("v")
        msg = f"message version {version!r} is not readable by this release"
        newer = type(version) is int and version > VERSION
        raise NewerFormatError(msg) if newer else MessageFormatError(msg)
    return Message(
        role=body["role"],
        blocks=tuple(_block(item) for item in body["blocks"]),
        turn=body["turn"],
        step=body["step"],
        at_ms=body["at"],
        extra=body.get("extra", {}),
    )


def _block(item: dict[str, Any]) -> Block:
    kind = item["type"]
    if kind == "text":
        return Text(item["text"])
    if kind == "tool_use":
        return ToolUse(item["id"], item["name"], item["input"])
    if kind == "tool_result":
        return ToolResult(item["tool_use_id"], item["name"], item["state"], item["content"])
    msg = f"unknown block {kind!r}"
    raise MessageFormatError(msg)
