"""The event format of AgentScope: which events a real run gives, in which order, and again."""

import json

import pytest

from tests.integration.service.office import (
    MAIL,
    QUESTION,
    answers,
    calls,
    confirm,
    executed,
    kinds,
    result,
    verdict,
)

pytestmark = pytest.mark.anyio

TEXT = ["TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"]
CALL = ["TOOL_CALL_START", "TOOL_CALL_DELTA"]
SPOKE = ["MODEL_CALL_START", *TEXT, "MODEL_CALL_END"]
SEND = ("c1", "send_email", MAIL)
SEND_2 = ("c2", "send_email", {**MAIL, "to": "bob@acme.com"})
LOOK_UP = ("x1", "look_up", {"order": "7"})


def done(state="success"):
    return ["TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", f"TOOL_RESULT_END({state})"]


def asked(n=1):
    """What a model call with ``n`` calls shows."""
    return ["MODEL_CALL_START", *CALL * n, *["TOOL_CALL_END"] * n, "MODEL_CALL_END"]


async def test_a_turn_up_to_a_confirm_pause(office):
    """One REQUIRE_USER_CONFIRM for each asking call, with exactly one call; no REPLY_END."""
    run_id = await office.start({"text": "Let me.", **calls(SEND, SEND_2)})
    events = await office.events(run_id)
    assert kinds(events) == [
        "REPLY_START",
        "MODEL_CALL_START",
        *TEXT,
        *CALL * 2,
        *["TOOL_CALL_END"] * 2,
        "MODEL_CALL_END",
        *["REQUIRE_USER_CONFIRM"] * 2,
    ]
    (gate, _) = (await office.api.get(f"/v1/runs/{run_id}/permissions")).json()
    _, pause = events[-2]
    assert pause["tool_calls"] == [
        {
            "type": "tool_call",
            "id": "c1",
            "name": "send_email",
            "input": json.dumps(MAIL, sort_keys=True, separators=(",", ":")),
            "state": "asking",
            "suggested_rules": [
                {
                    "tool_name": "send_email",
                    "rule_content": None,
                    "behavior": "allow",
                    "source": "suggested",
                }
            ],
            "created_at": pause["created_at"],
            "finished_at": None,
        }
    ]
    assert pause["metadata"] == {
        "request_id": gate["request_id"],
        "kind": "tool_approval",
        "digest": gate["digest"],
    }
    start = events[0][1]
    assert (start["session_id"], start["role"]) == (str(run_id), "assistant")
    ended = next(event for _, event in events if event["type"] == "MODEL_CALL_END")
    assert ended["input_tokens"] > 0
    assert ended["output_tokens"] > 0
    assert {event["reply_id"] for _, event in events} == {f"run_{run_id}_1"}
    assert not any("Z" in event["created_at"] for _, event in events)
    assert len({event["id"] for _, event in events}) == len(events)


async def test_a_resume_after_a_confirm(office):
    """No second REPLY_START: the result, the model, the end."""
    run_id = await office.start(calls(SEND), {"text": "Done."})
    before = await office.events(run_id)
    call = (await office.calls(run_id))["c1"]
    assert (await office.send(run_id, confirm(run_id, verdict(call)))).status_code == 200
    async with office.tap(run_id, after=before[-1][0]).open() as stream:
        await office.drive()
        await stream.end()
    assert kinds(stream.events) == [*done(), *SPOKE, "REPLY_END(completed)"]


async def test_a_resume_after_a_deny(office):
    """One piece of text with the denial, and the model gets another turn."""
    run_id = await office.start(calls(SEND), {"text": "Pity."})
    before = await office.events(run_id)
    call = (await office.calls(run_id))["c1"]
    await office.send(
        run_id, confirm(run_id, verdict(call, confirmed=False, reason="too late")), drive=True
    )
    after = await office.events(run_id, after=before[-1][0])
    assert kinds(after) == [*done("denied"), *SPOKE, "REPLY_END(completed)"]
    assert "too late" in after[1][1]["delta"]


async def test_a_resume_after_an_external_result(office):
    """TOOL_RESULT_START comes before the pause and no second time."""
    run_id = await office.start(calls(LOOK_UP), {"text": "There."})
    before = await office.events(run_id)
    assert kinds(before) == [
        "REPLY_START",
        *asked(),
        "TOOL_RESULT_START",
        "REQUIRE_EXTERNAL_EXECUTION",
    ]
    call = (await office.calls(run_id))["x1"]
    assert (call["state"], call["suggested_rules"]) == ("submitted", [])
    await office.send(run_id, executed(run_id, result(call, "lost", state="error")), drive=True)
    after = await office.events(run_id, after=before[-1][0])
    assert kinds(after) == [
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_END(error)",
        *SPOKE,
        "REPLY_END(completed)",
    ]


async def test_a_question_is_an_ask_user_call(office):
    """It pauses as external, under the name and in the shape that those clients know."""
    asking = ("q1", "AskUserQuestion", {"questions": [QUESTION]})
    run_id = await office.start(calls(asking), {"text": "Fine."})
    before = await office.events(run_id)
    assert kinds(before)[-2:] == ["TOOL_RESULT_START", "REQUIRE_EXTERNAL_EXECUTION"]
    call = (await office.calls(run_id))["q1"]
    shown = json.loads(call["input"])
    assert call["name"] == "AskUser"
    assert shown["questions"][0]["multi_select"] is False
    assert [option["description"] for option in shown["questions"][0]["options"]] == [
        "the first",
        "",
    ]
    named = {e["tool_call_name"] for _, e in before if "tool_call_name" in e}
    typed = next(event["delta"] for _, event in before if event["type"] == "TOOL_CALL_DELTA")
    assert (named, typed) == ({"AskUser"}, call["input"])
    metadata = answers(("Which one?", ["B"]))
    await office.send(run_id, executed(run_id, result(call, metadata=metadata)), drive=True)
    after = await office.events(run_id, after=before[-1][0])
    assert kinds(after)[:2] == ["TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END(success)"]
    assert '"answer":"B"' in after[0][1]["delta"]


async def test_a_plan_is_an_ask_user_call(office):
    """Its one question is the plan; feedback in the user's own words sends it back."""
    run_id = await office.start({"plan": "Do it."}, {"plan": "Better."}, permission_mode="plan")
    ((_, call),) = (await office.calls(run_id)).items()
    (question,) = json.loads(call["input"])["questions"]
    assert (call["name"], question["question"]) == ("AskUser", "Do it.")
    feedback = answers(("Do it.", ["Revise"], "more"))
    sent = await office.send(run_id, executed(run_id, result(call, metadata=feedback)), drive=True)
    assert sent.json()["requests"][0]["tool_input"]["answers"] == {"Do it.": "more"}
    second = list((await office.calls(run_id)).values())[-1]
    approval = answers(("Plan Approval", ["Approve"]))
    await office.send(run_id, executed(run_id, result(second, metadata=approval)), drive=True)
    assert (await office.api.get(f"/v1/runs/{run_id}")).json()["plan_approved"] is True


async def test_both_gates_may_be_open_at_once(office):
    """A confirm and an external call of one step pause together; free calls run meanwhile."""
    free = ("r1", "search_docs", {"query": "plans"})
    run_id = await office.start(calls(SEND, LOOK_UP, free))
    assert kinds(await office.events(run_id)) == [
        "REPLY_START",
        *asked(3),
        "REQUIRE_USER_CONFIRM",
        "TOOL_RESULT_START",
        "REQUIRE_EXTERNAL_EXECUTION",
        *done(),
    ]


async def test_a_cancel_while_parked(office):
    """Every unfinished call gets its interrupted result, and the reply ends; no model call."""
    run_id = await office.start(calls(SEND, LOOK_UP))
    before = await office.events(run_id)
    await office.api.post(f"/v1/runs/{run_id}/cancel")
    after = await office.events(run_id, after=before[-1][0])
    assert kinds(after) == [
        *done("interrupted"),
        "TOOL_RESULT_TEXT_DELTA",
        "TOOL_RESULT_END(interrupted)",
        "REPLY_END(interrupted)",
    ]


async def test_a_call_that_is_refused_has_its_result_behind_the_model_call(office):
    """Its result comes when the model's call is closed, though it stands among the calls."""
    run_id = await office.start(calls(("u1", "no_such_tool", {}), SEND))
    assert kinds(await office.events(run_id)) == [
        "REPLY_START",
        *asked(2),
        *done("error"),
        "REQUIRE_USER_CONFIRM",
    ]


async def end_of(office, run_id):
    """The last events of a run that has ended, behind its first."""
    async with office.tap(run_id, after=None).open() as stream:
        await stream.end()
    assert stream.status == 409
    first = await office.world.store.frames.page(run_id, (0, 0), 1)
    mark = f"{first[0].place[0]}-{first[0].place[1]}-0.0"
    return await office.events(run_id, after=mark)


async def test_a_run_that_fails(office):
    """REPLY_END says error, and what kind."""
    turn = {"text": "x", "error": {"kind": "auth", "times": 9}}
    run_id = await office.start(turn)
    events = await end_of(office, run_id)
    assert kinds(events)[-1] == "REPLY_END(error)"
    assert events[-1][1]["error"]["type"] == "authentication"
    assert events[-2][1]["finished_reason"] == "interrupted"


async def test_a_turn_that_reaches_its_limit(office):
    """EXCEED_MAX_ITERS and then REPLY_END, which says the same."""
    free = ("r1", "search_docs", {"query": "plans"})
    run_id = await office.start(calls(free), {"text": "x"}, max_turns=1)
    assert kinds(await end_of(office, run_id))[-2:] == [
        "EXCEED_MAX_ITERS",
        "REPLY_END(exceed_max_iters)",
    ]


async def test_each_turn_is_a_reply(office):
    """A later turn has its own id; the end of the one before it is replayed too."""
    run_id = await office.start({"text": "One."}, calls(SEND))
    await office.api.post(f"/v1/runs/{run_id}/reply", json={"message": "more"})
    await office.drive()
    events = await office.events(run_id)
    assert kinds(events) == [
        "REPLY_START",
        *SPOKE,
        "REPLY_END(completed)",
        "REPLY_START",
        *asked(),
        "REQUIRE_USER_CONFIRM",
    ]
    assert [e["reply_id"] for _, e in events if e["type"] == "REPLY_START"] == [
        f"run_{run_id}_1",
        f"run_{run_id}_2",
    ]


async def test_a_replay_repeats_itself_and_goes_on_behind_any_event(office):
    """The same ids and bytes each time, and behind each mark exactly what comes after it."""
    run_id = await office.start(
        {"text": "One.", **calls(LOOK_UP, ("u1", "no_such_tool", {}))}, {"text": "Two."}
    )
    call = (await office.calls(run_id))["x1"]
    whole = await office.events(run_id)
    assert await office.events(run_id) == whole
    await office.send(run_id, executed(run_id, result(call)), drive=True)
    ids = [mark for mark, _ in whole]
    assert len(set(ids)) == len(ids)
    full = await office.events(run_id, after=ids[0])
    assert full[: len(whole) - 1] == whole[1:]
    for n, (mark, _) in enumerate(full[:-1]):
        assert await office.events(run_id, after=mark) == full[n + 1 :]
    over = await office.api.get(
        f"/v1/runs/{run_id}/stream?format=agentscope", headers={"last-event-id": full[-1][0]}
    )
    assert over.status_code == 409
    assert over.json()["error"]["error_code"] == "run_not_active"


async def test_a_live_stream_shows_what_a_replay_shows(office):
    """A watcher that was there from the start has seen the same events under the same ids."""
    made = await office.api.post("/v1/runs", json={"message": "Hello there."})
    run_id = made.json()["id"]
    async with office.tap(run_id).open() as stream:
        await stream.until(lambda s: s.kinds == ["REPLY_START"])
        await office.drive()
        await stream.end()
    assert kinds(stream.events) == ["REPLY_START", *SPOKE, "REPLY_END(completed)"]
    assert await office.events(run_id, after=stream.events[0][0]) == stream.events[1:]
    assert "[DONE]" not in stream.text


async def test_the_wire_format_is_the_default_and_shows_no_frame_of_the_others(office):
    """Without format, and with format=signoff, frames are what they were."""
    run_id = await office.start(calls(SEND))
    bodies = []
    for query in (b"", b"format=signoff"):
        async with office.tap(run_id, query=query).open() as stream:
            await stream.end()
        bodies.append(stream.text)
    assert bodies[0] == bodies[1]
    assert stream.kinds == [
        "metadata",
        "tool-call-start",
        "tool-call-delta",
        "tool-call-end",
        "permission_request",
        "awaiting_approval",
        "replay_complete",
    ]


async def test_an_unknown_format_is_refused(office):
    """422, and it names the parameter."""
    run_id = await office.start({"text": "x"})
    answer = await office.api.get(f"/v1/runs/{run_id}/stream?format=vercel")
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["field"] == "format"
