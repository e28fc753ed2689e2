"""Waiting: which calls are made, who is asked, and when it ends. No network, no time passes."""

import pytest

from signoff.client import errors as e
from signoff.client.decision import Allow, Deny, Supply
from signoff.client.effects import Consult, Now, Perform, Sleep
from signoff.client.values import PermissionRequest, Run
from signoff.client.wait import POLL_S, create_and_wait, reply_and_wait, wait


def run(status="running", version="1", **more):
    return Run(id=7, status=status, version=version, **more)


def gate(kind="tool_approval", request_id="req_1", **more):
    return PermissionRequest(
        run_id=7,
        request_id=request_id,
        status=more.pop("status", "pending"),
        kind=kind,
        tool_name=more.pop("tool_name", "send_email"),
        digest="d1",
        **more,
    )


class World:
    """Answers calls from lists, by the last word of their path; its clock moves with sleeps."""

    def __init__(self, **answers):
        self.answers = {name: list(found) for name, found in answers.items()}
        self.now = 100.0
        self.calls = []
        self.asked = []
        self.poll_s = 30.0

    def play(self, steps):
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = self.do(effect)
                except Exception as error:  # noqa: BLE001 - the steps decide what it means
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as stop:
            return stop.value

    def do(self, effect):
        match effect:
            case Now():
                return self.now
            case Sleep(seconds):
                self.now += seconds
            case Consult(callback, request):
                self.asked.append(request.request_id)
                return callback(request)
            case Perform(op):
                self.calls.append(op)
                name = op.path.rpartition("/")[2]
                name = {"7": "get", "runs": "create"}.get(name, name)
                if name == "get" and op.patience_s:
                    self.now += min(self.poll_s, op.patience_s)
                left = self.answers[name]
                found = left.pop(0) if len(left) > 1 else left[0]
                if isinstance(found, Exception):
                    raise found
                return found
            case _:
                raise AssertionError
        return None

    def bodies(self, name):
        return [op.body for op in self.calls if op.path.endswith(f"/{name}")]


def test_the_end_of_a_run_is_returned_at_once():
    """One call, no sleep."""
    world = World(get=[run("completed", output="Done.")])
    assert world.play(wait(7)).output == "Done."
    assert len(world.calls) == 1


def test_a_run_is_waited_for_by_long_polls():
    """Every poll names what is known and how long it may take."""
    world = World(get=[run(), run(), run("completed", "2")])
    assert world.play(wait(7)).status == "completed"
    first, second, _ = world.calls
    assert first.query == {}
    assert second.query == {"wait_s": str(POLL_S), "known": "1"}
    assert second.patience_s == POLL_S


def test_a_callback_decides_with_the_digest_that_it_was_shown():
    """Allow is sent with expected_digest, the options of the decision with it."""
    parked = run("awaiting_approval", "2")
    world = World(get=[parked, run("completed", "3")], permissions=[[gate()]], approve=[gate()])
    world.play(wait(7, on_approval=lambda _: Allow(remember=True, reason="fine")))
    assert world.bodies("approve") == [
        {
            "request_id": "req_1",
            "decision": "allow",
            "reason": "fine",
            "remember": True,
            "expected_digest": "d1",
        }
    ]


@pytest.mark.parametrize("said", [True, "allow", Allow()])
def test_ways_to_allow(said):
    """A word, a truth, or a value."""
    assert _decision(said)["decision"] == "allow"


@pytest.mark.parametrize("said", [False, "deny", Deny(reason="no")])
def test_ways_to_deny(said):
    """A denial binds no digest."""
    assert _decision(said)["decision"] == "deny"
    assert "expected_digest" not in _decision(said)


@pytest.mark.parametrize("said", [None, 1, "yes", {}, []])
def test_anything_else_is_no_decision(said):
    """A callback that forgets to return does not deny, nor allow."""
    with pytest.raises(e.CallbackResultError):
        _decision(said)


def _decision(said):
    parked = run("awaiting_approval", "2")
    world = World(get=[parked, run("completed", "3")], permissions=[[gate()]], approve=[gate()])
    world.play(wait(7, on_approval=lambda _: said))
    return world.bodies("approve")[0]


def test_every_kind_goes_to_its_callback():
    """Approval, question, plan, external call, unknown outcome."""
    question = {"questions": [{"question": "Which?", "options": []}]}
    plan = {"questions": [{"question": "1. Go", "header": "Plan Approval"}]}
    gates = [
        gate("question", "req_q", tool_name="AskUserQuestion", tool_input=question),
        gate("plan", "req_p", tool_name="AskUserQuestion", tool_input=plan),
        gate("external", "req_e"),
        gate("outcome_unknown", "req_u"),
        gate(request_id="req_old", status="allowed"),
    ]
    world = World(
        get=[run("awaiting_approval", "2"), run("completed", "3")],
        permissions=[gates],
        approve=[None],
        answer=[None],
        decisions=[None],
    )
    world.play(
        wait(
            7,
            on_approval=lambda _: Supply(output="it was sent"),
            on_question=lambda asked: {asked.questions[0].question: "A"},
            on_plan=lambda asked: f"not {asked.plan_text}",
            on_external=lambda _: {"booked": True},
        )
    )
    assert world.asked == ["req_q", "req_p", "req_e", "req_u"]
    assert [body["answers"] for body in world.bodies("answer")] == [
        {"Which?": "A"},
        {"Plan Approval": "not 1. Go"},
    ]
    assert [body["decisions"][0]["result"]["output"] for body in world.bodies("decisions")] == [
        {"booked": True},
        "it was sent",
    ]


def test_a_plan_goes_to_on_question_without_on_plan():
    """Clients of the reference platform answer plans there."""
    plan = {"questions": [{"question": "1. Go", "header": "Plan Approval"}]}
    world = World(
        get=[run("awaiting_approval", "2"), run("completed", "3")],
        permissions=[[gate("plan", tool_name="AskUserQuestion", tool_input=plan)]],
        answer=[None],
    )
    world.play(wait(7, on_question=lambda _: {"Plan Approval": "Approve"}))
    assert world.bodies("answer")[0]["answers"] == {"Plan Approval": "Approve"}


def test_a_gate_without_a_callback_ends_the_wait_unless_others_decide():
    """The error names the gate; with decided_elsewhere it is waited for."""
    parked = run("awaiting_approval", "2")
    world = World(get=[parked], permissions=[[gate()]])
    with pytest.raises(e.NoCallbackError) as raised:
        world.play(wait(7))
    assert raised.value.request.request_id == "req_1"
    world = World(get=[parked, parked, run("completed", "3")], permissions=[[gate()]])
    assert world.play(wait(7, decided_elsewhere=True)).status == "completed"
    assert world.asked == []


def test_a_lost_decision_is_sent_again_and_the_callback_is_not_asked_again():
    """What was said is kept until the service has it."""
    parked = run("awaiting_approval", "2")
    world = World(
        get=[parked, parked, run("completed", "3")],
        permissions=[[gate()]],
        approve=[e.ConnectionFailedError("lost"), e.ServerError("oops"), gate(status="allowed")],
    )
    world.answers["get"].insert(1, parked)
    assert world.play(wait(7, on_approval=lambda _: True)).status == "completed"
    assert len(world.bodies("approve")) == 3
    assert world.asked == ["req_1"]


def test_a_decision_that_came_too_late_is_no_error():
    """The run was cancelled meanwhile: the wait returns how it ended."""
    world = World(
        get=[run("awaiting_approval", "2"), run("cancelled", "3")],
        permissions=[[gate()]],
        approve=[e.GateCancelledError("late")],
    )
    assert world.play(wait(7, on_approval=lambda _: True)).status == "cancelled"


def test_another_decision_that_stands_is_an_error():
    """Two people decided differently; neither is told that theirs was taken when it was not."""
    world = World(
        get=[run("awaiting_approval", "2")],
        permissions=[[gate()]],
        approve=[e.GateResolvedOtherwiseError("no")],
    )
    with pytest.raises(e.GateResolvedOtherwiseError):
        world.play(wait(7, on_approval=lambda _: True))


def test_time_is_up_whatever_happens():
    """With a silent run, and with a service that is away; the error has the run."""
    world = World(get=[run()])
    with pytest.raises(e.WaitTimeoutError) as raised:
        world.play(wait(7, timeout=60))
    assert raised.value.run == run()
    assert 160 <= world.now < 161
    world = World(get=[e.ConnectionFailedError("away")])
    with pytest.raises(e.WaitTimeoutError) as raised:
        world.play(wait(7, timeout=60))
    assert raised.value.run is None


def test_time_that_is_up_for_want_of_other_approvers_says_so():
    """The gate that was allowed here and is still open is named, with what it has and needs."""
    approvers = {"any_of": ["user:a", "user:b"], "quorum": 2}
    one = {"by": "user:a", "at": "now", "digest": "d1"}
    half = gate(approvers=approvers, approvals=[one])
    world = World(get=[run("awaiting_approval", "2")], permissions=[[half]], approve=[half])
    with pytest.raises(e.WaitTimeoutError, match=r"req_1 .* had 1 of the 2 approvals"):
        world.play(wait(7, timeout=60, on_approval=lambda _: True))
    settled = gate(status="allowed", approvers=approvers)
    world = World(get=[run("awaiting_approval", "2")], permissions=[[half]], approve=[settled])
    with pytest.raises(e.WaitTimeoutError) as raised:
        world.play(wait(7, timeout=60, on_approval=lambda _: True))
    assert "approvals" not in str(raised.value)


def test_a_service_that_does_not_wait_is_not_hammered():
    """Polls that come back early with nothing new are spaced."""
    world = World(get=[run()])
    world.poll_s = 0.0
    with pytest.raises(e.WaitTimeoutError):
        world.play(wait(7, timeout=30))
    assert len(world.calls) <= 70


def test_a_failed_run_is_raised_if_asked_for():
    """With its own words."""
    failed = run("failed", error="no credit", error_code="model_auth")
    assert World(get=[failed]).play(wait(7)).status == "failed"
    with pytest.raises(e.RunFailedError, match="no credit"):
        World(get=[failed]).play(wait(7, raise_on_error=True))


def test_create_and_wait_cancels_what_it_started_when_time_is_up():
    """Unless it is told not to."""
    world = World(create=[run()], get=[run()], cancel=[e.RunNotActiveError("over")])
    with pytest.raises(e.WaitTimeoutError):
        world.play(create_and_wait("go", timeout=1, user_id="u"))
    assert world.calls[0].body["user_id"] == "u"
    assert world.calls[1].query == {"user_id": "u"}
    assert len(world.bodies("cancel")) == 1
    world = World(create=[run()], get=[run()])
    with pytest.raises(e.WaitTimeoutError):
        world.play(create_and_wait("go", timeout=1, cancel_on_timeout=False))


def test_a_queued_reply_is_waited_for_beyond_the_turn_before():
    """The earlier turn may end while the message is still pending."""
    queued = run("completed", "2", pending_queued_message_ids=[5])
    world = World(
        reply=[run(delivery="queued", queued_message_id=5)],
        get=[queued, queued, run("running", "3"), run("completed", "4", output="new")],
    )
    assert world.play(reply_and_wait(7, "and?")).output == "new"


def test_a_run_with_messages_in_its_queue_is_not_over():
    """Its next turn is about to begin."""
    queued = run("completed", "2", pending_queued_message_ids=[5])
    world = World(get=[queued, run("running", "3"), run("completed", "4", output="new")])
    assert world.play(wait(7)).output == "new"


def test_misspelt_options_are_errors():
    """Of every way to wait."""
    for steps in (
        lambda: wait(7, on_aproval=None),  # type: ignore[call-arg]
        lambda: World().play(create_and_wait("go", on_aproval=None)),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="on_aproval"):
            steps()
