"""What a decision means stays so: across modes, rules, restarts, repeats and lost answers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tests.integration.flows import tools
from tests.integration.flows.conftest import Flow, calls, question, ran, results, send
from tests.integration.service.test_runs import refused
from tests.integration.service.world import KEY, client, serving, settings

pytestmark = pytest.mark.anyio
END = {"text": "{{last_results}}"}


async def test_what_ran_before_a_question_does_not_run_again(flow: Flow) -> None:
    """A call, then a question: its answer continues behind the call, also in a new process."""
    run_id = await flow.create(
        [
            calls(send("a")),
            calls(("q1", "AskUserQuestion", question())),
            calls(("q2", "AskUserQuestion", question())),
            END,
        ]
    )
    await flow.drive()
    await flow.allow(run_id, await flow.one(run_id))
    for _ in range(2):
        await flow.drive()
        await flow.restart()
        await flow.answer(run_id, {"Which?": "A"})
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", ["a"])
    assert len(flow.model.asked) == 4


async def test_each_round_of_feedback_costs_one_model_call(flow: Flow) -> None:
    """A plan that is sent back five times: a request and a model call each, no tool twice."""
    plans = [{"plan": f"plan {n}"} for n in range(6)]
    run_id = await flow.create(
        [calls(("look", "look", {"what": "x"})), *plans, calls(send("a")), END],
        permission_mode="plan",
    )
    await flow.drive()
    for n in range(5):
        await flow.answer(run_id, {f"plan {n}": "Revise: again"})
        await flow.drive()
        assert len(flow.model.asked) == n + 3
    await flow.answer(run_id, {"Plan Approval": "Approve"})
    await flow.drive()
    await flow.allow(run_id, await flow.one(run_id))
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    assert len(await flow.gates(run_id)) == 7
    assert len(flow.model.asked) == 9
    assert ran() == ["look", "a"]


async def test_a_denied_call_cannot_be_allowed_once_the_run_is_over(flow: Flow) -> None:
    """The late allow is refused by the verdict that stands, and nothing runs."""
    run_id = await flow.create([calls(send("a")), END])
    await flow.drive()
    gate = await flow.one(run_id)
    await flow.deny(run_id, gate)
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    refused(await flow.decide(run_id, gate), 404, "gate_resolved_otherwise")
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", [])


async def test_fifty_equal_allows_are_one_decision(flow: Flow) -> None:
    """All are answered alike; the run is resumed once and the call runs once."""
    run_id = await flow.create([calls(send("a")), END])
    await flow.drive()
    gate = await flow.one(run_id)
    answers = await asyncio.gather(*(flow.decide(run_id, gate) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    await flow.drive()
    assert ran() == ["a"]
    resumed = [data["run_id"] for data in await flow.events("run.resumed")]
    assert resumed == [run_id]
    trail = (await flow.api.get("/v1/audit?limit=100")).json()["data"]
    assert sorted(entry["action"] for entry in trail) == ["decision", "tool_start"]


async def test_two_services_make_one_decision_and_one_run(flow: Flow, redis_url: str) -> None:
    """Opposite verdicts, and creates under one key, at both at once: one of each stands."""
    run_id = await flow.create([calls(send("a")), END])
    await flow.drive()
    gate = await flow.one(run_id)
    loaded = settings(redis_url, SIGNOFF_TOOLS="tests.integration.flows.tools")
    async with serving(loaded) as app, client(app, KEY) as other:
        clients = (flow.api, other)
        verdicts = ("allow", "deny", "deny", "allow")
        decided = await asyncio.gather(
            *(
                clients[n % 2].post(
                    f"/v1/runs/{run_id}/approve",
                    json={"request_id": gate["request_id"], "decision": verdicts[n % 4]},
                )
                for n in range(60)
            )
        )
        made = await asyncio.gather(
            *(
                clients[n % 2].post(
                    "/v1/runs/",
                    json={"message": "go", "stream": False, "user_id": "u"},
                    headers={"idempotency-key": "once"},
                )
                for n in range(60)
            )
        )
    stands = {answer.json()["status"] for answer in decided if answer.status_code == 200}
    assert stands == {(await flow.gates(run_id))[0]["status"]}
    assert [answer.status_code for answer in decided].count(200) == 30
    assert len({answer.json()["id"] for answer in made}) == 1
    assert {answer.status_code for answer in made} <= {200, 201}
    page = (await flow.api.get("/v1/runs/?user_id=u")).json()["data"]
    assert len(page) == 1
    await flow.drive()
    assert ran() == (["a"] if stands == {"allowed"} else [])
    assert len([e for e in await flow.events("run.resumed") if e["run_id"] == run_id]) == 1


async def test_each_of_eight_calls_has_a_request_of_its_own(flow: Flow) -> None:
    """One step with eight gated calls: eight ids, the same in the list, the event and the inbox."""
    run_id = await flow.create([calls(*(send(f"c{n}", str(n)) for n in range(8))), END])
    await flow.drive()
    listed = [gate["request_id"] for gate in await flow.pending(run_id)]
    (event,) = await flow.events("run.awaiting_input")
    inbox = (await flow.api.get("/v1/requests")).json()["data"]
    assert len(set(listed)) == 8
    assert [row["request_id"] for row in event["requests"]] == listed
    assert [row["request_id"] for row in inbox] == listed
    for gate in reversed(await flow.pending(run_id)):
        await flow.allow(run_id, gate)
    await flow.drive()
    assert sorted(ran()) == [f"c{n}" for n in range(8)]


async def test_a_decision_never_moves_on_to_a_later_request(flow: Flow) -> None:
    """The same call id in every step: what was said of an earlier request is of that one alone."""
    run_id = await flow.create([*(calls(send("c", str(n))) for n in range(3)), END])
    await flow.drive()
    first = await flow.one(run_id)
    await flow.deny(run_id, first)
    await flow.drive()
    second = await flow.one(run_id)
    assert (await flow.decide(run_id, first, "deny")).status_code == 200
    refused(await flow.decide(run_id, first), 404, "gate_resolved_otherwise")
    await flow.drive()
    assert (await flow.one(run_id))["request_id"] == second["request_id"]
    await flow.allow(run_id, second)
    await flow.drive()
    third = await flow.one(run_id)
    assert (await flow.decide(run_id, second)).json()["resumed"] is False
    await flow.drive()
    assert (await flow.one(run_id))["request_id"] == third["request_id"]
    assert ran() == ["c"]


async def test_an_answer_to_an_earlier_plan_does_not_approve_the_later_one(flow: Flow) -> None:
    """A plan that was sent back stays sent back, and the new one stays open."""
    run_id = await flow.create(
        [{"plan": "old"}, {"plan": "new"}, calls(send("a")), END], permission_mode="plan"
    )
    await flow.drive()
    old = await flow.one(run_id)
    await flow.answer(run_id, {"old": "Revise"})
    await flow.drive()
    body = {"answers": {"Plan Approval": "Approve"}, "request_id": old["request_id"]}
    late = await flow.api.post(f"/v1/runs/{run_id}/answer", json=body)
    refused(late, 404, "gate_resolved_otherwise")
    new = await flow.one(run_id)
    assert new["request_id"] != old["request_id"]
    assert not (await flow.store.runs.load("1", run_id)).plan_approved


async def test_a_decision_in_one_run_leaves_another_run_alone(flow: Flow) -> None:
    """Two runs of one user wait on the same call: allow and remember in one, the other waits."""
    script = [calls(send("same")), END]
    first, second = [await flow.create(script, user_id="u") for _ in range(2)]
    await flow.drive()
    gates = await flow.one(first), await flow.one(second)
    assert gates[0]["request_id"] != gates[1]["request_id"]
    refused(await flow.decide(second, gates[0]), 404, "gate_not_found")
    await flow.allow(first, gates[0], remember=True)
    await flow.drive()
    assert (await flow.status(first), await flow.status(second)) == (
        "completed",
        "awaiting_approval",
    )
    assert [one.run_id for one in tools.RAN] == [first]
    await flow.deny(second, gates[1])
    await flow.drive()
    assert [one.run_id for one in tools.RAN] == [first]


MODES = ("approval", "plan", "autonomous")
RULES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"tool": "send", "effect": "allow"},
    {"tool": "send", "effect": "ask"},
)


@pytest.mark.parametrize("rule", RULES, ids=["no-rule", "allow-rule", "ask-rule"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_denied_call_never_runs(flow: Flow, mode: str, rule: dict[str, Any] | None) -> None:
    """Whatever follows a deny: rules, autonomous mode, restarts, takeovers, repeats, replies."""
    plan = [{"plan": "p"}] if mode == "plan" else []
    if mode == "autonomous":  # otherwise nobody would be asked
        await flow.post("/v1/permissions/", tool="send", effect="ask")
    run_id = await flow.create(
        [*plan, calls(send("no"), send("yes")), END, END], permission_mode=mode
    )
    await flow.drive()
    if plan:
        await flow.answer(run_id, {"Plan Approval": "Approve"})
        await flow.drive()
    no, yes = await flow.pending(run_id)
    await flow.deny(run_id, no)
    if rule is not None:
        await flow.post("/v1/permissions/", **rule)
    await flow.restart()
    await flow.drive()
    refused(await flow.decide(run_id, no), 404, "gate_resolved_otherwise")
    edit = await flow.decide(run_id, no, input={"what": "y"})
    refused(edit, 404, "gate_resolved_otherwise")
    await flow.switch(run_id, "autonomous")
    await flow.lose(run_id)
    await flow.restart()
    await flow.drive()
    assert (await flow.decide(run_id, no, "deny")).status_code == 200
    assert (await flow.decide(run_id, yes)).status_code == 200
    await flow.drive()
    await flow.say(run_id, "and now?")
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    assert ran() == ["yes"]
    states = {r.tool_use_id: r.state for r in results(flow.model.asked[-1])}
    assert states["no"] == "denied"


async def test_a_plan_is_never_approved_by_a_switch(flow: Flow) -> None:
    """Autonomous mode leaves the plan open; what is answered to it still counts."""
    run_id = await flow.create([{"plan": "p"}, calls(send("a")), END], permission_mode="plan")
    await flow.drive()
    await flow.switch(run_id, "autonomous")
    await flow.drive()
    gate = await flow.one(run_id)
    assert gate["kind"] == "plan"
    assert ran() == []
    await flow.switch(run_id, "plan")
    await flow.answer(run_id, {"Plan Approval": "Approve"})
    await flow.drive()
    shown = (await flow.api.get(f"/v1/runs/{run_id}")).json()
    assert shown["permission_mode"] == "plan"
    assert (await flow.one(run_id))["kind"] == "tool_approval"
    assert ran() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        "",
        {"decision": ""},
        {"decision": "yes"},
        {"decision": True},
        {"decision": None},
        {"decision": {}},
        {"answers": {}},
        {"approved": True},
        {"decision": "allow", "answers": {}},
        {"decision": "allow", "result": None, "unknown": 1},
    ],
)
async def test_what_says_nothing_clearly_is_never_an_allow(flow: Flow, body: Any) -> None:
    """Empty, unknown or contradictory decisions are refused on every way in, and decide nothing."""
    run_id = await flow.create([calls(send("a")), END])
    await flow.drive()
    gate = await flow.one(run_id)
    item = {**body, "request_id": gate["request_id"]} if isinstance(body, dict) else body
    batch = await flow.api.post(f"/v1/runs/{run_id}/decisions", json={"decisions": [item]})
    assert batch.status_code in (422, 409), batch.text
    answered = await flow.api.post(f"/v1/runs/{run_id}/answer", json=item)
    assert answered.status_code in (400, 409, 422), answered.text
    if item == "" or "allow" not in item.values():
        single = await flow.api.post(f"/v1/runs/{run_id}/approve", json=item)
        assert single.status_code in (400, 422), single.text
    await flow.drive()
    assert (await flow.one(run_id))["status"] == "pending"
    assert ran() == []


async def test_an_edit_reaches_the_tool_with_its_types(flow: Flow) -> None:
    """Numbers and booleans stay what they are, and a text in their place is refused by name."""
    run_id = await flow.create([calls(("a", "send", {"what": "x", "copies": 2})), END])
    await flow.drive()
    gate = await flow.one(run_id)
    for wrong, field in (
        ({"what": "x", "copies": "3"}, "input.copies"),
        ({"what": "x", "urgent": "true"}, "input.urgent"),
        ({"what": "x", "copies": True}, "input.copies"),
    ):
        refused(await flow.decide(run_id, gate, input=wrong), 422, "invalid_tool_input", field)
    await flow.allow(run_id, gate, input={"what": "x", "copies": 3, "urgent": True})
    await flow.drive()
    (one,) = tools.RAN
    assert one.given == {"what": "x", "copies": 3, "urgent": True}
    assert (type(one.given["copies"]), type(one.given["urgent"])) == (int, bool)


async def test_a_broker_that_is_away_loses_no_decision(flow: Flow, redis_url: str) -> None:
    """Decisions are taken at once and kept; the work is there for whoever looks for it."""
    loaded = settings(
        redis_url,
        SIGNOFF_TOOLS="tests.integration.flows.tools",
        SIGNOFF_BROKER_URL="redis://127.0.0.1:1/0",
    )
    async with serving(loaded) as app, client(app, KEY) as api:
        flow.api = api
        run_id = await flow.create([calls(send("a")), END])
        await flow.drive()
        async with asyncio.timeout(2):
            assert (await flow.allow(run_id, await flow.one(run_id)))["resumed"] is True
        await flow.restart()
        await flow.drive()
        assert (await flow.status(run_id), ran()) == ("completed", ["a"])


async def test_a_decision_that_is_cut_off_anywhere_is_made_or_not(flow: Flow) -> None:
    """The request dies at every point it can: never half a decision, and its repeat is whole."""
    for steps in itertools.count(1):
        run_id = await flow.create([calls(send("a")), END], user_id="u")
        await flow.drive()
        gate = await flow.one(run_id)
        cut = await _cut_off_after(steps, flow.decide(run_id, gate, remember=True))
        (seen,) = await flow.gates(run_id)
        run = await flow.store.runs.load("1", run_id)
        decided = seen["status"] == "allowed"
        assert (run.status, run.open) == (
            ("running", 0) if decided else ("awaiting_approval", 1)
        ), steps
        first = await flow.allow(run_id, gate, remember=True)
        again = await flow.allow(run_id, gate, remember=True)
        assert again == {**first, "resumed": again["resumed"]}
        rules = (await flow.api.get("/v1/permissions/?user_id=u")).json()["data"]
        assert [rule["tool_name"] for rule in rules] == ["send"], steps
        await flow.drive()
        assert [one.run_id for one in tools.RAN] == [run_id], steps
        events = [data["run_id"] for data in await flow.events("run.resumed")]
        assert events.count(run_id) == 1, steps
        tools.RAN.clear()
        await flow.api.delete(f"/v1/permissions/{rules[0]['id']}?user_id=u")
        if not cut:
            break
    assert steps > 3


async def _cut_off_after(steps: int, request: Any) -> bool:
    """Cancels the request after so many turns of the loop; False when it was done before."""
    task = asyncio.ensure_future(request)
    for _ in range(steps):
        await asyncio.sleep(0)
        if task.done():
            break
    cut = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return cut


async def test_time_alone_changes_nothing_that_waits(flow: Flow) -> None:
    """Whoever waits without a limit waits: nothing that a parked run needs ends by itself."""
    run_id = await flow.create([calls(send("a"), ("q", "AskUserQuestion", question())), END])
    await flow.drive()
    before = await flow.pending(run_id)
    connection = flow.store.connection
    for key in await connection.call("KEYS", "*"):
        if await connection.call("PTTL", key) != -1:
            await connection.call("DEL", key)  # as when all that ends by itself has ended
    await flow.restart()
    await flow.store.steps.sweep(0)
    await flow.drive()
    assert await flow.pending(run_id) == before
    assert (await flow.status(run_id), ran()) == ("awaiting_approval", [])
    await flow.allow(run_id, before[0])
    await flow.answer(run_id, {"Which?": "A"})
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", ["a"])
