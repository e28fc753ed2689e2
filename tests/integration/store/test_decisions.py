"""Decisions: one verdict per gate, all of a batch or none, durable before they return."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from signoff.domain.error import StaleError
from signoff.domain.gate import GateKind
from signoff.domain.mode import Mode
from signoff.store.decisions import Decided
from signoff.store.records import RunRecord
from signoff.store.steps import NewGate
from tests.integration.store.conftest import ACCOUNT, SHARD, Desk, new_call, verdict

pytestmark = pytest.mark.anyio


def codes(decided: Decided) -> list[str]:
    return [outcome.code for outcome in decided.outcomes]


async def gate_id(desk: Desk, run: RunRecord, name: str = "a") -> str:
    return (await desk.gates(run.id))[name].id


async def test_the_first_decision_counts_and_its_repeat_is_a_replay(desk: Desk) -> None:
    """The same arguments again: the same answer, no second effect."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    first = await desk.decide(run, verdict(gate, reason="fine", by="ann"))
    assert (first.accepted, first.resumed, first.outcomes[0].applied) == (True, True, True)
    before = await desk.raw(run.id), await desk.store.runs.calls(run.id), await desk.audit()
    again = await desk.decide(run, verdict(gate, reason="other", by="bob"))
    assert (again.accepted, again.resumed, again.outcomes[0].applied) == (True, True, False)
    assert not again.hint
    assert (
        await desk.raw(run.id),
        await desk.store.runs.calls(run.id),
        await desk.audit(),
    ) == before
    standing = again.outcomes[0].gate
    assert standing is not None
    assert (standing.decided_by, standing.reason, standing.state) == ("ann", "fine", "allowed")
    assert len(await desk.events("run.resumed")) == 1
    assert [item.run.id for item in await desk.take()] == [run.id]


async def test_another_verdict_is_refused_and_names_the_standing_one(desk: Desk) -> None:
    """Also after the run has gone on."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    await desk.decide(run, verdict(gate, by="ann"))
    refused = await desk.decide(run, verdict(gate, "deny", by="bob"))
    assert (refused.accepted, codes(refused)) == (False, ["gate_resolved_otherwise"])
    standing = refused.outcomes[0].gate
    assert standing is not None
    assert (standing.state, standing.decided_by) == ("allowed", "ann")
    assert standing.resolved_ms is not None


async def test_a_gate_takes_one_of_a_hundred_decisions_at_once(desk: Desk) -> None:
    """Fifty allow and fifty deny: one applies, its like are replays, the others are refused."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    kinds = ["allow", "deny"] * 50
    found = await asyncio.gather(*(desk.decide(run, verdict(gate, kind)) for kind in kinds))
    applied = [n for n, item in enumerate(found) if item.accepted and item.outcomes[0].applied]
    assert len(applied) == 1
    winner = kinds[applied[0]]
    assert [item.accepted for item in found] == [kind == winner for kind in kinds]
    assert len(await desk.audit()) == 1
    assert (await desk.raw(run.id))["open"] == "0"


async def test_partial_decisions_resume_with_the_last(desk: Desk) -> None:
    """An allowed call is due at once; the status moves when no gate is open."""
    run = await desk.parked(calls=("a", "b", "c"))
    gates = {name: gate.id for name, gate in (await desk.gates(run.id)).items()}
    first = await desk.decide(run, verdict(gates["b"], "deny"))
    assert (first.resumed, first.hint) == (False, False)
    assert await desk.take() == []
    second = await desk.decide(await desk.load(run.id), verdict(gates["a"]))
    assert (second.resumed, second.hint) == (False, True)
    loaded = await desk.load(run.id)
    assert (loaded.status, loaded.open) == ("awaiting_approval", 1)
    (held,) = await desk.take()
    assert [call.state for call in held.calls] == ["allowed", "done", "asked"]
    last = await desk.decide(await desk.load(run.id), verdict(gates["c"], "deny"))
    assert (last.resumed, last.hint) == (True, False)
    assert (await desk.load(run.id)).status == "running"
    assert len(await desk.events("run.resumed")) == 1


async def test_a_batch_applies_wholly_or_not_at_all(desk: Desk) -> None:
    """One bad item refuses all; each item says what it would have been."""
    run = await desk.parked(calls=("a", "b", "c"))
    gates = {name: gate.id for name, gate in (await desk.gates(run.id)).items()}
    await desk.decide(run, verdict(gates["c"]))
    before = await desk.raw(run.id), await desk.gates(run.id), await desk.audit()
    items = [
        verdict(gates["a"]),
        verdict(gates["c"], "deny"),
        verdict("req_none"),
        verdict(gates["b"], expected_digest="digest-z"),
        verdict(gates["c"]),
    ]
    refused = await desk.decide(await desk.load(run.id), *items)
    assert (refused.accepted, refused.resumed) == (False, False)
    assert codes(refused) == [
        "",
        "gate_resolved_otherwise",
        "gate_not_found",
        "gate_changed",
        "",
    ]
    assert refused.outcomes[2].gate is None
    assert (await desk.raw(run.id), await desk.gates(run.id), await desk.audit()) == before
    good = await desk.decide(
        await desk.load(run.id),
        verdict(gates["a"], "deny"),
        verdict(gates["c"]),
        verdict(gates["b"], expected_digest="digest-b"),
    )
    assert (good.accepted, good.resumed) == (True, True)
    assert [outcome.applied for outcome in good.outcomes] == [True, False, True]


async def test_a_gate_of_another_run_is_not_found(desk: Desk) -> None:
    """Nothing of it is told."""
    first, second = await desk.parked(), await desk.parked()
    refused = await desk.decide(first, verdict(await gate_id(desk, second)))
    assert (codes(refused), refused.outcomes[0].gate) == (["gate_not_found"], None)
    assert (await desk.load(second.id)).open == 1


async def cancel(desk: Desk, run: RunRecord, endpoints: tuple[str, ...] = ()) -> None:
    results = {
        call.n: {"state": "interrupted", "content": "cancelled"}
        for call in await desk.store.runs.calls(run.id)
        if call.state != "done"
    }
    await desk.store.decisions.cancel(
        await desk.load(run.id),
        by="ann",
        results=results,
        message=None,
        cancelled=desk.event("run.cancelled"),
        fanout=await desk.fanout(*endpoints),
    )


async def test_cancel_closes_open_gates_and_leaves_settled_ones(desk: Desk) -> None:
    """Afterwards: cancelled for the one, the standing verdict for the other."""
    run = await desk.parked(calls=("a", "b"))
    gates = {name: gate.id for name, gate in (await desk.gates(run.id)).items()}
    await desk.decide(run, verdict(gates["a"], "deny"))
    await cancel(desk, run)
    found = await desk.gates(run.id)
    assert {name: gate.state for name, gate in found.items()} == {"a": "denied", "b": "cancelled"}
    assert found["b"].decided_by == "ann"
    loaded = await desk.load(run.id)
    assert (loaded.status, loaded.open) == ("cancelled", 0)
    assert await desk.store.connection.call("ZCARD", f"{SHARD}open:{ACCOUNT}") == 0
    assert codes(await desk.decide(loaded, verdict(gates["b"]))) == ["gate_cancelled"]
    assert codes(await desk.decide(loaded, verdict(gates["a"], "deny"))) == [""]
    assert codes(await desk.decide(loaded, verdict(gates["a"]))) == ["gate_resolved_otherwise"]
    assert len(await desk.events("run.cancelled")) == 1
    assert await desk.take() == []


async def test_an_open_gate_of_a_finished_run_is_refused(desk: Desk) -> None:
    """A run that failed while parked takes no decision."""
    run = await desk.held()
    calls = [new_call("a", "asked"), new_call("b", "allowed")]
    await desk.store.steps.commit(run, await desk.step(run, calls))
    await desk.store.steps.fail(await desk.load(run.id), await desk.ending(status="failed"))
    refused = await desk.decide(await desk.load(run.id), verdict(await gate_id(desk, run)))
    assert (refused.accepted, codes(refused)) == (False, ["run_not_active"])


@pytest.mark.parametrize("what", ["mode", "subs"])
async def test_the_decision_that_resumes_needs_fresh_versions(desk: Desk, what: str) -> None:
    """Its event carries the mode and goes to the endpoints; others do not care."""
    run = await desk.parked(calls=("a", "b"))
    gates = {name: gate.id for name, gate in (await desk.gates(run.id)).items()}
    fanout = await desk.fanout()
    if what == "mode":
        await switch(desk, run, Mode.PLAN)
    else:
        await desk.store.catalog.bump(ACCOUNT, "subs")
    event = desk.event("run.resumed")
    decide = desk.store.decisions.decide
    assert (await decide(run, [verdict(gates["a"])], resumed=event, fanout=fanout)).accepted
    with pytest.raises(StaleError) as caught:
        await decide(run, [verdict(gates["b"])], resumed=event, fanout=fanout)
    assert caught.value.details == {"what": what}
    assert (await desk.load(run.id)).open == 1
    assert (await desk.decide(await desk.load(run.id), verdict(gates["b"]))).resumed


async def switch(desk: Desk, run: RunRecord, mode: Mode, *allow: str) -> bool:
    return await desk.store.decisions.switch_mode(
        await desk.load(run.id),
        mode,
        by="ann",
        allow=[(gate, "allow") for gate in allow],
        rules_v=await desk.version("rules"),
        resumed=desk.event("run.resumed"),
        fanout=await desk.fanout(),
    )


async def test_a_switch_to_autonomous_settles_what_it_names(desk: Desk) -> None:
    """Decider "mode"; a person's allow afterwards is a replay, a deny is refused."""
    run = await desk.parked(calls=("a", "b"))
    gates = {name: gate.id for name, gate in (await desk.gates(run.id)).items()}
    assert await switch(desk, run, Mode.AUTONOMOUS, gates["a"])
    found = await desk.gates(run.id)
    assert (found["a"].state, found["a"].decided_by, found["b"].state) == (
        "allowed",
        "mode",
        "pending",
    )
    loaded = await desk.load(run.id)
    assert (loaded.mode, loaded.open, loaded.status) == ("autonomous", 1, "awaiting_approval")
    assert codes(await desk.decide(loaded, verdict(gates["a"]))) == [""]
    assert codes(await desk.decide(loaded, verdict(gates["a"], "deny"))) == [
        "gate_resolved_otherwise"
    ]
    assert await desk.events("run.resumed") == []
    await switch(desk, run, Mode.AUTONOMOUS, gates["b"])
    assert (await desk.load(run.id)).status == "running"
    assert len(await desk.events("run.resumed")) == 1


async def test_a_switch_on_a_run_that_moved_is_refused(desk: Desk) -> None:
    """Gates opened or settled meanwhile would be missed or settled twice."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    await desk.decide(run, verdict(gate, "deny"))
    with pytest.raises(StaleError) as caught:
        await desk.store.decisions.switch_mode(
            run,
            Mode.AUTONOMOUS,
            by="x",
            allow=[(gate, "allow")],
            rules_v="0",
            resumed=desk.event("run.resumed"),
            fanout=await desk.fanout(),
        )
    assert caught.value.details == {"what": "run"}
    assert (await desk.gates(run.id))["a"].state == "denied"


async def test_a_switch_checked_on_old_rules_is_refused(desk: Desk) -> None:
    """A deny rule added meanwhile must not be passed over."""
    run = await desk.parked()
    await desk.store.catalog.bump(ACCOUNT, "rules")
    with pytest.raises(StaleError) as caught:
        await desk.store.decisions.switch_mode(
            run,
            Mode.AUTONOMOUS,
            by="x",
            allow=[],
            rules_v="0",
            resumed=desk.event("run.resumed"),
            fanout=await desk.fanout(),
        )
    assert caught.value.details == {"what": "rules"}


async def test_a_switch_to_a_mode_that_needs_a_person_turns_hitl_on(desk: Desk) -> None:
    """And entering plan mode asks for a new plan."""
    run_id = await desk.create(mode="autonomous", human_in_the_loop=False)
    await desk.store.connection.call("HSET", f"{SHARD}run:{run_id}", "plan_ok", "1")
    await switch(desk, await desk.load(run_id), Mode.APPROVAL)
    loaded = await desk.load(run_id)
    assert (loaded.human_in_the_loop, loaded.plan_approved) == (True, True)
    await switch(desk, loaded, Mode.PLAN)
    assert not (await desk.load(run_id)).plan_approved
    await cancel(desk, loaded)
    with pytest.raises(StaleError):
        await switch(desk, loaded, Mode.APPROVAL)


async def test_an_edit_is_what_runs(desk: Desk) -> None:
    """The gate keeps what was asked; the call takes the edited bytes and their digest."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    edited = '{"what":"y \u2028 \U0001f600"}'
    await desk.decide(run, verdict(gate, fingerprint="e", input_json=edited, digest="d2"))
    call = await desk.call(run.id)
    assert (call.effective_json, call.run_digest, call.digest) == (edited, "d2", "digest-a")
    found = (await desk.gates(run.id))["a"]
    assert (found.digest, found.effective_digest) == ("digest-a", "d2")
    assert found.edited_input == {"what": "y \u2028 \U0001f600"}
    assert (await desk.audit())[-1]["digest"] == "d2"


async def test_an_edited_call_that_was_cut_off_is_asked_with_what_ran(desk: Desk) -> None:
    """The gate shows the edited input, and a retry runs it under its own digest."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    await desk.decide(run, verdict(gate, fingerprint="e", input_json='{"what":"y"}', digest="d2"))
    (held,) = await desk.take()
    await desk.store.steps.start_call(held.run, held.calls[0], rules_v="0", attempt=1)
    await desk.expire(run.id)
    (held,) = await desk.take()
    await desk.store.steps.ask_again(
        held.run,
        [NewGate(id="req_u", kind=GateKind.OUTCOME_UNKNOWN, n=0)],
        pause=desk.event("run.awaiting_input"),
        fanout=await desk.fanout(),
        rules_v="0",
    )
    unknown = (await desk.store.runs.gates(run.id))[-1]
    assert (unknown.tool_input, unknown.digest) == ({"what": "y"}, "d2")
    await desk.decide(await desk.load(run.id), verdict("req_u"))
    call = await desk.call(run.id)
    assert (call.effective_json, call.run_digest) == ('{"what":"y"}', "d2")


async def test_a_gate_keeps_the_schemas_that_it_was_opened_with(desk: Desk) -> None:
    """By a step or a later pause; a gate without any has none."""
    run = await desk.held()
    step = await desk.step(run, [new_call("a", "asked"), new_call("b", "asked")])
    kept = replace(step.gates[0], input_schema='{"type":"object"}', output_schema='{"type":"null"}')
    await desk.store.steps.commit(run, replace(step, gates=[kept, step.gates[1]]))
    found = await desk.gates(run.id)
    assert (found["a"].input_schema, found["a"].output_schema) == (
        '{"type":"object"}',
        {"type": "null"},
    )
    assert (found["b"].input_schema, found["b"].output_schema) == (None, None)
    await desk.decide(await desk.load(run.id), verdict(found["a"].id))
    (held,) = await desk.take()
    again = NewGate(
        id="req_x", kind=GateKind.TOOL_APPROVAL, n=0, input_schema='{"maxProperties":1}'
    )
    await desk.store.steps.ask_again(
        held.run,
        [again],
        pause=desk.event("run.awaiting_input"),
        fanout=await desk.fanout(),
        rules_v="0",
    )
    assert (await desk.store.runs.gates(run.id))[-1].input_schema == '{"maxProperties":1}'


async def test_remember_allows_at_once_and_is_noted_when_stored(desk: Desk) -> None:
    """A replay may raise it; a run remembers by the policy's id from then on."""
    run = await desk.parked()
    gate = await gate_id(desk, run)
    await desk.decide(run, verdict(gate))
    assert (await desk.load(run.id)).remembered == {}
    await desk.decide(run, verdict(gate, remember_tools=("send",)))
    assert (await desk.load(run.id)).remembered == {"send": ""}
    assert not (await desk.gates(run.id))["a"].remembered
    await desk.store.decisions.remembered(run, gate, {"send": 7})
    assert (await desk.load(run.id)).remembered == {"send": "7"}
    assert (await desk.gates(run.id))["a"].remembered
    await desk.decide(run, verdict(gate, remember_tools=("send",)))
    assert (await desk.load(run.id)).remembered == {"send": "7"}
    assert (await desk.gates(run.id))["a"].remembered


async def test_the_inbox_lists_open_gates_across_runs_oldest_first(desk: Desk) -> None:
    """Settled ones leave it."""
    first, second = await desk.parked(calls=("a", "b")), await desk.parked()
    assert {g.run_id for g in await desk.store.runs.open_gates(ACCOUNT, 10)} == {
        first.id,
        second.id,
    }
    assert len(await desk.store.runs.open_gates(ACCOUNT, 2)) == 2
    await desk.decide(second, verdict(await gate_id(desk, second)))
    await desk.decide(first, verdict(await gate_id(desk, first)))
    (left,) = await desk.store.runs.open_gates(ACCOUNT, 10)
    assert (left.run_id, left.tool_use_id) == (first.id, "b")


async def test_a_decision_on_a_held_run_wakes_its_holder_and_nobody_else(desk: Desk) -> None:
    """No second holder: the wake counter moves, and the run is not queued."""
    run = await desk.held()
    calls = [new_call("a", "asked"), new_call("b", "allowed")]
    await desk.store.steps.commit(run, await desk.step(run, calls))
    decided = await desk.decide(await desk.load(run.id), verdict(await gate_id(desk, run)))
    assert not decided.hint
    assert (await desk.load(run.id)).wake == "1"
    assert await desk.take() == []
    held, _ = await desk.store.steps.release(replace(run, wake="0"))
    assert held is not None
    assert held.run.wake == "1"
