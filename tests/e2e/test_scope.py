"""An AgentScope agent in real processes: parks, is killed, is answered by callbacks, goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.harness import Dev, Receiver, callback, running, verified

PAY = ["p1", "pay", {"to": "ann", "amount": 3}]
AGAIN = ["p2", "pay", {"to": "bob"}]
LOOK = ["x1", "lookup", {"what": "price"}]
NOTE = ["n1", "note", {"text": "hello"}]
SCRIPT: list[dict[str, Any]] = [
    {"text": "on it", "calls": [PAY, LOOK]},
    {"calls": [AGAIN]},
    {"calls": [NOTE]},
    {"text": "all done"},
]


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A server whose workers have the desk agent, with what its tools and its model noted."""

    dev: Dev
    folder: Path

    def starts(self, run_id: int) -> list[str]:
        path = self.folder / "starts"
        rows = (
            [line.split(" ", 2) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [f"{call} {what}" for run, call, what in rows if run == str(run_id)]

    def seen(self) -> dict[str, Any]:
        """What the model saw last, whoever asked it."""
        return dict(json.loads((self.folder / "seen").read_text().splitlines()[-1]))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("scope")
    environ = {
        "SIGNOFF_AGENTS": "desk=tests.scope_agents:make_agent",
        "SCOPE_LEDGER": str(folder / "starts"),
        "SCOPE_SEEN": str(folder / "seen"),
    }
    with running(folder, environ=environ) as dev:
        yield Desk(dev=dev, folder=folder)


def answer(desk: Desk, webhook: dict[str, Any], run_id: int, gate: Any, **decision: Any) -> None:
    data = {"run_id": run_id, "request_id": gate["request_id"], **decision}
    payload = {"type": "decision", "data": data}
    reply: httpx.Response = callback(desk.dev.url, webhook, payload)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("order", [["p1", "x1"], ["x1", "p1"]], ids="-".join)
def test_a_killed_agent_goes_on_in_another_process(
    desk: Desk, receiver: Receiver, order: list[str]
) -> None:
    """One confirm and one external call, kill -9, signed callbacks in either order."""
    client = desk.dev.client()
    # What is accepted is remembered for the end user, so each run has one of its own.
    user = {"user_id": order[0]}
    webhook = client.subscribe(receiver.url, "run.awaiting_input", "run.completed", **user)
    run_id = client.create(SCRIPT, model="agent:desk", **user)
    gates = {gate["tool_use_id"]: gate for gate in client.wait_pending(run_id, 2)}
    assert {c: gate["kind"] for c, gate in gates.items()} == {
        "p1": "tool_approval",
        "x1": "external",
    }
    pause = verified(webhook, receiver.pause(run_id, 1))
    told = {row["request_id"] for row in pause["data"]["requests"]}
    assert told == {gate["request_id"] for gate in gates.values()}
    (first,) = desk.dev.children("worker")
    desk.dev.kill_child("worker")
    decisions = {
        "p1": {"decision": "allow", "rules": gates["p1"]["suggested_rules"]},
        "x1": {"result": {"output": "7 euro"}},
    }
    for call_id in order:
        answer(desk, webhook, run_id, gates[call_id], **decisions[call_id])
    # The accepted rule spares the second payment its prompt; the note is asked, and denied.
    (gate,) = client.wait_pending(run_id, 1, within_s=40)
    assert gate["tool_use_id"] == "n1"
    assert desk.dev.children("worker") != [first]
    assert desk.starts(run_id) == ["p1 pay ann 3", "p2 pay bob 1"]
    verified(webhook, receiver.pause(run_id, 2))
    answer(desk, webhook, run_id, gate, decision="deny", reason="not today")
    run = client.wait(run_id, "completed")
    assert run["output"] == "all done"
    verified(webhook, receiver.end(run_id))
    results = desk.seen()["results"]
    assert results["x1"] == {"state": "success", "text": "7 euro"}
    assert results["n1"]["state"] == "denied"
    assert "Reason: not today" in results["n1"]["text"]
    assert desk.starts(run_id) == ["p1 pay ann 3", "p2 pay bob 1"]
    client.close()


def test_an_edited_input_is_checked_where_it_is_decided(desk: Desk) -> None:
    """By the schema that the gate kept: the service has no such tool."""
    client = desk.dev.client()
    run_id = client.create([{"calls": [PAY]}, {"text": "ok"}], model="agent:desk")
    (gate,) = client.wait_pending(run_id, 1)
    wrong = client.approve(run_id, gate["request_id"], input={"to": "ann", "amount": "x"})
    assert (wrong.status_code, wrong.json()["error"]["error_code"]) == (422, "invalid_tool_input")
    right = client.approve(run_id, gate["request_id"], input={"to": "eve", "amount": 2})
    assert right.status_code == 200
    client.wait(run_id, "completed")
    assert desk.starts(run_id) == ["p1 pay eve 2"]
    client.close()


def test_a_caller_names_an_agent_and_never_a_path(desk: Desk) -> None:
    """An unknown name is refused at once, as an unknown model is."""
    client = desk.dev.client()
    for name in ("agent:other", "agent:tests.scope_agents:make_agent", "agent:"):
        body = {"message": "go", "stream": False, "model": name}
        reply = client.http.post("/v1/runs/", json=body)
        assert (reply.status_code, reply.json()["error"]["error_code"]) == (422, "unknown_model")
    client.close()


def test_a_stream_shows_the_agents_text_and_calls(desk: Desk) -> None:
    """As that of any other run."""
    client = desk.dev.client()
    body = {
        "message": "go",
        "stream": True,
        "model": "agent:desk",
        "metadata": {"script": [{"text": "hello there"}]},
    }
    with client.http.stream("POST", "/v1/runs/", json=body) as stream:
        frames = [json.loads(line[6:]) for line in stream.iter_lines() if line[:7] == "data: {"]
    assert [f["delta"] for f in frames if f["type"] == "text-delta"] == ["hello there"]
    client.close()
