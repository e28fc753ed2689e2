"""The customer's side: receives signed webhooks, verifies them, signs decisions."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from dataclasses import dataclass, field
from typing import Any

from http1 import OK_EMPTY, Peer, header, response

AWAITING, COMPLETED = "run.awaiting_input", "run.completed"


@dataclass(slots=True)
class Notice:
    """One verified event with the wall clock of its arrival."""

    at: float
    payload: dict[str, Any]


@dataclass(slots=True)
class Inbox:
    """What has arrived for one run."""

    awaiting: asyncio.Future[Notice] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    completed: asyncio.Future[Notice] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Receiver:
    """A webhook endpoint on a port of its own; repeated events are taken once."""

    def __init__(self) -> None:
        self.secret = b""
        self.refused = 0
        self.repeated = 0
        self.unexpected: list[str] = []
        self._inboxes: dict[int, Inbox] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listens; returns the URL to subscribe."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self._received), "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/hook"

    def close(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()

    def inbox(self, run_id: int) -> Inbox:
        """The run's inbox; an event may be here before the create request is answered."""
        found = self._inboxes.get(run_id)
        if found is None:
            found = self._inboxes[run_id] = Inbox()
        return found

    def forget(self, run_id: int) -> None:
        """Drops a finished run's inbox."""
        self._inboxes.pop(run_id, None)

    def use(self, secret: str) -> None:
        """Takes the endpoint's ``whsec_`` secret."""
        self.secret = base64.b64decode(secret.removeprefix("whsec_"))

    def sign(self, msg_id: str, body: bytes) -> dict[str, str]:
        """The three headers of a signed callback, by the clock of now."""
        stamp = str(int(time.time()))
        return {
            "webhook-id": msg_id,
            "webhook-timestamp": stamp,
            "webhook-signature": signature(self.secret, msg_id.encode(), stamp.encode(), body),
        }

    def _received(self, peer: Peer, head: bytes, body: bytes) -> None:
        at = time.time()
        if peer.lost:
            return
        if not self._authentic(head, body):
            self.refused += 1
            peer.write(response(401, b""))
            return
        peer.write(OK_EMPTY)
        event = json.loads(body)
        inbox = self.inbox(event["data"]["run_id"])
        if event["type"] == AWAITING:
            future = inbox.awaiting
        elif event["type"] == COMPLETED:
            future = inbox.completed
        else:
            self.unexpected.append(event["type"])
            return
        if future.done():
            self.repeated += 1
        else:
            future.set_result(Notice(at, event["data"]))

    def _authentic(self, head: bytes, body: bytes) -> bool:
        msg_id, stamp = header(head, b"webhook-id"), header(head, b"webhook-timestamp")
        given = header(head, b"webhook-signature")
        if msg_id is None or stamp is None or given is None:
            return False
        return hmac.compare_digest(given, signature(self.secret, msg_id, stamp, body).encode())


def signature(key: bytes, msg_id: bytes, stamp: bytes, body: bytes) -> str:
    """The ``v1`` signature of Standard Webhooks."""
    digest = hmac.digest(key, b"%b.%b.%b" % (msg_id, stamp, body), "sha256")
    return "v1," + base64.b64encode(digest).decode()
