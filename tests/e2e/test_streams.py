"""Event streams on real processes: followed, joined, cut off and resumed, and by the seed's SDK."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import redis

from signoff.domain.frame import frame
from signoff.supervise.embedded import socket_path
from tests.e2e.harness import KEY, Client, Dev, running, until

WORDS = " ".join(f"word{n}" for n in range(20))
SEND = {"to": "a@example.com", "subject": "s", "body": "b"}


def script(*turns: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {
        "message": "go",
        "stream": True,
        "human_in_the_loop": True,
        "permission_mode": "approval",
        "metadata": {"script": list(turns)},
        **options,
    }


GATED = (
    {"text": "I will write."} | {"tool_calls": [{"id": "c", "name": "send_email", "input": SEND}]},
)


class Events:
    """The events of one response, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.got: list[tuple[str | None, Any]] = []

    def __iter__(self) -> Iterator[tuple[str | None, Any]]:
        mark = None
        for line in self.response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                mark = value
            elif name == "data":
                data = value if value == "[DONE]" else json.loads(value)
                self.got.append((mark, data))
                yield mark, data
                mark = None

    @property
    def kinds(self) -> list[str]:
        return [item if isinstance(item, str) else item["type"] for _, item in self.got]


def collect(client: Client, method: str, path: str, **options: Any) -> Events:
    """A whole stream."""
    with client.http.stream(method, path, **options) as response:
        assert response.status_code == 200, response.read()
        events = Events(response)
        for _ in events:
            pass
    return events


def marked(events: Events) -> list[tuple[str | None, Any]]:
    return [event for event in events.got if event[0]]


def test_a_created_run_streams_to_its_end(client: Client) -> None:
    """The stream begins at once, although the model thinks, and ends with the run."""
    body = script({"text": WORDS, "delay_ms": 400})
    began = time.monotonic()
    with client.http.stream("POST", "/v1/runs/", json=body) as response:
        events = Events(response)
        arrived = [(time.monotonic() - began, item) for _, item in events]
    assert arrived[0][0] < 0.3
    assert arrived[-1][0] >= 0.4
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert client.run(int(response.headers["x-run-id"]))["status"] == "completed"
    text = "".join(e["delta"] for _, e in events.got if e != "[DONE]" and e["type"] == "text-delta")
    assert text == WORDS
    assert events.kinds[0] == "metadata"
    assert events.kinds[-3:] == ["text-end", "done", "[DONE]"]


def test_a_stream_goes_through_a_gate(client: Client) -> None:
    """It closes with the gate; joined after the decision it has all from the start to the end."""
    body = script(*GATED, {"text": "Sent.", "delay_ms": 300})
    before = collect(client, "POST", "/v1/runs/", json=body)
    run_id = int(before.response.headers["x-run-id"])
    assert before.kinds[-5:] == [
        "tool-call-start",
        "tool-call-delta",
        "tool-call-end",
        "permission_request",
        "awaiting_approval",
    ]
    shown = before.got[-2][1]
    (gate,) = client.pending(run_id)
    for name in ("request_id", "tool_use_id", "tool_name", "tool_input", "digest", "kind"):
        assert shown[name] == gate[name], name
    assert client.approve(run_id, gate["request_id"]).status_code == 200
    after = collect(client, "GET", f"/v1/runs/{run_id}/stream")
    assert marked(after)[: len(marked(before))] == marked(before)
    for kind in ("permission_resolved", "tool-result-start", "tool-result-end", "replay_complete"):
        assert after.kinds.count(kind) == 1, kind
    assert after.kinds[-2:] == ["done", "[DONE]"]
    assert client.http.get(f"/v1/runs/{run_id}/stream").status_code == 409


def test_a_stream_that_is_cut_off_five_times_has_every_event_once(client: Client) -> None:
    """Each connection is dropped without a word and resumed behind the last event it gave."""
    turns = [{"text": f"{n} {WORDS}", "delay_ms": 150, "tool_calls": [look(n)]} for n in range(8)]
    run_id = client.create([*turns, {"text": "end"}])
    seen: list[tuple[str | None, Any]] = []
    for cut in range(6):
        headers = {"last-event-id": str(seen[-1][0])} if seen else {}
        with client.http.stream("GET", f"/v1/runs/{run_id}/stream", headers=headers) as response:
            assert response.status_code == 200, response.read()
            fresh = 0
            for mark, item in Events(response):
                if mark is None:
                    continue
                seen.append((mark, item))
                fresh += 1
                if cut < 5 and fresh == 7:
                    cut_off(response)
                    break
    assert seen[-1][1]["type"] == "done"
    assert seen == stored(client, run_id, first=seen[0])


def look(n: int) -> dict[str, Any]:
    return {"id": f"c{n}", "name": "search_docs", "input": {"query": str(n)}}


def cut_off(response: httpx.Response) -> None:
    sock: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
    sock.shutdown(socket.SHUT_RDWR)


def stored(client: Client, run_id: int, *, first: tuple[str | None, Any]) -> list[Any]:
    """All events of a run that is over, by resuming behind its first."""
    headers = {"last-event-id": str(first[0])}
    return [first, *marked(collect(client, "GET", f"/v1/runs/{run_id}/stream", headers=headers))]


def test_a_failed_and_a_cancelled_run_say_so(client: Client) -> None:
    """error carries its code, cancelled ends a stream at once."""
    failed = collect(
        client, "POST", "/v1/runs/", json=script({"error": {"kind": "auth", "times": 1}})
    )
    assert failed.kinds[-2:] == ["error", "[DONE]"]
    assert failed.got[-2][1]["error_code"] == "model_auth"
    with client.http.stream("POST", "/v1/runs/", json=script({"delay_ms": 8000})) as response:
        events = Events(response)
        path = f"/v1/runs/{response.headers['x-run-id']}/cancel"
        for _, item in events:
            if item != "[DONE]" and item["type"] == "metadata":
                threading.Timer(0.2, client.http.post, [path]).start()
    assert events.kinds == ["metadata", "cancelled", "[DONE]"]


def test_clients_that_never_read_are_dropped_and_memory_stays_flat(folder: Path) -> None:
    """Each gets slow_reader behind what was left unread; the service keeps nothing for it."""
    with running(folder) as dev:
        client = dev.client()
        (service,) = dev.children("serve")
        run_id = client.create([{"text": "a", "delay_ms": 60_000}])
        socks = [join(dev, run_id) for _ in range(20)]
        heads = [sock.recv(12) for sock in socks]
        assert heads == [b"HTTP/1.1 200"] * 20
        before = rss_kb(service)
        with redis.Redis(unix_socket_path=str(socket_path(dev.data))) as store:
            stream = f"sg:{{s0}}:st:{run_id}"
            text = frame("text-delta", id="t", delta="x" * 100_000)
            for _ in range(150):
                store.xadd(stream, {"f": text})
                store.publish(stream, "")
        until(lambda: dev.log().count("code=slow_reader") == 20, within_s=40)
        assert rss_kb(service) - before < 40_000
        assert b'"error_code":"slow_reader"' in tail(socks[0])
        for sock in socks[1:]:
            sock.close()


def tail(sock: socket.socket) -> bytes:
    """The last bytes that are left in a connection."""
    last = b""
    with sock:
        sock.settimeout(10)
        try:
            while chunk := sock.recv(1 << 20):
                last = (last + chunk)[-2000:]
        except ConnectionResetError:
            pass
    return last


def join(dev: Dev, run_id: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", dev.port))
    head = (
        f"GET /v1/runs/{run_id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    )
    sock.sendall(head.encode())
    return sock


def rss_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_a_restarted_service_ends_streams_and_loses_no_event(folder: Path) -> None:
    """SIGTERM to the service closes its streams at once; a resume has no gap and no double."""
    with running(folder) as dev:
        client = dev.client()
        turns = [{"text": f"{n}", "delay_ms": 200, "tool_calls": [look(n)]} for n in range(15)]
        run_id = client.create([*turns, {"text": "end"}])
        seen: list[tuple[str | None, Any]] = []
        path = f"/v1/runs/{run_id}/stream"
        with client.http.stream("GET", path) as response:
            for mark, item in Events(response):
                seen += [(mark, item)] if mark else []
                if len(seen) == 5:
                    (service,) = dev.children("serve")
                    os.kill(service, 15)
                    asked = time.monotonic()
        assert time.monotonic() - asked < 3
        until(lambda: up(dev), within_s=20)
        again = dev.client()
        headers = {"last-event-id": str(seen[-1][0])}
        seen += marked(collect(again, "GET", path, headers=headers))
        assert seen[-1][1]["type"] == "done"
        assert seen == stored(again, run_id, first=seen[0])


def up(dev: Dev) -> bool:
    try:
        return httpx.get(f"{dev.url}/ready").status_code == 200
    except httpx.HTTPError:
        return False
