"""Agents of the operator: the example runs; broken and blocking ones harm nobody else."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from examples.custom_agent import Greeter, make_agent
from signoff.agents import Advance, AgentCall, AgentFailedError, AgentRun, Settled, Step, Usage
from signoff.domain.decision import Decision
from signoff.domain.error import SettingsError
from signoff.tooldef import Tool
from tests.integration.workers.conftest import Bench
from workers.agent.hosted import HostedAgent, failure_of
from workers.agent.loading import load_roster
from workers.agent.loop import AgentLoop
from workers.agent.roster import Roster

pytestmark = pytest.mark.anyio


async def start(bench: Bench, factory: Any, timeout_s: float = 10, **options: Any) -> int:
    agent = HostedAgent("own", factory, AgentLoop(), timeout_s=timeout_s)
    bench.engine = dataclasses.replace(bench.engine, roster=Roster({"own": agent}))
    run_id = await bench.create([], model="agent:own", **options)
    await bench.drive()
    return run_id


async def test_the_example_runs_as_it_says(bench: Bench) -> None:
    """Asked, edited by the kept schema, goes on by itself, and starts anew in the next turn."""
    run_id = await start(bench, make_agent)
    (gate,) = await bench.gates(run_id)
    assert gate.suggested_rules == ({"tool": "send_greeting", "effect": "allow"},)
    assert gate.input_schema is not None
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="allow"))
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert run.output == "The last one: sent to everybody: Good evening"
    await bench.reply(run_id, "again")
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="deny", reason="not now"))
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert (run.output or "").endswith("Reason: not now")


async def asynchronous() -> Greeter:
    return Greeter()


def with_a_default(run: AgentRun, kind: type[Greeter] = Greeter) -> Greeter:
    assert run.id > 0
    return kind()


@pytest.mark.parametrize("factory", [Greeter, asynchronous, with_a_default])
async def test_what_a_factory_may_be(bench: Bench, factory: Any) -> None:
    """With or without the run, plain or asynchronous, a class."""
    run_id = await start(bench, factory)
    assert await bench.status(run_id) == "awaiting_approval"


class Misbehaved(Greeter):
    """Does something in its step that no agent should."""

    def __init__(self, what: str) -> None:
        self.what = what

    async def advance(self, turn: Advance) -> Step:
        assert turn.outcomes == ()
        match self.what:
            case "raises":
                raise ValueError("lost")
            case "exits":
                raise SystemExit(3)
            case "cancels":
                raise asyncio.CancelledError
            case "hangs":
                await asyncio.Event().wait()
            case "blocks":
                threading.Event().wait(1.5)
            case "returns":
                return "text"  # type: ignore[return-value]
            case "tells":
                await turn.on_text(5)  # type: ignore[arg-type]
        raise AssertionError


WRONG: Any = object()


@pytest.mark.parametrize(
    "step",
    [
        Step(text=WRONG),
        Step(calls=WRONG),
        Step(calls=(WRONG,)),
        Step(calls=(AgentCall(id=WRONG, name="x", input={}),)),
        Step(calls=(AgentCall(id="a", name="x", input=WRONG),)),
        Step(calls=(AgentCall(id="a", name="x", input={}, says=WRONG),)),
        Step(
            calls=(AgentCall(id="a", name="x", input={}, settled=Settled(state=WRONG, content="")),)
        ),
        Step(earlier=(WRONG,)),
        Step(text="x", usage=WRONG),
        Step(text="x", usage=Usage(input_tokens=WRONG)),
        Step(text="x", saved=WRONG),
    ],
)
async def test_a_step_of_other_types_fails_its_run_at_once(bench: Bench, step: Step) -> None:
    """Not after five takeovers, each of which waits for a lease to end."""

    class Odd(Greeter):
        async def advance(self, turn: Advance) -> Step:
            del turn
            return step

    run_id = await start(bench, Odd)
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "agent_error")


@pytest.mark.parametrize("tools", [None, [1], {"x": 1}, {2: WRONG}])
async def test_tools_that_are_none_fail_the_run_at_once(bench: Bench, tools: Any) -> None:
    """Whatever else the agent would do."""

    class Odd(Greeter):
        async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
            del run, saved
            found: Mapping[str, Tool] = tools
            return found

    run_id = await start(bench, Odd)
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "agent_error")


@pytest.mark.parametrize(
    "what", ["raises", "exits", "cancels", "hangs", "blocks", "returns", "tells"]
)
async def test_a_misbehaved_agent_fails_its_run_only(bench: Bench, what: str) -> None:
    """The worker's own loop goes on meanwhile, and the next agent finds one that answers."""
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    pulse = asyncio.create_task(beat())
    run_id = await start(bench, lambda: Misbehaved(what), timeout_s=0.3)
    pulse.cancel()
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "agent_error")
    assert beats > 5 or what not in ("hangs", "blocks")


async def test_a_loop_that_is_blocked_for_good_is_left_behind(monkeypatch: Any) -> None:
    """What comes next runs on a new one."""
    monkeypatch.setattr("workers.agent.loop.PING_S", 0.05)
    loop, gate = AgentLoop(), threading.Event()

    async def block() -> None:
        gate.wait(20)

    async def fine() -> str:
        return "fine"

    with pytest.raises(TimeoutError):
        await loop.run(block, timeout_s=0.05)
    assert await loop.run(fine, timeout_s=5) == "fine"
    gate.set()


async def test_a_lost_lease_cancels_the_agents_work(bench: Bench) -> None:
    """A cancelled holder does not leave its agent at work."""
    began, ended = threading.Event(), threading.Event()

    class Long(Greeter):
        async def advance(self, turn: Advance) -> Step:
            try:
                await turn.on_text("I think")
                began.set()
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

    drive = asyncio.create_task(start(bench, Long, timeout_s=60))
    assert await asyncio.to_thread(began.wait, 10)
    drive.cancel()
    with pytest.raises(asyncio.CancelledError):
        await drive
    assert await asyncio.to_thread(ended.wait, 5)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_module_x:make", "cannot be loaded"),
        ("examples.custom_agent:nothing", "cannot be loaded"),
        ("examples.custom_agent:__doc__", "not a function"),
    ],
)
def test_a_path_that_leads_nowhere_stops_the_worker_at_its_start(path: str, words: str) -> None:
    """With the setting's name."""
    with pytest.raises(SettingsError, match=words) as caught:
        load_roster({"own": path}, Path.cwd(), timeout_s=1)
    assert caught.value.field == "SIGNOFF_AGENTS"


def test_a_roster_knows_its_agents_by_name() -> None:
    """Any other model is the native agent's."""
    roster = load_roster({"own": "examples.custom_agent:make_agent"}, Path.cwd(), timeout_s=1)
    assert roster.of("agent:own") is not None
    assert roster.of("anthropic:x") is None
    with pytest.raises(AgentFailedError):
        roster.of("agent:other")


class Status(Exception):  # noqa: N818 - as a vendor might name it
    status_code: object = 500


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (ConnectionResetError("x"), "model_server", True),
        (type("ReadTimeout", (Exception,), {})(), "model_server", True),
        (ExceptionGroup("two", [ConnectionError("x"), ValueError("y")]), "model_server", True),
        (type("E", (Status,), {"status_code": 503})(), "model_overloaded", True),
        (type("E", (Status,), {"status_code": 400})(), "model_server", False),
        (type("E", (Status,), {"status_code": "?"})(), "agent_error", False),
        (ValueError("x\ud800"), "agent_error", False),
    ],
    ids=["reset", "timeout", "group", "busy", "refused", "text", "own"],
)
def test_what_an_exception_comes_to(error: BaseException, code: str, *, retryable: bool) -> None:
    """By the usual signs of a model's client; anything else is the agent's own fault."""
    failure = failure_of(error)
    assert (failure.code, failure.retryable) == (code, retryable)
    failure.message.encode()  # it can be stored


class NoTools(Greeter):
    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        raise LookupError(f"{run.id}{saved!r}")


async def test_tools_that_cannot_be_told_fail_the_run(bench: Bench) -> None:
    """Before anything is asked."""
    run_id = await start(bench, NoTools)
    assert (await bench.store.runs.load("1", run_id)).error_code == "agent_error"
