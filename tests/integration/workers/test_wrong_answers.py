"""What is wrong about an agent fails its run at once: no holder drops it, none takes it over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from examples.custom_agent import Greeter
from signoff.agents import Advance, AgentCall, AgentFailedError, AgentRun, Step
from signoff.domain.decision import Decision
from signoff.domain.output import OUTPUT_TOOL
from signoff.tooldef import Tool
from tests.integration.workers.conftest import Bench
from tests.integration.workers.test_hosted import start

pytestmark = pytest.mark.anyio
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Answering(Greeter):
    """Answers with anything, in steps and tools."""

    def __init__(self, step: Any = None, tools: Any = None) -> None:
        self.step, self.given = step, tools

    async def tools(self, run: AgentRun, saved: bytes | None) -> Mapping[str, Tool]:
        del saved
        return run.tools if self.given is None else self.given

    async def advance(self, turn: Advance) -> Step:
        step: Step = self.step
        return await self.step(turn) if callable(self.step) else step


def call(**changes: Any) -> AgentCall:
    return AgentCall(**{"id": "c", "name": "send", "input": {"what": "x"}, **changes})


class Strange(BaseException):
    """No handler for exceptions sees it."""


async def raises(turn: Advance) -> Step:
    assert turn.outcomes == ()
    raise Strange


async def speaks_numbers(turn: Advance) -> Step:
    await turn.on_text(5)  # type: ignore[arg-type]
    raise AssertionError


async def fails_oddly(turn: Advance) -> Step:
    assert turn.outcomes == ()
    raise AgentFailedError(7, None, retryable=True, retry_after_s="soon")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (Answering(Step(text=5)), "text must be"),  # type: ignore[arg-type]
        (Answering(Step(usage=None)), "usage must be"),  # type: ignore[arg-type]
        (Answering(Step(calls=(call(input={"a": {1}}),))), "calls[0].input.a must be"),
        (Answering(tools=[]), "tools() must be"),
        (Answering(tools={"send": len}), "tools()['send'] must be"),
        (Answering(raises), "Strange"),
        (Answering(speaks_numbers), "on_text takes a str, not int"),
        (Answering(fails_oddly), "a message of type NoneType"),
    ],
    ids=["text", "usage", "input", "list", "function", "base", "delta", "failure"],
)
async def test_a_wrong_answer_fails_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, agent: Answering, words: str
) -> None:
    """With a message that says what is wrong, in the first holder."""
    monkeypatch.setattr("workers.asking.FIRST_PAUSE_S", 0.0)
    run_id = await start(bench, lambda: agent)
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code, run.takeovers) == ("failed", "agent_error", 0)
    assert words in (run.error or "")


async def test_what_breaks_before_the_commit_fails_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next holder would get the same answer and come to the same end."""

    def breaks(*_: Any) -> Any:
        raise LookupError("not thought of")

    monkeypatch.setattr("workers.driver.earlier_frames", breaks)
    run_id = await start(bench, lambda: Answering(Step(text="end")))
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "agent_error")
    assert "LookupError: not thought of" in (run.error or "")


async def test_a_value_that_is_too_deep_is_the_calls_own_error(bench: Bench) -> None:
    """As of any model: it is told, and the run goes on."""
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"d": deep}

    async def step(turn: Advance) -> Step:
        if turn.outcomes:
            return Step(text=turn.outcomes[0].content)
        return Step(calls=(call(input=deep),))

    run = await bench.store.runs.load("1", await start(bench, lambda: Answering(step)))
    assert run.status == "completed"
    assert "nested deeper than" in (run.output or "")


async def test_an_agent_that_knows_no_corrections_repeats_nothing(bench: Bench) -> None:
    """Its words are no output of the form: the run fails, and what was done was done once."""
    run_id = await start(bench, Greeter, output_schema=SCHEMA, mode="autonomous")
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "output_invalid")
    history = await bench.store.runs.history(run_id)
    assert [m.role for m in history].count("tool") == 2  # the two greetings that it means
    assert [m.role for m in history].count("user") == 1


async def test_a_correction_is_told_apart_from_a_new_turn(bench: Bench) -> None:
    """Also by whoever takes the run over; the conversation stays whole for models."""
    turns: list[Advance] = []

    async def step(turn: Advance) -> Step:
        turns.append(turn)
        if turn.correction is not None:
            return Step(text='{"n": 3}' if len(turns) > 3 else "4", correctable=True)
        if turn.outcomes:
            return Step(text="three", correctable=True)
        return Step(calls=(call(name="look"),), saved=b"s")

    run_id = await start(bench, lambda: Answering(step), output_schema=SCHEMA)
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.output_data) == ("completed", {"n": 3})
    assert [turn.correction is None for turn in turns] == [True, True, False, False]
    last = turns[-1]
    assert (last.outcomes, last.saved, last.messages[-1].text) == ((), b"s", last.correction)
    assert OUTPUT_TOOL in (last.correction or "")
    assert (last.run.output_schema or {}).get("required") == ["n"]
    await bench.reply(run_id, "again")
    await bench.drive()
    assert turns[4].correction is None
    assert len(await bench.store.runs.history(run_id)) == 14


async def test_an_agent_may_submit_its_output(bench: Bench) -> None:
    """A call that does not fit has an outcome, as every call."""
    seen: list[str] = []

    async def step(turn: Advance) -> Step:
        seen.extend(outcome.state for outcome in turn.outcomes)
        value = {"n": 3} if turn.outcomes else {"n": "3"}
        return Step(calls=(call(name=OUTPUT_TOOL, input=value),))

    run_id = await start(bench, lambda: Answering(step), output_schema=SCHEMA)
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.output_data, seen) == ("completed", {"n": 3}, ["error"])


async def test_questions_of_an_agent_come_back_as_their_answers(bench: Bench) -> None:
    """The form of the outcome that docs/agents.md promises."""
    asked = {"question": "Which?", "header": "Pick", "options": [{"label": "A"}, {"label": "B"}]}

    async def step(turn: Advance) -> Step:
        if turn.outcomes:
            return Step(text=turn.outcomes[0].content)
        return Step(calls=(call(name="AskUserQuestion", input={"questions": [asked]}),))

    run_id = await start(bench, lambda: Answering(step))
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, answers={"Which?": "A"}))
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    expected = {"answers": [{"question": "Which?", "header": "Pick", "answer": "A"}]}
    assert json.loads(run.output or "") == expected
