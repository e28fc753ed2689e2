"""A LangGraph graph in real processes: parks, is killed, is answered by callbacks, goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Dev, Receiver, callback, running, verified


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    environ = {"SIGNOFF_AGENTS": "office=tests.graph_agents:make_office"}
    with running(tmp_path_factory.mktemp("graph"), environ=environ) as dev:
        yield dev


@pytest.mark.parametrize("order", [["send_email", "interrupt"], ["interrupt", "send_email"]])
def test_a_killed_graph_goes_on_in_another_process(
    office: Dev, receiver: Receiver, order: list[str]
) -> None:
    """An approval and an external call of two branches, kill -9, callbacks in either order."""
    client = office.client()
    user = {"user_id": order[0]}
    webhook = client.subscribe(receiver.url, "run.awaiting_input", "run.completed", **user)
    run_id = client.create([], model="agent:office", **user)
    gates = {gate["tool_name"]: gate for gate in client.wait_pending(run_id, 2)}
    assert {name: gate["kind"] for name, gate in gates.items()} == {
        "send_email": "tool_approval",
        "interrupt": "external",
    }
    verified(webhook, receiver.pause(run_id, 1))
    (first,) = office.children("worker")
    office.kill_child("worker")
    decisions: dict[str, dict[str, Any]] = {
        "send_email": {"decision": "allow"},
        "interrupt": {"result": {"output": {"euro": 7}}},
    }
    for name in order:
        data = {"run_id": run_id, "request_id": gates[name]["request_id"], **decisions[name]}
        reply = callback(office.url, webhook, {"type": "decision", "data": data})
        assert reply.status_code == 200, reply.text
    run = client.wait(run_id, "completed", within_s=40)
    assert office.children("worker") != [first]
    mail, price = json.loads(run["output"])["told"]
    assert (mail["state"], price) == ("success", {"euro": 7})
    assert mail["content"].startswith("Email sent to ann@example.com")
    verified(webhook, receiver.end(run_id))
    lines = [json.loads(line) for line in Path(office.ledger).read_text().splitlines()]
    assert len([row for row in lines if row.get("run_id") == run_id]) == 2  # its start, its end
    client.close()
