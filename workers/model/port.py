"""The port between the engine and a language model: one request in, one reply out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from signoff.agents import Count, OnText, ToolSpec, Usage
from signoff.domain.message import Message, ToolUse
from signoff.script import ErrorKind

__all__ = [
    "Count",
    "Model",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "OnText",
    "ToolSpec",
    "Usage",
]

_TRANSIENT: frozenset[ErrorKind] = frozenset({"rate_limit", "overloaded", "server"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything a model needs for one step; ``model`` is a full name."""

    run_id: int
    turn: int
    model: str
    instructions: str | None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    metadata: Mapping[str, Any]
    plan_mode: bool
    #: The tool that takes the final answer, where no words are one.
    output: ToolSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The model's whole answer; without tool calls the turn is over."""

    text: str
    tool_calls: tuple[ToolUse, ...]
    usage: Usage


class ModelError(Exception):
    """The model gave no reply; a run that ends with it has the code ``model_<kind>``."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """``retryable`` follows from the kind unless the provider said that trying is useless."""
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.retryable = kind in _TRANSIENT if retryable is None else retryable
        self.retry_after_s = retry_after_s


class Model(Protocol):
    """Anything that can answer a request; it raises ModelError and nothing else of its own."""

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        """The reply; its text has also gone through ``on_text`` piece by piece by then."""
        ...
