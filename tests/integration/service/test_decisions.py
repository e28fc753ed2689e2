"""Every outcome of a decision, one by one, in batches, and against each other."""

import asyncio

import httpx
import pytest

from signoff.domain.call import CallState
from signoff.domain.gate import GateKind
from tests.integration.service.test_runs import refused
from tests.integration.service.world import QUESTIONS, SEND

pytestmark = pytest.mark.anyio

ANSWER = {"answers": {"Which one?": "A"}}
PLAN = {"plan": "1. look 2. send"}


async def approve(world, run_id, gate, decision="allow", **extra):
    body = {"request_id": gate["request_id"], "decision": decision, **extra}
    return await world.api.post(f"/v1/runs/{run_id}/approve", json=body)


async def decide(world, run_id, *items):
    return await world.api.post(f"/v1/runs/{run_id}/decisions", json={"decisions": list(items)})


def standing(response):
    return response.json()["error"]["details"]["standing"]


async def test_the_list_shows_what_is_asked(world):
    """A listed gate has its kind, the exact input with its digest, and its suggestions."""
    run_id, gates = await world.parked(("send_email", SEND), ("Bash", {"command": "ls"}))
    send, bash = gates
    assert (send["kind"], send["status"], send["tool_name"]) == (
        "tool_approval",
        "pending",
        "send_email",
    )
    assert send["tool_input"] == SEND
    assert send["digest"] == (await world.call(run_id)).digest
    assert send["suggested_rules"] == [{"tool": "send_email", "effect": "allow"}]
    assert bash["suggested_rules"] == []
    assert (send["can_remember"], bash["can_remember"]) == (True, False)
    assert [gate["pause"] for gate in gates] == [1, 1]
    assert await world.status(run_id) == "awaiting_approval"


async def test_the_first_decision_applies_and_the_same_one_again_changes_nothing(world):
    """An allow resumes the run once; a repeat is 200 with the same gate, and only one event."""
    run_id, (gate,) = await world.parked()
    first = await approve(world, run_id, gate)
    assert first.status_code == 200
    body = first.json()
    assert (body["status"], body["resumed"], body["remembered"]) == ("allowed", True, False)
    assert body["decided_by"].startswith("key:")
    assert await world.status(run_id) == "running"
    call = await world.call(run_id)
    assert (call.state, call.run_digest) == (CallState.ALLOWED, gate["digest"])
    assert call.grant == f"gate:{gate['request_id']}"
    again = await approve(world, run_id, gate, reason="another reason does not count")
    assert again.status_code == 200
    assert again.json() == body
    assert (await world.call(run_id)).seq == call.seq


async def test_the_other_verdict_is_refused_and_names_the_one_that_stands(world):
    """The opposite decision is 404 gate_resolved_otherwise with who decided what and when."""
    run_id, (gate,) = await world.parked()
    denied = await approve(world, run_id, gate, "deny", reason="not now")
    assert denied.json()["status"] == "denied"
    call = await world.call(run_id)
    assert call.state is CallState.DONE
    assert call.result["state"] == "denied"
    assert "not now" in call.result["content"]
    other = await approve(world, run_id, gate)
    refused(other, 404, "gate_resolved_otherwise")
    shown = standing(other)
    assert (shown["status"], shown["verdict"]) == ("denied", "deny")
    assert shown["decided_by"] == denied.json()["decided_by"]
    assert shown["decided_at"] == denied.json()["resolved_at"]
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    refused(await approve(world, run_id, gate), 404, "gate_resolved_otherwise")
    assert (await approve(world, run_id, gate, "deny")).status_code == 200


async def test_unknown_and_foreign_requests_are_alike(world):
    """An unknown id, another run's and another account's gate get the same refusal."""
    run_id, _ = await world.parked()
    _, (elsewhere,) = await world.parked()
    for request_id in ("req_nope", elsewhere["request_id"], "x:y", "", "req_" + "a" * 500):
        response = await approve(world, run_id, {"request_id": request_id})
        refused(response, 404, "gate_not_found")
        assert "standing" not in response.json()["error"]["details"]


async def test_fifty_deciders_make_one_decision(world):
    """Of 25 allows and 25 denies at once exactly one verdict stands, and all 200s name it."""
    run_id, (gate,) = await world.parked()
    answers = await asyncio.gather(
        *(approve(world, run_id, gate, ("allow", "deny")[n % 2]) for n in range(50))
    )
    by_status: dict[int, list[httpx.Response]] = {}
    for response in answers:
        by_status.setdefault(response.status_code, []).append(response)
    assert {status: len(found) for status, found in by_status.items()} == {200: 25, 404: 25}
    stands = (await world.gates(run_id))[0]["status"]
    assert {response.json()["status"] for response in by_status[200]} == {stands}
    for response in by_status[404]:
        refused(response, 404, "gate_resolved_otherwise")
        assert standing(response)["status"] == stands
    page = await world.store.runs.load("1", run_id)
    assert page.open == 0


async def test_an_expected_digest_binds_the_decision(world):
    """Another digest than the gate's is 409 gate_changed with the right one; nothing changes."""
    run_id, (gate,) = await world.parked()
    wrong = await approve(world, run_id, gate, expected_digest="0" * 64)
    refused(wrong, 409, "gate_changed")
    assert wrong.json()["error"]["details"]["digest"] == gate["digest"]
    assert await world.status(run_id) == "awaiting_approval"
    right = await approve(world, run_id, gate, expected_digest=gate["digest"])
    assert right.status_code == 200


async def test_an_edited_input_is_what_runs(world):
    """The edit is kept with its own digest; the original digest stays listed."""
    run_id, (gate,) = await world.parked()
    edit = {**SEND, "to": "b@acme.com"}
    edited = (await approve(world, run_id, gate, input=edit)).json()
    assert edited["edited_input"] == edit
    assert edited["tool_input"] == SEND
    assert edited["digest"] == gate["digest"] != edited["effective_digest"]
    call = await world.call(run_id)
    assert call.run_digest == edited["effective_digest"]
    assert "b@acme.com" in call.effective_json
    assert (await approve(world, run_id, gate, input=edit)).status_code == 200
    refused(await approve(world, run_id, gate), 404, "gate_resolved_otherwise")


async def test_an_edit_to_the_same_input_is_no_edit(world):
    """The input as it was, in another key order, is a plain allow."""
    run_id, (gate,) = await world.parked()
    same = dict(reversed(SEND.items()))
    assert (await approve(world, run_id, gate, input=same)).json()["edited_input"] is None
    assert (await approve(world, run_id, gate)).status_code == 200


@pytest.mark.parametrize(
    ("tool_input", "field"),
    [
        ({**SEND, "to": 1}, "input.to"),
        ({**SEND, "cc": "x"}, "input.cc"),
        ({"to": "a"}, "input.subject"),
    ],
)
async def test_a_wrong_edit_is_refused(world, tool_input, field):
    """An edited input that does not fit the tool's schema is 422 and decides nothing."""
    run_id, (gate,) = await world.parked()
    response = await approve(world, run_id, gate, input=tool_input)
    refused(response, 422, "invalid_tool_input", field)
    assert (await world.gates(run_id))[0]["status"] == "pending"


async def test_an_edit_is_checked_against_deny_rules_again(world):
    """A deny rule made after the gate opened refuses the edit; a repeat of a decision stands."""
    run_id, (gate, second) = await world.parked(("send_email", SEND), ("send_email", SEND))
    edit = {**SEND, "to": "b@acme.com"}
    assert (await approve(world, run_id, second, input=edit)).status_code == 200
    await world.api.post("/v1/permissions/", json={"tool": "send_email", "effect": "deny"})
    refused(await approve(world, run_id, gate, input=edit), 422, "denied_by_rule", "input")
    assert (await approve(world, run_id, second, input=edit)).status_code == 200


async def test_remember_stores_a_policy_that_can_be_revoked(world):
    """An allow may be remembered, also afterwards; the policy is the user's, listed, deletable."""
    run_id, (gate,) = await world.parked(user_id="u")
    assert (await approve(world, run_id, gate)).json()["remembered"] is False
    raised = await approve(world, run_id, gate, remember=True)
    assert raised.json()["remembered"] is True
    assert (await approve(world, run_id, gate)).json()["remembered"] is True
    page = (await world.api.get("/v1/permissions/?user_id=u")).json()["data"]
    assert [(row["tool_name"], row["effect"], row["source"]) for row in page] == [
        ("send_email", "allow", "run_approval")
    ]
    run = await world.store.runs.load("1", run_id)
    assert run.remembered == {"send_email": str(page[0]["id"])}
    gone = await world.api.delete(f"/v1/permissions/{page[0]['id']}?user_id=u")
    assert gone.status_code == 204


async def test_nothing_is_remembered_without_a_suggestion(world):
    """A command of one word has no prefix to state, so remember is false and stores nothing."""
    run_id, (gate,) = await world.parked(("Bash", {"command": "ls"}))
    assert (await approve(world, run_id, gate, remember=True)).json()["remembered"] is False
    assert (await world.api.get("/v1/permissions/")).json()["data"] == []


async def test_what_is_remembered_of_an_edit_is_the_edit(world):
    """The suggestions are those of the command that was approved."""
    run_id, (gate,) = await world.parked(("Bash", {"command": "npm run a"}))
    assert gate["suggested_rules"] == [{"tool": "Bash(npm run:*)", "effect": "allow"}]
    edit = {"command": "git fetch origin"}
    shown = gate["suggested_rules"]
    refused(
        await approve(world, run_id, gate, input=edit, rules=shown),
        422,
        "validation_error",
        "rules[0]",
    )
    assert (await approve(world, run_id, gate, input=edit, remember=True)).json()["remembered"]
    (policy,) = (await world.api.get("/v1/permissions/")).json()["data"]
    assert policy["tool_name"] == "Bash(git fetch:*)"
    assert policy["author"].startswith("key:")


async def test_an_edit_that_a_pattern_denies_is_refused(world):
    """Any part of the edited command counts."""
    await world.api.post("/v1/permissions/", json={"tool": "Bash(rm:*)", "effect": "deny"})
    run_id, (gate,) = await world.parked(("Bash", {"command": "npm run a"}))
    edit = {"command": "npm run a && rm -rf x"}
    refused(await approve(world, run_id, gate, input=edit), 422, "denied_by_rule", "input")


async def test_only_suggested_rules_are_accepted(world):
    """A rule that the gate did not suggest is 422; a suggested one is stored."""
    run_id, (gate,) = await world.parked()
    foreign = [{"tool": "Bash", "effect": "allow"}]
    refused(await approve(world, run_id, gate, rules=foreign), 422, "validation_error", "rules[0]")
    accepted = await approve(world, run_id, gate, rules=gate["suggested_rules"])
    assert accepted.json()["remembered"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"decision": "allow"}, "request_id"),
        ({"request_id": 1, "decision": "allow"}, "request_id"),
        ({"request_id": "req_1"}, "decision"),
        ({"request_id": "req_1", "decision": None}, "decision"),
        ({"request_id": "req_1", "decision": ""}, "decision"),
        ({"request_id": "req_1", "decision": "ALLOW"}, "decision"),
        ({"request_id": "req_1", "decision": "allow "}, "decision"),
        ({"request_id": "req_1", "decision": ["allow"]}, "decision"),
        ({"request_id": "req_1", "decision": 1}, "decision"),
        ({"request_id": "req_1", "decision": True}, "decision"),
        ({"request_id": "req_1", "decision": "аllow"}, "decision"),  # noqa: RUF001 - a Cyrillic a
        ({"request_id": "req_1", "decision": "allow", "remember": "yes"}, "remember"),
        ({"request_id": "req_1", "decision": "allow", "input": []}, "input"),
        ({"request_id": "req_1", "decision": "allow", "input": "text"}, "input"),
    ],
)
async def test_malformed_decisions_are_refused_before_anything_is_looked_at(world, body, field):
    """A verdict has exactly two spellings, and a wrong body is 422 whatever the run."""
    run_id = await world.run()
    response = await world.api.post(f"/v1/runs/{run_id}/approve", json=body)
    refused(response, 422, "validation_error", field)


async def test_a_question_takes_answers_only(world):
    """Approve on a question is 409 answer_required; an answer to a tool gate is 422."""
    run_id, (question, tool) = await world.parked(
        ("AskUserQuestion", QUESTIONS), ("send_email", SEND)
    )
    for verdict in ("allow", "deny"):
        refused(await approve(world, run_id, question, verdict), 409, "answer_required")
    path = f"/v1/runs/{run_id}/answer"
    wrong = await world.api.post(path, json={**ANSWER, "request_id": tool["request_id"]})
    refused(wrong, 422, "validation_error", "answers")
    answered = await world.api.post(path, json=ANSWER)
    assert answered.json() == {"status": "ok", "resumed": False}
    shown = (await world.gates(run_id))[0]
    assert shown["tool_input"] == {**QUESTIONS, "answers": {"Which one?": "A"}}
    assert shown["digest"] == question["digest"]
    named = {"request_id": question["request_id"]}
    assert (await world.api.post(path, json={**ANSWER, **named})).status_code == 200
    other = await world.api.post(path, json={"answers": {"Which one?": "B"}, **named})
    refused(other, 404, "gate_resolved_otherwise")
    assert standing(other)["answers"] == {"Which one?": "A"}
    refused(await world.api.post(path, json=ANSWER), 409, "run_not_awaiting")


async def test_a_settled_question_is_looked_at_before_the_run(world):
    """On a run that is over, the same answer is 200 and another one is 404."""
    run_id, (question,) = await world.parked(("AskUserQuestion", QUESTIONS))
    path, named = f"/v1/runs/{run_id}/answer", {"request_id": question["request_id"]}
    assert (await world.api.post(path, json=ANSWER)).json()["resumed"] is True
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    assert (await world.api.post(path, json={**ANSWER, **named})).status_code == 200
    other = await world.api.post(path, json={"answers": {"Which one?": "B"}, **named})
    refused(other, 404, "gate_resolved_otherwise")


@pytest.mark.parametrize(
    "answers", [{}, {"Other?": "A"}, {"Which one?": ""}, {"Which one?": ["A", "B"]}, None, "A"]
)
async def test_answers_that_do_not_fit_are_refused(world, answers):
    """Empty answers, unknown question texts and too many labels are 422."""
    run_id, _ = await world.parked(("AskUserQuestion", QUESTIONS))
    response = await world.api.post(f"/v1/runs/{run_id}/answer", json={"answers": answers})
    assert response.status_code == 422, response.text
    assert response.json()["error"]["details"]["field"] == "answers"


async def test_empty_answers_are_refused_before_the_run_is_looked_at(world):
    """On a run that awaits nothing, empty answers are 422 and others are 409."""
    run_id = await world.run()
    path = f"/v1/runs/{run_id}/answer"
    refused(await world.api.post(path, json={"answers": {}}), 422, "validation_error", "answers")
    refused(await world.api.post(path, json=ANSWER), 409, "run_not_awaiting")


@pytest.mark.parametrize("key", ["Plan Approval", PLAN["plan"]])
async def test_a_plan_is_a_question_by_header_or_text(world, key):
    """A plan is listed as a question and answered by its header or its text."""
    run_id, (gate,) = await world.parked(("ExitPlanMode", PLAN), permission_mode="plan")
    assert (gate["kind"], gate["tool_name"]) == ("plan", "AskUserQuestion")
    assert gate["tool_input"]["questions"][0]["header"] == "Plan Approval"
    answered = await world.api.post(f"/v1/runs/{run_id}/answer", json={"answers": {key: "Approve"}})
    assert answered.json()["resumed"] is True
    assert (await world.store.runs.load("1", run_id)).plan_approved


async def test_external_calls_take_results_only(world):
    """A verdict on an external call is 422, a result settles it and is what the model sees."""
    run_id, (gate,) = await world.parked(kind=GateKind.EXTERNAL)
    refused(await approve(world, run_id, gate), 422, "validation_error", "result")
    item = {"request_id": gate["request_id"]}
    wrong = await decide(world, run_id, {**item, "result": {"state": "odd", "output": 1}})
    refused(wrong, 422, "validation_error", "decisions[0].result.state")
    given = await decide(world, run_id, {**item, "result": {"output": {"n": 1}}})
    assert given.json()["requests"][0]["status"] == "allowed"
    assert (await world.call(run_id)).result == {"state": "success", "content": '{"n":1}'}
    tool_id, (tool,) = await world.parked()
    item = {"request_id": tool["request_id"], "result": {"output": 1}}
    refused(await decide(world, tool_id, item), 422, "validation_error", "decisions[0].result")


async def test_a_batch_applies_as_a_whole(world):
    """Several gates are decided in one move; the run resumes with the last of them."""
    run_id, gates = await world.parked(("send_email", SEND), ("AskUserQuestion", QUESTIONS))
    decided = await decide(
        world,
        run_id,
        {"request_id": gates[0]["request_id"], "decision": "deny", "reason": "no"},
        {"request_id": gates[1]["request_id"], **ANSWER},
    )
    body = decided.json()
    assert (body["status"], body["resumed"]) == ("ok", True)
    assert [gate["status"] for gate in body["requests"]] == ["denied", "allowed"]
    assert await world.status(run_id) == "running"


@pytest.mark.parametrize(
    ("second", "status", "code"),
    [
        ({"decision": "allow", "expected_digest": "0"}, 409, "gate_changed"),
        ({"answers": {"x": "y"}}, 422, "validation_error"),
        ({"decision": "allow", "input": {}}, 422, "invalid_tool_input"),
        ({"request_id": "req_other", "decision": "allow"}, 404, "gate_not_found"),
    ],
)
async def test_a_batch_with_one_refused_item_changes_nothing(world, second, status, code):
    """The refusal names the item by its place, with its status and code; the first stays open."""
    run_id, gates = await world.parked(("send_email", SEND), ("send_email", SEND))
    response = await decide(
        world,
        run_id,
        {"request_id": gates[0]["request_id"], "decision": "allow"},
        {"request_id": gates[1]["request_id"], **second},
    )
    error = response.json()["error"]
    assert (response.status_code, error["error_code"]) == (status, code)
    assert error["message"].startswith("decisions[1]")
    assert error["details"]["field"].startswith("decisions[1]")
    assert error["details"]["decisions"][0] | {"request_id": ""} == {
        "index": 1,
        "request_id": "",
        "status": status,
        "error_code": code,
    }
    assert [gate["status"] for gate in await world.gates(run_id)] == ["pending"] * 2


async def test_a_batch_is_read_strictly(world):
    """Unknown fields, a repeated request, an empty list and two verdicts in one are 422."""
    run_id, (gate,) = await world.parked()
    item = {"request_id": gate["request_id"], "decision": "allow"}
    for items, field in (
        ([{**item, "approved": True}], "decisions[0].approved"),
        ([item, item], "decisions[1].request_id"),
        ([], "decisions"),
        ([{**item, **ANSWER}], "decisions[0].decision"),
        ([{"request_id": gate["request_id"]}], "decisions[0].decision"),
        ([item] * 101, "decisions"),
        ([item, 1], "decisions[1]"),
    ):
        response = await decide(world, run_id, *items)
        refused(response, 422, "validation_error", field)
    assert (await world.gates(run_id))[0]["status"] == "pending"


async def test_a_partial_decision_leaves_the_rest_open(world):
    """Until the last gate is settled the run stays parked and later decisions still work."""
    run_id, gates = await world.parked(*[("send_email", SEND)] * 3)
    resumed = [(await approve(world, run_id, gate)).json()["resumed"] for gate in gates]
    assert resumed == [False, False, True]


async def test_decisions_survive_endpoints_that_change_meanwhile(world):
    """A set of endpoints that this process has not seen yet is noticed and read again."""
    run_id, (gate,) = await world.parked()
    await world.store.catalog.subscriptions("1", run_id)
    await world.store.connection.call("HINCRBY", "sg:{s0}:ver", "subs:1", 1)
    assert (await approve(world, run_id, gate)).json()["resumed"] is True


async def test_an_open_gate_of_a_run_that_is_over_cannot_be_decided(world):
    """A run that failed with an open gate answers 409 run_not_active and how it ended."""
    run_id, (gate,) = await world.parked()
    await world.store.connection.call("HSET", f"sg:{{s0}}:run:{run_id}", "status", "failed")
    response = await approve(world, run_id, gate)
    refused(response, 409, "run_not_active")
    assert response.json()["error"]["details"]["run_status"] == "failed"


async def test_a_plain_allow_is_taken_although_a_deny_rule_came_since(world):
    """The decision stands; the executor meets the deny rule when it starts the call."""
    run_id, (gate,) = await world.parked()
    await world.api.post("/v1/permissions/", json={"tool": "send_email", "effect": "deny"})
    assert (await approve(world, run_id, gate)).json()["status"] == "allowed"


async def test_an_interrupted_call_is_retried_skipped_or_given_a_result(world):
    """A gate of unknown outcome takes a verdict or a result, and is never remembered or edited."""
    run_id, gates = await world.parked(*[("send_email", SEND)] * 3, kind=GateKind.OUTCOME_UNKNOWN)
    for extra, field in (({"remember": True}, "remember"), ({"input": SEND}, "input")):
        refused(await approve(world, run_id, gates[0], **extra), 422, "validation_error", field)
    switched = await world.api.patch(
        f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": "autonomous"}
    )
    assert switched.status_code == 200
    assert {gate["status"] for gate in await world.gates(run_id)} == {"pending"}
    decided = await decide(
        world,
        run_id,
        {"request_id": gates[0]["request_id"], "decision": "allow"},
        {"request_id": gates[1]["request_id"], "decision": "deny"},
        {"request_id": gates[2]["request_id"], "result": {"output": "sent"}},
    )
    assert decided.json()["resumed"] is True
    states = [call.state for call in await world.store.runs.calls(run_id)]
    assert states == [CallState.ALLOWED, CallState.DONE, CallState.DONE]
