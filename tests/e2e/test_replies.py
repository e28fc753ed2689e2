"""Replies on real processes: a new turn of the same run, or a message that waits for it."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.e2e.harness import Client, Dev, Receiver, running, until


def email(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "name": "send_email", "input": {"to": "a", "subject": "b", "body": "c"}}


ECHO: list[dict[str, Any]] = [{"text": "{{message}}"} for _ in range(6)]


def reply(client: Client, run_id: int, message: str, **more: Any) -> dict[str, Any]:
    body = {"message": message, "stream": False, **more}
    answer = client.http.post(f"/v1/runs/{run_id}/reply", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def texts(client: Client, run_id: int) -> list[tuple[str, str]]:
    return [
        (row["role"], block["text"])
        for row in client.messages(run_id)
        for block in row["content_blocks"]
        if block["type"] == "text"
    ]


def test_a_reply_to_a_run_that_ended_starts_its_next_turn(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Same id, running at once, the history goes on; each turn has its events."""
    client.subscribe(receiver.url, "run.completed", "run.message_received")
    run_id = client.create(ECHO)
    client.wait(run_id, "completed")
    answer = reply(client, run_id, "second")
    assert (answer["id"], answer["delivery"], answer["turn"]) == (run_id, "resumed", 2)
    run = until(lambda: (r := client.run(run_id))["output"] == "second" and r)
    assert run["status"] == "completed"
    assert [text for _, text in texts(client, run_id)] == ["go", "go", "second", "second"]
    until(lambda: [r.type for r in receiver.got].count("run.completed") == 2)
    assert [r.type for r in receiver.got].count("run.message_received") == 1


def test_a_reply_while_the_run_works_waits_for_the_next_turn(dev: Dev, client: Client) -> None:
    """Queued with its id, delivered after the turn in order."""
    run_id = client.create([{"text": "slow", "delay_ms": 800}, *ECHO])
    first = reply(client, run_id, "one")
    second = reply(client, run_id, "two")
    assert (first["delivery"], second["delivery"]) == ("queued", "queued")
    waiting = client.run(run_id)["pending_queued_message_ids"]
    assert waiting == [first["queued_message_id"], second["queued_message_id"]]
    until(lambda: client.run(run_id)["output"] == "two")
    assert client.run(run_id)["pending_queued_message_ids"] == []
    users = [text for role, text in texts(client, run_id) if role == "user"]
    assert users == ["go", "one", "two"]


def test_a_reply_to_a_parked_run_waits_until_its_gates_are_settled(
    dev: Dev, client: Client
) -> None:
    """The gate stays open; after the turn the message is next."""
    run_id = client.create([{"tool_calls": [email("a")]}, {"text": "sent"}, *ECHO])
    (gate,) = client.wait_pending(run_id, 1)
    assert reply(client, run_id, "and then?")["delivery"] == "queued"
    assert [row["request_id"] for row in client.pending(run_id)] == [gate["request_id"]]
    client.approve(run_id, gate["request_id"])
    until(lambda: client.run(run_id)["output"] == "and then?")
    assert len(dev.starts(run_id)) == 1


def test_a_cancel_drops_what_waits_and_says_so(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """The ids are listed as cancelled, each with its event; a later reply works."""
    client.subscribe(receiver.url, "run.message_cancelled")
    run_id = client.create([{"tool_calls": [email("a")]}, *ECHO])
    client.wait_pending(run_id, 1)
    queued = reply(client, run_id, "never")["queued_message_id"]
    client.http.post(f"/v1/runs/{run_id}/cancel")
    run = client.run(run_id)
    assert (run["pending_queued_message_ids"], run["cancelled_queued_message_ids"]) == (
        [],
        [queued],
    )
    told = receiver.wait(lambda r: r.type == "run.message_cancelled")
    assert told.event["data"]["message_id"] == queued
    assert told.event["data"]["reason"] == "run_cancelled"
    reply(client, run_id, "again")
    until(lambda: client.run(run_id)["output"] == "again")


def test_a_reply_inherits_and_may_change_how_the_run_works(dev: Dev, client: Client) -> None:
    """The mode stays; an explicit one holds for later turns; none while the run works."""
    script: list[dict[str, Any]] = [{"text": "x"}]
    script += [turn for n in range(3) for turn in ({"tool_calls": [email(f"m{n}")]}, {"text": "y"})]
    run_id = client.create(script)
    client.wait(run_id, "completed")
    reply(client, run_id, "inherits")
    (gate,) = client.wait_pending(run_id, 1)
    busy = client.http.post(
        f"/v1/runs/{run_id}/reply", json={"message": "m", "permission_mode": "autonomous"}
    )
    assert (busy.status_code, busy.json()["error"]["error_code"]) == (409, "run_active")
    client.approve(run_id, gate["request_id"])
    client.wait(run_id, "completed")
    reply(client, run_id, "alone", human_in_the_loop=False)
    until(lambda: len(dev.starts(run_id)) == 2)
    client.wait(run_id, "completed")
    reply(client, run_id, "still alone")
    until(lambda: len(dev.starts(run_id)) == 3)
    wrong = client.http.post(
        f"/v1/runs/{run_id}/reply", json={"message": "m", "permission_mode": "approval"}
    )
    assert wrong.status_code == 422


def test_one_idempotency_key_is_one_message(dev: Dev, client: Client) -> None:
    """Fifty copies at once: one turn; another body is refused."""
    run_id = client.create(ECHO)
    client.wait(run_id, "completed")

    def send(_: int) -> Any:
        return dev.client().http.post(
            f"/v1/runs/{run_id}/reply",
            json={"message": "once"},
            headers={"idempotency-key": "k"},
        )

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(send, range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert sum("idempotent-replay" not in answer.headers for answer in answers) == 1
    until(lambda: client.run(run_id)["output"] == "once")
    assert client.run(run_id)["turn"] == 2
    other = client.http.post(
        f"/v1/runs/{run_id}/reply", json={"message": "other"}, headers={"idempotency-key": "k"}
    )
    assert other.json()["error"]["error_code"] == "idempotency_key_reuse"


def test_a_queued_message_survives_kill_9_of_everything(folder: Path) -> None:
    """Acknowledged is durable; the turn comes after the restart, once."""
    with running(folder) as dev:
        client = dev.client()
        run_id = client.create([{"text": "slow", "delay_ms": 1500}, *ECHO])
        reply(client, run_id, "later")
        assert dev.process is not None
        os.killpg(dev.process.pid, signal.SIGKILL)
        dev.kill()
        dev.start()
        until(lambda: client.run(run_id)["output"] == "later", within_s=30)
        users = [text for role, text in texts(client, run_id) if role == "user"]
        assert users == ["go", "later"]
        assert json.dumps(client.run(run_id)["pending_queued_message_ids"]) == "[]"
