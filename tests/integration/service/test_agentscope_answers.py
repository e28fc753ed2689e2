"""The answer events of AgentScope as decisions: what holds in each situation, what is refused."""

import asyncio
import json
from typing import Any

import pytest

from signoff.domain.gate import GateKind
from tests.integration.service.office import (
    MAIL,
    QUESTION,
    answers,
    calls,
    confirm,
    edited,
    executed,
    kinds,
    result,
    verdict,
)

pytestmark = pytest.mark.anyio

SEND = ("c1", "send_email", MAIL)
SEND_2 = ("c2", "send_email", {**MAIL, "to": "bob@acme.com"})
LOOK_UP = ("x1", "look_up", {"order": "7"})
LOOK_UP_2 = ("x2", "look_up", {"order": "8"})
ASK = ("q1", "AskUserQuestion", {"questions": [QUESTION]})
TOLD = {"text": "{{last_results}}"}


def refused(answer, status, code, field=None):
    """Asserts the refusal, and that it names the field."""
    error = answer.json()["error"]
    assert (answer.status_code, error["error_code"]) == (status, code), answer.text
    if field is not None:
        assert error["details"]["field"] == field
    return error["details"]


async def pending(office, run_id):
    """The calls that wait."""
    gates = (await office.api.get(f"/v1/runs/{run_id}/permissions")).json()
    return {gate["tool_use_id"] for gate in gates if gate["status"] == "pending"}


async def status(office, run_id):
    return await office.world.status(run_id)


# One test for each situation of the engine's own table, in its order.


async def test_a_partial_confirm_acts_at_once_and_nothing_is_sent_again(office):
    """The confirmed call runs, the other keeps asking, and the model waits for both."""
    run_id = await office.start(calls(SEND, SEND_2), TOLD)
    before = await office.events(run_id)
    asked = await office.calls(run_id)
    answer = await office.send(run_id, confirm(run_id, verdict(asked["c1"])), drive=True)
    assert (answer.status_code, answer.json()["resumed"]) == (200, False)
    assert len(office.model.requests) == 1
    assert await pending(office, run_id) == {"c2"}
    after = (await office.events(run_id))[len(before) :]
    assert kinds(after) == [
        "TOOL_RESULT_START",
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_END(success)",
    ]
    answer = await office.send(run_id, confirm(run_id, verdict(asked["c2"])), drive=True)
    assert answer.json()["resumed"] is True
    assert (len(office.model.requests), await status(office, run_id)) == (2, "completed")


async def test_an_empty_answer_is_refused(office):
    """It would decide nothing; the run stays parked."""
    run_id = await office.start(calls(SEND))
    refused(await office.send(run_id, confirm(run_id)), 422, "validation_error", "confirm_results")
    empty = await office.send(run_id, executed(run_id))
    refused(empty, 422, "validation_error", "execution_results")
    assert await pending(office, run_id) == {"c1"}


@pytest.mark.parametrize("first", ["confirm", "external"])
async def test_confirms_and_external_results_of_one_turn_come_in_any_order(office, first):
    """Each event answers its own kind of gate, and one cannot carry both."""
    run_id = await office.start(calls(SEND, LOOK_UP), TOLD)
    asked = await office.calls(run_id)
    yes, found = confirm(run_id, verdict(asked["c1"])), executed(run_id, result(asked["x1"]))
    both = await office.send(run_id, {**found, **yes})
    refused(both, 422, "validation_error", "execution_results")
    for event in (yes, found) if first == "confirm" else (found, yes):
        assert (await office.send(run_id, event, drive=True)).status_code == 200
    assert await status(office, run_id) == "completed"


@pytest.mark.parametrize("unknown", ["nobody", "free", "refused"])
async def test_an_id_that_does_not_wait_refuses_the_whole_event(office, unknown):
    """Unknown, running by itself or finished: 404 with the ids, nothing applied, retry works."""
    run_id = await office.start(
        calls(SEND, ("free", "search_docs", {"query": "x"}), ("refused", "no_tool", {}))
    )
    asked = await office.calls(run_id)
    stranger = {**asked["c1"], "id": unknown}
    answer = await office.send(run_id, confirm(run_id, verdict(asked["c1"]), verdict(stranger)))
    details = refused(answer, 404, "gate_not_found", "confirm_results")
    assert details["tool_call_ids"] == [unknown]
    assert await pending(office, run_id) == {"c1"}
    assert (await office.send(run_id, confirm(run_id, verdict(asked["c1"])))).status_code == 200


async def test_all_asking_calls_of_a_turn_may_be_confirmed_in_one_event(office):
    """They all ask from the start, also those that run one after the other."""
    run_id = await office.start(calls(SEND, SEND_2), TOLD)
    asked = await office.calls(run_id)
    event = confirm(run_id, verdict(asked["c1"]), verdict(asked["c2"], confirmed=False))
    answer = await office.send(run_id, event, drive=True)
    assert answer.json()["resumed"] is True
    assert [gate["status"] for gate in answer.json()["requests"]] == ["allowed", "denied"]
    assert await status(office, run_id) == "completed"


async def test_the_same_confirm_again_is_answered_alike_and_another_is_refused(office):
    """200 without a second effect, also after the run has ended; 404 for the opposite."""
    run_id = await office.start(calls(SEND), {"text": "ok"})
    call = (await office.calls(run_id))["c1"]
    yes, no = (confirm(run_id, verdict(call, confirmed=value)) for value in (True, False))
    first = await office.send(run_id, yes)
    for drive in (True, False):
        again = await office.send(run_id, yes, drive=drive)
        assert (again.status_code, again.json()) == (200, first.json())
        details = refused(await office.send(run_id, no), 404, "gate_resolved_otherwise")
        assert details["standing"]["verdict"] == "allow"
    assert await status(office, run_id) == "completed"
    results = (await office.api.get(f"/v1/runs/{run_id}/messages")).json()
    assert sum(message["role"] == "tool" for message in results) == 1


async def test_an_external_result_for_a_call_that_asks_is_refused(office):
    """It waits for a verdict, and says so; nothing is applied."""
    run_id = await office.start(calls(SEND, LOOK_UP))
    asked = await office.calls(run_id)
    event = executed(run_id, result(asked["x1"]), result(asked["c1"]))
    answer = await office.send(run_id, event)
    refused(answer, 422, "validation_error", "execution_results[1]")
    assert "USER_CONFIRM_RESULT" in answer.json()["error"]["message"]
    assert await pending(office, run_id) == {"c1", "x1"}


@pytest.mark.parametrize("call", ["x1", "q1"])
async def test_a_verdict_on_a_call_that_waits_for_a_result_is_refused(office, call):
    """An external call and a question take no yes or no."""
    run_id = await office.start(calls(LOOK_UP, ASK))
    asked = await office.calls(run_id)
    answer = await office.send(run_id, confirm(run_id, verdict(asked[call])))
    refused(answer, 422, "validation_error", "confirm_results[0]")
    assert await pending(office, run_id) == {"x1", "q1"}


async def test_the_reply_id_must_be_the_current_one(office):
    """404 for none of the run's, 409 for one of an earlier turn; for both kinds of event."""
    run_id = await office.start({"text": "One."}, calls(SEND, LOOK_UP))
    await office.api.post(f"/v1/runs/{run_id}/reply", json={"message": "more"})
    await office.drive()
    asked = await office.calls(run_id)
    for event in (
        confirm(run_id, verdict(asked["c1"])),
        executed(run_id, result(asked["x1"])),
    ):
        for reply in ("", "x", f"run_{run_id}", f"run_{run_id}_3", f"run_{run_id + 1}_2"):
            answer = await office.send(run_id, {**event, "reply_id": reply})
            refused(answer, 404, "reply_not_found", "reply_id")
        refused(await office.send(run_id, event), 409, "reply_not_current", "reply_id")
        good = await office.send(run_id, {**event, "reply_id": f"run_{run_id}_2"})
        assert good.status_code == 200


async def test_a_call_id_of_an_earlier_turn_answers_nothing(office):
    """A model may use an id again: only this turn's calls are meant."""
    run_id = await office.start(calls(SEND), {"text": "ok"}, {"text": "yes"})
    call = (await office.calls(run_id))["c1"]
    await office.send(run_id, confirm(run_id, verdict(call)), drive=True)
    await office.api.post(f"/v1/runs/{run_id}/reply", json={"message": "more"})
    answer = await office.send(run_id, confirm(run_id, verdict(call), turn=2))
    refused(answer, 404, "gate_not_found")


async def test_an_id_twice_in_one_event_is_refused(office):
    """Whatever the two say: neither the last nor both are taken."""
    run_id = await office.start(calls(SEND, LOOK_UP))
    asked = await office.calls(run_id)
    twice = confirm(run_id, verdict(asked["c1"]), verdict(asked["c1"], confirmed=False))
    refused(await office.send(run_id, twice), 422, "validation_error", "confirm_results[1]")
    twice = executed(run_id, result(asked["x1"]), result(asked["x1"]))
    refused(await office.send(run_id, twice), 422, "validation_error", "execution_results[1]")
    assert await pending(office, run_id) == {"c1", "x1"}


@pytest.mark.parametrize("state", ["running", "interrupted", "denied", "x", None])
async def test_an_external_result_is_a_success_or_an_error(office, state):
    """Any other state is no result."""
    run_id = await office.start(calls(LOOK_UP))
    call = (await office.calls(run_id))["x1"]
    answer = await office.send(run_id, executed(run_id, result(call, state=state)))
    refused(answer, 422, "validation_error", "execution_results[0].state")
    assert await pending(office, run_id) == {"x1"}


async def test_a_result_is_for_the_tool_that_was_called(office):
    """Another name is refused."""
    run_id = await office.start(calls(LOOK_UP))
    call = (await office.calls(run_id))["x1"]
    answer = await office.send(run_id, executed(run_id, result({**call, "name": "other"})))
    refused(answer, 422, "validation_error", "execution_results[0].name")


async def test_one_wrong_result_leaves_the_others_unapplied(office):
    """All or none, also when only the metadata of the second is wrong."""
    run_id = await office.start(calls(LOOK_UP, ASK), TOLD)
    asked = await office.calls(run_id)
    metadata: list[Any] = [None, {}, {"answers": []}, answers(("?", ["A"]))]
    for wrong in metadata:
        event = executed(run_id, result(asked["x1"]), result(asked["q1"], metadata=wrong))
        refused(await office.send(run_id, event), 422, "validation_error")
        assert await pending(office, run_id) == {"x1", "q1"}
    good = result(asked["q1"], metadata=answers(("Which one?", ["A"])))
    sent = await office.send(run_id, executed(run_id, result(asked["x1"]), good), drive=True)
    assert (sent.status_code, await status(office, run_id)) == (200, "completed")


async def test_a_denied_call_tells_the_model_so_with_the_reason(office):
    """The loop goes on; rules with a no are refused instead of being ignored."""
    run_id = await office.start(calls(SEND), TOLD)
    call = (await office.calls(run_id))["c1"]
    ruled = verdict(call, confirmed=False, rules=call["suggested_rules"])
    refused(await office.send(run_id, confirm(run_id, ruled)), 422, "validation_error")
    no = verdict(call, confirmed=False, reason="not on Fridays")
    await office.send(run_id, confirm(run_id, no), drive=True)
    output = (await office.api.get(f"/v1/runs/{run_id}")).json()["output"]
    assert '"state":"denied"' in output
    assert "not on Fridays" in output


async def test_a_modified_input_is_checked_and_recorded_and_runs(office):
    """The same checks as any edit: schema, deny rules; what is shown is what ran."""
    run_id = await office.start(calls(SEND), TOLD)
    call = (await office.calls(run_id))["c1"]
    at = "confirm_results[0].tool_call"
    for text in ("", "{", "[]", '{"a":1,"a":2}', '{"a":NaN}', '"x"'):
        answer = await office.send(run_id, confirm(run_id, verdict({**call, "input": text})))
        refused(answer, 422, "validation_error", f"{at}.input")
    renamed = confirm(run_id, verdict({**call, "name": "Bash"}))
    refused(await office.send(run_id, renamed), 422, "validation_error", f"{at}.name")
    wrong = confirm(run_id, verdict(edited(call, to=7)))
    refused(await office.send(run_id, wrong), 422, "invalid_tool_input")
    denied = confirm(run_id, verdict(edited(call, to="x@acme.com"), confirmed=False))
    refused(await office.send(run_id, denied), 422, "validation_error")
    assert await pending(office, run_id) == {"c1"}
    changed = confirm(run_id, verdict(edited(call, to="eve@acme.com")))
    (gate,) = (await office.send(run_id, changed, drive=True)).json()["requests"]
    assert gate["edited_input"]["to"] == "eve@acme.com"
    assert gate["effective_digest"] != gate["digest"]
    assert "eve@acme.com" in (await office.api.get(f"/v1/runs/{run_id}")).json()["output"]


async def test_an_edit_that_a_deny_rule_forbids_is_refused(office):
    """A rule that came while the call was asking counts; the plain call is denied as well."""
    run_id = await office.start(calls(SEND), TOLD)
    call = (await office.calls(run_id))["c1"]
    await office.api.post("/v1/permissions", json={"tool": "send_email", "effect": "deny"})
    changed = confirm(run_id, verdict(edited(call, to="eve@acme.com")))
    refused(await office.send(run_id, changed), 422, "denied_by_rule")
    await office.send(run_id, confirm(run_id, verdict(call)), drive=True)
    assert '"state":"denied"' in (await office.api.get(f"/v1/runs/{run_id}")).json()["output"]


async def test_an_input_written_another_way_is_no_edit(office):
    """Spaces and the order of keys change nothing."""
    run_id = await office.start(calls(SEND))
    call = (await office.calls(run_id))["c1"]
    other = {**call, "input": '{ "to": "ada@acme.com", "subject":"Hi","body":"\\u0074ext" }'}
    (gate,) = (await office.send(run_id, confirm(run_id, verdict(other)))).json()["requests"]
    assert (gate["edited_input"], gate["effective_digest"]) == (None, gate["digest"])


async def test_accepted_rules_must_be_suggested(office):
    """A wider rule, another tool, or a deny is refused; a suggested one is stored once."""
    run_id = await office.start(calls(SEND, SEND_2), user_id="u")
    asked = await office.calls(run_id)
    (rule,) = asked["c1"]["suggested_rules"]
    for change in ({"tool_name": "Bash"}, {"behavior": "deny"}, {"rule_content": "*"}):
        answer = await office.send(
            run_id, confirm(run_id, verdict(asked["c1"], rules=[{**rule, **change}]))
        )
        refused(answer, 422, "validation_error", "confirm_results[0].rules[0]")
    bare = verdict(asked["c1"], rules=[{"tool_name": "send_email", "behavior": "allow"}])
    refused(await office.send(run_id, confirm(run_id, bare)), 422, "validation_error")
    for call in ("c1", "c2"):
        event = confirm(run_id, verdict(asked[call], rules=[rule, rule]))
        (gate,) = (await office.send(run_id, event)).json()["requests"]
        assert gate["remembered"] is True
    stored = (await office.api.get("/v1/permissions?user_id=u")).json()["data"]
    assert [(row["tool_name"], row["source"]) for row in stored] == [("send_email", "run_approval")]


async def test_a_message_while_parked_waits_for_its_turn(office):
    """It disturbs nothing: the open call is answered as before, and then it is delivered."""
    run_id = await office.start(calls(SEND), {"text": "one"}, {"text": "You said {{message}}"})
    call = (await office.calls(run_id))["c1"]
    queued = await office.api.post(f"/v1/runs/{run_id}/reply", json={"message": "hurry"})
    assert queued.json()["delivery"] == "queued"
    await office.send(run_id, confirm(run_id, verdict(call)), drive=True)
    assert (await office.api.get(f"/v1/runs/{run_id}")).json()["output"] == "You said hurry"


@pytest.mark.parametrize(
    "item", [("u1", "no_such_tool", {}), ("u1", "send_email", {"to": 7}), ("u1", "fail", {})]
)
async def test_a_call_that_cannot_be_is_an_error_result_and_the_loop_goes_on(office, item):
    """An unknown tool, or an input that does not fit: no gate, the model is told."""
    run_id = await office.start(calls(item), TOLD)
    run = (await office.api.get(f"/v1/runs/{run_id}")).json()
    assert run["status"] == "completed"
    assert '"state":"error"' in run["output"]


async def test_a_call_that_a_rule_denies_never_asks(office):
    """Its result is denied, with what forbade it."""
    await office.api.post("/v1/permissions", json={"tool": "send_email", "effect": "deny"})
    run_id = await office.start(calls(SEND), TOLD)
    run = (await office.api.get(f"/v1/runs/{run_id}")).json()
    assert run["status"] == "completed"
    assert '"state":"denied"' in run["output"]
    assert "not permitted" in run["output"]


async def test_a_result_that_never_comes_leaves_the_run_parked(office):
    """Nothing expires: it stays in the inbox, and a late result is taken."""
    run_id = await office.start(calls(LOOK_UP), TOLD)
    for _ in range(3):
        await office.drive()
    assert await status(office, run_id) == "awaiting_approval"
    (open_request,) = (await office.api.get("/v1/requests")).json()["data"]
    call = (await office.calls(run_id))["x1"]
    assert open_request["tool_use_id"] == call["id"]
    await office.send(run_id, executed(run_id, result(call)), drive=True)
    assert await status(office, run_id) == "completed"


# Beyond the table.


async def test_a_repeated_result_is_taken_once(office):
    """200 for the same, 404 for another."""
    run_id = await office.start(calls(LOOK_UP, LOOK_UP_2))
    call = (await office.calls(run_id))["x1"]
    pieces = [{"type": "text", "text": "fou"}, {"type": "text", "text": "nd"}]
    for output in (pieces, pieces, "fou\nnd"):
        answer = await office.send(run_id, executed(run_id, result(call, output)))
        assert answer.status_code == 200
    other = await office.send(run_id, executed(run_id, result(call, "else")))
    refused(other, 404, "gate_resolved_otherwise", "execution_results[0]")
    data = [{"type": "data", "source": {}}]
    refused(
        await office.send(run_id, executed(run_id, result(call, data))), 422, "validation_error"
    )


async def test_answers_to_questions_are_labels_or_own_words(office):
    """A label that is not offered is refused; free text goes into ``other``."""
    run_id = await office.start(calls(ASK), TOLD)
    call = (await office.calls(run_id))["q1"]
    answered: list[list[Any]] = [
        [("Which one?", ["C"])],
        [("Which one?", ["A", "B"])],
        [("Which one?", ["A"], "and more")],
        [("Which one?", [])],
        [("Which one?", ["A"]), ("Which one?", ["A"])],
        [("Which one?", ["A"]), ("Another?", ["A"])],
    ]
    for wrong in answered:
        event = executed(run_id, result(call, metadata=answers(*wrong)))
        refused(await office.send(run_id, event), 422, "validation_error")
    failed = result(call, state="error", metadata=answers(("Which one?", ["A"])))
    refused(await office.send(run_id, executed(run_id, failed)), 422, "validation_error")
    assert await pending(office, run_id) == {"q1"}
    own = result(call, metadata=answers(("Which one?", [], "neither")))
    await office.send(run_id, executed(run_id, own), drive=True)
    assert "neither" in (await office.api.get(f"/v1/runs/{run_id}")).json()["output"]


async def test_a_call_of_unknown_outcome_is_not_repeated_by_the_first_confirm(office):
    """The event that allowed it, sent once more, changes nothing; one that names the gate does."""
    run_id = await office.start(calls(SEND), TOLD)
    call = (await office.calls(run_id))["c1"]
    yes = confirm(run_id, verdict(call))
    await office.send(run_id, yes)
    await office.crash_in_call(run_id)
    await office.drive()
    *_, (_, pause) = await office.events(run_id)
    gate = pause["metadata"]
    assert (pause["type"], gate["kind"]) == ("REQUIRE_USER_CONFIRM", "outcome_unknown")
    again = await office.send(run_id, yes, drive=True)
    assert (again.status_code, again.json()["resumed"]) == (200, False)
    assert await pending(office, run_id) == {"c1"}
    other = await office.send(run_id, confirm(run_id, verdict(call, request_id="req_x")))
    refused(other, 404, "gate_not_found")
    named = confirm(run_id, verdict(call, request_id=gate["request_id"], confirmed=False))
    assert (await office.send(run_id, named, drive=True)).status_code == 200
    assert "unknown whether" in (await office.api.get(f"/v1/runs/{run_id}")).json()["output"]


async def test_an_unknown_outcome_is_settled_by_name_or_by_its_result(office):
    """Of a call that never asked too: a verdict names the gate, a result needs not."""
    run_id, _ = await office.world.parked(("send_email", MAIL), kind=GateKind.OUTCOME_UNKNOWN)
    call = {"id": "call_0", "name": "send_email", "input": json.dumps(MAIL)}
    plain = await office.send(run_id, confirm(run_id, verdict(call)))
    refused(plain, 422, "validation_error", "confirm_results[0].request_id")
    known = await office.send(run_id, executed(run_id, result(call, "it was sent")))
    assert known.json()["resumed"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"type": "USER_INTERRUPT", "reply_id": "run_1_1"}, "type"),
        ({"type": "CUSTOM"}, "type"),
        ({}, "type"),
        ({"type": "USER_CONFIRM_RESULT"}, "reply_id"),
        ({"type": "USER_CONFIRM_RESULT", "reply_id": "run_1_1"}, "confirm_results"),
    ],
)
async def test_what_is_no_answer_is_refused(office, body, field):
    """Two events are taken, whole; anything else is 422 and names the field."""
    run_id = await office.start(calls(SEND))
    refused(await office.send(run_id, body), 422, "validation_error", field)


async def test_unknown_fields_of_a_verdict_are_refused_and_blocks_may_have_more(office):
    """A misspelt key must not be lost; a block of another release decides nothing by its rest."""
    run_id = await office.start(calls(SEND))
    call = (await office.calls(run_id))["c1"]
    typo = confirm(run_id, {**verdict(call), "reasons": "x"})
    refused(await office.send(run_id, typo), 422, "validation_error", "confirm_results[0].reasons")
    newer = confirm(run_id, verdict({**call, "whatever": 1}), id="e1", metadata={"a": 1})
    assert (await office.send(run_id, newer)).status_code == 200


@pytest.mark.parametrize("prefix", ["/v1", "/api/v2"])
async def test_only_the_account_of_the_run_may_answer(office, prefix):
    """401 without a key, 404 for another account's run and for none."""
    run_id = await office.start(calls(SEND))
    event = confirm(run_id, verdict((await office.calls(run_id))["c1"]))
    path, world = f"{prefix}/runs/{run_id}/events", office.world
    assert (await world.nobody.post(path, json=event)).status_code == 401
    assert (await world.other.post(path, json=event)).status_code == 404
    assert (await office.api.post(f"{prefix}/runs/999/events", json=event)).status_code == 404
    assert (await office.api.post(path, json=event)).status_code == 200


async def test_an_answer_to_a_run_that_was_cancelled_is_refused(office):
    """404 gate_cancelled."""
    run_id = await office.start(calls(SEND))
    call = (await office.calls(run_id))["c1"]
    await office.api.post(f"/v1/runs/{run_id}/cancel")
    refused(await office.send(run_id, confirm(run_id, verdict(call))), 404, "gate_cancelled")


async def test_of_two_opposite_answers_at_once_one_holds(office):
    """One 200, one 404, and the gate says what the 200 said."""
    run_id = await office.start(calls(SEND))
    call = (await office.calls(run_id))["c1"]
    sent = await asyncio.gather(
        *(office.send(run_id, confirm(run_id, verdict(call, confirmed=n % 2 == 0))) for n in (0, 1))
    )
    assert sorted(answer.status_code for answer in sent) == [200, 404]
