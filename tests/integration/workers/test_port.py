"""The agent port on a real store: an agent that saves, asks, settles itself, and fails."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from signoff.agents import (
    Advance,
    AgentCall,
    AgentFailedError,
    AgentRun,
    Outcome,
    Round,
    Says,
    Settled,
    Step,
    Usage,
)
from signoff.domain.decision import Decision
from signoff.domain.message import ToolResult, ToolUse
from signoff.store.steps import Held
from signoff.tooldef import Tool
from tests.integration.workers.conftest import Bench
from workers.agent.roster import Roster
from workers.agent.terms import MAX_CALLS, MAX_SAVED
from workers.driver import Driver

pytestmark = pytest.mark.anyio

Answer = Callable[[Advance], Step]


class Planned:
    """Answers the n-th demand with the n-th plan; n is what it saved, not what it remembers."""

    def __init__(self, *plan: Answer | Step) -> None:
        self.plan: Sequence[Answer | Step] = plan
        self.turns: list[Advance] = []

    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        del saved
        return run.tools

    async def advance(self, turn: Advance) -> Step:
        self.turns.append(turn)
        n = int(turn.saved or b"0")
        answer = self.plan[n]
        step = answer if isinstance(answer, Step) else answer(turn)
        if step.text:
            await turn.on_text(step.text)
        return dataclasses.replace(step, saved=str(n + 1).encode())


def call(call_id: str, name: str = "send", **options: Any) -> AgentCall:
    return AgentCall(id=call_id, name=name, input={"what": "x"}, **options)


async def start(bench: Bench, agent: Planned, **options: Any) -> int:
    bench.engine = dataclasses.replace(bench.engine, roster=Roster({"own": agent}))
    return await bench.create([], model="agent:own", **options)


async def run_of(bench: Bench, run_id: int) -> Any:
    return await bench.store.runs.load("1", run_id)


async def test_an_agent_goes_on_from_what_it_saved(bench: Bench, log: list[str]) -> None:
    """Outcomes and its state come back, in another holder; the conversation is whole."""
    agent = Planned(
        Step(text="a", calls=(call("c1"), call("c2", "look")), usage=Usage(input_tokens=3)),
        Step(text="the end", usage=Usage(output_tokens=2)),
    )
    run_id = await start(bench, agent)
    await bench.drive()
    assert (await bench.status(run_id), log) == ("awaiting_approval", ["c2:x"])
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="allow", input={"what": "y"}))
    await bench.drive()
    run = await run_of(bench, run_id)
    assert (run.status, run.output) == ("completed", "the end")
    assert (run.usage["input_tokens"], run.usage["output_tokens"]) == (3, 2)
    first, second = agent.turns
    assert (first.saved, first.outcomes, second.saved) == (None, (), b"1")
    edited, plain = second.outcomes
    assert isinstance(edited, Outcome)
    assert (edited.call_id, edited.approved, edited.edited_input) == ("c1", True, {"what": "y"})
    assert (plain.state, plain.content, plain.edited_input) == ("success", "did x", None)
    assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
    assert await bench.store.runs.saved(run_id) == b"2"


@pytest.mark.parametrize(
    ("says", "mode", "expected"),
    [
        (Says.ALLOW, "approval", "completed"),
        (Says.ALLOW, "autonomous", "completed"),
        (Says.ASK, "approval", "awaiting_approval"),
        (Says.ASK, "autonomous", "completed"),
        (Says.INSIST, "autonomous", "awaiting_approval"),
        (Says.INSIST, "approval", "awaiting_approval"),
    ],
)
@pytest.mark.parametrize("tool", ["send", "look"])
async def test_the_agents_word_and_the_mode(
    bench: Bench, says: Says, mode: str, expected: str, tool: str
) -> None:
    """It may allow or ask, also for what only reads; autonomous mode answers for a person."""
    run_id = await start(
        bench, Planned(Step(calls=(call("c", tool, says=says),)), Step(text="end")), mode=mode
    )
    await bench.drive()
    assert await bench.status(run_id) == expected


@pytest.mark.parametrize("says", list(Says))
async def test_a_deny_rule_stands_above_the_agent(bench: Bench, log: list[str], says: Says) -> None:
    """Whatever the agent says of its call."""
    await bench.rule("send", "deny")
    agent = Planned(Step(calls=(call("c", says=says),)), Step(text="end"))
    run_id = await start(bench, agent)
    await bench.drive()
    (outcome,) = agent.turns[1].outcomes
    assert (await bench.status(run_id), log) == ("completed", [])
    assert (outcome.state, outcome.approved) == ("denied", False)


@pytest.mark.parametrize(
    ("effect", "says", "expected"),
    [
        ("ask", Says.ALLOW, "awaiting_approval"),
        ("allow", Says.ASK, "completed"),
        ("allow", Says.INSIST, "awaiting_approval"),
    ],
)
async def test_rules_above_and_below_the_agents_word(
    bench: Bench, effect: str, says: Says, expected: str
) -> None:
    """Our ask rule asks all the same; our allow rule answers unless the agent insists."""
    await bench.rule("send", effect)
    run_id = await start(bench, Planned(Step(calls=(call("c", says=says),)), Step(text="end")))
    await bench.drive()
    assert await bench.status(run_id) == expected


async def test_nobody_can_be_asked(bench: Bench, log: list[str]) -> None:
    """Without a person, what an agent would have asked is denied."""
    agent = Planned(Step(calls=(call("c", says=Says.ASK),)), Step(text="end"))
    run_id = await start(bench, agent, hitl=False)
    await bench.drive()
    assert (await bench.status(run_id), log) == ("completed", [])
    assert agent.turns[1].outcomes[0].state == "denied"


async def test_earlier_rounds_and_settled_calls_are_part_of_the_conversation(
    bench: Bench, log: list[str]
) -> None:
    """They are recorded in order with their results, and never run."""
    done = Settled(state="error", content="no such file")
    agent = Planned(
        Step(
            earlier=(Round(text="first", calls=(call("e", settled=done),)),),
            text="second",
            calls=(call("s", settled=Settled(state="success", content="fine")), call("f", "look")),
        ),
        Step(text="end"),
    )
    run_id = await start(bench, agent)
    await bench.drive()
    history = await bench.store.runs.history(run_id)
    assert [m.role for m in history] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [m.text for m in history if m.role == "assistant"] == ["first", "second", "end"]
    uses = [b.id for m in history for b in m.blocks if isinstance(b, ToolUse)]
    results = [
        (b.tool_use_id, b.content) for m in history for b in m.blocks if isinstance(b, ToolResult)
    ]
    assert uses == ["e", "s", "f"]
    assert results == [("e", "no such file"), ("s", "fine"), ("f", "did x")]
    assert (await bench.status(run_id), log) == ("completed", ["f:x"])


@pytest.mark.parametrize(
    "step",
    [
        Step(calls=(call("c"), call("c"))),
        Step(calls=(call(""),)),
        Step(calls=(call("c", "\ud800"),)),
        Step(earlier=(Round(text="", calls=(call("c"),)),)),
        Step(text="x", saved=b"x" * (MAX_SAVED + 1)),
        Step(calls=tuple(call(f"c{n}") for n in range(MAX_CALLS + 1))),
    ],
    ids=["twice", "empty", "unstorable", "unsettled", "too_large", "too_many"],
)
async def test_a_step_against_the_terms_fails_the_run(bench: Bench, step: Step) -> None:
    """With a code of its own; nothing of the step is kept."""

    class Wrong(Planned):
        async def advance(self, turn: Advance) -> Step:
            assert turn.saved is None
            return step

    run_id = await start(bench, Wrong())
    await bench.drive()
    run = await run_of(bench, run_id)
    assert (run.status, run.error_code) == ("failed", "agent_error")
    assert await bench.store.runs.saved(run_id) is None
    assert len(await bench.store.runs.history(run_id)) == 1


async def test_as_many_calls_as_are_taken_are_committed_at_once(bench: Bench) -> None:
    """More than can be reviewed get an error result each."""
    many = tuple(call(f"c{n}") for n in range(MAX_CALLS))
    run_id = await start(bench, Planned(lambda _: Step(calls=many), lambda _: Step(text="done")))
    await bench.drive()
    assert len(await bench.store.runs.calls(run_id)) == MAX_CALLS


async def test_what_may_pass_is_tried_again(bench: Bench) -> None:
    """Four times, then it is the run's error; the count survives in the store."""
    tries: list[int] = []

    def fails(turn: Advance) -> Step:
        tries.append(1)
        raise AgentFailedError("model_overloaded", "busy", retryable=True)

    async def no_wait(_seconds: float) -> None:
        return None

    agent = Planned(fails)
    run_id = await start(bench, agent)
    bench.engine = dataclasses.replace(bench.engine, sleep=no_wait)
    await bench.drive()
    run = await run_of(bench, run_id)
    assert (run.error_code, len(tries)) == ("model_overloaded", 4)


async def test_an_agent_that_this_worker_lacks_fails_the_run(bench: Bench) -> None:
    """The service knew it; this worker was started without."""
    run_id = await start(bench, Planned())
    bench.engine = dataclasses.replace(bench.engine, roster=Roster())
    await bench.drive()
    assert (await run_of(bench, run_id)).error_code == "agent_error"


async def test_a_takeover_repeats_the_demand_with_the_same_state(bench: Bench) -> None:
    """What the lost holder's agent saved was never committed, so nobody sees it."""
    agent = Planned(Step(calls=(call("c", says=Says.ASK),)), Step(text="end"))
    run_id = await start(bench, agent)
    (lost,) = await bench.take()
    await bench.expire(run_id)
    (held,) = await bench.take()
    assert isinstance(held, Held)
    with pytest.raises(Exception, match="held by another"):
        await Driver(bench.engine, lost).drive()
    await Driver(bench.engine, held).drive()
    assert [turn.saved for turn in agent.turns] == [None, None]
    assert len(await bench.gates(run_id)) == 1


async def test_a_new_turn_shows_what_the_last_one_left_open(bench: Bench) -> None:
    """After a cancel the agent gets its state, no outcomes, and the message last."""
    agent = Planned(Step(calls=(call("c", says=Says.ASK),)), Step(text="end"))
    run_id = await start(bench, agent)
    await bench.drive()
    await bench.cancel(run_id)
    await bench.reply(run_id, "again")
    await bench.drive()
    last = agent.turns[-1]
    assert (last.saved, last.outcomes) == (b"1", ())
    assert [m.role for m in last.messages] == ["user", "assistant", "tool", "user"]
    assert (last.messages[-1].text, await bench.status(run_id)) == ("again", "completed")
    assert json.loads(last.saved or b"") == 1
