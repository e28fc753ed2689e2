"""One suite of the SDK against the fake service and against a real one: they answer alike."""

import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from signoff.client import Allow, Client, Deny, Supply
from signoff.client import errors as e
from signoff.signing import sign_decision, verify
from signoff.testing import FakeService
from tests.e2e.harness import KEY, Receiver, running, until

MAIL = {"to": "ada@example.com", "subject": "Hello", "body": "Hi"}
SEND = {"name": "send_email", "input": MAIL}
QUESTION = "Which one?"
ASK = {
    "name": "AskUserQuestion",
    "input": {
        "questions": [
            {
                "question": QUESTION,
                "header": "Pick",
                "multiSelect": False,
                "options": [{"label": "A"}, {"label": "B"}],
            }
        ]
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A service and how to look at what it sent."""

    name: str
    client: Client
    hooks: str
    #: The events that arrived at ``hooks``, with headers and body.
    arrived: Callable[[], list[Any]]
    post: Callable[[str, bytes, dict[str, str]], httpx.Response]


@pytest.fixture(scope="module", params=["fake", "real"])
def side(request, tmp_path_factory) -> Iterator[Side]:
    if request.param == "fake":
        fake = FakeService(read_only={"search_docs"})
        with fake.client() as client, httpx.Client(transport=fake.transport) as http:
            yield Side(
                name="fake",
                client=client,
                hooks="http://127.0.0.1:1/hooks",
                arrived=lambda: list(fake.sent),
                post=lambda url, body, headers: http.post(url, content=body, headers=headers),
            )
        return
    receiver = Receiver()
    with (
        running(tmp_path_factory.mktemp("real")) as dev,
        Client(base_url=dev.url, api_key=KEY) as client,
        httpx.Client() as http,
    ):
        yield Side(
            name="real",
            client=client,
            hooks=receiver.url,
            arrived=lambda: list(receiver.got),
            post=lambda url, body, headers: http.post(url, content=body, headers=headers),
        )
    receiver.close()


@pytest.fixture
def client(side):
    return side.client


def _parked(client, *calls, mode="approval", **options):
    """A run that waits at a gate for each call, and the gates."""
    script = [{"tool_calls": list(calls) or [SEND]}, {"text": "Done: {{last_results}}"}]
    run = client.runs.create(
        "go",
        human_in_the_loop=True,
        permission_mode=mode,
        metadata={"script": options.pop("script", script)},
        **options,
    )
    assert run.status == "running"
    until(lambda: client.runs.get(run.id).status == "awaiting_approval", what="a pause")
    return run.id, [gate for gate in client.runs.permissions(run.id) if gate.is_pending]


def _ended(client, run_id, status="completed"):
    return until(
        lambda: (run := client.runs.get(run_id)).status == status and run, what=f"{status}"
    )


def test_an_approved_call_runs_and_the_run_completes(client):
    """Allow settles the gate, resumes the run, and the model sees the result."""
    run_id, (gate,) = _parked(client)
    assert (gate.kind, gate.tool_name, gate.tool_input) == ("tool_approval", "send_email", MAIL)
    settled = client.runs.approve(run_id, gate.request_id, expected_digest=gate.digest)
    assert (settled.status, settled.resumed) == ("allowed", True)
    assert '"state":"success"' in _ended(client, run_id).output


def test_digests_are_the_same_on_both_sides(client):
    """The digest is that of RFC 8785 over tool and input."""
    _, (gate,) = _parked(client)
    assert gate.digest == "7a0a9f4d7aa1156b787a497089280f438632caa46fcfc61c3716472158b1ec10"


def test_a_denied_call_does_not_run(client):
    """The model is told of the denial and the reason."""
    run_id, (gate,) = _parked(client)
    settled = client.runs.approve(run_id, gate.request_id, "deny", reason="wrong customer")
    assert settled.status == "denied"
    run = _ended(client, run_id)
    assert '"state":"denied"' in run.output
    assert "wrong customer" in run.output


def test_an_edited_input_is_what_runs(client):
    """The gate keeps both, and the effective digest is another one."""
    run_id, (gate,) = _parked(client)
    settled = client.runs.approve(run_id, gate.request_id, input={**MAIL, "subject": "Hello!"})
    assert settled.edited_input == {**MAIL, "subject": "Hello!"}
    assert settled.effective_digest not in (None, gate.digest)
    assert settled.digest == gate.digest


def test_the_same_decision_again_has_no_second_effect_and_the_opposite_is_refused(client):
    """A repeat answers as before; another verdict names the standing one."""
    run_id, (gate,) = _parked(client)
    client.runs.approve(run_id, gate.request_id)
    assert client.runs.approve(run_id, gate.request_id).status == "allowed"
    with pytest.raises(e.GateResolvedOtherwiseError) as refused:
        client.runs.approve(run_id, gate.request_id, "deny")
    assert (refused.value.standing or {})["status"] == "allowed"


def test_a_gate_that_is_not_there_or_not_the_one_seen_is_refused(client):
    """Unknown, and known with another digest."""
    run_id, (gate,) = _parked(client)
    with pytest.raises(e.GateNotFoundError):
        client.runs.approve(run_id, "req_nonsense")
    with pytest.raises(e.GateChangedError):
        client.runs.approve(run_id, gate.request_id, expected_digest="0" * 64)
    assert client.runs.permissions(run_id)[0].is_pending


def test_a_question_is_answered_by_its_text(client):
    """Options, free text, and what is refused."""
    run_id, (gate,) = _parked(client, ASK, mode="autonomous")
    assert gate.is_question
    assert not gate.is_plan_approval
    assert [question.question for question in gate.questions] == [QUESTION]
    with pytest.raises(e.AnswerRequiredError):
        client.runs.approve(run_id, gate.request_id)
    with pytest.raises(e.ValidationError):
        client.runs.answer(run_id, {"Another?": "A"})
    with pytest.raises(e.ValidationError):
        client.runs.answer(run_id, {})
    assert client.runs.answer(run_id, {QUESTION: "neither"}).resumed
    assert client.runs.answer(run_id, {QUESTION: "neither"}, request_id=gate.request_id)
    with pytest.raises(e.GateResolvedOtherwiseError):
        client.runs.answer(run_id, {QUESTION: "B"}, request_id=gate.request_id)
    assert "neither" in _ended(client, run_id).output
    with pytest.raises(e.RunNotAwaitingError):
        client.runs.answer(run_id, {QUESTION: "B"})


def test_a_plan_is_revised_and_then_approved(client):
    """Feedback opens a new gate; before the approval no effect happens."""
    script = [
        {"tool_calls": [SEND]},
        {"plan": "1. Write"},
        {"plan": "1. Write politely"},
        {"text": "Done."},
    ]
    run_id, (first,) = _parked(client, mode="plan", script=script)
    assert (first.is_plan_approval, first.plan_text) == (True, "1. Write")
    client.runs.answer(run_id, {"Plan Approval": "politely, please"})
    (second,) = until(
        lambda: [gate for gate in client.runs.permissions(run_id) if gate.is_pending],
        what="the second plan",
    )
    assert second.plan_text == "1. Write politely"
    client.runs.answer(run_id, {"1. Write politely": "Approve"})
    run = _ended(client, run_id)
    assert run.plan_approved
    assert [message.role for message in client.runs.messages(run_id)][:3] == [
        "user",
        "assistant",
        "tool",
    ]


def test_a_batch_is_applied_whole_or_not_at_all(client):
    """One item in the way, named by its place, and nothing has happened."""
    run_id, (first, second) = _parked(client, SEND, SEND)
    with pytest.raises(e.GateNotFoundError) as refused:
        client.runs.decide(
            run_id,
            [
                {"request_id": first.request_id, "decision": "allow"},
                {"request_id": "req_nonsense", "decision": "allow"},
            ],
        )
    assert refused.value.field == "decisions[1]"
    assert [row["index"] for row in refused.value.details["decisions"]] == [1]
    assert all(gate.is_pending for gate in client.runs.permissions(run_id))
    with pytest.raises(e.ValidationError):
        client.runs.decide(run_id, [{"request_id": first.request_id, "decision": "allow"}] * 2)
    with pytest.raises(e.ValidationError):
        client.runs.decide(run_id, [{"request_id": first.request_id, "nonsense": 1}])
    done = client.runs.decide(
        run_id,
        [
            {"request_id": second.request_id, "decision": "deny"},
            {"request_id": first.request_id, "decision": "allow"},
        ],
    )
    assert done.resumed
    assert [gate.status for gate in done.requests] == ["denied", "allowed"]


def test_resumed_is_said_by_the_last_of_several_decisions(client):
    """A run stays parked until its last gate is settled."""
    run_id, (first, second) = _parked(client, SEND, SEND)
    assert client.runs.approve(run_id, first.request_id).resumed is False
    assert client.runs.get(run_id).status == "awaiting_approval"
    assert client.runs.approve(run_id, second.request_id).resumed is True


def test_a_cancelled_run_takes_no_decision(client):
    """Its gates are cancelled, and it cannot be cancelled again."""
    run_id, (gate,) = _parked(client)
    assert client.runs.cancel(run_id).status == "cancelled"
    with pytest.raises(e.GateCancelledError):
        client.runs.approve(run_id, gate.request_id)
    with pytest.raises(e.RunNotActiveError):
        client.runs.cancel(run_id)
    with pytest.raises(e.RunNotActiveError):
        client.runs.update_permission_mode(run_id, "approval")


def test_a_switch_to_autonomous_allows_what_waits(client):
    """Tool approvals are allowed by the mode, questions still wait."""
    run_id, _ = _parked(client, SEND, ASK)
    assert client.runs.update_permission_mode(run_id, "autonomous") == "autonomous"
    mail, question = client.runs.permissions(run_id)
    assert (mail.status, mail.decided_by) == ("allowed", "mode")
    assert question.is_pending


def test_a_policy_spares_the_question_and_can_be_revoked(client):
    """Idempotent, of one scope, and listed there only."""
    user = f"u_{uuid.uuid4().hex}"
    policy = client.permissions.create("send_email", user_id=user)
    assert client.permissions.create("send_email", user_id=user).id == policy.id
    assert [item.id for item in client.permissions.list(user_id=user)] == [policy.id]
    run = client.runs.create_and_wait(
        "go",
        user_id=user,
        human_in_the_loop=True,
        permission_mode="approval",
        metadata={"script": [{"tool_calls": [SEND]}, {"text": "Done."}]},
    )
    assert (run.status, client.runs.permissions(run.id)) == ("completed", [])
    with pytest.raises(e.NotFoundError):
        client.permissions.delete(policy.id)
    client.permissions.delete(policy.id, user_id=user)
    assert list(client.permissions.each(user_id=user)) == []
    with pytest.raises(e.ReservedToolError):
        client.permissions.create("AskUserQuestion")
    with pytest.raises(e.ApiError):
        client.permissions.create("send_email", effect="perhaps")


def test_an_ask_policy_says_who_decides(client):
    """The policy and the gates of its calls show it; other approvers are a conflict."""
    user = f"u_{uuid.uuid4().hex}"
    approvers = {"any_of": ["user:ann", "user:ben"], "quorum": 2}
    made = client.permissions.create("send_email", user_id=user, effect="ask", approvers=approvers)
    assert (made.approvers.any_of, made.approvers.quorum) == (["user:ann", "user:ben"], 2)
    with pytest.raises(e.PermissionDiffersError):
        client.permissions.create(
            "send_email", user_id=user, effect="ask", approvers={**approvers, "quorum": 1}
        )
    with pytest.raises(e.ValidationError):
        client.permissions.create("send_email", user_id=user, approvers=approvers)
    run_id, (gate,) = _parked(client, user_id=user)
    assert gate.approvers == made.approvers
    client.runs.update_permission_mode(run_id, "autonomous")
    (gate,) = client.runs.permissions(run_id)
    assert gate.is_pending


def test_remember_stores_a_policy_of_the_runs_user(client):
    """Listed with its source."""
    user = f"u_{uuid.uuid4().hex}"
    run_id, (gate,) = _parked(client, user_id=user)
    assert client.runs.approve(run_id, gate.request_id, remember=True).remembered
    (policy,) = client.permissions.list(user_id=user)
    assert (policy.tool_name, policy.source) == ("send_email", "run_approval")


def test_the_inbox_lists_open_gates_of_all_runs(client):
    """By user, page by page, and no longer when they are decided."""
    user = f"u_{uuid.uuid4().hex}"
    first, (one,) = _parked(client, user_id=user)
    _second, (two,) = _parked(client, user_id=user)
    page = client.requests.list(user_id=user, limit=1)
    assert (len(page), page.has_more) == (1, True)
    listed = {gate.request_id for gate in client.requests.each(user_id=user, limit=1)}
    assert listed == {one.request_id, two.request_id}
    client.runs.cancel(first)
    (left,) = client.requests.list(user_id=user)
    assert (left.request_id, left.user_id, left.tool_name) == (two.request_id, user, "send_email")


def test_a_run_is_made_once_for_each_key(client):
    """The same key and request: the same run; another request: refused."""
    key = str(uuid.uuid4())
    made = client.runs.create("once", idempotency_key=key)
    assert client.runs.create("once", idempotency_key=key).id == made.id
    with pytest.raises(e.IdempotencyKeyReuseError):
        client.runs.create("twice", idempotency_key=key)


def test_what_cannot_be_run_is_refused(client):
    """Modes that need a person, malformed scripts, missing things."""
    with pytest.raises(e.ValidationError):
        client.runs.create("go", permission_mode="approval")
    with pytest.raises(e.InvalidScriptError):
        client.runs.create("go", metadata={"script": "nonsense"})
    for call in (client.runs.get, client.runs.permissions, client.runs.cancel):
        with pytest.raises(e.NotFoundError):
            call(999_999_999)
    with pytest.raises(e.ValidationError):
        client.runs.list(limit=101)


def test_runs_are_listed_by_scope(client):
    """Newest first, of exactly one user."""
    user = f"u_{uuid.uuid4().hex}"
    ids = [client.runs.create("go", user_id=user).id for _ in range(3)]
    assert [run.id for run in client.runs.each(user_id=user, limit=2)] == ids[::-1]
    with pytest.raises(e.NotFoundError):
        client.runs.get(ids[0], user_id="somebody-else")


def test_a_long_poll_tells_what_is_new_at_once(client):
    """A version that is not the run's any more is answered without waiting."""
    run_id, _ = _parked(client)
    assert client.runs.get(run_id, wait_s=20, known="1.running.0.0").open_requests == 1
    started = time.monotonic()
    known = client.runs.get(run_id).version
    assert client.runs.get(run_id, wait_s=1, known=known).version == known
    assert time.monotonic() - started >= 0.9


def test_wait_asks_the_callbacks_and_returns_the_end(client):
    """Every kind of gate goes to its callback once, and the run completes."""
    asked: list[str] = []

    def approval(gate):
        asked.append("approval")
        return Allow(reason="fine") if gate.tool_input == MAIL else Deny()

    def question(gate):
        asked.append("question")
        return {item.question: item.options[0].label for item in gate.questions}

    def plan(gate):
        asked.append(f"plan {gate.plan_text}")
        return "shorter" if len(asked) == 1 else True

    script = [
        {"plan": "long"},
        {"plan": "short"},
        {"tool_calls": [ASK, SEND]},
        {"text": "{{last_results}}"},
    ]
    run = client.runs.create_and_wait(
        "go",
        human_in_the_loop=True,
        permission_mode="plan",
        metadata={"script": script},
        on_approval=approval,
        on_question=question,
        on_plan=plan,
        timeout=30,
    )
    assert run.status == "completed"
    assert asked == ["plan long", "plan short", "question", "approval"]
    assert '"answer' in run.output


def test_a_webhook_endpoint_lives_and_its_secret_is_shown_once(side):
    """Made, masked, rotated, tested, removed; the test event verifies."""
    webhooks = side.client.webhooks
    hook = webhooks.create(side.hooks, events=["run.completed"])
    assert hook.secret is not None
    assert len(hook.secret) > 32
    assert webhooks.get(hook.id).secret == "whse..."
    assert hook.id in [item.id for item in webhooks.each()]
    sent = webhooks.test(hook.id)
    found = until(
        lambda: [
            item for item in side.arrived() if item.headers.get("webhook-id") == sent.event_id
        ],
        what="the test event",
    )
    assert verify(found[0].body, found[0].headers, hook.secret).msg_id == sent.event_id
    rotated = webhooks.update(hook.id, rotate_secret=True)
    assert rotated.secret not in (hook.secret, None)
    webhooks.update(hook.id, active=False)
    with pytest.raises(e.WebhookInactiveError):
        webhooks.test(hook.id)
    webhooks.delete(hook.id)
    with pytest.raises(e.NotFoundError):
        webhooks.get(hook.id)
    with pytest.raises(e.ValidationError):
        webhooks.create(side.hooks, events=["run.nonsense"])
    with pytest.raises(e.InvalidUrlError):
        webhooks.create("ftp://example.com/hooks")


def test_a_pause_is_announced_and_decided_by_a_signed_callback(side):
    """The event has the gate; the callback needs no key, and repeats have no second effect."""
    user = f"u_{uuid.uuid4().hex}"
    hook = side.client.webhooks.create(
        side.hooks, events=["run.awaiting_input", "run.completed"], user_id=user
    )
    run_id, (gate,) = _parked(side.client, user_id=user)
    (pause,) = until(
        lambda: [
            item
            for item in side.arrived()
            if item.type == "run.awaiting_input" and item.event["data"]["run_id"] == run_id
        ],
        what="the pause",
    )
    verify(pause.body, pause.headers, hook.secret)
    shown = pause.event["data"]["requests"][0]
    assert (shown["request_id"], shown["digest"]) == (gate.request_id, gate.digest)
    assert "questions" not in pause.event["data"]

    body = (
        b'{"type": "decision", "data": {"run_id": %d, "request_id": "%s", "decision": "allow"}}'
        % (run_id, gate.request_id.encode())
    )

    def call(raw=body, secret=hook.secret):
        signed = sign_decision(secret, raw, msg_id="dec_1", timestamp=int(time.time()))
        headers = {"content-type": "application/json", **signed}
        return side.post(hook.callback_url, raw, headers)

    other = side.client.webhooks.create(side.hooks, events=["run.awaiting_input"])
    assert call(secret=other.secret).status_code == 401
    first = call()
    assert first.status_code == 200, first.text
    assert first.json()["resumed"] is True
    assert call().json() == first.json()
    assert call(raw=body + b" ").status_code == 409
    _ended(side.client, run_id)
    until(
        lambda: any(
            item.type == "run.completed" and item.event["data"]["run_id"] == run_id
            for item in side.arrived()
        ),
        what="the end",
    )


def test_results_of_external_calls(client):
    """By call or by request, all or none, and on_external while waiting."""
    tool = {"name": "book", "input_schema": {"type": "object"}, "output_schema": {"type": "object"}}
    uses = [{"id": f"c{n}", "name": "book", "input": {"room": n}} for n in range(2)]
    run_id, gates = _parked(client, *uses, mode="autonomous", external_tools=[tool])
    assert client.runs.get(run_id).external_tools[0]["name"] == "book"
    assert [(gate.kind, gate.output_schema) for gate in gates] == [
        ("external", {"type": "object"})
    ] * 2
    first = {"tool_use_id": "c0", "output": {"code": "A"}}
    with pytest.raises(e.GateNotFoundError) as refused:
        client.runs.submit_results(run_id, [first, {"request_id": "req_none", "output": 1}])
    assert refused.value.field == "results[1]"
    with pytest.raises(e.ValidationError):
        client.runs.submit_results(run_id, [first, {"tool_use_id": "c0", "output": 1}])
    assert not client.runs.submit_results(run_id, [first]).resumed
    done = client.runs.wait(run_id, on_external=lambda _: Supply(output="full", state="error"))
    seen = [(row["state"], row["content"]) for row in json.loads(done.output[len("Done: ") :])]
    assert seen == [("success", '{"code":"A"}'), ("error", "full")]


def test_a_deny_rule_covers_external_tools(client):
    """Declared ones as any other."""
    client.permissions.create("denied_outside", effect="deny")
    tool = {"name": "denied_outside", "input_schema": {"type": "object"}}
    use = {"name": "denied_outside", "input": {}}
    script = [{"tool_calls": [use]}, {"text": "{{last_results}}"}]
    run = client.runs.create_and_wait("go", metadata={"script": script}, external_tools=[tool])
    assert '"state":"denied"' in run.output


def test_an_ask_user_call_is_a_question_to_a_person(client):
    """Shown in the form of our questions, answered to the model in its own."""
    tool = {"name": "AskUser", "input_schema": {"type": "object"}}
    asked = {
        "question": QUESTION,
        "header": "Pick",
        "context": "why",
        "multi_select": True,
        "options": [{"label": "A", "preview": "a()"}, {"label": "B"}],
    }
    use = {"name": "AskUser", "input": {"questions": [asked]}}
    run_id, (gate,) = _parked(client, use, external_tools=[tool])
    assert (gate.kind, gate.tool_name) == ("question", "AskUserQuestion")
    (question,) = gate.tool_input["questions"]
    assert (question["multiSelect"], question["context"]) == (True, "why")
    assert question["options"][0]["preview"] == "a()"
    client.runs.answer(run_id, {QUESTION: ["B", "neither"]})
    seen = json.loads(json.loads(_ended(client, run_id).output[len("Done: ") :])[0]["content"])
    assert seen == {"answers": [{"question": QUESTION, "selected": ["B"], "other": "neither"}]}


OWED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def _owing(client, *turns, status="completed"):
    run = client.runs.create("go", output_schema=OWED, metadata={"script": [*turns]})
    return _ended(client, run.id, status)


def _submit(value):
    return {"name": "SubmitOutput", "input": value}


@pytest.mark.parametrize(
    "turns",
    [
        [{"text": '{"n": 3}'}],
        [{"text": '```json\n{"n": 3}\n```'}],
        [{"tool_calls": [_submit({"n": 3})]}],
        [{"text": "three"}, {"text": "{"}, {"text": '{"n": 3}'}],
        [
            {"tool_calls": [_submit({"n": 4}), {"name": "search_docs", "input": {"query": "n"}}]},
            {"tool_calls": [_submit({"n": 3})]},
        ],
    ],
    ids=["text", "fenced", "call", "again", "beside"],
)
def test_a_run_that_owes_an_object_ends_with_it(client, turns):
    """Said or submitted, at once or when it is asked for again."""
    run = _owing(client, *turns)
    assert (run.status, run.output_data) == ("completed", {"n": 3})
    assert client.runs.outcome(run.id).output_data == {"n": 3}
    asked = [item.role for item in client.runs.messages(run.id)].count("user")
    assert asked == (3 if turns[0] == {"text": "three"} else 1)


def test_a_run_that_never_gives_its_object_fails(client):
    """After it was asked for twice again; the next turn begins anew."""
    run = _owing(client, *[{"text": "three"}] * 3, {"text": '{"n": 3}'}, status="failed")
    assert (run.status, run.error_code, run.output_data) == ("failed", "output_invalid", None)
    client.runs.reply(run.id, "again")
    run = _ended(client, run.id)
    assert (run.status, run.output_data) == ("completed", {"n": 3})


def test_a_run_is_filed_away_and_found_again(client):
    """An archived run is in no list and stays readable; the outcome says what it came to."""
    run = client.runs.create_and_wait("hello", user_id=(user := f"u_{uuid.uuid4().hex}"))
    assert client.runs.archive(run.id).archived is True
    assert client.runs.list(user_id=user).data == []
    assert client.runs.get(run.id).archived is True
    client.runs.unarchive(run.id)
    assert [found.id for found in client.runs.list(user_id=user)] == [run.id]
    outcome = client.runs.outcome(run.id)
    assert (outcome.status, outcome.headline) == ("completed", "You said: hello")
    assert outcome.message_count == 2
    assert client.runs.view(run.id).id == run.id


def test_a_cancelled_run_is_tried_again(client):
    """As a new run; once it had begun to act only if that is confirmed."""
    run_id, _ = _parked(client)
    client.runs.cancel(run_id)
    child = client.runs.retry(run_id)
    assert (child.retry_of_run_id, client.runs.get(run_id).retried_by_run_id) == (run_id, child.id)
    until(lambda: client.runs.get(child.id).status == "awaiting_approval", what="a pause")
    assert client.runs.retry(run_id).id == child.id
    (gate,) = [gate for gate in client.runs.permissions(child.id) if gate.is_pending]
    client.runs.approve(child.id, gate.request_id)
    _ended(client, child.id)
    with pytest.raises(e.RunNotRetryableError):
        client.runs.retry(child.id)


def test_a_run_that_had_begun_to_act_is_retried_when_that_is_confirmed(client):
    """What it did may be done again."""
    again = {"tool_calls": [SEND]}
    run_id, (gate,) = _parked(client, script=[again, again, {"text": "end"}])
    client.runs.approve(run_id, gate.request_id)
    until(lambda: any(gate.is_pending for gate in client.runs.permissions(run_id)), what="a second")
    assert client.runs.cancel(run_id).repeats_actions is True
    with pytest.raises(e.RetryNeedsConfirmationError):
        client.runs.retry(run_id)
    assert client.runs.retry(run_id, confirm=True).retry_of_run_id == run_id


def test_runs_that_wait_for_a_person_are_counted(client):
    """Those of one scope, the newest first."""
    user = f"u_{uuid.uuid4().hex}"
    first, _ = _parked(client, user_id=user)
    second, _ = _parked(client, user_id=user)
    found = client.runs.needs_you(user_id=user)
    assert (found.count, [item.run_id for item in found.items]) == (2, [second, first])


def test_a_wrong_key_is_refused(side):
    """By an exception of its own."""
    url = side.client.runs.driver.options.base_url
    transport = FakeService().transport if side.name == "fake" else None
    with (
        Client(base_url=url, api_key="another-api-key", transport=transport) as other,
        pytest.raises(e.AuthenticationError),
    ):
        other.runs.list()


def test_a_gate_that_nobody_decides_expires(client, side):
    """Denied after its time, with a record that says so, a reminder before, and late refusals."""
    names = ["run.input_reminder", "run.input_expired"]
    client.webhooks.create(side.hooks, events=names)
    run_id, (gate,) = _parked(client, expires_in=1.5, remind_after=0.5)
    assert gate.expires_at is not None
    until(lambda: client.runs.permissions(run_id)[0].status == "denied", what="an expiry")
    (gate,) = client.runs.permissions(run_id)
    assert (gate.decided_by, gate.auto_resolved) == ("expiry", True)
    assert gate.reason == "Nobody decided in time."
    assert "Nobody decided" in _ended(client, run_id).output
    with pytest.raises(e.GateResolvedOtherwiseError) as caught:
        client.runs.approve(run_id, gate.request_id)
    assert (caught.value.standing or {})["decided_by"] == "expiry"

    def told():
        found = [item.event for item in side.arrived()]
        mine = [row for row in found if row["data"].get("run_id") == run_id]
        return [row for row in mine if row["type"] in names]

    until(lambda: len(told()) == 2, what="two events")
    first, second = sorted(told(), key=lambda row: row["type"], reverse=True)
    assert [row["type"] for row in (first, second)] == names
    (request,) = second["data"]["requests"]
    assert (request["status"], request["answers"], second["data"]["on_expiry"]) == (
        "denied",
        None,
        "deny",
    )


def test_a_recommended_option_answers_in_time(client):
    """The answer is on record, and another one is too late."""
    options = [{"label": "A (Recommended)"}, {"label": "B"}]
    question = {"question": QUESTION, "header": "Pick", "multiSelect": False, "options": options}
    ask = {"name": "AskUserQuestion", "input": {"questions": [question]}}
    run_id, (gate,) = _parked(client, ask, expires_in=0.5, on_expiry="answer")
    until(lambda: client.runs.permissions(run_id)[0].status == "allowed", what="an answer")
    (gate,) = client.runs.permissions(run_id)
    assert gate.tool_input["answers"] == {QUESTION: "A (Recommended)"}
    with pytest.raises(e.AutoContinuedError):
        client.runs.answer(run_id, {QUESTION: "B"}, request_id=gate.request_id)
    assert "Nobody answered in time" in _ended(client, run_id).output


def test_a_run_can_end_when_nobody_decides(client):
    """on_expiry cancel; and a policy without a time is refused."""
    run_id, _ = _parked(client, expires_in=0.5, on_expiry="cancel")
    _ended(client, run_id, "cancelled")
    (gate,) = client.runs.permissions(run_id)
    assert (gate.status, gate.decided_by, gate.auto_resolved) == ("cancelled", "expiry", True)
    with pytest.raises(e.ValidationError):
        client.runs.create("go", on_expiry="deny")


def test_policies_have_limits_and_can_be_tried_out(client):
    """An allow with a bound and an expiry; a dry run by stored and by given rules."""
    user = f"u_{uuid.uuid4().hex[:8]}"
    made = client.permissions.create(
        "send_email(to=*@acme.com)",
        user_id=user,
        expires_at="2999-01-01T00:00:00Z",
        max_uses=2,
    )
    assert (made.max_uses, made.uses, made.expires_at) == (2, 0, "2999-01-01T00:00:00.000Z")
    email = {"to": "a@acme.com", "subject": "s", "body": "b"}
    found = client.permissions.evaluate("send_email", email, user_id=user)
    assert (found.verdict, (found.rule or {})["id"]) == ("allow", made.id)
    asked = client.permissions.evaluate("send_email", {**email, "to": "b@x.com"}, user_id=user)
    assert (asked.verdict, asked.rule) == ("ask", None)
    given = [{"tool": "send_email", "effect": "deny"}]
    denied = client.permissions.evaluate("send_email", email, rules=given, mode="autonomous")
    assert denied.verdict == "deny"
    client.permissions.delete(made.id, user_id=user)
