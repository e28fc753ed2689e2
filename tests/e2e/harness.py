"""Real processes for end-to-end tests: `signoff dev`, a webhook receiver, a small client."""

from __future__ import annotations

import http.server
import json
import os
import queue
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx
from standardwebhooks.webhooks import Webhook

from signoff.signing import sign_decision

ROOT = Path(__file__).parents[2]
KEY = "test-key-one"
OTHER_KEY = "test-key-two"


def until(probe: Callable[[], Any], *, within_s: float = 20.0, what: str = "") -> Any:
    """The first true answer of ``probe``; fails when there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            msg = f"not within {within_s} s: {what or probe}"
            raise AssertionError(msg)
        select.select([], [], [], 0.01)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True, kw_only=True)
class Received:
    """One webhook as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def type(self) -> str:
        return str(self.event["type"])


class Receiver:
    """A webhook receiver on loopback; ``answer`` decides the status by request number."""

    def __init__(self) -> None:
        self.got: list[Received] = []
        self.arrived: queue.Queue[Received] = queue.Queue()
        self.answer: Callable[[Received], tuple[int, dict[str, str]]] = lambda _: (200, {})
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                item = Received(path=self.path, headers=headers, body=body, at=time.time())
                receiver.got.append(item)
                receiver.arrived.put(item)
                status, extra = receiver.answer(item)
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, match: Callable[[Received], bool], *, within_s: float = 20.0) -> Received:
        """The first received webhook that matches."""
        found: Received = until(
            lambda: next((item for item in list(self.got) if match(item)), None),
            within_s=within_s,
            what="a webhook",
        )
        return found

    def end(self, run_id: int) -> Received:
        """The run.completed webhook of a run."""
        return self.wait(
            lambda r: r.type == "run.completed" and r.event["data"]["run_id"] == run_id
        )

    def pause(self, run_id: int, number: int, **options: Any) -> Received:
        """The awaiting_input webhook of a run's pause."""
        return self.wait(
            lambda r: (
                r.type == "run.awaiting_input"
                and r.event["data"]["run_id"] == run_id
                and r.event["data"]["pause"] == number
            ),
            **options,
        )


@dataclass(kw_only=True)
class Dev:
    """One `signoff dev` with its children in a process group of its own."""

    data: Path
    ledger: Path
    port: int
    environ: dict[str, str] = field(default_factory=dict)
    workers: int = 1
    process: subprocess.Popen[str] | None = None
    clients: list[Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Dev:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SIGNOFF_")
        }
        environ |= {
            "SIGNOFF_TOOLS": "examples.demo_tools",
            "SIGNOFF_DEMO_LEDGER": str(self.ledger),
            "SIGNOFF_LEASE_S": "2",
            "SIGNOFF_SWEEP_S": "0.5",
            **self.environ,
        }
        with (self.data.parent / "dev.log").open("a") as log:
            self.process = self._spawn(environ, log)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 40)
        line = self.process.stdout.readline() if ready else ""
        assert line.startswith("ready "), (line, self.log()[-3000:])
        return self

    def _spawn(self, environ: dict[str, str], log: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "signoff.cli",
                "dev",
                "--port",
                str(self.port),
                "--data",
                str(self.data),
                "--key",
                KEY,
                "--key",
                OTHER_KEY,
                "--workers",
                str(self.workers),
            ],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def log(self) -> str:
        return (self.data.parent / "dev.log").read_text()

    def children(self, word: str) -> list[int]:
        """The pids in our group whose command line has the program or argument ``word``."""
        assert self.process is not None
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            with suppress(OSError):
                if os.getpgid(int(entry.name)) != self.process.pid:
                    continue
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if any(part.split(b" ")[0].split(b"/")[-1] == word.encode() for part in command):
                    found.append(int(entry.name))
        return found

    def kill_child(self, word: str) -> None:
        """kill -9 of the named child; waits until its successor answers for it."""
        pids = self.children(word)
        assert pids, word
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """kill -9 of everything at once."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=15)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> None:
        """SIGTERM to the parent."""
        for client in self.clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            finally:
                self.kill()

    def starts(self, run_id: int | None = None) -> list[dict[str, Any]]:
        """The ledger's start lines."""
        if not self.ledger.exists():
            return []
        rows = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        return [
            row
            for row in rows
            if row["phase"] == "start" and (run_id is None or row["run_id"] == run_id)
        ]

    def client(self, key: str = KEY) -> Client:
        """A client of this server; it is closed with it at the latest."""
        made = Client(self.url, key)
        self.clients.append(made)
        return made


class Client:
    """A few calls of the API; answers are httpx responses or their JSON."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=15
        )

    def close(self) -> None:
        self.http.close()

    def create(self, script: Sequence[Mapping[str, Any]], **options: Any) -> int:
        body = {
            "message": "go",
            "stream": False,
            "human_in_the_loop": True,
            "permission_mode": "approval",
            "metadata": {"script": list(script)},
            **options,
        }
        response = self.http.post("/v1/runs/", json=body)
        assert response.status_code == 201, response.text
        return int(response.json()["id"])

    def run(self, run_id: int) -> dict[str, Any]:
        return dict(self.http.get(f"/v1/runs/{run_id}").json())

    def pending(self, run_id: int) -> list[dict[str, Any]]:
        rows = self.http.get(f"/v1/runs/{run_id}/permissions").json()
        return [row for row in rows if row["status"] == "pending"]

    def wait(self, run_id: int, status: str, *, within_s: float = 20.0) -> dict[str, Any]:
        return dict(
            until(
                lambda: (run := self.run(run_id))["status"] == status and run,
                within_s=within_s,
                what=f"run {run_id} {status}",
            )
        )

    def wait_pending(self, run_id: int, count: int, *, within_s: float = 20.0) -> list[Any]:
        return list(
            until(
                lambda: len(rows := self.pending(run_id)) == count and rows,
                within_s=within_s,
                what=f"{count} gates of run {run_id}",
            )
        )

    def approve(self, run_id: int, request_id: str, decision: str = "allow", **more: Any) -> Any:
        body = {"request_id": request_id, "decision": decision, **more}
        return self.http.post(f"/v1/runs/{run_id}/approve", json=body)

    def answer(self, run_id: int, answers: dict[str, Any], **more: Any) -> Any:
        return self.http.post(f"/v1/runs/{run_id}/answer", json={"answers": answers, **more})

    def subscribe(self, url: str, *events: str, **more: Any) -> dict[str, Any]:
        body = {"url": url, "events": list(events), **more}
        response = self.http.post("/v1/webhooks/", json=body)
        assert response.status_code == 201, response.text
        return dict(response.json())

    def messages(self, run_id: int) -> list[dict[str, Any]]:
        return list(self.http.get(f"/v1/runs/{run_id}/messages").json())


def callback(
    url: str, webhook: dict[str, Any], payload: dict[str, Any], **change: Any
) -> httpx.Response:
    """Sends a signed decision to the webhook's callback; ``change`` breaks parts of it."""
    body = change.get("body") or json.dumps(payload).encode()
    msg_id = change.get("msg_id") or f"msg_{secrets.token_hex(8)}"
    timestamp = int(change.get("timestamp") or time.time())
    secret = change.get("secret") or webhook["secret"]
    headers = sign_decision(secret, body, msg_id=msg_id, timestamp=timestamp)
    headers |= {"content-type": "application/json", **change.get("headers", {})}
    sent = change.get("sent", body)
    return httpx.post(f"{url}/v1/callbacks/{webhook['id']}", content=sent, headers=headers)


def verified(webhook: dict[str, Any], received: Received) -> dict[str, Any]:
    """The event, verified with the published library."""
    return dict(Webhook(webhook["secret"]).verify(received.body, received.headers))


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Dev]:
    """A started `signoff dev` in ``folder``."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    dev = Dev(data=data, ledger=folder / "ledger.jsonl", port=free_port(), **options)
    try:
        yield dev.start()
    finally:
        dev.stop()
