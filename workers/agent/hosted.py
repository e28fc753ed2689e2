"""An agent of the operator's: made anew for each demand, and kept from harming the worker."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from signoff.agents import Advance, Agent, AgentFailedError, AgentRun, Step
from signoff.tooldef import Tool
from workers.agent.loop import AgentLoop, back_on
from workers.agent.terms import words_of

T = TypeVar("T")
logger = logging.getLogger(__name__)
#: Of what is asked besides the steps themselves.
MAKING_S = 60.0
Factory = Callable[..., Any]


class HostedAgent:
    """What a factory makes, behind the port; whatever it raises is an AgentFailedError."""

    def __init__(
        self, name: str, factory: Factory, loop: AgentLoop, *, timeout_s: float = 900.0
    ) -> None:
        """A step of the agent may take ``timeout_s``."""
        self._name = name
        self._factory = factory
        self._loop = loop
        self._timeout_s = timeout_s

    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        """The tools of an agent made for this."""

        async def work() -> Mapping[str, Tool]:
            made = await self._make(run)
            if isinstance(made, _Port):
                return await made.agent.tools(run, saved)
            tools: Mapping[str, Tool]
            if _is_graph(made):
                tools = _graph().tools_of(run.tools)
                return tools
            tools = await _scope().ScopeAgent(made, run, saved).tools(self._loop.run)
            return tools

        return await self._guarded(work, MAKING_S)

    async def advance(self, turn: Advance) -> Step:
        """The step of an agent made for this."""
        here = asyncio.get_running_loop()
        heard = replace(turn, on_text=back_on(here, turn.on_text), count=back_on(here, turn.count))

        async def work() -> Step:
            made = await self._make(turn.run)
            if isinstance(made, _Port):
                return await made.agent.advance(heard)
            step: Step
            if _is_graph(made):
                step = await _graph().GraphAgent(made).advance(heard)
                return step
            step = await _scope().ScopeAgent(made, turn.run, turn.saved).advance(heard)
            return step

        return await self._guarded(work, self._timeout_s)

    async def _make(self, run: AgentRun) -> Any:
        made = self._factory(run) if _takes_run(self._factory) else self._factory()
        if inspect.isawaitable(made):
            made = await made
        if callable(getattr(made, "advance", None)) and callable(getattr(made, "tools", None)):
            return _Port(made)
        if "agentscope" in sys.modules and isinstance(made, _scope().Agent):
            return made
        if _is_graph(made):
            return made
        kind = type(made).__name__
        msg = (
            f"the factory of the agent {self._name} returned no agent but something of type {kind}"
        )
        raise AgentFailedError("agent_error", msg)

    async def _guarded(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        try:
            return await self._loop.run(work, timeout_s=timeout_s)
        except AgentFailedError:
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise AgentFailedError("agent_error", "the agent cancelled itself") from None
        except TimeoutError as error:
            msg = f"the agent {self._name} took longer than {timeout_s:g} s"
            raise AgentFailedError("agent_error", msg) from error
        except Exception as error:
            failure = failure_of(error)
            if failure.code == "agent_error":
                logger.exception("agent_failed name=%s", self._name)
            raise failure from error


class _Port:
    """An agent that speaks the port itself."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent


def _scope() -> Any:
    # Not at the top: it takes seconds to load and is an extra of its own.
    return importlib.import_module("workers.agent.scope")


def _graph() -> Any:
    # As above.
    return importlib.import_module("workers.agent.graph")


def _is_graph(made: Any) -> bool:
    # Whoever made a graph has loaded what it is made of.
    return "langgraph.graph" in sys.modules and isinstance(made, _graph().GRAPHS)


def _takes_run(factory: Factory) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return bool(required) or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def failure_of(error: BaseException) -> AgentFailedError:
    """What an exception out of an agent comes to: its model's, by the usual signs, or its own."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    message = words_of(error)
    try:
        status = getattr(error, "status_code", None)
    except Exception:  # noqa: BLE001 - a property of an exception of anybody's
        status = None
    if isinstance(status, int):
        return _by_status(status, message)
    if isinstance(error, ConnectionError) or type(error).__name__ in _DROPPED:
        return AgentFailedError("model_server", message, retryable=True)
    return AgentFailedError("agent_error", message)


# Of the clients that vendors and httpx use, which are no dependency here.
_DROPPED = frozenset(
    {
        "APIConnectionError",
        "APITimeoutError",
        "ConnectError",
        "ConnectTimeout",
        "ReadError",
        "ReadTimeout",
        "RemoteProtocolError",
    }
)
_AUTH, _RATE, _BUSY, _SERVER = (401, 403, 404), (429,), (503, 529), 500


def _by_status(status: int, message: str) -> AgentFailedError:
    if status in _AUTH:
        return AgentFailedError("model_auth", message)
    if status in _RATE:
        return AgentFailedError("model_rate_limit", message, retryable=True)
    if status in _BUSY:
        return AgentFailedError("model_overloaded", message, retryable=True)
    return AgentFailedError("model_server", message, retryable=status >= _SERVER)
