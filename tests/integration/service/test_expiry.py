"""Time on gates: reminders, expiries and their limits, without waiting and without a worker."""

import asyncio
import json
from typing import Any

import pytest

from signoff.domain.expiry import Limits
from tests.integration.service.world import QUESTIONS, SEND
from tests.time_travel import do_due, pass_time

DAY = 86_400
RECOMMENDED = {
    "questions": [
        {**QUESTIONS["questions"][0], "options": [{"label": "A (Recommended)"}, {"label": "B"}]}
    ]
}
ALL = ["run.awaiting_input", "run.input_reminder", "run.input_expired", "run.resumed"]
ALL += ["run.cancelled"]


@pytest.fixture
async def hook(world):
    """An endpoint that gets everything about waiting."""
    return await world.webhook(events=ALL)


async def due(world):
    return await do_due(world.store, world.context.publisher)


async def sent(world, hook):
    """(type, data, settled, status) of the deliveries, oldest first."""
    rows = (await world.api.get(f"/v1/webhooks/{hook['id']}/deliveries?limit=100")).json()["data"]
    found = []
    for row in sorted(rows, key=lambda item: item["id"]):
        body = await world.store.connection.call("HGET", f"sg:{{s0}}:ev:{row['event_id']}", "body")
        found.append((row["event_type"], json.loads(body)["data"]))
    return found


async def approve(world, run_id, gate, decision="allow"):
    body = {"request_id": gate["request_id"], "decision": decision}
    return await world.api.post(f"/v1/runs/{run_id}/approve", json=body)


@pytest.mark.anyio
async def test_without_limits_a_gate_waits_for_ever(world, hook):
    """A month later it is open, nothing was said, and a decision resumes the run."""
    run_id, (gate,) = await world.parked()
    assert (gate["expires_at"], gate["remind_at"]) == (None, None)
    await pass_time(world.store, 30 * DAY)
    assert await due(world) == []
    assert [kind for kind, _ in await sent(world, hook)] == ["run.awaiting_input"]
    assert (await approve(world, run_id, gate)).json()["resumed"] is True


@pytest.mark.anyio
async def test_a_decision_after_72_hours_resumes(world):
    """With time left, three days are like three seconds."""
    run_id, (gate,) = await world.parked(expires_in=4 * DAY)
    await pass_time(world.store, 3 * DAY)
    assert await due(world) == []
    assert (await approve(world, run_id, gate)).json()["resumed"] is True
    await pass_time(world.store, 3 * DAY)
    assert await due(world) == []
    (gate,) = await world.gates(run_id)
    assert (gate["status"], gate["auto_resolved"]) == ("allowed", False)


@pytest.mark.anyio
async def test_nobody_decides_and_the_call_is_denied(world, hook):
    """The record, the events and the model all say that nobody decided."""
    run_id, (gate,) = await world.parked(expires_in=DAY, remind_after=3600)
    assert gate["remind_at"] < gate["expires_at"]
    await pass_time(world.store, 2 * DAY)
    assert await due(world) == [run_id]
    (gate,) = await world.gates(run_id)
    assert gate["status"] == "denied"
    assert gate["decided_by"] == "expiry"
    assert gate["auto_resolved"] is True
    assert gate["reason"] == "Nobody decided in time."
    assert await world.status(run_id) == "running"
    call = await world.call(run_id)
    assert call.result["state"] == "denied"
    assert "Nobody decided" in call.result["content"]
    told = await sent(world, hook)
    # For a reminder it was too late when somebody looked.
    kinds = [kind for kind, _ in told]
    assert kinds == ["run.awaiting_input", "run.input_expired", "run.resumed"]
    expired = told[1][1]
    assert (expired["pause"], expired["on_expiry"], expired["status"]) == (1, "deny", "running")
    (request,) = expired["requests"]
    assert (request["request_id"], request["status"]) == (gate["request_id"], "denied")
    assert await due(world) == []


@pytest.mark.anyio
async def test_a_reminder_is_sent_once_with_what_is_still_open(world, hook):
    """One event for the pause; a settled gate is not in it, and the pause stays open."""
    calls = [("send_email", SEND), ("send_email", {**SEND, "to": "b@acme.com"})]
    run_id, gates = await world.parked(*calls, remind_after=60)
    assert gates[0]["expires_at"] is None
    await approve(world, run_id, gates[0])
    await pass_time(world.store, 61)
    await due(world)
    await pass_time(world.store, DAY)
    await due(world)
    kinds = [kind for kind, _ in await sent(world, hook)]
    assert kinds == ["run.awaiting_input", "run.input_reminder"]
    told = (await sent(world, hook))[1][1]
    assert told["pause"] == 1
    assert [item["request_id"] for item in told["requests"]] == [gates[1]["request_id"]]
    assert told["requests"][0]["remind_at"] is not None
    assert await world.status(run_id) == "awaiting_approval"


@pytest.mark.anyio
async def test_a_settled_pause_reminds_nobody(world, hook):
    """Decided in time: nothing more is due, and a reminder that failed is not tried again."""
    run_id, (gate,) = await world.parked(remind_after=60, expires_in=DAY)
    await pass_time(world.store, 61)
    await due(world)
    claim = await world.store.outbox.claim(0, token="t", limit=9, cap=9, lease_ms=1)
    assert {row.type for row in claim.rows} == {"run.awaiting_input", "run.input_reminder"}
    await approve(world, run_id, gate)
    assert await world.store.connection.call("ZCARD", "sg:{s0}:timed") == 0
    await pass_time(world.store, 2 * DAY)
    assert await due(world) == []
    states = [
        await world.store.connection.call("HGET", f"sg:{{s0}}:dlv:{row.id}", "settled")
        for row in claim.rows
    ]
    assert states == [b"1", b"1"]


@pytest.mark.anyio
async def test_on_expiry_cancel_ends_the_run(world, hook):
    """The other calls of the run end with it."""
    calls = [("send_email", SEND), ("AskUserQuestion", QUESTIONS)]
    run_id, _ = await world.parked(*calls, expires_in=60, on_expiry="cancel")
    await pass_time(world.store, 61)
    await due(world)
    assert await world.status(run_id) == "cancelled"
    gates = await world.gates(run_id)
    assert {(g["status"], g["decided_by"], g["auto_resolved"]) for g in gates} == {
        ("cancelled", "expiry", True)
    }
    told = await sent(world, hook)
    assert [kind for kind, _ in told][1:] == ["run.input_expired", "run.cancelled"]
    assert {item["status"] for item in told[1][1]["requests"]} == {"cancelled"}
    late = await approve(world, run_id, gates[0])
    assert (late.status_code, late.json()["error"]["error_code"]) == (404, "gate_cancelled")
    assert await due(world) == []


@pytest.mark.anyio
async def test_on_expiry_answer_takes_the_recommended_option(world, hook):
    """A question is answered by its mark; a tool call beside it is denied."""
    calls = [("AskUserQuestion", RECOMMENDED), ("send_email", SEND)]
    run_id, _ = await world.parked(*calls, expires_in=60, on_expiry="answer")
    await pass_time(world.store, 61)
    await due(world)
    question, tool = await world.gates(run_id)
    assert (question["status"], question["decided_by"]) == ("allowed", "expiry")
    assert question["tool_input"]["answers"] == {"Which one?": "A (Recommended)"}
    assert (tool["status"], tool["decided_by"]) == ("denied", "expiry")
    assert "Nobody answered in time" in (await world.call(run_id)).result["content"]
    expired = next(body for kind, body in await sent(world, hook) if kind == "run.input_expired")
    assert expired["requests"][0]["answers"] == {"Which one?": "A (Recommended)"}
    body = {"answers": {"Which one?": "B"}, "request_id": question["request_id"]}
    late = await world.api.post(f"/v1/runs/{run_id}/answer", json=body)
    error = late.json()["error"]
    assert (late.status_code, error["error_code"]) == (409, "auto_continued")
    assert error["details"]["standing"]["decided_by"] == "expiry"
    body["answers"] = {"Which one?": "A (Recommended)"}
    assert (await world.api.post(f"/v1/runs/{run_id}/answer", json=body)).status_code == 200


@pytest.mark.anyio
async def test_late_decisions_meet_the_standing_one(world):
    """Allow is refused with what stands; deny says the same and is a repeat."""
    run_id, (gate,) = await world.parked(expires_in=60)
    await pass_time(world.store, 61)
    await due(world)
    late = await approve(world, run_id, gate)
    error = late.json()["error"]
    assert (late.status_code, error["error_code"]) == (404, "gate_resolved_otherwise")
    assert error["details"]["standing"]["decided_by"] == "expiry"
    same = await approve(world, run_id, gate, "deny")
    assert same.status_code == 200
    assert same.json()["decided_by"] == "expiry"


@pytest.mark.anyio
async def test_a_decision_after_the_time_is_too_late_although_nobody_looked(world, hook):
    """The process that looks after due times is down: the expiry still comes first."""
    run_id, (gate,) = await world.parked(expires_in=60)
    await pass_time(world.store, 61)
    late = await approve(world, run_id, gate)
    assert late.json()["error"]["error_code"] == "gate_resolved_otherwise"
    assert [kind for kind, _ in await sent(world, hook)].count("run.input_expired") == 1
    assert await due(world) == []


@pytest.mark.anyio
async def test_a_switch_of_the_mode_after_the_time_allows_nothing(world):
    """As a decision: what expired is not allowed by autonomous any more."""
    run_id, _ = await world.parked(expires_in=60)
    await pass_time(world.store, 61)
    body = {"permission_mode": "autonomous"}
    switched = await world.api.patch(f"/v1/runs/{run_id}/permission-mode", json=body)
    assert switched.status_code == 200
    (gate,) = await world.gates(run_id)
    assert (gate["status"], gate["decided_by"]) == ("denied", "expiry")


@pytest.mark.anyio
async def test_a_cancel_and_a_switch_end_the_time(world, hook):
    """What is settled otherwise is not due any more."""
    first, _ = await world.parked(expires_in=60)
    second, _ = await world.parked(expires_in=60)
    await world.api.post(f"/v1/runs/{first}/cancel")
    body = {"permission_mode": "autonomous"}
    await world.api.patch(f"/v1/runs/{second}/permission-mode", json=body)
    assert await world.store.connection.call("ZCARD", "sg:{s0}:timed") == 0
    await pass_time(world.store, DAY)
    assert await due(world) == []
    assert "run.input_expired" not in [kind for kind, _ in await sent(world, hook)]


@pytest.mark.anyio
async def test_a_decision_and_the_expiry_at_once(world, hook):
    """Exactly one of them holds, each time, and each event is there once."""
    winners = set()
    for left_s in (-1.0, *(n / 1000 for n in range(25)), 20.0):
        run_id, (gate,) = await world.parked(expires_in=60)
        await pass_time(world.store, 60 - left_s)
        decided, _, _ = await asyncio.gather(approve(world, run_id, gate), due(world), due(world))
        await pass_time(world.store, 60)
        await due(world)
        (gate,) = await world.gates(run_id)
        winners.add(gate["decided_by"].partition(":")[0])
        if decided.status_code == 200:
            assert (gate["status"], gate["auto_resolved"]) == ("allowed", False)
        else:
            assert (gate["status"], gate["decided_by"]) == ("denied", "expiry")
        kinds = [kind for kind, body in await sent(world, hook) if body["run_id"] == run_id]
        assert kinds.count("run.input_expired") == (gate["decided_by"] == "expiry")
        assert kinds.count("run.resumed") == 1
    assert winners == {"key", "expiry"}


@pytest.mark.anyio
async def test_two_timekeepers_do_each_thing_once(world, hook):
    """Any number of processes may look after due times."""
    runs = [(await world.parked(expires_in=60, remind_after=30))[0] for _ in range(10)]
    await pass_time(world.store, 31)
    await asyncio.gather(*(due(world) for _ in range(4)))
    await pass_time(world.store, 30)
    await asyncio.gather(*(due(world) for _ in range(4)))
    told = [(kind, body["run_id"]) for kind, body in await sent(world, hook)]
    for run_id in runs:
        for kind in ("run.input_reminder", "run.input_expired", "run.resumed"):
            assert told.count((kind, run_id)) == 1


@pytest.mark.anyio
async def test_one_run_that_cannot_be_settled_holds_up_nobody(world, caplog):
    """It is put off and said loudly; the others are settled in time."""
    broken, _ = await world.parked(expires_in=60)
    fine, _ = await world.parked(expires_in=60)
    await world.store.connection.call("HSET", f"sg:{{s0}}:run:{broken}", "config", "{")
    await pass_time(world.store, 61)
    assert await due(world) == [fine]
    assert "timing_stuck" in caplog.text
    assert await world.store.connection.call("ZCARD", "sg:{s0}:timed") == 1
    await world.store.connection.call("DEL", f"sg:{{s0}}:run:{broken}")
    await pass_time(world.store, 61)
    await due(world)
    assert await world.store.connection.call("ZCARD", "sg:{s0}:timed") == 0


@pytest.mark.anyio
async def test_times_reckoned_long_ago_are_reckoned_anew(world):
    """An opening that was held up does not take away the time that people have."""
    run_id = await world.run(human_in_the_loop=True, expires_in=60)
    opened = await world.store.timing.clock()
    with pytest.raises(Exception, match="times moved"):
        await world.park(run_id, ("send_email", SEND), opened_ms=opened - 5001)


@pytest.mark.anyio
async def test_the_nearest_word_is_kept_by_the_run(world):
    """Run before agent before account; what is changed later is for later runs."""
    changed = await world.api.patch(
        "/v1/settings/", json={"expires_in": 300, "remind_after": 100, "on_expiry": "cancel"}
    )
    assert changed.json()["expires_in"] == 300
    agent = (await world.api.post("/v1/agents/", json={"expires_in": 200})).json()
    assert (agent["expires_in"], agent["on_expiry"]) == (200, None)
    run_id = await world.run(agent_id=agent["id"], remind_after=1.5)
    await world.api.patch("/v1/settings/", json={"remind_after": None, "on_expiry": "deny"})
    await world.api.patch(f"/v1/agents/{agent['id']}", json={"expires_in": None})
    shown = (await world.api.get(f"/v1/runs/{run_id}")).json()
    limits = (shown["remind_after"], shown["expires_in"], shown["on_expiry"])
    assert limits == (1.5, 200, "cancel")
    later = (await world.api.get(f"/v1/runs/{await world.run(agent_id=agent['id'])}")).json()
    limits = (later["remind_after"], later["expires_in"], later["on_expiry"])
    assert limits == (None, 300, "deny")


@pytest.mark.anyio
async def test_limits_that_make_no_sense_are_refused(world):
    """Bounded, positive, numbers; a policy without an expiry names itself."""
    bad: list[dict[str, Any]] = [
        {"expires_in": 0},
        {"expires_in": -1},
        {"expires_in": "60"},
        {"expires_in": True},
    ]
    bad += [{"remind_after": 30 * DAY + 1}, {"on_expiry": "allow", "expires_in": 1}]
    bad += [{"on_expiry": "deny"}]
    agent = (await world.api.post("/v1/agents/", json={})).json()
    for body in bad:
        answers = [
            await world.api.post("/v1/runs/", json={"message": "go", "stream": False, **body}),
            await world.api.post("/v1/agents/", json=body),
            await world.api.patch(f"/v1/agents/{agent['id']}", json=body),
            await world.api.patch("/v1/settings/", json=body),
        ]
        assert {answer.status_code for answer in answers} == {422}, body
        fields = {answer.json()["error"]["details"]["field"] for answer in answers}
        assert fields == {next(iter(body))}


@pytest.mark.anyio
async def test_what_expires_on_an_agent_needs_its_expiry(world):
    """Clearing the expiry under a policy is refused like the policy alone."""
    agent = (
        await world.api.post("/v1/agents/", json={"expires_in": 9, "on_expiry": "deny"})
    ).json()
    cleared = await world.api.patch(f"/v1/agents/{agent['id']}", json={"expires_in": None})
    assert cleared.status_code == 422
    both = {"expires_in": None, "on_expiry": None}
    assert (await world.api.patch(f"/v1/agents/{agent['id']}", json=both)).status_code == 200


def test_limits_of_the_past_are_none():
    """Runs made before there were limits wait for ever."""
    assert Limits.read({"model": "x"}).times(1) is None
