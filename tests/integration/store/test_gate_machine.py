"""Random schedules of everything that can happen to runs, with faults and races at every script."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from signoff.domain.gate import Gate
from signoff.domain.mode import Mode
from signoff.domain.rule import Verdict
from tests.integration.store.conftest import SHARD
from tests.integration.store.world import TOOLS, Fault, World, decision_for, require, script_of
from tests.integration.workers.conftest import ACCOUNT

EXAMPLES, STEPS = 80, 20
names = st.sampled_from([*TOOLS, "send", "send", "look", "AskUserQuestion", "nope"])
turns = st.one_of(
    st.lists(names, min_size=1, max_size=4).map(lambda calls: {"calls": calls}),
    st.just({"plan": "the plan"}),
)
modes = st.sampled_from(list(Mode))
picks = st.integers(0, 30)
forms = st.sampled_from(["allow", "allow", "deny", "edit", "result"])
rule_args = (st.sampled_from(TOOLS), st.sampled_from([Verdict.ALLOW, Verdict.ASK, Verdict.DENY]))
users = st.sampled_from([None, "u"])
FAULTS = ("die before", "die after", "lose reply")
SCRIPTS = ("", "", "commit_step", "start_call", "start_call", "finish_call", "release", "ask_again")
KINDS = (*FAULTS, "time", "decide", "switch", "cancel", "rule", "drop", "overtake", "overtake")
happening = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "script": st.sampled_from(SCRIPTS),
        "at": st.integers(0, 3),
        "nudges": st.booleans(),
        "number": picks,
        "form": forms,
        "mode": modes,
        "made": st.tuples(*rule_args, users),
    }
)
limits: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"expires_in": st.sampled_from([20, 90])},
        optional={
            "remind_after": st.sampled_from([10, 50]),
            "on_expiry": st.sampled_from(["deny", "deny", "answer", "cancel"]),
        },
    ),
)
# One in four moves is not followed by a drive, so that moves also meet what they left.
happenings = st.integers(0, 3).flatmap(lambda n: happening if n else st.none())
scripts = st.lists(turns, min_size=1, max_size=4).map(script_of)


class Machine(RuleBasedStateMachine):
    """Schedules for one world; everything in it happens in one event loop."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World(self.url)
        self.do(self.world.open())

    def do(self, move: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(move, 20))

    def teardown(self) -> None:
        try:
            self.do(self.finish())
        finally:
            self.do(self.world.close())
            self.loop.close()

    def pick(self, number: int) -> int:
        return self.world.runs[number % len(self.world.runs)]

    def gate(self, number: int) -> tuple[int, Gate] | None:
        pending = self.do(self.world.pending())
        return pending[number % len(pending)] if pending else None

    def drive(self, event: dict[str, Any] | None) -> None:
        """Engine A drives what is ready, and ``event`` happens on its way; None: not now."""
        world = self.world
        if event is None or not world.runs:
            return
        act = None if event["kind"] in FAULTS else lambda: self.act(**event)
        world.fault = Fault(kind=event["kind"], script=event["script"], at=event["at"], act=act)
        world.nudges = event["nudges"]
        self.do(world.drive(world.a))
        world.fault = None

    async def act(self, kind: str, number: int, form: str, **event: Any) -> None:
        world, run_id = self.world, self.pick(number)
        if kind == "decide":
            for gate in (await world.office.gates(run_id))[:1]:
                await world.decide(run_id, decision_for(gate, form))
        elif kind == "switch":
            await world.switch(run_id, event["mode"])
        elif kind == "cancel":
            await world.cancel(run_id)
        elif kind == "time":
            await world.time_passes(number * 5)
        elif kind == "rule":
            await world.add_rule(*event["made"])
        elif kind == "drop":
            await world.drop_rule(number)
        else:
            await world.overtaken()

    @initialize(first=scripts, second=scripts, timed=limits, event=happening)
    def begin(
        self,
        first: list[dict[str, Any]],
        second: list[dict[str, Any]],
        timed: dict[str, Any],
        event: dict[str, Any],
    ) -> None:
        self.do(self.world.create(first, mode="autonomous"))
        self.do(self.world.create(second, mode="approval", user_id="u", limits=timed))
        self.drive(event)

    @precondition(lambda self: len(self.world.runs) < 5)
    @rule(
        script=scripts,
        mode=modes,
        user=users,
        hitl=st.booleans(),
        limits=limits,
        event=happenings,
    )
    def create(
        self,
        *,
        script: list[dict[str, Any]],
        mode: Mode,
        user: str | None,
        hitl: bool,
        limits: dict[str, Any],
        event: dict[str, Any] | None,
    ) -> None:
        hitl = hitl or mode.needs_person
        self.do(self.world.create(script, mode=mode.value, user_id=user, hitl=hitl, limits=limits))
        self.drive(event)

    @precondition(lambda self: self.world.runs)
    @rule(number=picks, form=forms, event=happenings)
    def decide(self, number: int, form: str, event: dict[str, Any] | None) -> None:
        if found := self.gate(number):
            run_id, gate = found
            decided = self.do(self.world.decide(run_id, decision_for(gate, form)))
            run = self.do(self.world.office.store.runs.load(ACCOUNT, run_id))
            assert decided.accepted != run.status.terminal
        self.drive(event)

    @precondition(lambda self: self.world.verdicts)
    @rule(number=picks, form=forms)
    def decide_again(self, number: int, form: str) -> None:
        """The same is a replay, anything else is refused; neither changes anything."""
        world = self.world
        for run_id in world.runs:
            gates = self.do(world.office.store.runs.gates(run_id))
            done = [gate for gate in gates if gate.state != "pending"]
            if done:
                gate = done[number % len(done)]
                decided = self.do(world.decide(run_id, decision_for(gate, form)))
                assert not any(outcome.applied for outcome in decided.outcomes)
                assert gate.state != "cancelled" or decided.outcomes[0].code == "gate_cancelled"

    @precondition(lambda self: self.world.runs)
    @rule(
        number=picks,
        mixed=st.lists(forms, min_size=1, max_size=4),
        bad=st.booleans(),
        event=happenings,
    )
    def decide_a_batch(
        self, *, number: int, mixed: list[str], bad: bool, event: dict[str, Any] | None
    ) -> None:
        run_id = self.pick(number)
        gates = self.do(self.world.office.gates(run_id))
        decisions = [
            decision_for(gate, form)
            for gate, form in zip(gates, itertools.cycle(mixed), strict=False)
        ]
        if bad and decisions:
            decisions[-1] = dataclasses.replace(decisions[-1], expected_digest="another")
        if decisions:
            decided = self.do(self.world.decide(run_id, *decisions))
            assert not (bad and decided.accepted)
        self.drive(event)

    @precondition(lambda self: self.world.runs)
    @rule(number=picks, stored=st.booleans())
    def remember(self, number: int, stored: bool) -> None:
        found = self.gate(number)
        if found and found[1].kind == "tool_approval":
            self.do(self.world.remember(*found, stored=stored))

    @precondition(lambda self: self.world.runs)
    @rule(number=picks)
    def cancel(self, number: int) -> None:
        self.do(self.world.cancel(self.pick(number)))

    @precondition(lambda self: self.world.runs)
    @rule(number=picks, mode=modes, event=happenings)
    def switch(self, number: int, mode: Mode, event: dict[str, Any] | None) -> None:
        self.do(self.world.switch(self.pick(number), mode))
        self.drive(event)

    @precondition(lambda self: self.world.runs)
    @rule(seconds=st.sampled_from([5, 30, 100]), event=happenings)
    def time_passes(self, seconds: int, event: dict[str, Any] | None) -> None:
        self.do(self.world.time_passes(seconds))
        self.drive(event)

    @rule(name=rule_args[0], effect=rule_args[1], user=users)
    def add_rule(self, name: str, effect: Verdict, user: str | None) -> None:
        self.do(self.world.add_rule(name, effect, user))

    @rule(number=picks)
    def drop_rule(self, number: int) -> None:
        self.do(self.world.drop_rule(number))

    @precondition(lambda self: self.world.runs)
    @rule()
    def holder_falls_asleep(self) -> None:
        self.do(self.world.hold())

    @precondition(lambda self: self.world.zombies)
    @rule()
    def holder_wakes_up(self) -> None:
        self.do(self.world.wake_zombies())

    @invariant()
    def all_holds(self) -> None:
        self.do(self.world.check())

    async def finish(self) -> None:
        """Whatever happened, every run comes to its end when its gates are decided."""
        world = self.world
        await world.wake_zombies()
        for _ in range(30):
            await world.drive(world.b)
            pending = [
                (run_id, gate)
                for run_id, gate in await world.pending()
                if not (await world.office.store.runs.load(ACCOUNT, run_id)).status.terminal
            ]
            if not pending:
                break
            for run_id, gate in pending:
                await world.decide(run_id, decision_for(gate, "allow"))
        await world.check()
        for run_id in world.runs:
            status = await world.office.status(run_id)
            require(status in ("completed", "failed", "cancelled"), f"run {run_id} is {status}")


def test_no_schedule_breaks_the_rules(redis_socket: Path) -> None:
    """Random schedules of all moves, with faults and races at every script."""
    Machine.url = f"unix://{redis_socket}?db=0"
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    """A world for schedules written by hand."""
    made = World(redis_url)
    await made.open()
    yield made
    await made.close()


def step_of(*calls: str) -> list[dict[str, Any]]:
    return script_of([{"calls": list(calls)}])


@pytest.mark.anyio
async def test_calls_asked_again_side_by_side_are_pauses_with_their_own_numbers(
    world: World,
) -> None:
    """Two reads start at once when an ask rule comes: each event names its own pause."""
    await world.create(step_of("look", "look", "send"), mode="approval")
    world.fault = Fault(
        kind="rule",
        script="start_call",
        at=0,
        act=lambda: world.add_rule("look", Verdict.ASK, None),
    )
    await world.drive(world.a)
    await world.check()
    gates = await world.office.gates(1)
    assert sorted(gate.pause for gate in gates) == [1, 2, 3]


@pytest.mark.anyio
async def test_a_switch_to_autonomous_settles_what_an_ask_rule_asked(world: World) -> None:
    """Decided by the mode, it runs, and is not asked a second time."""
    await world.add_rule("send", Verdict.ASK, None)
    await world.create(step_of("send"), mode="approval")
    await world.drive(world.a)
    await world.switch(1, Mode.AUTONOMOUS)
    await world.drive(world.a)
    await world.check()
    assert await world.office.status(1) == "completed"
    assert [gate.decided_by for gate in await world.office.store.runs.gates(1)] == ["mode"]


@pytest.mark.anyio
@pytest.mark.parametrize("later", [Mode.APPROVAL, Mode.PLAN])
async def test_what_a_switch_allowed_does_not_outlive_the_mode(world: World, later: Mode) -> None:
    """Switched back before it started: it is asked anew, or refused before the plan."""
    await world.create(step_of("send"), mode="approval")
    await world.drive(world.a)
    await world.switch(1, Mode.AUTONOMOUS)
    await world.switch(1, later)
    await world.drive(world.a)
    await world.check()
    assert world.attempts == {}
    pauses = [gate.pause for gate in await world.office.gates(1)]
    assert pauses == ([2] if later is Mode.APPROVAL else [])


@pytest.mark.anyio
async def test_a_switch_to_plan_guards_what_a_rule_allowed(world: World) -> None:
    """Right before the start: the call is refused as long as no plan is approved."""
    await world.add_rule("send", Verdict.ALLOW, None)
    await world.create(step_of("send"), mode="approval")
    world.fault = Fault(
        kind="switch", script="start_call", at=0, act=lambda: world.switch(1, Mode.PLAN)
    )
    await world.drive(world.a)
    await world.check()
    assert world.attempts == {}
    (result,) = await world.office.results(1)
    assert "plan is needed" in result.content


@pytest.mark.anyio
async def test_an_edited_call_that_was_cut_off_is_retried_as_edited(world: World) -> None:
    """The gate shows what ran, and the retry runs just that."""
    await world.create(step_of("send"), mode="approval")
    await world.drive(world.a)
    (gate,) = await world.office.gates(1)
    await world.decide(1, decision_for(gate, "edit"))
    world.fault = Fault(kind="die after", script="start_call", at=0)
    await world.drive(world.a)
    (gate,) = await world.office.gates(1)
    assert (gate.kind, gate.tool_input) == ("outcome_unknown", {"what": "edited"})
    await world.decide(1, decision_for(gate, "allow"))
    await world.drive(world.a)
    await world.check()
    (result,) = await world.office.results(1)
    assert result.content.endswith("Result: did edited")


@pytest.mark.anyio
async def test_a_once_tool_overtaken_in_the_middle_runs_once(world: World) -> None:
    """Its late result is kept in the audit only; a person decides what is known of it."""
    await world.create(step_of("send"), mode="autonomous")
    world.fault = Fault(kind="overtake", script="finish_call", at=0, act=world.overtaken)
    await world.drive(world.a)
    await world.check()
    (gate,) = await world.office.gates(1)
    assert gate.kind == "outcome_unknown"
    assert len(world.attempts["1:1:t0c0"]) == 1
    audit = await world.office.store.connection.call("XRANGE", f"{SHARD}audit:1", "-", "+")
    assert [row[1][1] for row in audit] == [b"tool_start", b"late_result"]
