"""Deployments and tight hosts: stopped in order, moved to another folder, out of descriptors."""

from __future__ import annotations

import resource
import shutil
import socket
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.harness import Client, Receiver, running, until


def email(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "send_email", "input": {"to": "a", "subject": "b", "body": "c"}}


def slow(call_id: str, seconds: float) -> dict[str, Any]:
    return {"id": call_id, "name": "slow", "input": {"seconds": seconds, "tag": call_id}}


def settle(client: Client, ids: list[int]) -> None:
    """Allows what these runs ask for, until all of them are over."""

    def done() -> bool:
        for run_id in ids:
            for gate in client.pending(run_id):
                assert gate["kind"] == "tool_approval", gate
                client.approve(run_id, gate["request_id"])
        return {client.run(run_id)["status"] for run_id in ids} == {"completed"}

    until(done, within_s=40, what="the end of all runs")


def test_a_stop_in_order_and_a_move_of_the_data_lose_and_double_nothing(
    folder: Path, receiver: Receiver
) -> None:
    """SIGTERM in the middle of everything, and the next start is on a copy of the folder."""
    gated: list[dict[str, Any]] = [
        {"tool_calls": [email("a")]}, {"tool_calls": [email("b")]}, {"text": "end"}
    ]  # fmt: skip
    with running(folder / "here") as dev:
        client = dev.client()
        client.subscribe(receiver.url, "run.awaiting_input", "run.completed")
        parked = [client.create(gated) for _ in range(4)]
        for run_id in parked:
            client.wait_pending(run_id, 1)
        for run_id in parked[:2]:
            client.approve(run_id, client.pending(run_id)[0]["request_id"])
        thinking = [
            client.create([{"text": "t", "delay_ms": 1500}, {"text": "x"}]) for _ in range(2)
        ]
        working = client.create(
            [{"tool_calls": [slow("s", 2)]}, {"text": "end"}], permission_mode="autonomous"
        )
        until(lambda: dev.starts(working))
        dev.stop()
        before = {
            row["run_id"]: [gate["request_id"] for gate in row["requests"]]
            for row in (item.event["data"] for item in receiver.got)
            if "requests" in row and row["run_id"] in parked[2:]
        }
    there = folder / "there"
    there.mkdir()
    shutil.copytree(folder / "here" / "data", there / "data")
    shutil.copy(folder / "here" / "ledger.jsonl", there / "ledger.jsonl")
    with running(there) as dev:
        client = dev.client()
        for run_id, asked in before.items():
            assert [gate["request_id"] for gate in client.pending(run_id)] == asked
        ids = [*parked, *thinking, working]
        settle(client, ids)
        counts = Counter((row["run_id"], row["tool_use_id"]) for row in dev.starts())
        wanted = {(run_id, name) for run_id in parked for name in "ab"} | {(working, "s")}
        assert counts == Counter(wanted)
        for run_id in ids:
            receiver.end(run_id)
    pauses: dict[tuple[int, int], set[str]] = {}
    for item in receiver.got:
        if item.type == "run.awaiting_input":
            row = item.event["data"]
            pauses.setdefault((row["run_id"], row["pause"]), set()).add(item.headers["webhook-id"])
    assert {len(found) for found in pauses.values()} == {1}
    assert set(pauses) == {(run_id, number) for run_id in parked for number in (1, 2)}


def test_a_service_out_of_descriptors_comes_back_by_itself(folder: Path) -> None:
    """Idle connections take all that it may have; when they are gone, it serves again."""
    with running(folder) as dev:
        client = dev.client()
        run_id = client.create([{"tool_calls": [email("a")]}, {"text": "end"}])
        (gate,) = client.wait_pending(run_id, 1)
        client.close()
        (pid,) = dev.children("serve")
        few = _descriptors(pid) + 4
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, few))
        with ExitStack() as idle:
            for _ in range(40):
                sock = idle.enter_context(closing(socket.socket()))
                sock.settimeout(0.2)
                sock.connect(("127.0.0.1", dev.port))
            until(lambda: _descriptors(pid) == few, within_s=10)
        fresh = dev.client()
        answer = until(lambda: _approved(fresh, run_id, gate["request_id"]), within_s=20)
        assert answer.status_code == 200
        fresh.wait(run_id, "completed")
        assert dev.children("serve") == [pid]
        assert len(dev.starts(run_id)) == 1


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _approved(client: Client, run_id: int, request_id: str) -> Any:
    try:
        return client.approve(run_id, request_id)
    except httpx.TransportError:
        return None
