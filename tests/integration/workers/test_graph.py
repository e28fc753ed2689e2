"""A real LangGraph graph on a real store: its interrupts are our gates, its state is saved."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from signoff.domain.decision import Decision
from signoff.domain.gate import GateKind
from signoff.interrupts import approve, ask, external, plan
from tests.graph_agents import (
    Chain,
    Flow,
    entered,
    graph_of,
    make_both,
    make_chain,
    make_talker,
)
from tests.integration.workers.conftest import Bench
from tests.integration.workers.mortal import life, one_event_per_pause
from workers.agent.hosted import HostedAgent
from workers.agent.loop import AgentLoop
from workers.agent.roster import Roster
from workers.history import Histories

pytestmark = pytest.mark.anyio


@dataclasses.dataclass(kw_only=True)
class Scene:
    """A bench whose engine is new for each drive, as after a change of the process."""

    bench: Bench
    factory: Callable[..., Any] = make_both

    def renew(self) -> None:
        agent = HostedAgent("flow", self.factory, AgentLoop(), timeout_s=20)
        self.bench.engine = dataclasses.replace(
            self.bench.engine,
            roster=Roster({"flow": agent}),
            histories=Histories(self.bench.store.runs),
        )

    async def start(self, factory: Callable[..., Any] | None = None, **options: Any) -> int:
        self.factory = factory or self.factory
        run_id = await self.bench.create([], model="agent:flow", **options)
        await self.drive()
        return run_id

    async def drive(self) -> None:
        self.renew()
        await self.bench.drive()

    async def decide(self, run_id: int, tool: str, **decision: Any) -> None:
        (gate,) = [g for g in await self.bench.gates(run_id) if g.tool == tool]
        await self.bench.decide(run_id, Decision(request_id=gate.id, **decision))

    async def run(self, run_id: int) -> Any:
        return await self.bench.store.runs.load("1", run_id)

    async def told(self, run_id: int) -> Any:
        """What the nodes got, of a graph that ends with it."""
        run = await self.run(run_id)
        assert run.status == "completed", run
        return json.loads(run.output)["told"]


@pytest.fixture
def scene(bench: Bench) -> Scene:
    entered.clear()
    return Scene(bench=bench)


PAID = {"state": "success", "content": "did a*1", "approved": True}
SUPPLIED = {"state": "success", "content": "7 euro", "approved": True}


@pytest.mark.parametrize("order", ["so", "os"])
async def test_an_approval_and_an_external_call_of_two_branches(scene: Scene, order: str) -> None:
    """Both are gates of one pause, answered in either order; each drive is another process."""
    run_id = await scene.start()
    run = await scene.run(run_id)
    assert (run.status, run.open) == ("awaiting_approval", 2)
    kinds = {g.tool: g.kind.value for g in await scene.bench.gates(run_id)}
    assert kinds == {"send": "tool_approval", "outside": "external"}
    for n, which in enumerate(order):
        if which == "s":
            await scene.decide(run_id, "send", verdict="allow")
        else:
            await scene.decide(run_id, "outside", result={"output": "7 euro"})
        await scene.drive()
        if n == 0:
            assert (await scene.run(run_id)).open == 1
    assert await scene.told(run_id) == [PAID, SUPPLIED]
    assert [line.partition(":")[2] for line in scene.bench.log] == ["a*1"]


async def test_a_denial_reaches_the_node_with_its_reason(scene: Scene) -> None:
    """Nothing runs, and the node may go on as it likes."""
    run_id = await scene.start(lambda: graph_of(approve("send", {"what": "a"})))
    await scene.decide(run_id, "send", verdict="deny", reason="too expensive")
    await scene.drive()
    (told,) = await scene.told(run_id)
    assert (told["state"], told["approved"], scene.bench.log) == ("denied", False, [])
    assert told["content"].endswith("Reason: too expensive")


async def test_an_edited_input_is_what_runs_and_what_the_node_hears(scene: Scene) -> None:
    """So that the graph does not go on with an input that nobody ran."""
    run_id = await scene.start(lambda: graph_of(approve("send", {"what": "a"})))
    await scene.decide(run_id, "send", verdict="allow", input={"what": "b"})
    await scene.drive()
    (told,) = await scene.told(run_id)
    assert told["content"].endswith("did b*1")
    assert told["input"] == {"what": "b"}


async def test_a_question_is_answered_by_its_labels(scene: Scene) -> None:
    """Read from what a model would read."""
    run_id = await scene.start(lambda: graph_of(ask("Which?", ["red", "blue"], multi=True)))
    (gate,) = await scene.bench.gates(run_id)
    assert (gate.kind, gate.tool) == (GateKind.QUESTION, "AskUserQuestion")
    await scene.decide(run_id, "AskUserQuestion", answers={"Which?": ["red", "blue"]})
    await scene.drive()
    (told,) = await scene.told(run_id)
    assert told["answers"] == {"Which?": ["red", "blue"]}


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"ok": True}, {"ok": True}),
        ("yes, please", "yes, please"),
        ("true", True),
        (None, None),
        ("[" * 9000, "[" * 9000),
    ],
    ids=["object", "text", "true", "null", "no-json"],
)
async def test_any_other_interrupt_waits_for_its_value(
    scene: Scene, output: Any, told: Any
) -> None:
    """A gate that shows the value as it is; JSON comes back as JSON, any other text as text."""
    run_id = await scene.start(lambda: graph_of({"what": ["now"]}))
    (gate,) = await scene.bench.gates(run_id)
    assert (gate.kind, gate.tool) == (GateKind.EXTERNAL, "interrupt")
    assert gate.tool_input == {"value": {"what": ["now"]}}
    await scene.decide(run_id, "interrupt", result={"output": output})
    await scene.drive()
    assert await scene.told(run_id) == [told]


async def test_an_error_instead_of_the_value_is_told_as_one(scene: Scene) -> None:
    """There is no value then, so the node gets the state and the text."""
    run_id = await scene.start(lambda: graph_of("go on?"))
    await scene.decide(run_id, "interrupt", result={"output": "no", "state": "error"})
    await scene.drive()
    (told,) = await scene.told(run_id)
    assert told == {"state": "error", "content": "no", "approved": True}


async def test_external_never_runs_a_tool_of_the_deployment(scene: Scene) -> None:
    """A name that is not external, or not known, is shown and waits for a result."""
    run_id = await scene.start(lambda: graph_of(external("send", {"what": "a"})))
    (gate,) = await scene.bench.gates(run_id)
    assert gate.tool_input == {"value": {"tool": "send", "input": {"what": "a"}}}
    await scene.decide(run_id, "interrupt", result={"output": "sent"})
    await scene.drive()
    (told,) = await scene.told(run_id)
    assert (told["content"], scene.bench.log) == ("sent", [])


async def test_a_node_is_entered_again_and_its_tools_are_not(scene: Scene) -> None:
    """What stands before an interrupt runs at each resumption; what the engine runs, once."""
    run_id = await scene.start(make_chain)
    await scene.decide(run_id, "send", verdict="allow")
    await scene.drive()
    await scene.decide(run_id, "AskUserQuestion", answers={"Once more?": "yes"})
    await scene.drive()
    await scene.decide(run_id, "send", verdict="allow")
    await scene.drive()
    run = await scene.run(run_id)
    assert (run.status, run.output) == ("completed", "did did go*1*1")
    assert entered == ["work"] * 4
    assert [line.partition(":")[2] for line in scene.bench.log] == ["go*1", "did go*1*1"]


async def test_rules_and_modes_answer_for_a_person_unless_the_node_insists(scene: Scene) -> None:
    """As for any call; a deny rule refuses even that."""
    await scene.bench.rule("send", "allow")
    run_id = await scene.start(lambda: graph_of(approve("send", {"what": "a"})))
    assert await scene.told(run_id) == [PAID]
    insists = approve("send", {"what": "b"}, insist=True)
    run_id = await scene.start(lambda: graph_of(insists), mode="autonomous")
    assert [g.tool for g in await scene.bench.gates(run_id)] == ["send"]
    await scene.bench.rule("put", "deny")
    run_id = await scene.start(lambda: graph_of(approve("put", {"what": "c"})))
    (told,) = await scene.told(run_id)
    assert (told["state"], len(scene.bench.log)) == ("denied", 1)


async def test_a_plan_is_presented_in_plan_mode(scene: Scene) -> None:
    """Before it nothing with effects runs."""
    run_id = await scene.start(lambda: graph_of(plan("first this")), mode="plan")
    (gate,) = await scene.bench.gates(run_id)
    assert gate.kind is GateKind.PLAN
    await scene.decide(run_id, gate.tool, answers={"Plan Approval": "Approve"})
    await scene.drive()
    (told,) = await scene.told(run_id)
    assert told["content"].startswith("The user approved the plan")


async def test_an_unknown_tool_is_an_error_that_the_node_hears(scene: Scene) -> None:
    """Not a gate: nothing could run for it."""
    run_id = await scene.start(lambda: graph_of(approve("nope", {})))
    (told,) = await scene.told(run_id)
    assert told["state"] == "error"


async def test_turns_subgraphs_and_types_of_the_state(scene: Scene) -> None:
    """The state lives on from turn to turn; text, tokens and the last answer come from messages."""
    run_id = await scene.start(make_talker)
    for turn, text in ((1, "answer 2"), (2, "answer 5")):
        await scene.decide(run_id, "put", verdict="allow")
        await scene.drive()
        run = await scene.run(run_id)
        assert (run.status, run.output) == ("completed", text)
        if turn == 1:
            await scene.bench.reply(run_id, "more")
            await scene.drive()
    assert [line.partition(":")[2] for line in scene.bench.log] == ["1", "2"]
    history = await scene.bench.store.runs.history(run_id)
    said = [m.text for m in history if m.role == "assistant"]
    assert said == ["answer 1", "answer 2", "answer 4", "answer 5"]
    assert run.usage["output_tokens"] == 12


async def test_a_new_turn_after_a_cancel_starts_the_graph_again(scene: Scene) -> None:
    """With what was committed; what waited is dropped."""
    run_id = await scene.start(make_talker)
    await scene.bench.cancel(run_id)
    await scene.bench.reply(run_id, "never mind")
    await scene.drive()
    (gate,) = await scene.bench.gates(run_id)
    assert gate.tool_input == {"what": "1"}
    await scene.decide(run_id, "put", verdict="allow")
    await scene.drive()
    assert (await scene.run(run_id)).status == "completed"


async def test_a_checkpointer_of_the_graphs_own_is_not_used(scene: Scene) -> None:
    """One graph for all runs may be compiled once; it keeps nothing."""
    own = InMemorySaver()
    compiled = make_both().compile(checkpointer=own)
    run_id = await scene.start(lambda: compiled)
    await scene.decide(run_id, "send", verdict="allow")
    await scene.decide(run_id, "outside", result={"output": "7 euro"})
    await scene.drive()
    assert await scene.told(run_id) == [PAID, SUPPLIED]
    assert not own.storage


def broken() -> Any:
    builder: Any = StateGraph(Chain)

    def node(_: Any) -> Any:
        raise ZeroDivisionError("one by none")

    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder


def endless() -> Any:
    builder: Any = StateGraph(Flow)
    builder.add_node("node", lambda _: {"told": [1]})
    builder.add_edge(START, "node")
    builder.add_edge("node", "node")
    return builder


def stopped() -> Any:
    return graph_of("x").compile(interrupt_before=["node0"])


def strange() -> Any:
    builder: Any = StateGraph(dict)
    builder.add_node("node", lambda state: state)
    builder.add_edge(START, "node")
    return builder


@pytest.mark.parametrize(
    ("factory", "code", "text"),
    [
        (broken, "agent_error", "ZeroDivisionError: one by none"),
        (endless, "max_turns_exceeded", "Recursion limit"),
        (stopped, "agent_error", "stopped before node0"),
        (strange, "agent_error", "neither `messages` nor `input`"),
        (lambda: graph_of({"signoff": "tool", "tool": 1}), "agent_error", "promised shape"),
    ],
)
async def test_what_goes_wrong_fails_the_run(
    scene: Scene, factory: Callable[..., Any], code: str, text: str
) -> None:
    """With a code and in words."""
    run = await scene.run(await scene.start(factory))
    assert (run.status, run.error_code) == ("failed", code)
    assert text in (run.error or "")


async def settle_all(bench: Bench, run_id: int) -> None:
    """A person allows, says yes, and answers what nobody knows."""
    for gate in await bench.gates(run_id):
        if gate.kind in (GateKind.OUTCOME_UNKNOWN, GateKind.EXTERNAL):
            decision = Decision(request_id=gate.id, result={"output": "told"})
        elif gate.kind is GateKind.QUESTION:
            decision = Decision(request_id=gate.id, answers={"Once more?": "yes"})
        else:
            decision = Decision(request_id=gate.id, verdict="allow")
        await bench.decide(run_id, decision)


@pytest.mark.parametrize("factory", [make_both, make_chain])
@pytest.mark.parametrize("arrives", [False, True], ids=["before", "reply-lost"])
async def test_no_death_of_the_holder_loses_or_doubles_anything(
    scene: Scene, factory: Callable[..., Any], *, arrives: bool
) -> None:
    """The saved checkpoint and the gates move together, whichever command was the last."""
    at = 0
    scene.factory = factory

    async def settle(bench: Bench, run_id: int) -> None:
        await settle_all(bench, run_id)
        scene.renew()

    while True:
        at += 1
        scene.bench.log.clear()
        scene.renew()
        run_id = await scene.bench.create([], model="agent:flow")
        died = await life(scene.bench, run_id, settle, at, arrives=arrives)
        counts = Counter(line.partition(":")[0] for line in scene.bench.log)
        assert set(counts.values()) <= {1}, (at, scene.bench.log)
        results = await scene.bench.results(run_id)
        sent = [r for r in results if r.name == "send"]
        assert len(sent) == len({r.tool_use_id for r in sent}) == (1 if factory is make_both else 2)
        assert all(r.tool_use_id in counts or r.content == "told" for r in sent), at
        await one_event_per_pause(scene.bench.store, run_id)
        if not died:
            break
    assert at > 4
