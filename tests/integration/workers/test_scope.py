"""A real AgentScope agent on a real store: its prompts are our gates, its state is saved."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import Agent

from signoff.agents import AgentRun
from signoff.domain.call import results_message
from signoff.domain.decision import Decision
from signoff.domain.output import OUTPUT_TOOL
from tests.integration.workers.conftest import Bench
from tests.scope_agents import careful, make_agent
from workers.agent.hosted import HostedAgent
from workers.agent.loop import AgentLoop
from workers.agent.roster import Roster

pytestmark = pytest.mark.anyio


@dataclasses.dataclass(kw_only=True)
class Scene:
    """A bench whose engine has the desk agent, and what the tools and the model noted."""

    bench: Bench
    folder: Path

    def use(self, factory: Callable[..., Any] = make_agent) -> None:
        agent = HostedAgent("desk", factory, AgentLoop(), timeout_s=20)
        self.bench.engine = dataclasses.replace(self.bench.engine, roster=Roster({"desk": agent}))

    async def start(self, script: list[dict[str, Any]], **options: Any) -> int:
        run_id = await self.bench.create(script, model="agent:desk", **options)
        await self.bench.drive()
        return run_id

    async def decide(self, run_id: int, call_id: str, **decision: Any) -> None:
        (gate,) = [g for g in await self.bench.gates(run_id) if g.tool_use_id == call_id]
        await self.bench.decide(run_id, Decision(request_id=gate.id, **decision))

    async def run(self, run_id: int) -> Any:
        return await self.bench.store.runs.load("1", run_id)

    @property
    def ledger(self) -> list[str]:
        path = self.folder / "ledger"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines]

    @property
    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "seen").read_text().splitlines()]

    async def state(self, run_id: int) -> dict[str, Any]:
        raw = await self.bench.store.runs.saved(run_id)
        assert raw is not None
        return dict(json.loads(raw)["state"])


@pytest.fixture
def scene(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("SCOPE_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setenv("SCOPE_SEEN", str(tmp_path / "seen"))
    made = Scene(bench=bench, folder=tmp_path)
    made.use()
    return made


def turn(*calls: tuple[str, str, Any], text: str = "") -> dict[str, Any]:
    return {"calls": list(calls), "text": text} if text else {"calls": list(calls)}


PAY = ("p1", "pay", {"to": "ann", "amount": 3})
LOOK = ("x1", "lookup", {"what": "price"})


async def test_a_confirm_and_an_external_call_park_together(scene: Scene) -> None:
    """Both are gates of one pause; each is answered alone, in either order."""
    run_id = await scene.start([turn(PAY, LOOK, text="on it"), {"text": "all done"}])
    run = await scene.run(run_id)
    assert (run.status, run.open) == ("awaiting_approval", 2)
    kinds = {g.tool_use_id: g.kind.value for g in await scene.bench.gates(run_id)}
    assert kinds == {"p1": "tool_approval", "x1": "external"}
    await scene.decide(run_id, "x1", result={"output": "7 euro"})
    await scene.bench.drive()
    assert scene.ledger == []
    await scene.decide(run_id, "p1", verdict="allow")
    await scene.bench.drive()
    run = await scene.run(run_id)
    assert (run.status, run.output, scene.ledger) == ("completed", "all done", ["p1 pay ann 3"])
    assert scene.seen[-1]["results"] == {
        "p1": {"state": "success", "text": "paid 3 to ann"},
        "x1": {"state": "success", "text": "7 euro"},
    }
    history = await scene.bench.store.runs.history(run_id)
    assert [m.role for m in history] == ["user", "assistant", "tool", "assistant"]
    assert (history[1].text, run.usage["output_tokens"]) == ("on it", 10)


async def test_a_denial_reaches_the_model_with_its_reason(scene: Scene) -> None:
    """Behind the agent's own words."""
    run_id = await scene.start([turn(PAY), {"text": "ok"}])
    await scene.decide(run_id, "p1", verdict="deny", reason="too expensive")
    await scene.bench.drive()
    assert (await scene.bench.status(run_id), scene.ledger) == ("completed", [])
    told = scene.seen[-1]["results"]["p1"]
    assert told["state"] == "denied"
    assert 'tool "pay" is denied by user' in told["text"]
    assert told["text"].endswith("Reason: too expensive")


async def test_an_accepted_rule_spares_the_next_prompt(scene: Scene) -> None:
    """In the agent's permission context, which is part of its state, and by our own memory."""
    script = [turn(PAY), turn(("p2", "pay", {"to": "bob"})), {"text": "ok"}]
    run_id = await scene.start(script)
    (gate,) = await scene.bench.gates(run_id)
    assert gate.suggested_rules == ({"tool": "pay", "effect": "allow"},)
    await scene.decide(run_id, "p1", verdict="allow", rules=gate.suggested_rules)
    await scene.bench.drive()
    assert await scene.bench.status(run_id) == "completed"
    assert scene.ledger == ["p1 pay ann 3", "p2 pay bob 1"]
    allowed = (await scene.state(run_id))["permission_context"]["allow_rules"]
    assert [rule["behavior"] for rule in allowed["pay"]] == ["allow"]


async def test_an_edited_input_is_what_runs_and_what_the_model_sees(scene: Scene) -> None:
    """The edit reaches the agent's own record of the call."""
    run_id = await scene.start([turn(PAY), {"text": "ok"}])
    (gate,) = await scene.bench.gates(run_id)
    assert json.loads(gate.input_schema or "")["properties"]["amount"]["type"] == "integer"
    await scene.bench.decide(
        run_id,
        Decision(request_id=gate.id, verdict="allow", input={"to": "ann", "amount": 1}),
        schema=json.loads(gate.input_schema or "{}"),
    )
    await scene.bench.drive()
    assert scene.ledger == ["p1 pay ann 1"]
    (message,) = [m for m in (await scene.state(run_id))["context"] if m["role"] == "assistant"]
    (block,) = [b for b in message["content"] if b["type"] == "tool_call"]
    assert (json.loads(block["input"]), block["name"]) == ({"to": "ann", "amount": 1}, "pay")


async def test_sequential_calls_come_one_after_another(scene: Scene) -> None:
    """The second surfaces when the first has its result, without a model call between."""
    first, second = ("n1", "note", {"text": "a"}), ("n2", "note", {"text": "b"})
    run_id = await scene.start([turn(first, second), {"text": "ok"}])
    assert [g.tool_use_id for g in await scene.bench.gates(run_id)] == ["n1"]
    await scene.decide(run_id, "n1", verdict="allow")
    await scene.bench.drive()
    assert [g.tool_use_id for g in await scene.bench.gates(run_id)] == ["n2"]
    assert len(scene.seen) == 1
    await scene.decide(run_id, "n2", verdict="allow")
    await scene.bench.drive()
    assert (scene.ledger, len(scene.seen)) == (["n1 note a", "n2 note b"], 2)
    assert await scene.bench.status(run_id) == "completed"


async def test_a_call_that_a_suggested_rule_covers_waits_for_the_first(scene: Scene) -> None:
    """Two alike in one batch: one prompt; the second runs by the rule, or is asked then."""
    pair = turn(PAY, ("p2", "pay", {"to": "bob"}))
    run_id = await scene.start([pair, {"text": "ok"}])
    (gate,) = await scene.bench.gates(run_id)
    await scene.decide(run_id, "p1", verdict="allow", rules=gate.suggested_rules)
    await scene.bench.drive()
    assert (await scene.bench.status(run_id), len(scene.ledger)) == ("completed", 2)
    run_id = await scene.start([pair, {"text": "ok"}])
    await scene.decide(run_id, "p1", verdict="deny")
    await scene.bench.drive()
    assert [g.tool_use_id for g in await scene.bench.gates(run_id)] == ["p2"]


async def test_what_the_agent_settles_itself_is_in_the_conversation(scene: Scene) -> None:
    """Its bookkeeping runs inside; an unknown tool and a wrong input are its own errors."""
    script = [
        turn(
            ("t1", "TaskCreate", {"subject": "s", "description": "d"}),
            ("u1", "nope", {}),
            ("w1", "pay", {"amount": "x"}),
            text="first",
        ),
        turn(PAY, text="second"),
        {"text": "ok"},
    ]
    run_id = await scene.start(script)
    history = await scene.bench.store.runs.history(run_id)
    assert [m.role for m in history] == ["user", "assistant", "tool", "assistant"]
    assert [m.text for m in history if m.role == "assistant"] == ["first", "second"]
    states = {r.tool_use_id: r.state for r in await scene.bench.results(run_id)}
    assert states == {"t1": "success", "u1": "error", "w1": "error"}
    assert [t["subject"] for t in (await scene.state(run_id))["tasks_context"]["tasks"]] == ["s"]


async def test_ask_user_is_a_question(scene: Scene) -> None:
    """Asked in our shape, answered back in its own, with the metadata that it promises."""
    asked = {
        "questions": [
            {
                "question": "Which?",
                "header": "H",
                "context": "the draft",
                "multi_select": True,
                "options": [
                    {"label": "A", "description": "a"},
                    {"label": "B", "description": "b"},
                ],
            }
        ]
    }
    run_id = await scene.start([turn(("q1", "AskUser", asked)), {"text": "ok"}])
    (gate,) = await scene.bench.gates(run_id)
    assert (gate.kind, gate.listed[0]) == ("question", "AskUserQuestion")
    await scene.decide(run_id, "q1", answers={"Which?": ["B", "neither"]})
    await scene.bench.drive()
    assert await scene.bench.status(run_id) == "completed"
    state = await scene.state(run_id)
    (result,) = [b for m in state["context"] for b in m["content"] if b["type"] == "tool_result"]
    assert result["metadata"] == {
        "answers": [{"question": "Which?", "selected": ["B"], "other": "neither"}]
    }


async def test_our_rules_stand_above_the_agent(scene: Scene) -> None:
    """A deny rule refuses, with our words; an allow rule answers its prompt."""
    await scene.bench.rule("pay", "deny")
    run_id = await scene.start([turn(PAY), {"text": "ok"}])
    assert (await scene.bench.status(run_id), scene.ledger) == ("completed", [])
    told = scene.seen[-1]["results"]["p1"]
    assert told["state"] == "denied"
    assert "not permitted" in told["text"]


async def test_autonomous_mode_answers_for_a_person(scene: Scene) -> None:
    """Confirmed towards the agent, run once."""
    run_id = await scene.start([turn(PAY), {"text": "ok"}], mode="autonomous")
    assert (await scene.bench.status(run_id), scene.ledger) == ("completed", ["p1 pay ann 3"])


async def test_plan_mode_asks_for_a_plan_first(scene: Scene) -> None:
    """The agent gets a tool to present it with; then calls are asked as ever."""
    script = [
        turn(PAY),
        turn(("e1", "ExitPlanMode", {"plan": "pay bob"})),
        turn(("p2", "pay", {"to": "bob"})),
        {"text": "ok"},
    ]
    run_id = await scene.start(script, mode="plan")
    assert "plan is needed" in scene.seen[-1]["results"]["p1"]["text"]
    await scene.decide(run_id, "e1", answers={"pay bob": "Approve"})
    await scene.bench.drive()
    await scene.decide(run_id, "p2", verdict="allow")
    await scene.bench.drive()
    assert (await scene.bench.status(run_id), scene.ledger) == ("completed", ["p2 pay bob 1"])


async def test_a_new_turn_after_a_cancel_closes_what_was_open(scene: Scene) -> None:
    """What ran is told as it ended, the rest as interrupted; then the message."""
    first = turn(PAY, LOOK)
    run_id = await scene.start([first, {"text": "hello"}])
    await scene.decide(run_id, "p1", verdict="allow")
    await scene.bench.drive()
    await scene.bench.cancel(run_id)
    await scene.bench.reply(run_id, "never mind")
    await scene.bench.drive()
    run = await scene.run(run_id)
    assert (run.status, run.output) == ("completed", "hello")
    results = scene.seen[-1]["results"]
    assert results["p1"] == {"state": "success", "text": "paid 3 to ann"}
    assert results["x1"]["state"] == "interrupted"
    assert scene.seen[-1]["said"][-1] == "never mind"


async def test_a_second_turn_goes_on_with_the_same_state(scene: Scene) -> None:
    """The conversation and the accepted rules are still there."""
    script = [turn(PAY), {"text": "one"}, turn(("p2", "pay", {"to": "b"})), {"text": "two"}]
    run_id = await scene.start(script)
    (gate,) = await scene.bench.gates(run_id)
    await scene.decide(run_id, "p1", verdict="allow", rules=gate.suggested_rules)
    await scene.bench.drive()
    await scene.bench.reply(run_id, "more")
    await scene.bench.drive()
    run = await scene.run(run_id)
    assert (run.status, run.output) == ("completed", "two")
    assert scene.seen[-1]["said"] == ["go", "more"]


@pytest.mark.parametrize("call", [("d1", "wipe", {"path": "x"}), ("d1", "note", {"text": "x"})])
async def test_what_the_agents_own_engine_insists_on_is_asked(
    scene: Scene, call: tuple[str, str, Any]
) -> None:
    """A safety ask and an ask rule of its own: no rule of ours and no mode answers them."""
    scene.use(careful)
    await scene.bench.rule(call[1], "allow")
    run_id = await scene.start([turn(call), {"text": "ok"}], mode="autonomous")
    assert [g.tool_use_id for g in await scene.bench.gates(run_id)] == ["d1"]
    await scene.decide(run_id, "d1", verdict="allow")
    await scene.bench.drive()
    assert (await scene.bench.status(run_id), len(scene.ledger)) == ("completed", 1)


async def test_an_error_result_of_a_tool_is_an_error_result(scene: Scene) -> None:
    """With the tool's own text, for the conversation and for the agent."""
    scene.use(careful)
    run_id = await scene.start([turn(("d1", "wipe", {"path": "/"})), {"text": "ok"}])
    await scene.decide(run_id, "d1", verdict="allow")
    await scene.bench.drive()
    told = scene.seen[-1]["results"]["d1"]
    assert (told["state"], "refused" in told["text"]) == ("error", True)


@pytest.mark.parametrize(
    ("status", "code", "tries"),
    [(429, "model_rate_limit", 4), (500, "model_server", 4), (401, "model_auth", 1)],
)
async def test_a_failure_of_its_model_is_a_failure_of_the_model(
    scene: Scene, status: int, code: str, tries: int
) -> None:
    """Tried again where that may help, from the state before."""

    async def no_wait(_seconds: float) -> None:
        return None

    scene.bench.engine = dataclasses.replace(scene.bench.engine, sleep=no_wait)
    run_id = await scene.start([{"status": status}])
    run = await scene.run(run_id)
    assert (run.status, run.error_code, len(scene.seen)) == ("failed", code, tries)


def renamed(run: AgentRun) -> Agent:
    agent = make_agent(run)
    agent.name = "other"
    return agent


def broken(_run: AgentRun) -> Agent:
    raise RuntimeError("no such desk")


@pytest.mark.parametrize("factory", [renamed, broken, lambda: "text"])
async def test_a_factory_that_changed_fails_the_run(
    scene: Scene, factory: Callable[..., Any]
) -> None:
    """Parked by one factory, resumed with another: the run says so, the worker goes on."""
    run_id = await scene.start([turn(PAY), {"text": "ok"}])
    await scene.decide(run_id, "p1", verdict="allow")
    scene.use(factory)
    await scene.bench.drive()
    run = await scene.run(run_id)
    assert (run.status, run.error_code, scene.ledger) == ("failed", "agent_error", [])


async def test_a_retried_step_starts_from_the_saved_state(scene: Scene) -> None:
    """A reply after a failure: what ran before it is told to the agent as it ended."""
    run_id = await scene.start([turn(PAY), {"text": "ok"}])
    await scene.decide(run_id, "p1", verdict="allow")
    scene.use(lambda run: broken(run) if scene.ledger else make_agent(run))
    await scene.bench.drive()
    assert (await scene.run(run_id)).error_code == "agent_error"
    assert scene.ledger == ["p1 pay ann 3"]
    scene.use()
    run = await scene.run(run_id)
    calls = await scene.bench.calls(run_id)
    closed = results_message(calls, turn=run.turn, step=run.step, at_ms=1)
    await scene.bench.reply(run_id, "and now?", closed)
    await scene.bench.drive()
    assert await scene.bench.status(run_id) == "completed"
    assert scene.seen[-1]["results"]["p1"] == {"state": "success", "text": "paid 3 to ann"}
    assert scene.ledger == ["p1 pay ann 3"]


async def test_max_iterations_of_the_agent_fail_the_turn(scene: Scene) -> None:
    """By the code that our own limit has."""

    def short(run: AgentRun) -> Agent:
        agent = make_agent(run)
        agent.react_config.max_iters = 1
        return agent

    scene.use(short)
    run_id = await scene.start([turn(("u", "nope", {})), {"text": "last words"}])
    assert (await scene.run(run_id)).error_code == "max_turns_exceeded"


async def test_a_structured_answer_is_given_with_the_tool_for_it(scene: Scene) -> None:
    """Checked by the engine, asked for again when it does not fit, and told to the next turn."""
    schema = {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
    }
    script = [
        {"text": "about seven"},
        turn(("o1", OUTPUT_TOOL, {"total": 7})),
        {"text": '{"total": 8}'},
    ]
    run_id = await scene.start(script, output_schema=schema)
    run = await scene.run(run_id)
    assert (run.status, run.output_data) == ("completed", {"total": 7})
    await scene.bench.reply(run_id, "again")
    await scene.bench.drive()
    run = await scene.run(run_id)
    assert (run.status, run.output_data) == ("completed", {"total": 8})
    assert scene.seen[-1]["results"]["o1"]["state"] == "success"
