"""External tools that a run declares: offered always, gated always, run never."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from signoff.domain.decision import Decision
from signoff.domain.gate import GateKind
from signoff.domain.rule import Verdict
from tests.integration.workers.conftest import ACCOUNT, Bench, calls
from workers.agent.native import request_of
from workers.asking import agent_run
from workers.driver import Driver

pytestmark = pytest.mark.anyio

BOOK = {
    "name": "book",
    "description": "Book a room.",
    "input_schema": {
        "type": "object",
        "properties": {"room": {"type": "string"}},
        "required": ["room"],
    },
    "output_schema": {"type": "object"},
}
ASK_USER = {"name": "AskUser", "input_schema": {"type": "object"}}
QUESTIONS = {
    "questions": [
        {"question": "Which?", "header": "H", "options": [{"label": "A"}, {"label": "B"}]}
    ]
}


async def driven(bench: Bench, *uses: tuple[str, str, dict[str, Any]], **options: Any) -> int:
    script = [calls(*uses), {"text": "{{last_results}}"}]
    run_id = await bench.create(script, external_tools=[BOOK, ASK_USER], **options)
    await bench.drive()
    return run_id


@pytest.mark.parametrize("mode", ["autonomous", "approval", "plan"])
@pytest.mark.parametrize("hitl", [True, False])
async def test_a_call_opens_its_external_gate_only(bench: Bench, mode: str, hitl: bool) -> None:
    """Whatever the mode, with and without people; the model sees the result."""
    run_id = await driven(bench, ("a", "book", {"room": "1"}), mode=mode, hitl=hitl)
    (gate,) = await bench.gates(run_id)
    assert (gate.kind, gate.output_schema, gate.suggested_rules) == (
        GateKind.EXTERNAL,
        {"type": "object"},
        (),
    )
    await bench.decide(run_id, Decision(request_id=gate.id, result={"output": {"code": "A"}}))
    await bench.drive()
    (seen,) = await bench.results(run_id)
    assert (seen.state, seen.content) == ("success", '{"code":"A"}')
    assert await bench.status(run_id) == "completed"


async def test_a_wrong_input_is_an_error_and_opens_no_gate(bench: Bench) -> None:
    """The model is told the field."""
    run_id = await driven(
        bench, ("a", "book", {"room": 1}), ("b", "book", {"room": "1", "vip": True})
    )
    assert await bench.gates(run_id) == []
    first, second = await bench.results(run_id)
    assert (first.state, "room" in first.content) == ("error", True)
    assert (second.state, "vip" in second.content) == ("error", True)


async def test_declared_tools_are_offered_beside_any_list(bench: Bench) -> None:
    """A list of tools names loaded ones; the declared are not taken away by it."""
    run_id = await bench.create([{"text": "x"}], external_tools=[BOOK], tools=["look"])
    (held,) = await bench.take()
    tools = await bench.engine.tools.of(held.run)
    assert list(tools) == ["look", "book"]
    offered = request_of(agent_run(held.run, tools), []).tools
    assert [spec.name for spec in offered][:2] == ["look", "book"]
    assert offered[1].input_schema == BOOK["input_schema"]
    assert run_id == held.run.id


async def test_a_deny_rule_holds_for_declared_tools(bench: Bench) -> None:
    """Also for one that would ask a person."""
    for name in ("book", "AskUser"):
        await bench.store.policies.put(
            account=ACCOUNT,
            user_id=None,
            tool=name,
            effect=Verdict.DENY,
            source="api",
            now_ms=1,
        )
    run_id = await driven(bench, ("a", "book", {"room": "1"}), ("b", "AskUser", QUESTIONS))
    assert [result.state for result in await bench.results(run_id)] == ["denied", "denied"]


async def test_an_ask_user_call_asks_a_person_if_there_is_one(bench: Bench) -> None:
    """Else, or with another input, it is an external call as any other."""
    run_id = await driven(bench, ("a", "AskUser", QUESTIONS), ("b", "AskUser", {"text": "?"}))
    asked, other = await bench.gates(run_id)
    assert (asked.kind, other.kind) == (GateKind.QUESTION, GateKind.EXTERNAL)
    assert asked.listed[0] == "AskUserQuestion"
    assert asked.listed[1]["questions"][0]["multiSelect"] is False
    await bench.decide(run_id, Decision(request_id=asked.id, answers={"Which?": "other"}))
    await bench.decide(run_id, Decision(request_id=other.id, result={"output": "x"}))
    await bench.drive()
    first, _ = await bench.results(run_id)
    assert json.loads(first.content) == {
        "answers": [{"question": "Which?", "selected": [], "other": "other"}]
    }
    alone = await driven(bench, ("a", "AskUser", QUESTIONS), hitl=False, mode="autonomous")
    (gate,) = await bench.gates(alone)
    assert gate.kind is GateKind.EXTERNAL


async def test_a_gate_of_a_tool_that_only_the_worker_knows_keeps_its_schema(bench: Bench) -> None:
    """When it is opened with the step, and when it is opened again."""
    bench.tools["send"] = replace(bench.tools["send"], loaded=False)
    run_id = await bench.create([calls(("a", "send", {"what": "x"})), {"text": "x"}])
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    assert json.loads(gate.input_schema or "") == bench.tools["send"].input_schema


async def test_a_read_that_is_none_any_more_is_judged_as_what_it_is(
    bench: Bench, log: list[str]
) -> None:
    """Its tool was declared anew between the verdict and the start."""
    run_id = await bench.create([calls(("a", "look", {"what": "x"})), {"text": "x"}])
    (held,) = await bench.take()
    driver = Driver(bench.engine, held)
    start = bench.store.steps.start_call

    async def late(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("it must not start")

    changed = {**bench.tools, "look": replace(bench.tools["look"], read_only=False)}
    commit = bench.store.steps.commit

    async def committed(*args: Any, **kwargs: Any) -> Any:
        done = await commit(*args, **kwargs)
        driver.tools = changed
        return done

    bench.store.steps.commit = committed  # type: ignore[method-assign]
    bench.store.steps.start_call = late  # type: ignore[method-assign]
    await driver.drive()
    bench.store.steps.start_call = start  # type: ignore[method-assign]
    (gate,) = await bench.gates(run_id)
    assert (gate.kind, gate.tool, log) == (GateKind.TOOL_APPROVAL, "look", [])
