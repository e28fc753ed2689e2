"""kill -9 in every place: nothing acknowledged is lost, nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.e2e.harness import Client, Dev, Receiver, callback, running, until, verified

CHILDREN = ["serve", "worker", "relay", "valkey-server"]


def email(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "send_email", "input": {"to": "a", "subject": "b", "body": "c"}}


def slow(call_id: str, seconds: float) -> dict[str, Any]:
    return {"id": call_id, "name": "slow", "input": {"seconds": seconds, "tag": call_id}}


GATED: list[dict[str, Any]] = [
    {"tool_calls": [email("a")]},
    {"tool_calls": [email("b")]},
    {"text": "end"},
]


def insistent(send: Any, *, within_s: float = 30.0) -> httpx.Response:
    """Repeats a request until it is answered by something else than an outage."""

    def once() -> Any:
        try:
            answer = send()
        except httpx.TransportError:
            return None
        return None if answer.status_code == 503 else answer

    answer: httpx.Response = until(once, within_s=within_s, what="an answer")
    return answer


def no_doubled_starts(dev: Dev) -> None:
    counts = Counter((row["run_id"], row["tool_use_id"]) for row in dev.starts())
    assert {key: n for key, n in counts.items() if n > 1} == {}


def one_event_per_pause(receiver: Receiver) -> None:
    ids: dict[tuple[str, int, int], set[str]] = {}
    for item in receiver.got:
        payload = item.event["data"]
        if item.type == "run.awaiting_input":
            key = (item.path, payload["run_id"], payload["pause"])
            ids.setdefault(key, set()).add(item.headers["webhook-id"])
    assert ids
    assert {len(found) for found in ids.values()} == {1}


@pytest.mark.parametrize("victim", [*CHILDREN, "everything"])
def test_parked_running_and_decided_runs_survive_kill_9(
    folder: Path, receiver: Receiver, victim: str
) -> None:
    """One process, or all of them, die while runs are parked, running and being decided."""
    with running(folder) as dev:
        client = dev.client()
        webhook = client.subscribe(receiver.url, "run.awaiting_input", "run.completed")
        parked = [client.create(GATED) for _ in range(4)]
        thinking = [
            client.create([{"text": "t", "delay_ms": 700}, {"text": "x"}]) for _ in range(3)
        ]
        for run_id in parked:
            client.wait_pending(run_id, 1)
        decided = parked[:2]
        for run_id in decided:
            (gate,) = client.pending(run_id)
            assert client.approve(run_id, gate["request_id"]).status_code == 200
        if victim == "everything":
            dev.kill()
            dev.start()
        else:
            dev.kill_child(victim)
        supplied = {
            key
            for run_id in parked
            for _ in range(4)
            for key in finish(client, run_id, dev, webhook)
        }
        for run_id in [*thinking, *parked]:
            ended(client, run_id)
            verified(webhook, receiver.end(run_id))
        no_doubled_starts(dev)
        # A call that was cut off right at its start is known to the person instead.
        started = {(row["run_id"], row["tool_use_id"]) for row in dev.starts()}
        assert started | supplied == {(run_id, name) for run_id in parked for name in "ab"}
        one_event_per_pause(receiver)


def ended(client: Client, run_id: int) -> None:
    """The run completes, also while the service is away for a while."""

    def completed() -> bool:
        answer = insistent(lambda: client.http.get(f"/v1/runs/{run_id}"))
        return bool(answer.json()["status"] == "completed")

    until(completed, within_s=30, what=f"the end of run {run_id}")


def finish(client: Client, run_id: int, dev: Dev, webhook: dict[str, Any]) -> list[tuple[int, str]]:
    """Allows what is pending, by signed callback, whatever happens meanwhile.

    Answers which calls had an unknown outcome, for which it supplied the result.
    """

    def look() -> Any:
        run = insistent(lambda: client.http.get(f"/v1/runs/{run_id}")).json()
        if run["status"] == "completed":
            return "completed"
        rows = insistent(lambda: client.http.get(f"/v1/runs/{run_id}/permissions")).json()
        return [row for row in rows if row["status"] == "pending"]

    found = until(look, within_s=30, what=f"a gate or the end of run {run_id}")
    if found == "completed":
        return []
    for gate in found:
        request_id = gate["request_id"]
        kind = gate["kind"]
        # An interrupted effect is never repeated unasked; here the person says that it is fine.
        decision: dict[str, Any] = (
            {"result": {"output": "it was sent"}}
            if kind == "outcome_unknown"
            else {"decision": "allow"}
        )
        body = {
            "type": "decision",
            "data": {"run_id": run_id, "request_id": request_id, **decision},
        }
        msg_id = f"msg_{request_id}"
        answer = insistent(
            lambda body=body, msg_id=msg_id: callback(dev.url, webhook, body, msg_id=msg_id)
        )
        assert answer.status_code == 200, answer.text
    return [(run_id, row["tool_use_id"]) for row in found if row["kind"] == "outcome_unknown"]


def test_kill_9_inside_a_tool_asks_instead_of_repeating(folder: Path, receiver: Receiver) -> None:
    """A started effect without a result becomes a gate of its own, with its own event."""
    with running(folder) as dev:
        client = dev.client()
        webhook = client.subscribe(receiver.url, "run.awaiting_input")
        run_id = client.create(
            [{"tool_calls": [slow("s", 20), email("other")]}, {"text": "{{last_results}}"}]
        )
        gates = {row["tool_use_id"]: row for row in client.wait_pending(run_id, 2)}
        client.approve(run_id, gates["s"]["request_id"])
        until(lambda: len(dev.starts(run_id)) == 1)
        dev.kill_child("worker")
        unknown = until(
            lambda: [
                row
                for row in client.pending(run_id)
                if row["kind"] == "outcome_unknown" and row["tool_use_id"] == "s"
            ],
            within_s=30,
        )
        event = verified(webhook, receiver.pause(run_id, 2))
        assert [row["kind"] for row in event["data"]["requests"]] == ["outcome_unknown"]
        switched = client.http.patch(
            f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": "autonomous"}
        )
        assert switched.status_code == 200
        (left,) = client.wait_pending(run_id, 1)
        assert left["kind"] == "outcome_unknown"
        client.approve(run_id, unknown[0]["request_id"], "deny", reason="it went through")
        client.wait(run_id, "completed")
        assert Counter(row["tool_use_id"] for row in dev.starts(run_id)) == {"s": 1, "other": 1}
        assert "it went through" in client.run(run_id)["output"]


TOOLS = """
import os, time
from signoff import current_call, tool


def note(what):
    line = f"{current_call().tool_use_id} {what} {os.getpid()}\\n".encode()
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line)
    os.close(ledger)


@tool(idempotent=True)
def sleepy(seconds: float) -> str:
    \"\"\"Block a thread.\"\"\"
    note("start")
    time.sleep(seconds)
    note("end")
    return "slept"


@tool(idempotent=True)
def poison() -> str:
    \"\"\"Take the process along.\"\"\"
    note("start")
    os._exit(11)
"""


@pytest.fixture
def noted(folder: Path) -> Path:
    """What the tools of ``own_tools`` noted."""
    (folder / "own_tools.py").write_text(TOOLS)
    return folder / "noted"


def with_own_tools(folder: Path, noted: Path) -> dict[str, str]:
    return {
        "SIGNOFF_TOOLS": "examples.demo_tools,own_tools",
        "PYTHONPATH": str(folder),
        "LEDGER": str(noted),
    }


def test_a_poisonous_run_fails_alone(folder: Path, noted: Path) -> None:
    """It kills its process five times; those that were driven beside it come to their end."""
    with running(folder, environ=with_own_tools(folder, noted)) as dev:
        client = dev.client()
        neighbours = [client.create([{"text": "t", "delay_ms": 3000}]) for _ in range(3)]
        poison = client.create(
            [{"delay_ms": 500, "tool_calls": [{"id": "p", "name": "poison", "input": {}}]}],
            permission_mode="autonomous",
        )
        assert client.wait(poison, "failed", within_s=60)["error_code"] == "step_crashed"
        for run_id in neighbours:
            client.wait(run_id, "completed", within_s=40)
        assert len(noted.read_text().splitlines()) == 5


def test_a_thread_does_not_outlive_the_hand_over_of_its_run(folder: Path, noted: Path) -> None:
    """SIGTERM in a long plain function: the process ends, and only then it runs elsewhere."""
    call = {"id": "s", "name": "sleepy", "input": {"seconds": 12}}
    with running(folder, environ=with_own_tools(folder, noted), workers=2) as dev:
        client = dev.client()
        client.create([{"tool_calls": [call]}, {"text": "x"}], permission_mode="autonomous")
        until(noted.exists)
        first = int(noted.read_text().split()[2])
        os.kill(first, signal.SIGTERM)
        until(lambda: len(noted.read_text().splitlines()) == 2, within_s=15)
        until(lambda: first not in dev.children("worker"), within_s=1)
        assert [line.split()[1] for line in noted.read_text().splitlines()] == ["start", "start"]


def test_without_a_person_an_unknown_outcome_is_told_to_the_model(folder: Path) -> None:
    """HITL off: an error result, no second start."""
    with running(folder) as dev:
        client = dev.client()
        run_id = client.create(
            [{"tool_calls": [slow("s", 20)]}, {"text": "{{last_results}}"}],
            human_in_the_loop=False,
            permission_mode="autonomous",
        )
        until(lambda: len(dev.starts(run_id)) == 1)
        dev.kill_child("worker")
        run = client.wait(run_id, "completed", within_s=30)
        (result,) = json.loads(run["output"])
        assert (result["state"], "unknown" in result["content"]) == ("error", True)
        assert len(dev.starts(run_id)) == 1


def test_a_lost_hint_delays_a_run_by_no_more_than_the_sweep(folder: Path) -> None:
    """The broker's queue is emptied by hand, and the store's own wake-up is lost as well."""
    with running(folder, environ={"SIGNOFF_SWEEP_S": "1"}) as dev:
        client = dev.client()
        run_id = client.create([{"tool_calls": [email("a")]}, {"text": "x"}])
        (gate,) = client.wait_pending(run_id, 1)
        (worker,) = dev.children("worker")
        until(lambda: not awake(dev), within_s=10, what="the drainer to sleep")
        # Frozen for the moment in which everything that would wake it is lost.
        os.kill(worker, signal.SIGSTOP)
        try:
            store_of(dev, 0).client_kill_filter(_type="pubsub")
            client.approve(run_id, gate["request_id"])
            until(lambda: empty_queue(dev), within_s=5, what="the hint")
        finally:
            os.kill(worker, signal.SIGCONT)
        lost = time.monotonic()
        client.wait(run_id, "completed", within_s=5)
        assert time.monotonic() - lost < 1.0 + 1.5


def store_of(dev: Dev, db: int) -> Any:
    return redis.Redis(unix_socket_path=str(dev.data / "store.sock"), db=db)


def awake(dev: Dev) -> int:
    found = store_of(dev, 0).zrangebyscore("sg:{s0}:awake", time.time() * 1000, "+inf")
    return len(found)


def empty_queue(dev: Dev) -> bool:
    """True once a message was taken out of the broker's queue."""
    broker = store_of(dev, 1)
    return any(broker.delete(key) for key in broker.scan_iter("sg:celery:signoff*"))


def test_a_hundred_runs_through_a_kill_loop(folder: Path, receiver: Receiver) -> None:
    """Workers and the service die again and again while runs are created and decided."""
    with running(folder, workers=2) as dev:
        client = dev.client()
        webhook = client.subscribe(receiver.url, "run.awaiting_input")
        runs: list[int] = []
        for n in range(60):
            answer = insistent(
                lambda n=n: client.http.post(
                    "/v1/runs/",
                    json={
                        "message": "go",
                        "stream": False,
                        "human_in_the_loop": True,
                        "permission_mode": "approval",
                        "metadata": {"script": GATED},
                    },
                    headers={"idempotency-key": f"run-{n}"},
                )
            )
            runs.append(answer.json()["id"])
            if n % 20 == 10:
                dev.kill_child(["worker", "serve", "relay"][n // 20])
        for run_id in runs:
            for _ in range(4):
                finish(client, run_id, dev, webhook)
        assert len(set(runs)) == 60
        for run_id in runs:
            client.wait(run_id, "completed", within_s=30)
        no_doubled_starts(dev)
        one_event_per_pause(receiver)
