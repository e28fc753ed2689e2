"""One streaming request to the application, with its answer as it comes."""

import asyncio
import json
from contextlib import asynccontextmanager

from service.protocol import LINE
from tests.integration.service.world import KEY

WITHIN_S = 5.0


class Tap:
    """One request to the application, with its answer as it comes."""

    def __init__(
        self, app, path, *, method="GET", key=KEY, body=None, headers=(), line=None, query=b""
    ):
        raw = b"" if body is None else json.dumps(body).encode()
        self._app = app
        self._raw = raw
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": [
                (b"authorization", f"Bearer {key}".encode()),
                (b"content-type", b"application/json"),
                *headers,
            ],
            "app": app,
            "extensions": {} if line is None else {LINE: line},
        }
        self.status = None
        self.headers = {}
        self.chunks = []
        self.blocked = asyncio.Event()
        self.blocked.set()
        self.left = asyncio.Event()
        self.moved = asyncio.Event()
        self.ended = False
        self._asked = False

    async def receive(self):
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._raw, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        await self.blocked.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.chunks.append(message.get("body", b""))
            self.ended = not message.get("more_body", False)
        self.moved.set()

    @asynccontextmanager
    async def open(self):
        task = asyncio.create_task(self._app(self.scope, self.receive, self.send))
        self.task = task
        try:
            yield self
        finally:
            self.left.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, holds):
        """Waits until ``holds(self)``."""
        async with asyncio.timeout(WITHIN_S):
            while not holds(self):
                self.moved.clear()
                await self.moved.wait()

    async def end(self):
        """The whole answer."""
        async with asyncio.timeout(WITHIN_S):
            await self.task
        return self

    @property
    def text(self):
        return b"".join(self.chunks).decode("ascii")

    @property
    def events(self):
        """(id or None, frame) of each event."""
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in lines:
                data = lines["data"]
                found.append((lines.get("id"), data if data == "[DONE]" else json.loads(data)))
        return found

    @property
    def kinds(self):
        return [item if isinstance(item, str) else item["type"] for _, item in self.events]
