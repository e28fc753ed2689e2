"""The port between the engine and a language model: one request in, one reply out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from signoff.domain.message import Message, ToolUse
from signoff.script import ErrorKind

OnText = Callable[[str], Awaitable[None]]
# An atomic counter kept with the run in the store; returns the new value.
Count = Callable[[str], Awaitable[int]]

_TRANSIENT: frozenset[ErrorKind] = frozenset({"rate_limit", "overloaded", "server"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as it is offered to the model."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call; the cached ones are part of ``input_tokens``.

    ``cost_micros`` is its price in millionths of a US dollar, 0 where it is not known.
    """

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    cost_micros: int = 0


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
