"""The driver on a real store: parks, resumes, refuses, survives takeovers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from signoff.agents import AgentCall, Step, Usage
from signoff.domain.decision import Decision
from signoff.domain.error import LeaseLostError
from signoff.domain.message import Message, ToolUse
from tests.integration.workers.conftest import Bench, calls
from workers.commit import Reply
from workers.driver import Driver
from workers.model.port import Count, ModelReply, ModelRequest, OnText
from workers.output import TurnAnswer

pytestmark = pytest.mark.anyio


def question(text: str = "Which?") -> dict[str, object]:
    return {
        "questions": [
            {
                "question": text,
                "header": "H",
                "multiSelect": False,
                "options": [{"label": "A"}, {"label": "B"}],
            }
        ]
    }


async def test_a_run_without_tools_completes(bench: Bench) -> None:
    """The model's text is the run's output."""
    run_id = await bench.create([{"text": "hello {{message}}"}])
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.output) == ("completed", "hello go")


async def test_a_question_parks_and_its_answer_resumes(bench: Bench) -> None:
    """The lease is given back while the run waits; the model sees the answer."""
    run_id = await bench.create(
        [calls(("q1", "AskUserQuestion", question())), {"text": "{{last_results}}"}]
    )
    await bench.drive()
    assert await bench.status(run_id) == "awaiting_approval"
    assert await bench.take() == []
    (gate,) = await bench.gates(run_id)
    decided = await bench.decide(run_id, Decision(request_id=gate.id, answers={"Which?": "A"}))
    assert decided.resumed
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert run.status == "completed"
    (seen,) = json.loads(run.output or "")
    assert (seen["tool_use_id"], seen["state"]) == ("q1", "success")
    assert json.loads(seen["content"])["answers"][0]["answer"] == "A"


async def test_free_calls_run_at_once_and_approved_ones_as_they_are_decided(
    bench: Bench, log: list[str]
) -> None:
    """Three gated calls and a free one: partial decisions, any order, deny, edit."""
    run_id = await bench.create(
        [
            calls(
                ("a", "send", {"what": "x"}),
                ("b", "send", {"what": "y"}),
                ("f", "look", {"what": "z"}),
                ("c", "send", {"what": "w", "copies": 2}),
            ),
            {"text": "{{last_results}}"},
        ]
    )
    await bench.drive()
    assert log == ["f:z"]
    by_call = {gate.tool_use_id: gate for gate in await bench.gates(run_id)}
    edited = {"what": "w2", "copies": 3, "urgent": True}
    first = await bench.decide(
        run_id, Decision(request_id=by_call["c"].id, verdict="allow", input=edited)
    )
    assert not first.resumed
    await bench.drive()
    assert log == ["f:z", "c:w2*3!"]
    await bench.decide(
        run_id, Decision(request_id=by_call["b"].id, verdict="deny", reason="too late")
    )
    await bench.drive()
    assert await bench.status(run_id) == "awaiting_approval"
    last = await bench.decide(run_id, Decision(request_id=by_call["a"].id, verdict="allow"))
    assert last.resumed
    await bench.drive()
    assert log == ["f:z", "c:w2*3!", "a:x*1"]
    results = {r.tool_use_id: r for r in await bench.results(run_id)}
    assert [r.tool_use_id for r in await bench.results(run_id)] == ["a", "b", "f", "c"]
    assert results["b"].state == "denied"
    assert "too late" in results["b"].content
    assert "changed the input" in results["c"].content
    assert '"copies": 3' in results["c"].content


async def test_plan_mode_refuses_effects_until_the_plan_is_approved(
    bench: Bench, log: list[str]
) -> None:
    """Reads run, effects get an error; feedback plans again; approval then asks per call."""
    run_id = await bench.create(
        [
            calls(("r", "look", {"what": "a"}), ("e", "send", {"what": "b"})),
            {"plan": "first"},
            {"plan": "second"},
            calls(("e2", "send", {"what": "c"})),
            {"text": "done"},
        ],
        mode="plan",
    )
    await bench.drive()
    assert log == ["r:a"]
    (gate,) = await bench.gates(run_id)
    assert gate.listed[0] == "AskUserQuestion"
    await bench.decide(run_id, Decision(request_id=gate.id, answers={"first": "Revise: shorter"}))
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    await bench.decide(run_id, Decision(request_id=gate.id, answers={"Plan Approval": "Approve"}))
    await bench.drive()
    (gate,) = await bench.gates(run_id)
    assert gate.kind == "tool_approval"
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="allow"))
    await bench.drive()
    assert log == ["r:a", "e2:c*1"]
    contents = [r.content for r in await bench.results(run_id)]
    assert "plan is needed" in contents[1]
    assert "Revise: shorter" in contents[2]


async def expire(bench: Bench, run_id: int) -> None:
    """The holder dies: its lease is over."""
    await bench.store.connection.call("HSET", f"sg:{{s0}}:run:{run_id}", "lease_until", "1")
    await bench.store.connection.call("ZADD", "sg:{s0}:leases", 1, str(run_id))
    await bench.store.steps.sweep(0)


async def start_and_die(bench: Bench, name: str) -> int:
    """A run whose call was started by a holder that then died."""
    run_id = await bench.create(
        [calls(("a", name, {"what": "x"})), {"text": "{{last_results}}"}], mode="autonomous"
    )
    (held,) = await bench.take()
    # The step is committed and the call started, as the driver does it, and then nothing more.
    driver = Driver(bench.engine, held)
    driver.tools = await bench.engine.tools.of(driver.run)
    use = ToolUse("a", name, {"what": "x"})
    step = Step(
        calls=(AgentCall(id="a", name=name, input={"what": "x"}),),
        usage=Usage(input_tokens=1, output_tokens=1),
    )
    message = Message(role="assistant", blocks=(use,), turn=1, step=1)
    await driver._commit(
        Reply(commit_id="c", step=step, owed=TurnAnswer(), messages=[message], frames=[])
    )
    ruleset = await bench.store.catalog.rules("1", run_id)
    await bench.store.steps.start_call(
        driver.run, driver.calls[0], rules_v=ruleset.version, attempt=1
    )
    await expire(bench, run_id)
    return run_id


async def test_a_started_effect_is_not_repeated_but_asked(bench: Bench, log: list[str]) -> None:
    """Crash after start: outcome_unknown gate; deny skips, nothing ran twice."""
    run_id = await start_and_die(bench, "send")
    await bench.drive()
    assert log == []
    (gate,) = await bench.gates(run_id)
    assert (gate.kind, gate.pause) == ("outcome_unknown", 1)
    await bench.decide(run_id, Decision(request_id=gate.id, verdict="deny"))
    await bench.drive()
    assert (await bench.status(run_id), log) == ("completed", [])


async def test_an_unknown_outcome_may_be_retried_or_supplied(bench: Bench, log: list[str]) -> None:
    """Allow runs the call again; a result takes its place."""
    first = await start_and_die(bench, "send")
    await bench.drive()
    second = await start_and_die(bench, "send")
    await bench.drive()
    (gate,) = await bench.gates(first)
    await bench.decide(first, Decision(request_id=gate.id, verdict="allow"))
    (gate,) = await bench.gates(second)
    await bench.decide(second, Decision(request_id=gate.id, result={"output": "it had worked"}))
    await bench.drive()
    assert log == ["a:x*1"]
    assert [r.content for r in await bench.results(second)] == ["it had worked"]


async def test_a_started_idempotent_call_runs_again(bench: Bench, log: list[str]) -> None:
    """Crash after start: an idempotent tool is repeated unasked."""
    run_id = await start_and_die(bench, "put")
    await bench.drive()
    assert (await bench.status(run_id), log) == ("completed", ["a:x"])


async def test_five_takeovers_without_progress_fail_the_run(bench: Bench) -> None:
    """A step that keeps killing its holder ends as step_crashed."""
    run_id = await bench.create([{"text": "never"}])
    for _ in range(5):
        assert len(await bench.take()) == 1
        await expire(bench, run_id)
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "step_crashed")


async def test_provider_errors_are_retried_then_fail_the_run(bench: Bench) -> None:
    """Three rate limits are survived; a context error ends the run at once."""
    good = await bench.create([{"text": "ok", "error": {"kind": "rate_limit", "times": 3}}])
    bad = await bench.create([{"text": "no", "error": {"kind": "context", "times": 1}}])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    object.__setattr__(bench.engine, "sleep", sleep)
    await bench.drive()
    assert await bench.status(good) == "completed"
    assert slept == [0.5, 1.0, 2.0]
    run = await bench.store.runs.load("1", bad)
    assert (run.status, run.error_code) == ("failed", "model_context")


class Strange:
    """A model whose text, ids and inputs hold what UTF-8 cannot carry."""

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        del on_text, count
        if request.messages[-1].role == "tool":
            return ModelReply(text="end\udc00", tool_calls=(), usage=NO_USAGE)
        use = ToolUse("i\ud800", "send", {"what": "\ud83d"})
        third = ToolUse("k", "send", {"what": "x", "copies": math.inf})
        return ModelReply(text="a\ud800", tool_calls=(use, use, third), usage=NO_USAGE)


NO_USAGE = Usage(input_tokens=0, output_tokens=0)


async def test_text_that_cannot_be_stored_harms_nothing(bench: Bench, log: list[str]) -> None:
    """Lone surrogates of a model are replaced in text; they and infinity are refused in inputs."""
    object.__setattr__(bench.engine, "model", Strange())
    run_id = await bench.create([])
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.output) == ("completed", "end\ufffd")
    results = await bench.results(run_id)
    assert [r.state for r in results] == ["error", "error", "error"]
    assert len({r.tool_use_id for r in results}) == 3
    assert log == []


async def test_max_turns_ends_the_turn(bench: Bench) -> None:
    """The limit counts model calls of the turn."""
    looks = [calls((f"l{n}", "look", {"what": "x"})) for n in range(5)]
    run_id = await bench.create(looks, max_turns=3)
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.error_code) == ("failed", "max_turns_exceeded")


async def test_a_step_of_too_many_calls_is_cut_off(bench: Bench, log: list[str]) -> None:
    """64 calls of one step are taken; the model is told that the 65th was not."""
    many = [(f"c{n}", "look", {"what": "x"}) for n in range(65)]
    run_id = await bench.create([calls(*many), {"text": "end"}])
    await bench.drive()
    results = await bench.results(run_id)
    assert [r.state for r in results] == ["success"] * 64 + ["error"]
    assert "At most 64 tool calls" in results[-1].content
    assert len(log) == 64


async def test_bad_calls_get_error_results_and_no_gate(bench: Bench, log: list[str]) -> None:
    """Unknown tools, wrong types, unknown fields, malformed questions."""
    run_id = await bench.create(
        [
            calls(
                ("1", "nope", {}),
                ("2", "send", {"what": 5}),
                ("3", "send", {"what": "x", "extra": 1}),
                ("4", "AskUserQuestion", {"questions": []}),
                ("5", "ExitPlanMode", {"plan": "p"}),
                ("5", "send", {"what": "x", "copies": "2"}),
            ),
            {"text": "end"},
        ]
    )
    await bench.drive()
    assert await bench.status(run_id) == "completed"
    results = await bench.results(run_id)
    assert {r.state for r in results} == {"error"}
    assert len({r.tool_use_id for r in results}) == 6
    assert log == []


async def test_a_holder_that_slept_after_its_start_does_not_run_the_tool(
    bench: Bench, log: list[str]
) -> None:
    """The process was stopped between the commit of a start and the tool: a person was asked."""
    run_id = await bench.create([calls(("a", "send", {"what": "x"}))], mode="autonomous")
    object.__setattr__(bench.engine, "lease_s", 0.0)  # any time is too long
    start_call = bench.store.steps.start_call

    async def slow(*args: Any, **options: Any) -> None:
        await start_call(*args, **options)
        await expire(bench, run_id)
        bench.store.steps.start_call = start_call  # type: ignore[method-assign]
        await bench.drive()

    bench.store.steps.start_call = slow  # type: ignore[method-assign]
    (held,) = await bench.take()
    with pytest.raises(LeaseLostError):
        await Driver(bench.engine, held).drive()
    (gate,) = await bench.gates(run_id)
    assert (gate.kind, log) == ("outcome_unknown", [])


async def test_usage_and_costs_of_all_steps_add_up(bench: Bench, monkeypatch) -> None:
    """In the run, in its last event and in the frame before the end, whoever took the steps."""
    replies = [
        ModelReply(text="", tool_calls=(ToolUse(f"c{n}", "look", {"what": "x"}),), usage=COSTLY)
        for n in range(2)
    ]
    replies.append(ModelReply(text="end", tool_calls=(), usage=COSTLY))

    async def reply(request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        return replies.pop(0)

    monkeypatch.setattr(bench.engine.model, "reply", reply)
    run_id = await bench.create([], mode="autonomous")
    await bench.drive()
    run = await bench.store.runs.load("1", run_id)
    assert run.status == "completed"
    assert (run.usage["input_tokens"], run.usage["cost_micros"]) == (30, 4_500_003)
    connection = bench.store.runs._connection
    rows = [
        await connection.call("HGET", key, "body") for key in await connection.call("KEYS", "*ev:*")
    ]
    (ended,) = [body["data"] for body in map(json.loads, rows) if body["type"] == "run.completed"]
    assert ended["usage"]["input_tokens"] == 30
    assert ended["usage"]["cost_usd"] == "4.500003"
    (stream,) = await connection.call("KEYS", "*st:*")
    entries = await connection.call("XRANGE", stream, "-", "+")
    frames = [json.loads(value) for _, pairs in entries for value in pairs[1::2] if value]
    metrics, done = frames[-2:]
    assert (metrics["type"], done["type"]) == ("run_metrics", "done")
    assert (metrics["output_tokens_used"], metrics["claude_token_cost_usd"]) == (6, 4.500003)


COSTLY = Usage(input_tokens=10, output_tokens=2, cost_micros=1_500_001)
