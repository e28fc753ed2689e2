"""Delivery on real processes: retries, what ends them, and who is left alone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from signoff.signing import verify_hex
from tests.e2e.harness import Client, Dev, Received, Receiver, running, until, verified

ENVIRON = {"SIGNOFF_WEBHOOK_SCHEDULE": "0,0.3,0.3,0.3"}
ASKS: list[dict[str, Any]] = [
    {
        "tool_calls": [
            {"id": "a", "name": "send_email", "input": {"to": "a", "subject": "b", "body": "c"}}
        ]
    },
    {"text": "end"},
]


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A server whose deliveries are retried within a second."""
    with running(tmp_path_factory.mktemp("relay"), environ=ENVIRON) as started:
        yield started


def deliveries(client: Client, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    return list(client.http.get(f"/v1/webhooks/{webhook['id']}/deliveries").json()["data"])


def settled(client: Client, webhook: dict[str, Any], count: int = 1) -> list[dict[str, Any]]:
    """The deliveries of an endpoint, once none of them is pending."""

    def done() -> Any:
        rows = deliveries(client, webhook)
        return len(rows) >= count and all(row["status"] != "pending" for row in rows) and rows

    return list(until(done))


def test_a_failing_delivery_is_retried_with_the_same_id_and_bytes(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Fresh timestamp and signature on each attempt, one id, one body."""
    receiver.answer = lambda _: (500 if len(receiver.got) < 3 else 200, {})
    webhook = client.subscribe(receiver.url, "run.completed")
    client.create([{"text": "é 😀 </x>"}])
    (row,) = settled(client, webhook)
    assert (row["status"], row["attempts"], row["response_status_code"]) == ("success", 3, 200)
    assert len({item.body for item in receiver.got}) == 1
    assert {item.headers["webhook-id"] for item in receiver.got} == {row["event_id"]}
    for item in receiver.got:
        verified(webhook, item)


def test_attempts_end_with_the_schedule(dev: Dev, client: Client, receiver: Receiver) -> None:
    """Four attempts, then failed; the run is untouched."""
    receiver.answer = lambda _: (403, {})
    webhook = client.subscribe(receiver.url, "run.completed")
    run_id = client.create([{"text": "x"}])
    (row,) = settled(client, webhook)
    assert (row["status"], row["attempts"]) == ("failed", 4)
    assert len(receiver.got) == 4
    assert client.run(run_id)["status"] == "completed"


def test_gone_disables_the_endpoint_and_says_so(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """410: no more attempts, inactive with the reason, an event to who subscribed to it."""
    watcher = Receiver()
    try:
        receiver.answer = lambda _: (410, {})
        webhook = client.subscribe(receiver.url, "run.completed")
        client.subscribe(watcher.url, "endpoint.disabled")
        client.create([{"text": "x"}])
        told = watcher.wait(lambda r: r.type == "endpoint.disabled")
        assert told.event["data"]["webhook_id"] == webhook["id"]
        assert client.http.get(f"/v1/webhooks/{webhook['id']}").json()["active"] is False
        client.create([{"text": "x"}])
        (row,) = settled(client, webhook)
        assert (row["status"], len(receiver.got)) == ("failed", 1)
    finally:
        watcher.close()


def test_retry_after_holds_the_whole_endpoint(dev: Dev, client: Client, receiver: Receiver) -> None:
    """Nothing is sent to it for that long, also not other events."""
    receiver.answer = lambda _: (429, {"retry-after": "2"}) if len(receiver.got) == 1 else (200, {})
    webhook = client.subscribe(receiver.url, "run.completed")
    client.create([{"text": "x"}])
    first = receiver.wait(lambda _: True)
    client.create([{"text": "y"}])
    settled(client, webhook, 2)
    assert len(receiver.got) == 3
    assert min(item.at for item in receiver.got[1:]) - first.at >= 2.0


def test_a_settled_pause_is_not_announced_again(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Retries stop as superseded; the one attempt was made."""
    receiver.answer = lambda _: (500, {})
    webhook = client.subscribe(receiver.url, "run.awaiting_input")
    run_id = client.create(ASKS)
    (gate,) = client.wait_pending(run_id, 1)
    receiver.wait(lambda _: True)
    client.approve(run_id, gate["request_id"])
    (row,) = settled(client, webhook)
    assert row["status"] == "superseded"
    assert 1 <= len(receiver.got) <= 2


def test_the_first_attempt_is_made_even_when_the_pause_was_settled_before(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """A stopped relay finds the settled pause later: it announces it once and does not retry."""
    (relay,) = dev.children("relay")
    webhook = client.subscribe(receiver.url, "run.awaiting_input")
    receiver.answer = lambda _: (500, {})
    os.kill(relay, signal.SIGSTOP)
    try:
        run_id = client.create(ASKS)
        (gate,) = client.wait_pending(run_id, 1)
        client.approve(run_id, gate["request_id"])
        client.wait(run_id, "completed")
    finally:
        os.kill(relay, signal.SIGCONT)
    (row,) = settled(client, webhook)
    assert (row["status"], row["attempts"], len(receiver.got)) == ("superseded", 1, 1)


def test_rotation_signs_with_both_secrets_for_a_while(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Standard endpoints: old and new verify; callbacks take both as well."""
    webhook = client.subscribe(receiver.url, "run.completed")
    rotated = client.http.patch(f"/v1/webhooks/{webhook['id']}", json={"rotate_secret": True})
    new = rotated.json()
    assert new["secret"] != webhook["secret"]
    client.create([{"text": "x"}])
    item = receiver.wait(lambda _: True)
    assert len(item.headers["webhook-signature"].split(" ")) == 2
    verified(webhook, item)
    verified(new, item)
    shown = client.http.get(f"/v1/webhooks/{webhook['id']}").json()["secret"]
    assert shown not in (new["secret"], webhook["secret"])


def test_hex_endpoints_sign_as_the_seed_does(dev: Dev, client: Client, receiver: Receiver) -> None:
    """Made under /api/v2: one signature, v1=hex, the key is the secret's own text."""
    made = client.http.post(
        "/api/v2/webhooks/", json={"url": receiver.url, "events": ["run.completed"]}
    ).json()
    client.create([{"text": "x"}])
    item = receiver.wait(lambda _: True)
    assert item.headers["webhook-signature"].startswith("v1=")
    verify_hex(item.body, item.headers, made["secret"])


def test_a_hanging_endpoint_does_not_hold_others_up(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """Twenty runs' events arrive at the good endpoint while the bad one swallows all of its own."""
    bad, release = Receiver(), threading.Event()

    def hang(_: Received) -> tuple[int, dict[str, str]]:
        release.wait(20)
        return 200, {}

    bad.answer = hang
    try:
        slow = client.subscribe(bad.url, "run.completed")
        client.subscribe(receiver.url, "run.completed")
        started = time.monotonic()
        runs = {client.create([{"text": "x"}]) for _ in range(20)}
        until(
            lambda: {item.event["data"]["run_id"] for item in list(receiver.got)} >= runs,
            within_s=5,
        )
        assert time.monotonic() - started < 5
        assert len(bad.got) <= 16
        client.http.delete(f"/v1/webhooks/{slow['id']}")
    finally:
        release.set()
        bad.close()


def test_a_relay_that_dies_inside_an_attempt_is_followed_by_one_more(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """The lease runs out, the delivery is sent again with the same id, and ends as success."""
    (relay,) = dev.children("relay")

    def answer(_: Received) -> tuple[int, dict[str, str]]:
        if len(receiver.got) == 1:
            os.kill(relay, signal.SIGKILL)
        return 200, {}

    receiver.answer = answer
    webhook = client.subscribe(receiver.url, "run.completed")
    client.create([{"text": "x"}])
    (row,) = settled(client, webhook)
    assert row["status"] == "success"
    assert len(receiver.got) == 2
    assert len({item.headers["webhook-id"] for item in receiver.got}) == 1
    assert [attempt["outcome"] for attempt in row["log"]] == ["lost", "delivered"]


def test_a_deleted_endpoint_gets_nothing_more(dev: Dev, client: Client, receiver: Receiver) -> None:
    """Its retries end."""
    receiver.answer = lambda _: (500, {})
    webhook = client.subscribe(receiver.url, "run.completed")
    client.create([{"text": "x"}])
    receiver.wait(lambda _: True)
    assert client.http.delete(f"/v1/webhooks/{webhook['id']}").status_code == 204
    count = len(receiver.got)
    other = Receiver()
    try:
        client.subscribe(other.url, "run.completed")
        client.create([{"text": "y"}])
        other.wait(lambda _: True)
        assert len(receiver.got) <= count + 1
    finally:
        other.close()
