"""The demo's own webhook receiver: a small HTTP server that verifies what arrives."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from standardwebhooks import Webhook, WebhookVerificationError

from signoff import signing

PATH = "/hooks/signoff"
_MAX_BYTES = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One attempt as it arrived; ``verdict`` is that of two independent verifiers."""

    at: float
    id: str
    type: str
    created: float
    content: Mapping[str, Any]
    attempt: int
    answered: int
    verdict: str
    forgery_refused: bool

    @property
    def valid(self) -> bool:
        """True when both verifiers accepted the signature."""
        return self.verdict == "valid"


class Receiver:
    """Listens on loopback; the first attempt at each event that ``decline`` picks gets a 503."""

    def __init__(
        self, *, clock: Callable[[], float], decline: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self._clock = clock
        self._decline = decline
        self._secret = ""
        self._attempts: Counter[str] = Counter()
        self._fresh: deque[Received] = deque()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"

    def expect(self, secret: str) -> None:
        """Verify with this secret from now on."""
        self._secret = secret

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fresh(self) -> list[Received]:
        """What has arrived since the last question, in order."""
        with self._lock:
            found = list(self._fresh)
            self._fresh.clear()
        return found

    def take(self, headers: Mapping[str, str], body: bytes) -> HTTPStatus:
        """Verify one request and keep it; return the status to answer with."""
        at = self._clock()
        try:
            event = json.loads(body)
            created = datetime.fromisoformat(event["timestamp"]).timestamp()
            kind, content, event_id = event["type"], event["data"], event["id"]
        except (ValueError, TypeError, KeyError):
            return HTTPStatus.BAD_REQUEST
        verdict = verdict_on(body, headers, self._secret)
        forged = verdict_on(body[:-1] + b" }", headers, self._secret)
        with self._lock:
            self._attempts[event_id] += 1
            attempt = self._attempts[event_id]
            declined = attempt == 1 and self._decline(event)
            status = HTTPStatus.SERVICE_UNAVAILABLE if declined else HTTPStatus.OK
            if verdict != "valid":
                status = HTTPStatus.UNAUTHORIZED
            self._fresh.append(
                Received(
                    at=at,
                    id=event_id,
                    type=kind,
                    created=created,
                    content=content,
                    attempt=attempt,
                    answered=status.value,
                    verdict=verdict,
                    forgery_refused=forged != "valid",
                )
            )
        return status


def verdict_on(body: bytes, headers: Mapping[str, str], secret: str) -> str:
    """Return ``valid``, or which verifier refuses: the published library, then our own."""
    try:
        Webhook(secret).verify(body, dict(headers))
    except (WebhookVerificationError, ValueError) as error:
        return f"refused: {error}"
    try:
        signing.verify(body, headers, secret)
    except signing.SignatureError as error:
        return f"refused: {error.reason}"
    return "valid"


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if self.path != PATH or length > _MAX_BYTES:
                self.close_connection = True
                status = HTTPStatus.NOT_FOUND
            else:
                status = receiver.take(dict(self.headers.items()), self.rfile.read(length))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has
            """Say nothing: the timeline tells what arrived."""

    return Handler
