"""What the platform's client must find here; run by its own interpreter, one flow a process.

``python flows.py NAME URL KEY`` ends with 0 and prints ``ok`` when everything holds. Nothing but
``base_url`` tells the client that it speaks to another service.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import m8tes
from m8tes import M8tes

FAST = 0.05
MAIL = {"to": "a@example.com", "subject": "s", "body": "b"}
COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [
        {"label": "Red", "description": "warm"},
        {"label": "Blue", "description": "cool"},
    ],
}
RESULTS = {"text": "{{last_results}}"}


def use(name: str, tool_input: dict[str, Any], call: str = "c1") -> dict[str, Any]:
    """One call of a scripted turn."""
    return {"id": call, "name": name, "input": tool_input}


def turn(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One scripted turn."""
    return {"tool_calls": list(calls), **more}


def started(client: M8tes, script: Sequence[dict[str, Any]], **options: Any) -> Any:
    """A run that is created without a stream."""
    asked = {"human_in_the_loop": True, "permission_mode": "approval", **options}
    return client.runs.create(
        message="go", stream=False, metadata={"script": list(script)}, **asked
    )


def waiting(client: M8tes, run_id: int, count: int = 1) -> list[Any]:
    """The run's pending gates, once there are so many."""
    deadline = time.monotonic() + 20
    while True:
        found = [gate for gate in client.runs.permissions(run_id) if gate.status == "pending"]
        if len(found) == count and client.runs.get(run_id).status == "awaiting_approval":
            return found
        assert time.monotonic() < deadline, (found, client.runs.get(run_id))
        time.sleep(FAST)


def done(client: M8tes, run_id: int, status: str = "completed") -> Any:
    """The run, once it has ended as expected."""
    run = client.runs.poll(run_id, interval=FAST, timeout=20)
    assert run.status == status, run
    return run


def refused(kind: type[m8tes.M8tesError], call: Callable[[], Any]) -> Any:
    """The client's error of ``call``."""
    try:
        call()
    except m8tes.M8tesError as error:
        assert type(error) is kind, (kind, repr(error), error.code)
        assert error.request_id, "every refusal names its request"
        return error
    msg = f"{kind.__name__} was expected"
    raise AssertionError(msg)


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A webhook receiver on loopback: its URL and what came."""
    came: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            came.append((dict(self.headers.items()), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", came
        server.shutdown()


def flow_wait_through_a_question(client: M8tes) -> None:
    """wait() hands the question to its callback and the answer to the model."""
    run = started(client, [turn(use("AskUserQuestion", {"questions": [COLOUR]})), RESULTS])
    assert run.status == "running"
    asked: list[Any] = []

    def on_question(gate: Any) -> dict[str, str]:
        asked.append(gate)
        return {"Which colour?": "Blue"}

    ended = client.runs.wait(run.id, on_question=on_question, interval=FAST, timeout=20)
    assert ended.status == "completed"
    assert "Blue" in ended.output
    (gate,) = asked
    assert gate.tool_name == "AskUserQuestion"
    assert not gate.is_plan_approval
    assert gate.tool_input["questions"] == [COLOUR]
    (settled,) = client.runs.permissions(run.id)
    assert settled.status == "allowed"
    assert settled.tool_input["answers"] == {"Which colour?": "Blue"}


def flow_three_parallel_gates(client: M8tes) -> None:
    """wait() decides three gates from one list; one is denied, and all results are the model's."""
    calls = [use("send_email", {**MAIL, "subject": str(n)}, f"c{n}") for n in range(3)]
    run = started(client, [turn(*calls), RESULTS])
    seen: list[str] = []

    def on_approval(gate: Any) -> str:
        seen.append(gate.tool_input["subject"])
        return "deny" if gate.tool_input["subject"] == "1" else "allow"

    ended = client.runs.wait(run.id, on_approval=on_approval, interval=FAST, timeout=20)
    assert ended.status == "completed", ended
    assert seen == ["0", "1", "2"]
    states = {row["tool_use_id"]: row["state"] for row in json.loads(ended.output)}
    assert states == {"c0": "success", "c1": "denied", "c2": "success"}
    gates = client.runs.permissions(run.id)
    assert [gate.status for gate in gates] == ["allowed", "denied", "allowed"]
    assert {gate.tool_use_id for gate in gates} == set(states)


def flow_mixed_gates(client: M8tes) -> None:
    """A question and an approval of one step, decided in one round of wait()."""
    script = [turn(use("AskUserQuestion", {"questions": [COLOUR]}, "q"), use("send_email", MAIL))]
    run = started(client, [*script, RESULTS])
    ended = client.runs.wait(
        run.id,
        on_question=lambda _: {"Which colour?": "Green, if there is any"},
        on_approval=lambda _: "allow",
        interval=FAST,
        timeout=20,
    )
    assert ended.status == "completed"
    assert "Green, if there is any" in ended.output


def flow_plan_revised_then_approved(client: M8tes) -> None:
    """A plan is sent back once and approved once, by the client's own key."""
    script = [{"plan": "1. send"}, {"plan": "1. ask 2. send"}, turn(use("send_email", MAIL))]
    run = started(client, [*script, RESULTS], permission_mode="plan")
    plans: list[str] = []

    def on_question(gate: Any) -> dict[str, str]:
        assert gate.is_plan_approval
        plans.append(gate.plan_text)
        return {"Plan Approval": "Approve" if len(plans) == 2 else "Revise: ask first"}

    ended = client.runs.wait(
        run.id, on_question=on_question, on_approval=lambda _: "allow", interval=FAST, timeout=20
    )
    assert ended.status == "completed", ended
    assert plans == ["1. send", "1. ask 2. send"]
    gates = client.runs.permissions(run.id)
    assert [gate.tool_name for gate in gates] == ["AskUserQuestion"] * 2 + ["send_email"]
    assert any("ask first" in message.content for message in client.runs.messages(run.id)) or any(
        "ask first" in json.dumps(message.content_blocks)
        for message in client.runs.messages(run.id)
    )


def flow_switch_to_autonomous(client: M8tes) -> None:
    """Tool gates are settled by the switch, the question stays for a person."""
    script = [turn(use("AskUserQuestion", {"questions": [COLOUR]}, "q"), use("send_email", MAIL))]
    run = started(client, [*script, turn(use("set_flag", {"key": "k", "value": "v"})), RESULTS])
    waiting(client, run.id, 2)
    switched = client.runs.update_permission_mode(run.id, permission_mode="autonomous")
    assert switched.permission_mode == "autonomous"
    (question,) = waiting(client, run.id)
    assert question.tool_name == "AskUserQuestion"
    answered = client.runs.answer(run.id, answers={"Which colour?": "Red"})
    assert answered == {"status": "ok", "resumed": True}
    ended = done(client, run.id)
    assert ended.permission_mode == "autonomous"
    # The next step's call opened no gate.
    assert len(client.runs.permissions(run.id)) == 2


def flow_remember(client: M8tes) -> None:
    """allow + remember covers the run and leaves a policy that can be listed and revoked."""
    user = f"user-{uuid.uuid4().hex[:8]}"
    again = turn(use("send_email", {**MAIL, "subject": "again"}, "c2"))
    run = started(client, [turn(use("send_email", MAIL)), again, RESULTS], user_id=user)
    (gate,) = waiting(client, run.id)
    assert gate.can_remember
    decided = client.runs.approve(run.id, request_id=gate.request_id, remember=True)
    assert (decided.status, decided.remembered, decided.resumed) == ("allowed", True, True)
    done(client, run.id)
    assert len(client.runs.permissions(run.id)) == 1
    (policy,) = client.permissions.list(user_id=user)
    assert (policy.tool_name, policy.source) == ("send_email", "run_approval")
    # Another run of the user needs no person; one of nobody does.
    other = started(client, [turn(use("send_email", MAIL)), RESULTS], user_id=user)
    assert client.runs.poll(other.id, user_id=user, interval=FAST).status == "completed"
    client.permissions.delete(policy.id, user_id=user)
    third = started(client, [turn(use("send_email", MAIL)), RESULTS], user_id=user)
    (gate,) = waiting(client, third.id)
    client.runs.approve(third.id, request_id=gate.request_id, decision="deny", reason="not now")
    assert "not now" in done(client, third.id).output


def flow_policies(client: M8tes) -> None:
    """A policy made ahead is idempotent, skips the pause, and is listed in its scope only."""
    user = f"user-{uuid.uuid4().hex[:8]}"
    made = client.permissions.create(user_id=user, tool="send_email")
    assert client.permissions.create(user_id=user, tool="send_email").id == made.id
    assert [policy.id for policy in client.permissions.list(user_id=user)] == [made.id]
    assert made.id not in [policy.id for policy in client.permissions.list()]
    run = started(client, [turn(use("send_email", MAIL)), RESULTS], user_id=user)
    assert client.runs.poll(run.id, user_id=user, interval=FAST).status == "completed"
    assert client.runs.permissions(run.id) == []


def flow_create_and_reply_and_wait(client: M8tes) -> None:
    """create_and_wait and reply_and_wait: one run, two turns, the script goes on."""
    script = [{"text": "first"}, turn(use("send_email", MAIL)), {"text": "second"}]
    run = client.runs.create_and_wait(
        message="hello", metadata={"script": script}, poll_interval=FAST, poll_timeout=20
    )
    assert (run.status, run.output) == ("completed", "first")
    again = client.runs.reply_and_wait(
        run.id,
        message="go on",
        human_in_the_loop=True,
        permission_mode="approval",
        on_approval=lambda _: "allow",
        poll_interval=FAST,
        poll_timeout=20,
    )
    assert (again.id, again.output) == (run.id, "second")
    words = [message.content for message in client.runs.messages(run.id) if message.role == "user"]
    assert words == ["hello", "go on"]


def flow_queued_reply(client: M8tes) -> None:
    """A reply to a parked run is queued; its own turn is waited for, or it is known as dropped."""
    run = started(client, [turn(use("send_email", MAIL)), {"text": "one"}, {"text": "two"}])
    waiting(client, run.id)
    replied = client.runs.reply(run.id, message="and?", stream=False)
    assert (replied.id, replied.delivery) == (run.id, "queued")
    assert client.runs.get(run.id).pending_queued_message_ids == [replied.queued_message_id]
    ended = client.runs.wait(
        run.id,
        on_approval=lambda _: "allow",
        interval=FAST,
        timeout=20,
        await_queued_message_id=replied.queued_message_id,
    )
    assert (ended.output, ended.pending_queued_message_ids) == ("two", [])
    dropped = started(client, [turn(use("send_email", MAIL)), {"text": "one"}])
    waiting(client, dropped.id)
    replied = client.runs.reply(dropped.id, message="and?", stream=False)
    cancelled = client.runs.cancel(dropped.id)
    assert cancelled.cancelled_queued_message_ids == [replied.queued_message_id]


def flow_stream(client: M8tes) -> None:
    """A stream ends at an open gate, is joined again after the decision, and ends for good."""
    script = [
        turn(use("send_email", MAIL), text="caf\u00e9 \u2028 one"),
        {"text": "Sent.", "delay_ms": 300},
    ]
    with client.runs.create(
        message="go",
        human_in_the_loop=True,
        permission_mode="approval",
        metadata={"script": script},
    ) as stream:
        kinds = [event.raw.get("type") for event in stream]
    assert stream.text == "caf\u00e9 \u2028 one", stream.text
    assert "permission_request" in kinds
    assert kinds[-1] == "awaiting_approval"
    run_id = stream.run_id
    (gate,) = client.runs.permissions(run_id)
    client.runs.approve(run_id, request_id=gate.request_id, decision="allow")
    with client.runs.stream(run_id, raise_on_error=True) as joined:
        kinds = [event.raw.get("type") for event in joined]
    assert {"permission_resolved", "replay_complete", "tool-result-end"} <= set(kinds), kinds
    assert "done" in kinds[-2:]
    assert joined.text.endswith("Sent.")
    error = refused(m8tes.ConflictError, lambda: client.runs.stream(run_id))
    assert error.code == "run_not_active"


def flow_stream_with_several_gates(client: M8tes) -> None:
    """The last gate is settled first: the stream still ends at one that is open."""
    script = [
        turn(use("send_email", MAIL, "c1"), use("send_email", MAIL, "c2")),
        {"text": "end", "delay_ms": 200},
    ]
    run = started(client, script)
    first, last = waiting(client, run.id, 2)
    client.runs.approve(run.id, request_id=last.request_id)
    with client.runs.stream(run.id) as parked:
        list(parked)
    client.runs.approve(run.id, request_id=first.request_id)
    with client.runs.stream(run.id) as joined:
        list(joined)
    assert joined.text == "end"


def flow_stream_text(client: M8tes) -> None:
    """stream_text yields the text and nothing else; a failed run is not taken for an empty one."""
    chunks = list(client.runs.stream_text(message="hello", raise_on_error=True))
    assert "".join(chunks) == "You said: hello", chunks
    script = [{"text": "x", "error": {"kind": "auth", "times": 9}}]
    failing = client.runs.stream_text(
        message="hello", metadata={"script": script}, raise_on_error=True
    )
    try:
        list(failing)
    except m8tes.RunFailedError:
        return
    msg = "a failed run must not look like an empty answer"
    raise AssertionError(msg)


def flow_failed_run(client: M8tes) -> None:
    """raise_on_error tells a failed run from an answer, with the service's own words."""
    script = [{"text": "x", "error": {"kind": "context", "times": 9}}]
    run = started(client, script)
    try:
        client.runs.wait(run.id, interval=FAST, timeout=20, raise_on_error=True)
    except m8tes.RunFailedError as error:
        assert "context" in str(error)
    else:
        msg = "RunFailedError was expected"
        raise AssertionError(msg)
    failed = client.runs.get(run.id)
    assert (failed.status, failed.error_code) == ("failed", "model_context")


def flow_webhook_signature(client: M8tes) -> None:
    """A delivered webhook verifies with the client's own function, and only untouched."""
    with receiver() as (url, came):
        hook = client.webhooks.create(url=url, events=["run.awaiting_input", "run.completed"])
        assert len(hook.secret) >= 32
        run = started(client, [turn(use("AskUserQuestion", {"questions": [COLOUR]})), RESULTS])
        waiting(client, run.id)
        client.runs.answer(run.id, answers={"Which colour?": "Red"})
        done(client, run.id)
        deadline = time.monotonic() + 20
        while len(came) < 2:
            assert time.monotonic() < deadline, came
            time.sleep(FAST)
        verify = client.webhooks.verify_signature
        for headers, body in came:
            assert verify(body, headers, hook.secret, tolerance_seconds=300)
            assert verify(body.decode(), headers, hook.secret)
            assert not verify(body + b" ", headers, hook.secret)
            assert not verify(body, headers, hook.secret[:-1])
        kinds = {json.loads(body)["type"]: json.loads(body)["data"] for _, body in came}
        assert kinds["run.awaiting_input"]["questions"] == [COLOUR]
        assert kinds["run.completed"]["run_id"] == run.id
        rows = list(client.webhooks.list_deliveries(hook.id))
        assert {row.run_id for row in rows} == {run.id}
        shown = client.webhooks.get(hook.id)
        assert shown.secret.endswith("...")
        rotated = client.webhooks.update(hook.id, rotate_secret=True)
        assert rotated.secret != hook.secret
        client.webhooks.delete(hook.id)
        refused(m8tes.NotFoundError, lambda: client.webhooks.get(hook.id))


def flow_idempotency(client: M8tes) -> None:
    """One key is one run: as JSON, as a stream that is joined, and as a refusal."""
    key = uuid.uuid4().hex
    ask = {"message": "go", "metadata": {"script": [{"text": "slow", "delay_ms": 500}]}}
    with client.runs.create(**ask, idempotency_key=key) as first:
        replay = client.runs.create(**ask, idempotency_key=key)
        with replay:
            assert "".join(e.raw.get("delta", "") for e in replay) == "slow"
        list(first)
    assert first.run_id == replay.run_id
    try:
        client.runs.create(**ask, idempotency_key=key)
    except m8tes.ConflictError as error:
        assert error.code == "idempotent_replay_terminal"
        assert error.details["run_id"] == first.run_id
    other = refused(
        m8tes.ConflictError,
        lambda: client.runs.create(message="other", stream=False, idempotency_key=key),
    )
    assert other.code == "idempotency_key_reuse"
    reply_key = uuid.uuid4().hex
    twice = [
        client.runs.reply(first.run_id, message="more", stream=False, idempotency_key=reply_key)
        for _ in range(2)
    ]
    assert {run.id for run in twice} == {first.run_id}
    done(client, first.run_id)
    said = [m.content for m in client.runs.messages(first.run_id) if m.role == "user"]
    assert said == ["go", "more"]


def flow_gate_refusals(client: M8tes) -> None:
    """Every code by which the client tells one refusal of a decision from another."""
    run = started(client, [turn(use("send_email", MAIL)), RESULTS])
    (gate,) = waiting(client, run.id)

    def decide(decision: str, request_id: str = gate.request_id) -> Any:
        return client.runs.approve(run.id, request_id=request_id, decision=decision)

    unknown = refused(m8tes.NotFoundError, lambda: decide("allow", "req_unknown"))
    assert unknown.code == unknown.error_code == "gate_not_found"
    assert refused(m8tes.ValidationError, lambda: decide("perhaps")).status_code == 422
    assert decide("allow").resumed is True
    assert decide("allow").status == "allowed"
    for _ in range(2):  # while it runs, and after it has ended
        other = refused(m8tes.NotFoundError, lambda: decide("deny"))
        assert other.code == "gate_resolved_otherwise"
        done(client, run.id)
    assert refused(m8tes.NotFoundError, lambda: decide("deny", "req_x")).code == "gate_not_found"
    asked = started(client, [turn(use("AskUserQuestion", {"questions": [COLOUR]})), RESULTS])
    (question,) = waiting(client, asked.id)
    approved = refused(
        m8tes.ConflictError,
        lambda: client.runs.approve(asked.id, request_id=question.request_id),
    )
    assert approved.code == "answer_required"
    empty = refused(m8tes.ValidationError, lambda: client.runs.answer(asked.id, answers={}))
    assert empty.status_code == 422
    cancelled = client.runs.cancel(asked.id)
    assert cancelled.status == "cancelled"
    refused(m8tes.ConflictError, lambda: client.runs.cancel(asked.id))
    gone = started(client, [turn(use("send_email", MAIL)), RESULTS])
    (gate,) = waiting(client, gone.id)
    client.runs.cancel(gone.id)
    late = refused(
        m8tes.NotFoundError, lambda: client.runs.approve(gone.id, request_id=gate.request_id)
    )
    assert late.code == "gate_cancelled"
    answered = refused(
        m8tes.ConflictError, lambda: client.runs.answer(gone.id, answers={"Which colour?": "Red"})
    )
    assert answered.code == "run_not_awaiting"
    # wait() takes the end of the run for the answer, not the refusal of its decision.
    assert client.runs.wait(gone.id, interval=FAST, timeout=5).status == "cancelled"


def flow_error_codes(client: M8tes) -> None:
    """The other codes and classes of the contract."""
    missing = refused(m8tes.NotFoundError, lambda: client.runs.get(999_999_999))
    assert missing.status_code == 404
    refused(m8tes.NotFoundError, lambda: client.runs.create(message="x", teammate_id=999_999_999))
    for options in (
        {"permission_mode": "approval"},
        {"permission_mode": "plan", "human_in_the_loop": False},
        {"model": "gpt-5"},
        {"tools": ["no_such_tool"]},
        {"max_turns": 0},
        {"output_schema": {"type": "array"}},
    ):
        create = partial(client.runs.create, message="x", stream=False, **options)
        found = refused(m8tes.ValidationError, create)
        assert found.status_code == 422, options
    bad_url = refused(
        m8tes.ValidationError, lambda: client.webhooks.create(url="https://192.168.0.1/x")
    )
    assert bad_url.status_code == 422
    clash = refused(
        m8tes.ValidationError, lambda: client.agents.create(name="A", from_template="x")
    )
    assert (clash.status_code, clash.code) == (400, "from_template_conflict")
    stranger = M8tes(api_key="not-a-key-of-this-server", base_url=client.base_url)
    assert refused(m8tes.AuthenticationError, stranger.runs.list).status_code == 401
    user = f"user-{uuid.uuid4().hex[:8]}"
    client.users.create(user_id=user, run_limit=0)
    blocked = refused(
        m8tes.BillingError, lambda: client.runs.create(message="x", stream=False, user_id=user)
    )
    assert blocked.code == "END_USER_RUN_LIMIT_REACHED"
    client.users.update(user, run_limit=None, rate_per_minute=1)
    error = {"text": "x", "error": {"kind": "auth", "times": 9}}
    first = started(client, [error], user_id=user)
    refused(m8tes.NotFoundError, lambda: client.runs.get(first.id, user_id="somebody-else"))
    failed = client.runs.poll(first.id, user_id=user, interval=FAST, timeout=20)
    # A call that the client does not repeat by itself after the time that it is told.
    limited = refused(m8tes.RateLimitError, lambda: client.runs.retry(failed.id))
    assert limited.code == "END_USER_RATE_LIMIT_REACHED"
    assert limited.retry_after
    refused(m8tes.ConflictError, lambda: client.users.create(user_id=user))
    late = refused(
        m8tes.ConflictError,
        lambda: client.runs.update_permission_mode(failed.id, permission_mode="approval"),
    )
    assert late.code == "run_not_active"


def flow_retry(client: M8tes) -> None:
    """A retry is a new run; one that had acted asks for confirmation first."""
    error = {"text": "x", "error": {"kind": "auth", "times": 9}}
    plain = done(client, started(client, [error]).id, "failed")
    assert plain.retryable
    child = client.runs.retry(plain.id)
    assert child.id != plain.id
    assert child.retry_of_run_id == plain.id
    acted = started(client, [turn(use("send_email", MAIL)), error], permission_mode="autonomous")
    failed = done(client, acted.id, "failed")
    asked = refused(m8tes.ConflictError, lambda: client.runs.retry(failed.id))
    assert asked.code == "retry_needs_confirmation"
    assert client.runs.retry(failed.id, confirm=True).retry_of_run_id == failed.id
    completed = done(client, started(client, [{"text": "fine"}]).id)
    refused(m8tes.ConflictError, lambda: client.runs.retry(completed.id))


def flow_overviews(client: M8tes) -> None:
    """check, needs-you, activity, outcome, messages and usage say what happened."""
    agent = client.agents.create(name=f"Agent {uuid.uuid4().hex[:6]}")
    before = client.runs.check()
    script = [turn(use("send_email", {**MAIL, "body": "secret prompt"})), {"text": "All sent."}]
    run = started(client, script, teammate_id=agent.id)
    (gate,) = waiting(client, run.id)
    after = client.runs.check()
    assert after.total_count == before.total_count + 1
    assert after.latest_run_id == run.id
    assert after.awaiting_count == before.awaiting_count + 1
    needed = client.runs.needs_you()
    assert needed.count >= 1
    (item,) = [item for item in needed.items if item.run_id == run.id]
    assert item.mate_name == agent.name
    assert "secret" not in item.title
    rows = [row for row in client.runs.activity().data if row.agent_id == agent.id]
    assert [found.status for row in rows for found in row.runs] == ["awaiting_approval"]
    assert run.id in [found.id for found in client.runs.list(sort="priority")]
    client.runs.approve(run.id, request_id=gate.request_id)
    ended = done(client, run.id)
    assert ended.usage.total_tokens == ended.usage.input_tokens + ended.usage.output_tokens > 0
    assert float(ended.usage.cost_usd) >= 0
    outcome = client.runs.outcome(run.id)
    assert (outcome.status, outcome.summary) == ("completed", "All sent.")
    assert outcome.total_tokens == ended.usage.total_tokens
    messages = client.runs.messages(run.id)
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert outcome.message_count == len(messages)
    tail = client.runs.messages(run.id, tail=True, limit=1)
    assert [m.content for m in tail] == ["All sent."]
    assert client.runs.messages(run.id, after_sequence=messages[-1].sequence) == []
    assert client.runs.list_files(run.id) == []


def flow_archive_share_view(client: M8tes) -> None:
    """What people note on a run: archive, a link, when it was seen."""
    run = done(client, started(client, [{"text": "fine"}]).id)
    archived = client.runs.archive(run.id)
    assert archived.archived
    assert run.id not in [item.id for item in client.runs.list(limit=100)]
    assert run.id in [item.id for item in client.runs.list(archived="only", limit=100)]
    assert client.runs.get(run.id).status == "completed"
    assert not client.runs.unarchive(run.id).archived
    shared = client.runs.share(run.id)
    assert client.runs.share(run.id).share_token == shared.share_token
    client.runs.unshare(run.id)
    assert client.runs.share(run.id).share_token != shared.share_token
    assert client.runs.mark_viewed(run.id).last_viewed_at


def flow_agents_and_users(client: M8tes) -> None:
    """Agents and end users as the client keeps them."""
    agent = client.agents.create(
        name="Mail", instructions="Be brief.", tools=["send_email"],
        default_permission_mode="approval",
    )  # fmt: skip
    assert client.agents.get(agent.id).default_permission_mode == "approval"
    assert client.agents.update(agent.id, name="Post").name == "Post"
    run = client.runs.create(
        message="go",
        stream=False,
        teammate_id=agent.id,
        metadata={"script": [turn(use("send_email", MAIL)), RESULTS]},
    )
    (gate,) = waiting(client, run.id)
    busy = client.agents.get(agent.id)
    assert (busy.active_run_count, busy.active_run_id) == (1, run.id)
    client.runs.approve(run.id, request_id=gate.request_id, decision="deny")
    assert done(client, run.id).teammate_id == agent.id
    idle = client.agents.get(agent.id)
    assert (idle.active_run_count, idle.active_run_id) == (0, None)
    assert idle.last_active_at
    client.agents.delete(agent.id)
    assert client.agents.get(agent.id).status == "archived"
    user = f"user-{uuid.uuid4().hex[:8]}"
    client.users.create(user_id=user, name="Ann")
    assert client.users.update(user, company="ACME").name == "Ann"
    assert client.users.get(user).company == "ACME"
    client.users.delete(user)
    refused(m8tes.NotFoundError, lambda: client.users.get(user))


def flow_structured_output(client: M8tes) -> None:
    """output_schema comes back as output_data, in the run and in its outcome."""
    schema = {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": False,
    }
    script = [{"text": "It is three."}, turn(use("SubmitOutput", {"total": 3}))]
    run = client.runs.create_and_wait(
        message="count",
        output_schema=schema,
        metadata={"script": script},
        poll_interval=FAST,
        poll_timeout=20,
    )
    assert (run.status, run.output_data) == ("completed", {"total": 3}), run
    assert client.runs.outcome(run.id).output_data == {"total": 3}
    assert client.runs.create_and_wait(message="x", poll_interval=FAST).output_data is None
    # The schema stays with the run.
    failed = client.runs.reply_and_wait(run.id, message="again", poll_interval=FAST)
    assert (failed.status, failed.error_code) == ("failed", "output_invalid")


def flow_pages(client: M8tes) -> None:
    """Pages end exactly, and the client walks them to the end."""
    made = [started(client, [{"text": "x"}]).id for _ in range(3)]
    page = client.runs.list(limit=2)
    assert len(page.data) == 2
    assert page.has_more
    walked = [run.id for run in page.auto_paging_iter()]
    assert walked[:3] == sorted(made, reverse=True)
    assert len(walked) == len(set(walked))


FLOWS = {name.removeprefix("flow_"): flow for name, flow in globals().items() if "flow_" in name}


def main() -> None:
    """Runs one flow."""
    name, url, key = sys.argv[1:]
    with M8tes(api_key=key, base_url=f"{url}/api/v2") as client:
        FLOWS[name](client)
    print("ok")


if __name__ == "__main__":
    main()
