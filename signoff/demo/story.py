"""What happens in the demo, scene by scene: three pauses, two kills, one email."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from signoff.canonical import digest
from signoff.demo.ledger import Ledger
from signoff.demo.script import ANSWER, EMAIL, MESSAGE, QUESTION, SCRIPT
from signoff.demo.stage import Content, Stage
from signoff.signing import new_secret

#: What is subscribed, and how many of each one run of the story makes.
EVENTS = {"run.started": 1, "run.awaiting_input": 3, "run.resumed": 3, "run.completed": 1}


def declined(event: Mapping[str, Any]) -> bool:
    """The receiver's bad moment: it refuses the first attempt at the plan's webhook."""
    content = event["data"]
    return event["type"] == "run.awaiting_input" and bool(content["requests"][0]["kind"] == "plan")


class Story:
    """Plays the scenes against a deployment that is ready; every promise seen is checked."""

    def __init__(self, stage: Stage, ledger: Ledger) -> None:
        self._stage = stage
        self._check = stage.check
        self._ledger = ledger
        self._run_id = 0

    def play(self) -> None:
        """All scenes; DemoError when one cannot be finished."""
        say = self._stage.say
        say("An endpoint is subscribed, and a run is started in plan mode.")
        self._start()
        say("The agent asks a question. Its worker is killed while the run is parked.")
        self._question()
        say("It presents a plan. Our receiver fails once, so the webhook is tried again.")
        self._plan()
        say("It looks into the calendar (read-only). The worker is killed in the middle of it.")
        self._crash()
        say("It wants to send an email, which needs an approval.")
        self._email()
        say("The run goes on to its end.")
        self._end()

    def _start(self) -> None:
        self._stage.subscribe(tuple(EVENTS))
        run = self._stage.post(
            "/runs",
            {
                "name": "announcer",
                "message": MESSAGE,
                "stream": False,
                "human_in_the_loop": True,
                "permission_mode": "plan",
                "metadata": {"script": SCRIPT},
            },
        )
        self._run_id = run["id"]
        self._check("a new run is running", holds=run["status"] == "running")

    def _question(self) -> None:
        content, request = self._paused("question")
        texts = [question["question"] for question in content.get("questions", [])]
        self._check("the question is in the webhook itself", holds=texts == [QUESTION])
        self._stage.kill_worker("the run is parked and holds no worker")
        answer = self._about(request, answers={QUESTION: ANSWER})
        status, _ = self._stage.callback(
            answer, secret=new_secret(self._stage.token), note="signed with another secret"
        )
        self._check(
            "a callback with another secret is refused", holds=status == HTTPStatus.UNAUTHORIZED
        )
        self._decide(answer, f"answer: {ANSWER}")

    def _plan(self) -> None:
        _, request = self._paused("plan")
        attempts = self._stage.pauses("plan")
        self._check(
            "the webhook that failed came again, with the same id",
            holds=[a.answered for a in attempts] == [503, 200] and attempts[0].id == attempts[1].id,
        )
        self._decide(self._about(request, answers={"Plan Approval": "Approve"}), "plan: Approve")

    def _crash(self) -> None:
        self._stage.until(
            lambda: bool(self._ledger.entries("check_calendar", "start")),
            "check_calendar to start",
        )
        self._stage.kill_worker("check_calendar was running")

    def _email(self) -> None:
        content, request = self._paused("tool_approval")
        self._check("a tool approval has no questions", holds="questions" not in content)
        bound = digest("send_email", EMAIL)
        self._check("the digest is that of the listed call", holds=request["digest"] == bound)
        self._check("nothing was sent before", holds=not self._ledger.entries("send_email"))
        verdict = self._about(
            request,
            decision="allow",
            expected_digest=request["digest"],
            reason="Checked with the database team.",
        )
        self._decide(verdict, "allow send_email", repeat=True)

    def _end(self) -> None:
        self._stage.until(lambda: bool(self._stage.of("run.completed")), "run.completed")
        run = self._stage.get(f"/runs/{self._run_id}")
        self._check("the run is completed", holds=run["status"] == "completed")
        self._check("the model saw the result", holds="Email sent to" in (run["output"] or ""))
        self._check_ledger()
        self._check_deliveries()
        bound = digest("send_email", EMAIL)
        ran = self._ledger.entries("send_email", "start")
        self._stage.conclude(
            f"send_email was started {len(ran)} time(s). Digest approved: {bound[:16]}…, "
            f"executed: {', '.join(f'{entry.digest[:16]}…' for entry in ran)}."
        )

    def _check_ledger(self) -> None:
        sent = self._ledger.entries("send_email")
        self._check(
            "send_email ran exactly once", holds=[e.phase for e in sent] == ["start", "end"]
        )
        self._check(
            "what ran is what was approved",
            holds={e.digest for e in sent} == {digest("send_email", EMAIL)},
        )
        looked = self._ledger.entries("check_calendar")
        phases = [e.phase for e in looked]
        self._check(
            "the read-only call that was cut off ran again, to its end",
            holds=phases[:2] == ["start", "start"] and phases[-1] == "end",
        )
        self._check(
            "both executions had the same idempotency key",
            holds=len({e.idempotency_key for e in looked}) == 1,
        )

    def _check_deliveries(self) -> None:
        stage = self._stage
        stage.until(
            lambda: all(row["status"] == "success" for row in stage.deliveries()),
            "all deliveries to be settled",
        )
        told = {row["event_id"]: row["attempts"] for row in stage.deliveries()}
        seen = {attempt.id: attempt.attempt for attempt in stage.arrived}
        self._check("the attempts told are the attempts seen", holds=told == seen)
        for event, expected in EVENTS.items():
            ids = {attempt.id for attempt in stage.of(event)}
            self._check(f"{event} was delivered for {expected} events", holds=len(ids) == expected)
        pauses = {a.id: a.content["pause"] for a in stage.of("run.awaiting_input")}
        self._check("one event for each pause", holds=sorted(pauses.values()) == [1, 2, 3])
        self._check("every signature is valid", holds=all(a.valid for a in stage.arrived))
        self._check(
            "no signature fits a changed body",
            holds=all(a.forgery_refused for a in stage.arrived),
        )

    def _about(self, request: Content, **decision: Any) -> dict[str, Any]:
        return {"run_id": self._run_id, "request_id": request["request_id"], **decision}

    def _paused(self, kind: str) -> tuple[Content, dict[str, Any]]:
        """Wait until the pause of that kind was announced; its data and its only request."""
        stage = self._stage
        stage.until(
            lambda: any(a.answered == HTTPStatus.OK for a in stage.pauses(kind)),
            f"the {kind} webhook",
        )
        content = stage.pauses(kind)[-1].content
        self._check(f"one request in the {kind} pause", holds=len(content["requests"]) == 1)
        return content, content["requests"][0]

    def _decide(self, decision: Content, note: str, *, repeat: bool = False) -> None:
        msg_id = self._stage.new_id()
        status, answer = self._stage.callback(decision, note=note, msg_id=msg_id)
        self._check(f"{note}: accepted", holds=status == HTTPStatus.OK)
        self._check(f"{note}: the run goes on", holds=answer.get("resumed") is True)
        if repeat:
            again = self._stage.callback(decision, note="the same callback again", msg_id=msg_id)
            self._check("a repeated callback gets the same answer", holds=again == (status, answer))
