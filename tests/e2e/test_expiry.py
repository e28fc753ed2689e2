"""Time on gates between real processes: accurate, without a worker, over the relay's death."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.harness import Client, Dev, Receiver, running, until

SCRIPT: list[dict[str, Any]] = [
    {
        "tool_calls": [
            {"id": "a", "name": "send_email", "input": {"to": "a", "subject": "b", "body": "c"}}
        ]
    },
    {"text": "end {{last_results}}"},
]
EVENTS = ("run.awaiting_input", "run.input_reminder", "run.input_expired", "run.resumed")
ACCURATE_S = 2.0


def gates(client: Client, run_id: int) -> list[dict[str, Any]]:
    return list(client.http.get(f"/v1/runs/{run_id}/permissions").json())


def settled(client: Client, run_id: int, *, within_s: float) -> dict[str, Any]:
    def look() -> Any:
        (gate,) = gates(client, run_id) or [{"status": "pending"}]
        return gate["status"] != "pending" and gate

    gate: dict[str, Any] = until(look, within_s=within_s, what=f"run {run_id} settled")
    return gate


def late_s(gate: dict[str, Any]) -> float:
    resolved, expires = (datetime.fromisoformat(gate[n]) for n in ("resolved_at", "expires_at"))
    return (resolved - expires).total_seconds()


def kinds(receiver: Receiver, run_id: int) -> list[str]:
    return [item.type for item in receiver.got if item.event["data"]["run_id"] == run_id]


def test_many_gates_expire_in_time_on_an_idle_system(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Never early, at most two seconds late, and the runs go on."""
    client.subscribe(receiver.url, *EVENTS)
    runs = [client.create(SCRIPT, expires_in=2, remind_after=1) for _ in range(20)]
    for run_id in runs:
        gate = settled(client, run_id, within_s=15)
        assert (gate["status"], gate["decided_by"]) == ("denied", "expiry")
        assert 0 <= late_s(gate) < ACCURATE_S
        ended = client.wait(run_id, "completed")
        assert "Nobody decided" in ended["output"]
        until(lambda n=run_id: len(kinds(receiver, n)) == len(EVENTS), within_s=10)  # type: ignore[misc]
        assert sorted(kinds(receiver, run_id)) == sorted(EVENTS)
    assert dev.starts() == []


def test_a_gate_expires_although_no_worker_is_up(folder: Path, receiver: Receiver) -> None:
    """Denied at its time; the run goes on when a worker is back."""
    with running(folder) as dev:
        client = dev.client()
        client.subscribe(receiver.url, *EVENTS)
        run_id = client.create(SCRIPT, expires_in=3)
        client.wait_pending(run_id, 1)
        stopped = dev.children("worker")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            gate = settled(client, run_id, within_s=10)
            assert (gate["status"], gate["auto_resolved"]) == ("denied", True)
            assert 0 <= late_s(gate) < ACCURATE_S
            receiver.wait(lambda item: item.type == "run.input_expired")
            assert client.run(run_id)["status"] == "running"
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        client.wait(run_id, "completed", within_s=40)


def test_the_death_of_the_relay_loses_no_expiry(folder: Path, receiver: Receiver) -> None:
    """Killed before, around and after the time: settled by the next one, announced once."""
    with running(folder) as dev:
        client = dev.client()
        client.subscribe(receiver.url, *EVENTS)
        runs = [client.create(SCRIPT, expires_in=2 + n / 10) for n in range(20)]
        for run_id in runs:
            client.wait_pending(run_id, 1)
        (first,) = gates(client, runs[0])
        due = datetime.fromisoformat(first["expires_at"]).timestamp()
        until(lambda: time.time() > due - 0.1)
        dev.kill_child("relay")
        until(lambda: dev.children("relay"), within_s=20)
        until(lambda: time.time() > due + 1.5)
        dev.kill_child("relay")
        for run_id in runs:
            gate = settled(client, run_id, within_s=30)
            assert (gate["status"], gate["decided_by"]) == ("denied", "expiry")
            client.wait(run_id, "completed", within_s=40)
        ids = [
            (item.event["data"]["run_id"], item.headers["webhook-id"])
            for item in receiver.got
            if item.type == "run.input_expired"
        ]
        until(lambda: {n for n, _ in ids} <= set(runs))
        events = {n: {e for m, e in ids if m == n} for n, _ in ids}
        assert {len(found) for found in events.values()} == {1}
