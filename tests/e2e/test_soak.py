"""A seeded storm of kill -9 and freezes over every process, and a checker of what must hold."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.harness import Client, Dev, Receiver, callback, running, until, verified

#: How long processes are killed; the drain and the check come on top.
SECONDS = float(os.environ.get("SOAK_SECONDS", "300"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
LEASE_S = 2.0
#: The progress bound of a run that is neither parked nor over, with its processes alive.
BOUND_S = 60.0
#: Work in flight at a cancel may still start within this time.
SETTLE_S = 5.0
MOST_OPEN = 40
VICTIMS = ("serve", "worker", "worker", "worker", "relay", "valkey-server", "everything", "freeze")
ONCE = {"send_email", "slow"}
ASK = {
    "questions": [
        {
            "question": "Which one?",
            "header": "Choice",
            "options": [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}],
        }
    ]
}


def email(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "send_email", "input": {"to": "a", "subject": "b", "body": "c"}}


def flag(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "set_flag", "input": {"key": call_id, "value": 1}}


def slow(call_id: str, seconds: float) -> dict[str, Any]:
    return {"id": call_id, "name": "slow", "input": {"seconds": seconds, "tag": call_id}}


def look(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "search_docs", "input": {"query": "retries"}}


def question(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "AskUserQuestion", "input": ASK}


SCRIPTS: list[list[dict[str, Any]]] = [
    [{"tool_calls": [email("a")]}, {"tool_calls": [email("b")]}, {"text": "end"}],
    [{"tool_calls": [look("l"), email("a"), flag("f"), question("q")]}, {"text": "end"}],
    [{"delay_ms": 800, "tool_calls": [slow("s", 0.7), flag("f")]}, {"text": "end"}],
    [{"tool_calls": [question("q")]}, {"tool_calls": [slow("s", 1.5)]}, {"text": "end"}],
    [{"delay_ms": 300, "text": "t", "tool_calls": [look("l"), look("m")]}, {"text": "end"}],
    [{"tool_calls": [email(f"e{n}") for n in range(5)]}, {"text": "end"}],
]


@dataclass(kw_only=True)
class History:
    """What the outside saw and did; the checker reads it and asks the service for the rest."""

    #: run -> its script's number
    runs: dict[int, int] = field(default_factory=dict)
    keys: int = 0
    #: (run, request) -> the verdicts that were accepted
    accepted: dict[tuple[int, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    cancelled: dict[int, float] = field(default_factory=dict)
    autonomous: set[int] = field(default_factory=set)
    odd: list[str] = field(default_factory=list)
    answers: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class People:
    """Creates, decides, cancels and switches at random, and writes down what was answered."""

    def __init__(self, dev: Dev, client: Client, webhook: dict[str, Any], dice: random.Random):
        self._dev = dev
        self._client = client
        self._webhook = webhook
        self._dice = dice
        self.seen = History()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The same request until there is an answer that is not an outage."""

        def once() -> Any:
            try:
                answer = self._client.http.request(method, path, **options)
            except httpx.TransportError:
                return None
            return self._counted(answer, f"{method} {path}")

        found: httpx.Response = until(once, within_s=BOUND_S, what=f"{method} {path}")
        return found

    def _counted(self, answer: httpx.Response, what: str) -> httpx.Response | None:
        self.seen.answers[answer.status_code] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            self.seen.odd.append(f"{what}: {answer.status_code} {answer.text[:300]}")
        return None if answer.status_code == 503 else answer

    def act(self) -> None:
        """One move."""
        live = [run for run in self.seen.runs if run not in self.seen.cancelled]
        roll = self._dice.random()
        if len(live) < 3 or (roll < 0.25 and self.open() < MOST_OPEN):
            self.create()
        elif roll < 0.86:
            self.decide_one()
        elif roll < 0.90:
            self.cancel(self._dice.choice(live[-20:]))
        elif roll < 0.94:
            self.switch(self._dice.choice(live[-20:]))
        else:
            self.decide_again()

    def open(self) -> int:
        return len(self.inbox())

    def inbox(self) -> list[dict[str, Any]]:
        return list(self.send("GET", "/v1/requests?limit=100").json()["data"])

    def create(self) -> None:
        seen = self.seen
        seen.keys += 1
        number = self._dice.randrange(len(SCRIPTS))
        mode = self._dice.choice(["approval", "approval", "autonomous"])
        body = {
            "message": "go",
            "stream": False,
            "human_in_the_loop": True,
            "permission_mode": mode,
            "metadata": {"script": SCRIPTS[number]},
        }
        headers = {"idempotency-key": f"soak-{seen.keys}"}
        made = self.send("POST", "/v1/runs", json=body, headers=headers)
        assert made.status_code == 201, made.text
        seen.runs[made.json()["id"]] = number
        if mode == "autonomous":
            seen.autonomous.add(made.json()["id"])

    def decide_one(self) -> None:
        rows = self.inbox()
        if not rows:
            self.create()
            return
        row = self._dice.choice(rows)
        self.decide(row, self._verdict(row))

    def _verdict(self, row: dict[str, Any]) -> dict[str, Any]:
        roll = self._dice.random()
        if row["kind"] == "question":
            return {"answers": {"Which one?": self._dice.choice(["A", "B", "other"])}}
        if row["kind"] == "outcome_unknown":
            return self._dice.choice([{"result": {"output": "it went"}}, {"decision": "allow"}])
        if roll < 0.2:
            return {"decision": "deny", "reason": "no"}
        if roll < 0.4 and row["tool_name"] == "send_email":
            return {"decision": "allow", "input": {**row["tool_input"], "body": "edited"}}
        return {"decision": "allow"}

    def decide(self, row: dict[str, Any], verdict: dict[str, Any]) -> None:
        run_id, request_id = row["run_id"], row["request_id"]
        body = {"request_id": request_id, **verdict}
        if self._dice.random() < 0.5:
            payload = {"type": "decision", "data": {"run_id": run_id, **body}}
            msg_id = f"msg_{request_id}_{self._dice.randrange(10**9)}"
            answer = self._by_callback(payload, msg_id)
        else:
            answer = self.send("POST", f"/v1/runs/{run_id}/decisions", json={"decisions": [body]})
        if answer.status_code == 200:
            self.seen.accepted[run_id, request_id].add(json.dumps(verdict, sort_keys=True))
        elif answer.status_code not in (404, 409):
            self.seen.odd.append(f"decision {body}: {answer.status_code} {answer.text[:300]}")

    def _by_callback(self, payload: dict[str, Any], msg_id: str) -> httpx.Response:
        def once() -> Any:
            try:
                answer = callback(self._dev.url, self._webhook, payload, msg_id=msg_id)
            except httpx.TransportError:
                return None
            return self._counted(answer, "callback")

        found: httpx.Response = until(once, within_s=BOUND_S, what="the callback's answer")
        return found

    def decide_again(self) -> None:
        """The opposite of what stands, or the very same."""
        if not self.seen.accepted:
            return
        (run_id, request_id), verdicts = self._dice.choice(list(self.seen.accepted.items()))
        row = {"run_id": run_id, "request_id": request_id}
        same = json.loads(next(iter(verdicts)))
        other = {"decision": "deny"} if same.get("decision") == "allow" else same
        self.decide(row, self._dice.choice([same, other]))

    def cancel(self, run_id: int) -> None:
        answer = self.send("POST", f"/v1/runs/{run_id}/cancel")
        if answer.status_code == 200 and answer.json()["status"] == "cancelled":
            self.seen.cancelled.setdefault(run_id, time.time())

    def switch(self, run_id: int) -> None:
        mode = self._dice.choice(["autonomous", "approval"])
        if mode == "autonomous":
            self.seen.autonomous.add(run_id)  # also when the answer is lost: it may have been done
        self.send("PATCH", f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": mode})

    def drain(self) -> None:
        """Decides whatever is open until every run is over."""
        open_runs = set(self.seen.runs)

        def over() -> bool:
            for row in self.inbox():
                self.decide(row, self._verdict(row))
            for run_id in list(open_runs):
                run = self.send("GET", f"/v1/runs/{run_id}").json()
                if run["status"] in ("completed", "failed", "cancelled"):
                    open_runs.discard(run_id)
            return not open_runs

        try:
            until(over, within_s=BOUND_S + 30)
        except AssertionError:
            stuck = [self.send("GET", f"/v1/runs/{run_id}").json() for run_id in open_runs]
            raise AssertionError(f"runs without progress: {stuck[:3]} of {len(stuck)}") from None


class Reaper:
    """Kills or freezes a process now and then."""

    def __init__(self, dev: Dev, dice: random.Random) -> None:
        self._dev = dev
        self._dice = dice
        self._end = threading.Event()
        self.log: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _work(self) -> None:
        while not self._end.wait(self._dice.uniform(0.3, 3.0)):
            victim = self._dice.choice(VICTIMS)
            self.log.append(victim)
            if victim == "freeze":
                self._freeze()
            elif victim == "everything":
                for name in ("serve", "worker", "relay", "valkey-server"):
                    self._kill(self._dev.children(name))
            else:
                self._kill(self._dev.children(victim)[:1])

    @staticmethod
    def _kill(pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _freeze(self) -> None:
        """A worker sleeps longer than its leases, and wakes up as a holder of nothing."""
        for pid in self._dev.children("worker")[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._end.wait(LEASE_S * 1.5)
                os.kill(pid, signal.SIGCONT)


class Checker:
    """Finds what does not hold; every finding is one line that names its invariant."""

    def __init__(self, people: People, dev: Dev, receiver: Receiver, webhook: dict[str, Any]):
        self._people = people
        self._seen = people.seen
        self._receiver = receiver
        self._webhook = webhook
        self._runs: dict[int, dict[str, Any]] = {}
        self._gates: dict[int, list[dict[str, Any]]] = {}
        self._starts: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        for row in dev.starts():
            self._starts[row["run_id"], row["tool_use_id"]].append(row)
        self.found: list[str] = [f"I17 {line}" for line in self._seen.odd]

    def check(self) -> list[str]:
        for run_id in self._seen.runs:
            self._runs[run_id] = self._people.send("GET", f"/v1/runs/{run_id}").json()
            gates = self._people.send("GET", f"/v1/runs/{run_id}/permissions").json()
            self._gates[run_id] = gates
        self._one_run_per_key()
        self._terminal()
        self._verdicts()
        self._calls()
        self._grants()
        self._webhooks()
        return self.found

    def _say(self, name: str, text: str) -> None:
        self.found.append(f"{name} {text}")

    def _one_run_per_key(self) -> None:
        """I2, I18: a key made one run, and every acknowledged run is there."""
        listed: list[int] = []
        cursor = ""
        while True:
            page = self._people.send("GET", f"/v1/runs?limit=100{cursor}").json()
            listed += [run["id"] for run in page["data"]]
            if not page["has_more"]:
                break
            cursor = f"&starting_after={page['next_starting_after']}"
        if sorted(listed) != sorted(self._seen.runs) or len(listed) != self._seen.keys:
            self._say("I2", f"{self._seen.keys} keys, {len(listed)} runs listed")

    def _terminal(self) -> None:
        """I9, I15: everything ended as it should, and nothing starts after its end."""
        for run_id, run in self._runs.items():
            cancelled_at = self._seen.cancelled.get(run_id)
            expected = "completed" if cancelled_at is None else "cancelled"
            if run["status"] != expected:
                self._say("I9", f"run {run_id} is {run['status']} {run['error_code']}")
            late = [
                row
                for (of, _), rows in self._starts.items()
                for row in rows
                if of == run_id and cancelled_at and row["ts"] > cancelled_at + SETTLE_S
            ]
            if late:
                self._say("I9", f"run {run_id} was cancelled, then {late}")

    def _verdicts(self) -> None:
        """I1, I18: what was accepted is what stands."""
        gates = {(run, row["request_id"]): row for run, rows in self._gates.items() for row in rows}
        for key, verdicts in self._seen.accepted.items():
            if len(verdicts) > 1:
                self._say("I1", f"{key} took {verdicts}")
            if key not in gates:
                self._say("I18", f"{key} was decided and is gone")
                continue
            state = "denied" if '"decision": "deny"' in next(iter(verdicts)) else "allowed"
            if gates[key]["status"] not in (state, "answered", "resolved"):
                self._say("I18", f"{key}: accepted {verdicts}, stands {gates[key]['status']}")

    def _calls(self) -> None:
        """I3, I5, I10 for every call that started."""
        for (run_id, call_id), rows in self._starts.items():
            gates = [row for row in self._gates[run_id] if row["tool_use_id"] == call_id]
            approvals = [row for row in gates if row["kind"] == "tool_approval"]
            retries = [row for row in gates if row["kind"] == "outcome_unknown"]
            where = f"run {run_id} call {call_id}"
            if any(row["status"] == "denied" for row in approvals):
                self._say("I5", f"{where} was denied and ran")
            if rows[0]["tool"] != "search_docs" and run_id not in self._seen.autonomous:
                granted = {row["effective_digest"] for row in approvals if _allowed(row)}
                if wrong := [row for row in rows if row["digest"] not in granted]:
                    self._say("I3", f"{where} ran {wrong} with grants {granted}")
            if rows[0]["tool"] in ONCE and len(rows) > 1 + len(retries):
                self._say("I10", f"{where} ran {len(rows)} times after {len(retries)} questions")
            if len({row["idempotency_key"] for row in rows}) > 1:
                self._say("I10", f"{where} ran under several keys")

    def _grants(self) -> None:
        """I18: what was allowed has run, or a person knows that nobody knows."""
        for run_id in set(self._gates) - set(self._seen.cancelled):
            gates = self._gates[run_id]
            told = {row["tool_use_id"] for row in gates if row["kind"] == "outcome_unknown"}
            for row in gates:
                call_id = row["tool_use_id"]
                if row["kind"] != "tool_approval" or not _allowed(row) or call_id in told:
                    continue
                if (run_id, call_id) not in self._starts:
                    self._say("I18", f"run {run_id} {call_id} was allowed and never ran")

    def _webhooks(self) -> None:
        """I8, I12: one event a pause, announced, with one body."""
        bodies: dict[str, set[bytes]] = defaultdict(set)
        pauses: dict[tuple[int, int], set[str]] = defaultdict(set)
        ends: dict[int, set[str]] = defaultdict(set)
        for item in list(self._receiver.got):
            bodies[item.headers["webhook-id"]].add(item.body)
            event = verified(self._webhook, item)
            if item.type == "run.awaiting_input":
                key = (event["data"]["run_id"], event["data"]["pause"])
                pauses[key].add(event["id"])
            else:
                ends[event["data"]["run_id"]].add(event["id"])
        for event_id, texts in bodies.items():
            if len(texts) > 1:
                self._say("I12", f"{event_id} had {len(texts)} bodies")
        expected = {(run, row["pause"]) for run, rows in self._gates.items() for row in rows}
        for key in expected | set(pauses):
            if len(pauses.get(key, ())) != 1:
                self._say("I8", f"pause {key} was announced as {pauses.get(key)}")
        for run_id in self._runs:
            if len(ends.get(run_id, ())) != 1:
                self._say("I8", f"the end of run {run_id} was announced as {ends.get(run_id)}")

    def announced(self) -> bool:
        """True when every run's end has come."""
        ended = {
            item.event["data"]["run_id"]
            for item in list(self._receiver.got)
            if item.type != "run.awaiting_input"
        }
        return ended >= set(self._seen.runs)


def _allowed(row: dict[str, Any]) -> bool:
    return bool(row["status"] == "allowed")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Writes a line that is seen also when the test passes."""

    def write(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return write


@pytest.mark.soak
def test_whatever_is_killed_the_invariants_hold(
    folder: Path, receiver: Receiver, say: Callable[[str], None]
) -> None:
    """Minutes of kills, then I1-I3, I5, I8-I10, I12, I15, I17 and I18; the seed names the dice.

    SOAK_SECONDS and SOAK_SEED in the environment choose how long, and which schedule.
    """
    say(f"seed {SEED}, {SECONDS:g} s")
    dice = random.Random(SEED)
    flaky = random.Random(SEED + 1)
    receiver.answer = lambda _: (500 if flaky.random() < 0.1 else 200, {})
    environ = {
        "SIGNOFF_LEASE_S": f"{LEASE_S:g}",
        "SIGNOFF_WEBHOOK_SCHEDULE": "0,0.2,0.5,1,1,2,2,5,5",
    }
    with running(folder, workers=2, environ=environ) as dev:
        client = dev.client()
        webhook = client.subscribe(
            receiver.url, "run.awaiting_input", "run.completed", "run.failed", "run.cancelled"
        )
        people = People(dev, client, webhook, dice)
        reaper = Reaper(dev, random.Random(SEED + 2))
        deadline = time.monotonic() + SECONDS
        with reaper.at_work():
            while time.monotonic() < deadline:
                people.act()
        people.drain()
        checker = Checker(people, dev, receiver, webhook)
        with suppress(AssertionError):  # what is missing is named by the check
            until(checker.announced, within_s=20)
        seen = people.seen
        say(
            f"{len(reaper.log)} kills, {len(seen.runs)} runs, {len(seen.accepted)} decided gates, "
            f"{len(seen.cancelled)} cancelled, answers {dict(seen.answers)}"
        )
        found = checker.check()
        assert found == [], f"seed {SEED}: " + "\n".join([*found[:20], dev.log()[-3000:]])
