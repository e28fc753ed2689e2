"""Approvers of an ask policy, from the rule over workers and webhooks to signed decisions."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.harness import Client, Dev, Receiver, callback


def email(to: str) -> dict[str, Any]:
    return {"name": "send_email", "input": {"to": to, "subject": "s", "body": "b"}}


def decide(dev: Dev, hook: dict[str, Any], run_id: int, gate: dict[str, Any], word: str) -> Any:
    data = {"run_id": run_id, "request_id": gate["request_id"], "decision": word}
    return callback(dev.url, hook, {"type": "decision", "data": data})


def test_an_ask_policy_names_who_decides_and_their_deny_counts_for_the_turn(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Nobody else allows or denies; two allow; one deny keeps the same call from coming again."""
    hooks = [client.subscribe(receiver.url, "run.awaiting_input") for _ in range(3)]
    ann, ben, cid = hooks
    approvers = {"any_of": [f"webhook:{hook['id']}" for hook in (ann, ben)], "quorum": 2}
    rule = {"tool": "send_email", "effect": "ask", "approvers": approvers}
    assert client.http.post("/v1/permissions", json=rule).status_code == 201
    script: list[dict[str, Any]] = [
        {"tool_calls": [{"id": "a", **email("a@x.com")}]},
        {"tool_calls": [{"id": "b", **email("b@x.com")}]},
        {"tool_calls": [{"id": "c", **email("b@x.com")}]},
        {"text": "{{last_results}}"},
    ]
    run_id = client.create(script, permission_mode="autonomous")
    (gate,) = client.wait_pending(run_id, 1)
    shown = {**approvers, "exclude_requester": False}
    assert gate["approvers"] == shown
    assert receiver.pause(run_id, 1).event["data"]["requests"][0]["approvers"] == shown
    assert client.approve(run_id, gate["request_id"]).status_code == 403
    assert decide(dev, cid, run_id, gate, "allow").status_code == 403
    for _ in range(2):
        assert decide(dev, ann, run_id, gate, "allow").status_code == 200
    assert client.pending(run_id) != []
    assert decide(dev, ben, run_id, gate, "allow").status_code == 200

    receiver.pause(run_id, 2)
    (gate,) = client.wait_pending(run_id, 1)
    assert decide(dev, cid, run_id, gate, "deny").status_code == 403
    assert client.approve(run_id, gate["request_id"], "deny").status_code == 403
    assert decide(dev, ann, run_id, gate, "allow").status_code == 200
    assert decide(dev, ben, run_id, gate, "deny").status_code == 200
    (row,) = json.loads(client.wait(run_id, "completed")["output"])
    assert (row["tool_use_id"], row["state"]) == ("c", "denied")
    assert "denied this very call" in row["content"]
    assert len(client.http.get(f"/v1/runs/{run_id}/permissions").json()) == 2
