"""The main job on real processes: ask, announce, decide, resume."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from signoff.canonical import digest
from tests.e2e.harness import OTHER_KEY, ROOT, Client, Dev, Receiver, callback, until, verified

QUESTION = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "Red"}, {"label": "Blue"}],
        }
    ]
}


def call(name: str, call_id: str, **tool_input: Any) -> dict[str, Any]:
    return {"id": call_id, "name": name, "input": tool_input}


def email(call_id: str, to: str = "a@example.com") -> dict[str, Any]:
    return call("send_email", call_id, to=to, subject="s", body="b")


def results(client: Client, run_id: int) -> dict[str, Any]:
    """What the model saw last, by call id; the script's last text is {{last_results}}."""
    rows = json.loads(client.run(run_id)["output"])
    return {row["tool_use_id"]: row for row in rows}


def test_a_question_is_announced_signed_and_its_signed_answer_resumes(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """The webhook verifies with the published library; the callback's answer reaches the model."""
    webhook = client.subscribe(receiver.url, "run.awaiting_input", "run.completed")
    script: list[dict[str, Any]] = [
        {"tool_calls": [{"id": "q", "name": "AskUserQuestion", "input": QUESTION}]},
        {"text": "{{last_results}}"},
    ]
    run_id = client.create(script)
    event = verified(webhook, receiver.pause(run_id, 1))
    payload = event["data"]
    assert payload["status"] == "awaiting_approval"
    assert payload["questions"] == QUESTION["questions"]
    (request,) = payload["requests"]
    assert request["digest"] == digest(request["tool_name"], request["tool_input"])
    body = {
        "type": "decision",
        "data": {
            "run_id": run_id,
            "request_id": request["request_id"],
            "answers": {"Which colour?": "Blue"},
        },
    }
    answer = callback(dev.url, webhook, body)
    assert (answer.status_code, answer.json()["resumed"]) == (200, True)
    client.wait(run_id, "completed")
    assert "Blue" in results(client, run_id)["q"]["content"]
    done = receiver.end(run_id)
    assert verified(webhook, done)["data"]["status"] == "completed"


def test_free_calls_run_first_and_decisions_may_come_in_any_order(dev: Dev, client: Client) -> None:
    """Three gated calls and one free: partial decisions, deny with reason, edit, once each."""
    script: list[dict[str, Any]] = [
        {
            "tool_calls": [
                email("a", "a@x.org"),
                email("b", "b@x.org"),
                call("search_docs", "free", query="q"),
                email("c", "c@x.org"),
            ]
        },
        {"text": "{{last_results}}"},
    ]
    run_id = client.create(script)
    gates = {row["tool_use_id"]: row for row in client.wait_pending(run_id, 3)}
    until(lambda: [row["tool_use_id"] for row in dev.starts(run_id)] == ["free"])
    edited = {"to": "d@x.org", "subject": "s", "body": "b"}
    answer = client.approve(run_id, gates["c"]["request_id"], input=edited)
    assert (answer.status_code, answer.json()["resumed"]) == (200, False)
    until(lambda: len(dev.starts(run_id)) == 2)
    assert client.run(run_id)["status"] == "awaiting_approval"
    client.approve(run_id, gates["a"]["request_id"])
    answer = client.approve(run_id, gates["b"]["request_id"], "deny", reason="wrong person")
    assert answer.json()["resumed"] is True
    client.wait(run_id, "completed")
    assert [row["tool_use_id"] for row in dev.starts(run_id)] == ["free", "c", "a"]
    seen = results(client, run_id)
    assert list(seen) == ["a", "b", "free", "c"]
    assert "denied" in seen["b"]["content"]
    assert "wrong person" in seen["b"]["content"]
    assert "d@x.org" in seen["c"]["content"]
    assert "changed" in seen["c"]["content"]
    by_call = {row["tool_use_id"]: row for row in dev.starts(run_id)}
    assert by_call["a"]["digest"] == gates["a"]["digest"]
    assert by_call["c"]["digest"] == digest("send_email", edited)


def test_plan_mode_revises_then_runs_after_approval(dev: Dev, client: Client) -> None:
    """Effects need the plan; feedback plans again; approval turns to per-call checks."""
    script: list[dict[str, Any]] = [
        {"tool_calls": [email("early"), call("search_docs", "free", query="q")]},
        {"plan": "Step one"},
        {"plan": "Step one, better"},
        {"tool_calls": [email("late")]},
        {"text": "{{last_results}}"},
    ]
    run_id = client.create(script, permission_mode="plan")
    (gate,) = client.wait_pending(run_id, 1)
    assert gate["tool_name"] == "AskUserQuestion"
    assert gate["tool_input"]["questions"][0]["header"] == "Plan Approval"
    client.answer(run_id, {"Plan Approval": "Revise: better"}, request_id=gate["request_id"])
    (gate,) = until(
        lambda: [
            row
            for row in client.pending(run_id)
            if row["tool_input"]["questions"][0]["question"] == "Step one, better"
        ]
    )
    client.answer(run_id, {"Step one, better": "Approve"})
    (gate,) = until(
        lambda: [row for row in client.pending(run_id) if row["tool_name"] == "send_email"]
    )
    client.approve(run_id, gate["request_id"])
    client.wait(run_id, "completed")
    assert [row["tool_use_id"] for row in dev.starts(run_id)] == ["free", "late"]


def test_a_switch_to_autonomous_allows_tool_gates_but_not_questions(
    dev: Dev, client: Client
) -> None:
    """Pending approvals run at once; the question stays."""
    script: list[dict[str, Any]] = [
        {
            "tool_calls": [
                email("a"),
                {"id": "q", "name": "AskUserQuestion", "input": QUESTION},
            ]
        },
        {"tool_calls": [email("b")]},
        {"text": "done"},
    ]
    run_id = client.create(script)
    client.wait_pending(run_id, 2)
    answer = client.http.patch(
        f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": "autonomous"}
    )
    assert answer.json() == {"permission_mode": "autonomous"}
    (left,) = client.wait_pending(run_id, 1)
    assert left["tool_use_id"] == "q"
    until(lambda: len(dev.starts(run_id)) == 1)
    client.answer(run_id, {"Which colour?": "Red"})
    client.wait(run_id, "completed")
    assert [row["tool_use_id"] for row in dev.starts(run_id)] == ["a", "b"]


def test_remember_spares_the_next_prompts_of_the_user(dev: Dev, client: Client) -> None:
    """In the run at once, and as a policy that can be listed and revoked."""
    user = f"u_{secrets.token_hex(4)}"
    script: list[dict[str, Any]] = [{"tool_calls": [email(f"m{n}")]} for n in range(3)] + [
        {"text": "end"}
    ]
    first = client.create(script, user_id=user)
    (gate,) = client.wait_pending(first, 1)
    answer = client.approve(first, gate["request_id"], remember=True)
    assert answer.json()["remembered"] is True
    client.wait(first, "completed")
    second = client.create(script, user_id=user)
    client.wait(second, "completed")
    other = client.create(script)
    client.wait_pending(other, 1)
    (policy,) = client.http.get("/v1/permissions/", params={"user_id": user}).json()["data"]
    assert (policy["tool_name"], policy["source"]) == ("send_email", "run_approval")
    revoked = client.http.delete(f"/v1/permissions/{policy['id']}", params={"user_id": user})
    assert revoked.status_code == 204
    third = client.create(script, user_id=user)
    client.wait_pending(third, 1)


def test_remember_of_a_command_covers_its_prefix_and_nothing_that_is_chained(
    dev: Dev, client: Client
) -> None:
    """The next command of the prefix runs unasked, also in another run; a chained one is asked."""
    user = f"u_{secrets.token_hex(4)}"

    def bash(number: int, command: str) -> dict[str, Any]:
        call = {"id": f"b{number}", "name": "Bash", "input": {"command": command}}
        return {"tool_calls": [call]}

    first = client.create(
        [bash(0, "expr 1 + 1"), bash(1, "expr 1 + 2"), {"text": "end"}], user_id=user
    )
    (gate,) = client.wait_pending(first, 1)
    assert gate["suggested_rules"] == [{"tool": "Bash(expr 1:*)", "effect": "allow"}]
    answer = client.approve(first, gate["request_id"], remember=True)
    assert answer.json()["remembered"] is True
    client.wait(first, "completed")
    assert len(dev.starts(first)) == 2
    second = client.create([bash(0, "expr 1 + 3; touch x"), {"text": "end"}], user_id=user)
    (gate,) = client.wait_pending(second, 1)
    assert (gate["suggested_rules"], gate["can_remember"]) == ([], False)
    assert dev.starts(second) == []
    client.approve(second, gate["request_id"], decision="deny")
    client.wait(second, "completed")
    (policy,) = client.http.get("/v1/permissions/", params={"user_id": user}).json()["data"]
    assert (policy["tool_name"], policy["source"]) == ("Bash(expr 1:*)", "run_approval")
    assert policy["uses"] == 1


def test_fifty_deciders_get_one_verdict(dev: Dev, client: Client) -> None:
    """Every loser is told the standing verdict; the tool starts at most once."""
    run_id = client.create([{"tool_calls": [email("a")]}, {"text": "{{last_results}}"}])
    (gate,) = client.wait_pending(run_id, 1)

    def decide(n: int) -> Any:
        verdict = "allow" if n % 2 else "deny"
        return dev.client().approve(run_id, gate["request_id"], verdict)

    with ThreadPoolExecutor(25) as pool:
        answers = list(pool.map(decide, range(50)))
    won = {a.json()["status"] for a in answers if a.status_code == 200}
    assert len(won) == 1
    lost = [a for a in answers if a.status_code != 200]
    assert {a.status_code for a in lost} == {404}
    assert {a.json()["error"]["error_code"] for a in lost} == {"gate_resolved_otherwise"}
    standing = [a.json()["error"]["details"]["standing"] for a in lost]
    assert {row["status"] for row in standing} == won
    assert all(row["decided_by"] and row["decided_at"] for row in standing)
    assert len(lost) == 25
    client.wait(run_id, "completed")
    assert len(dev.starts(run_id)) == (1 if won == {"allowed"} else 0)


def test_hostile_callbacks_change_nothing(dev: Dev, client: Client, receiver: Receiver) -> None:
    """Wrong secret, altered body, stale or future time, unknown ids: refused; repeats are safe."""
    webhook = client.subscribe(receiver.url, "run.awaiting_input")
    foreign_client = dev.client(OTHER_KEY)
    foreign = foreign_client.subscribe(receiver.url, "run.awaiting_input")
    run_id = client.create([{"tool_calls": [email("a")]}, {"text": "x"}])
    (gate,) = client.wait_pending(run_id, 1)
    decided = {"run_id": run_id, "request_id": gate["request_id"], "decision": "allow"}
    body = {"type": "decision", "data": decided}
    raw = json.dumps(body).encode()
    now = time.time()
    refused = [
        callback(dev.url, webhook, body, secret=foreign["secret"]),
        callback(dev.url, webhook, body, sent=raw.replace(b"allow", b"deny ")),
        callback(dev.url, webhook, body, timestamp=now - 310),
        callback(dev.url, webhook, body, timestamp=now + 310),
        callback(dev.url, {**webhook, "id": 999_999}, body),
        callback(dev.url, foreign, body),
        callback(dev.url, webhook, {**body, "data": {**decided, "run_id": 999_999}}),
        callback(dev.url, webhook, body, headers={"webhook-signature": "v1,AAAA"}),
    ]
    assert {answer.status_code for answer in refused} == {401}
    unknown = {**body, "data": {**decided, "request_id": "req_nope"}}
    assert callback(dev.url, webhook, unknown).status_code == 404
    assert [row["status"] for row in client.pending(run_id)] == ["pending"]
    first = callback(dev.url, webhook, body, msg_id="msg_once")
    again = callback(dev.url, webhook, body, msg_id="msg_once")
    assert (first.status_code, first.content) == (200, again.content)
    other = {**body, "data": {**decided, "decision": "deny"}}
    reused = callback(dev.url, webhook, other, msg_id="msg_once")
    assert (reused.status_code, reused.json()["error"]["error_code"]) == (
        409,
        "idempotency_key_reuse",
    )
    client.wait(run_id, "completed")
    assert len(dev.starts(run_id)) == 1


def test_cancel_closes_gates_and_interrupts_calls(dev: Dev, client: Client) -> None:
    """A parked run ends at once; later decisions are refused by name."""
    run_id = client.create([{"tool_calls": [email("a")]}, {"text": "x"}])
    (gate,) = client.wait_pending(run_id, 1)
    assert client.http.post(f"/v1/runs/{run_id}/cancel").json()["status"] == "cancelled"
    late = client.approve(run_id, gate["request_id"])
    assert (late.status_code, late.json()["error"]["error_code"]) == (404, "gate_cancelled")
    again = client.http.post(f"/v1/runs/{run_id}/cancel")
    assert again.status_code == 409
    assert dev.starts(run_id) == []


def test_a_running_tool_is_cut_off_by_cancel(dev: Dev, client: Client) -> None:
    """Cancel is terminal while a call runs; the history pairs every call with a result."""
    run_id = client.create(
        [{"tool_calls": [call("slow", "s", seconds=30, tag="t")]}, {"text": "x"}],
        permission_mode="autonomous",
    )
    until(lambda: len(dev.starts(run_id)) == 1)
    client.http.post(f"/v1/runs/{run_id}/cancel")
    assert client.run(run_id)["status"] == "cancelled"
    ends = until(
        lambda: [
            row
            for row in map(json.loads, dev.ledger.read_text().splitlines())
            if row["run_id"] == run_id and row["phase"] == "end"
        ],
        within_s=5,
    )
    assert len(ends) == 1


def test_deny_rules_win_over_autonomous_mode(dev: Dev, client: Client) -> None:
    """A deny rule without a user covers every run; removing it lets calls run again."""
    user = f"u_{secrets.token_hex(4)}"
    rule = client.http.post(
        "/v1/permissions/", json={"user_id": user, "tool": "send_email", "effect": "deny"}
    ).json()
    script: list[dict[str, Any]] = [{"tool_calls": [email("a")]}, {"text": "{{last_results}}"}]
    run_id = client.create(script, user_id=user, permission_mode="autonomous")
    client.wait(run_id, "completed")
    assert dev.starts(run_id) == []
    assert results(client, run_id)["a"]["state"] == "denied"
    client.http.delete(f"/v1/permissions/{rule['id']}", params={"user_id": user})
    run_id = client.create(script, user_id=user, permission_mode="autonomous")
    client.wait(run_id, "completed")
    assert len(dev.starts(run_id)) == 1


def test_a_foreign_key_sees_nothing(dev: Dev, client: Client) -> None:
    """Another account's run is missing on every route."""
    run_id = client.create([{"text": "x"}])
    foreign = dev.client(OTHER_KEY)
    paths = ["", "/permissions", "/messages"]
    assert {foreign.http.get(f"/v1/runs/{run_id}{p}").status_code for p in paths} == {404}
    assert foreign.http.post(f"/v1/runs/{run_id}/cancel").status_code == 404
    assert run_id not in [row["id"] for row in foreign.http.get("/v1/runs/").json()["data"]]


@pytest.mark.parametrize("mount", ["/v1", "/api/v2"])
def test_both_mounts_serve_the_same_run(dev: Dev, client: Client, mount: str) -> None:
    """With and without a trailing slash, without a redirect."""
    run_id = client.create([{"text": "x"}])
    for path in (f"{mount}/runs/{run_id}", f"{mount}/runs/{run_id}/"):
        assert client.http.get(path).json()["id"] == run_id


def test_alive_tells_whether_a_process_of_this_host_makes_progress(dev: Dev) -> None:
    """Exit 0 for the running worker and relay, 1 for a store that nobody works on."""
    command = [sys.executable, "-m", "signoff.cli", "alive"]
    environ = {**os.environ, "SIGNOFF_REDIS_URL": f"unix://{dev.data}/store.sock?db=0"}
    for kind in ("worker", "relay"):
        assert subprocess.run([*command, kind], cwd=ROOT, env=environ, check=False).returncode == 0
    environ["SIGNOFF_REDIS_URL"] = f"unix://{dev.data}/store.sock?db=9"
    silent = subprocess.run(
        [*command, "worker"], cwd=ROOT, env=environ, check=False, capture_output=True
    )
    assert silent.returncode == 1
