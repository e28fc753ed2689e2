"""Drives lifecycles against a server of the service's API: create, webhook, decision, done."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from http1 import Client, request
from receiver import AWAITING, COMPLETED, Receiver

KEY = "benchmark-key"
PATIENCE_S = 30.0
RUN = {
    "message": "Tell Ann that the build is green.",
    "stream": False,
    "human_in_the_loop": True,
    "permission_mode": "approval",
    "metadata": {
        "script": [
            {
                "text": "I will write to Ann.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "name": "send_email",
                        "input": {"to": "ann@example.com", "subject": "Build", "body": "Green."},
                    }
                ],
            },
            {"text": "Ann knows that the build is green."},
        ]
    },
}


@dataclass(slots=True)
class Lifecycle:
    """What one lifecycle looked like from outside; times are the wall clock."""

    run_id: int
    request_id: str
    created: float
    notified: float
    decided: float
    completed: float


@dataclass(slots=True)
class Tally:
    """The lifecycles that ended within the measured window."""

    done: int = 0
    seconds: float = 0.0
    took: list[float] = field(default_factory=list)


class Load:
    """One customer: an API client and a webhook receiver."""

    def __init__(self, port: int) -> None:
        self.client = Client("127.0.0.1", port)
        self.receiver = Receiver()
        self._headers = {
            "host": f"127.0.0.1:{port}",
            "authorization": f"Bearer {KEY}",
            "content-type": "application/json",
        }
        self._create = request("POST", "/v1/runs/", self._headers, json.dumps(RUN).encode())
        self._callback = ""
        self._signed = {name: self._headers[name] for name in ("host", "content-type")}

    async def start(self) -> None:
        """Subscribes the receiver to the two events of a lifecycle."""
        url = await self.receiver.start()
        body = json.dumps({"url": url, "events": [AWAITING, COMPLETED]}).encode()
        made = await self._post(request("POST", "/v1/webhooks/", self._headers, body))
        self.receiver.use(made["secret"])
        self._callback = f"/v1/callbacks/{made['id']}"

    def close(self) -> None:
        """Ends the connections."""
        self.client.close()
        self.receiver.close()

    async def lifecycle(self, *, think_s: float = 0.0) -> Lifecycle:
        """One run from its creation to its completed webhook, decided after ``think_s``."""
        created = time.time()
        run_id = (await self._post(self._create))["id"]
        inbox = self.receiver.inbox(run_id)
        try:
            notice = await asyncio.wait_for(inbox.awaiting, PATIENCE_S)
            if think_s:
                await asyncio.sleep(think_s)
            request_id = notice.payload["requests"][0]["request_id"]
            decision = {"run_id": run_id, "request_id": request_id, "decision": "allow"}
            body = json.dumps({"type": "decision", "data": decision}).encode()
            headers = self._signed | self.receiver.sign(f"dec_{run_id}", body)
            message = request("POST", self._callback, headers, body)
            decided = time.time()
            await self._post(message)
            end = await asyncio.wait_for(inbox.completed, PATIENCE_S)
        finally:
            self.receiver.forget(run_id)
        return Lifecycle(run_id, request_id, created, notice.at, decided, end.at)

    async def throughput(self, *, concurrency: int, warm_s: float, seconds: float) -> Tally:
        """Keeps ``concurrency`` lifecycles going; counts those that end after ``warm_s``."""
        loop = asyncio.get_running_loop()
        start = loop.time() + warm_s
        end = start + seconds
        tally = Tally(seconds=seconds)

        async def one_after_another() -> None:
            while loop.time() < end:
                seen = await self.lifecycle()
                if start <= loop.time() < end:
                    tally.done += 1
                    tally.took.append(seen.completed - seen.created)

        await asyncio.gather(*(one_after_another() for _ in range(concurrency)))
        return tally

    async def _post(self, message: bytes) -> Any:
        status, body = await self.client.send(message)
        if not 200 <= status < 300:  # noqa: PLR2004 - 2xx
            raise RuntimeError(f"{status}: {body[:400].decode(errors='replace')}")
        return json.loads(body)
