"""The agent port: what the engine asks of an agent, and what an agent answers.

An agent decides, the engine acts. The engine alone opens gates, runs tools and commits; an agent is
told what has happened and says what it wants next. docs/agents.md shows one in full.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from signoff.domain.message import Message, ResultState
from signoff.domain.mode import Mode
from signoff.tooldef import Tool

__all__ = [
    "Advance",
    "Agent",
    "AgentCall",
    "AgentFailedError",
    "AgentRun",
    "Count",
    "OnText",
    "Outcome",
    "Round",
    "Says",
    "Settled",
    "Step",
    "ToolSpec",
    "Usage",
]

OnText = Callable[[str], Awaitable[None]]
#: An atomic counter kept with the run in the store; returns the new value.
Count = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one step; the cached ones are part of ``input_tokens``.

    ``cost_micros`` is its price in millionths of a US dollar, 0 where it is not known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as it is offered to a model."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """The run that an agent works for, as it stands."""

    id: int
    turn: int
    step: int
    model: str
    user_id: str | None
    instructions: str | None
    metadata: Mapping[str, Any]
    mode: Mode
    #: In plan mode: whether a plan was approved, so that calls with effects may be made.
    plan_approved: bool
    #: Whether anybody can be asked anything.
    human_in_the_loop: bool
    #: The tools of the deployment that the run may use.
    tools: Mapping[str, Tool]
    #: The tool that takes the final answer, of a run that owes a structured one; a final text that
    #: is such an answer as JSON does as well.
    output: ToolSpec | None = None

    @property
    def planning(self) -> bool:
        """True while calls with effects are refused until a plan is approved."""
        return self.mode is Mode.PLAN and not self.plan_approved

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that the run's final answer has to fit; None when any words will do."""
        return None if self.output is None else self.output.input_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one call of the step before, whoever decided and whatever ran."""

    call_id: str
    tool: str
    state: ResultState
    #: What the model is to read.
    content: str
    #: False for a call that was refused before it could run.
    approved: bool
    #: The input that ran, where a reviewer changed it.
    edited_input: Mapping[str, Any] | None = None
    #: The suggested rules that the reviewer accepted with the approval.
    rules: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One demand to an agent: start, or go on from ``saved`` with what has happened since.

    ``messages`` is the whole conversation; ``outcomes`` are the results of the step before. There
    are none at the start of a turn, whose message then stands last, and none with a
    ``correction``. The same demand may be made again, after a crash or a failure, with the same
    values; whatever the first try did in memory is gone.
    """

    run: AgentRun
    messages: tuple[Message, ...]
    outcomes: tuple[Outcome, ...]
    #: What the step before returned as ``saved``; None at the start.
    saved: bytes | None
    #: Takes pieces of the answer for those who watch the run.
    on_text: OnText
    count: Count
    #: No new turn: the final text of the step before is no output of the required form, and this
    #: says why. Only after a step that was ``correctable``. It stands last in ``messages`` as well.
    correction: str | None = None


class Says(StrEnum):
    """What an agent itself says of a call that it wants to make; the engine's rules stand above.

    A deny rule refuses every call, an ask rule asks for every call that a person has not allowed.
    """

    #: Nothing: the engine's rules and the run's mode decide.
    NOTHING = "nothing"
    #: It need not be asked.
    ALLOW = "allow"
    #: It should be asked; an allow rule or autonomous mode may answer.
    ASK = "ask"
    #: A person must be asked: neither a rule nor autonomous mode answers.
    INSIST = "insist"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result of a call that the agent has dealt with itself."""

    state: ResultState
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """One tool call that an agent wants; ``id`` is the agent's own, unique within the step.

    ``AskUserQuestion`` asks a person (if the run has one), ``ExitPlanMode`` presents a plan in
    plan mode; every other name is one of the agent's tools.
    """

    id: str
    name: str
    input: dict[str, Any]
    says: Says = Says.NOTHING
    #: Rules that a reviewer may accept with an approval; they come back in the outcome. One with
    #: ``agent_rule`` means something to the agent only, others are allow rules of the engine too.
    suggested_rules: tuple[dict[str, str], ...] = ()
    #: Of a call that is over already: it is recorded, and neither asked nor run.
    settled: Settled | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One answer of a model whose calls are all settled."""

    text: str
    calls: tuple[AgentCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An agent's answer: calls to be made, or without any the final text of the turn.

    ``saved`` is committed together with the calls and the gates that they open, or not at all;
    None keeps what was saved before. ``earlier`` are rounds that came before the last one in this
    step; each call in them is settled.

    A text that ends the turn of a run with an ``output_schema`` and does not fit it fails the run
    with ``output_invalid``; of a ``correctable`` step it is sent back, twice in a turn at most, as
    ``Advance.correction``. Say so only if the agent then goes on from where it is.
    """

    text: str = ""
    calls: tuple[AgentCall, ...] = ()
    earlier: tuple[Round, ...] = ()
    usage: Usage = Usage()
    saved: bytes | None = None
    correctable: bool = False


class AgentFailedError(Exception):
    """The agent cannot go on; a run that ends with it has this ``code``.

    A retryable one is tried again a few times first, ``retry_after_s`` apart at least.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class Agent(Protocol):
    """Anything that can play an agent; it raises AgentFailedError and nothing else of its own.

    It keeps nothing between two demands but what it saves: the next one may come in another
    process, after a crash or weeks later.
    """

    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        """The tools that the engine may run for this agent, by name."""
        ...

    async def advance(self, turn: Advance) -> Step:
        """What the agent wants next; it has no effect outside, so that it may be repeated."""
        ...
