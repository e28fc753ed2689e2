"""Pipelined access to Redis for one event loop.

Commands that are issued while others are on their way travel together in one round trip, so
the cost of the client is shared by all tasks of the process. A cancelled caller leaves the
connection in order: replies belong to the sender, not to the caller. Nothing is re-sent here;
a lost reply is an UnavailableError and the caller, whose scripts are idempotent, decides.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Any

from redis.exceptions import ResponseError

from signoff.domain.error import UnavailableError
from signoff.store.link import Address, Command, Link, Reply, pack

#: What says of the server that it cannot serve now, as it stands or (before 7.0) out of a script.
_REFUSAL = re.compile(
    r"(ERR Error running script .* -)?(OOM|READONLY|LOADING|MASTERDOWN|MISCONF|NOAUTH|WRONGPASS"
    r"|BUSY|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|UNBLOCKED)\b|ERR max number of clients"
)
_DIAL_S = 1.0


class Connection:
    """Sends commands over one socket, at most ``batches`` batches on their way at once."""

    def __init__(self, url: str, *, timeout_s: float = 5.0, batches: int = 2) -> None:
        self._address = Address(url)
        self._timeout_s = timeout_s
        self._batches = batches
        self._waiting: deque[tuple[bytes, Reply]] = deque()
        #: Batches on their way: the link's ``done`` that completes each, and when it was sent.
        self._flying: deque[tuple[int, float]] = deque()
        self._link: Link | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closed = False

    async def call(self, *command: str | bytes | float) -> Any:
        """The reply to one command.

        Raises UnavailableError when the server cannot be reached, does not answer within the
        timeout or refuses writes; ResponseError for what the server says of this command.
        """
        return _checked(await self._submit(pack(command)))

    async def calls(self, *commands: Command) -> list[Any]:
        """The replies to several commands that travel together; no transaction."""
        replies = [self._submit(packed) for packed in [pack(command) for command in commands]]
        return [_checked(await reply) for reply in replies]

    async def close(self) -> None:
        """Ends the socket; commands that wait fail as unavailable, and so do later ones."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        if self._link is not None:
            self._link.abort()
            await asyncio.sleep(0)  # for the socket to end
        self._give_up()

    def _submit(self, packed: bytes) -> Reply:
        reply: Reply = asyncio.get_running_loop().create_future()
        self._waiting.append((packed, reply))
        if self._closed:
            self._give_up()
        else:
            self._flush_soon()
        return reply

    def _flush_soon(self) -> None:
        """Flushes after the calls of this turn of the loop, so that they share a batch."""
        if not self._scheduled and len(self._flying) < self._batches:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._closed or not self._waiting or len(self._flying) >= self._batches:
            return
        loop = asyncio.get_running_loop()
        if self._link is None:
            if self._dialling is None:
                self._dialling = loop.create_task(self._dial())
            return
        batch = [item for item in self._waiting if not item[1].done()]
        self._waiting.clear()
        if not batch:
            return
        self._link.send([packed for packed, _ in batch], [reply for _, reply in batch])
        self._flying.append((self._link.sent, loop.time()))
        if self._watch is None:
            self._watch = loop.call_later(self._timeout_s, self._look)

    async def _dial(self) -> None:
        link: Link | None
        try:
            async with asyncio.timeout(min(_DIAL_S, self._timeout_s)):
                link = await self._address.dial(self._make_link)
        except (OSError, TimeoutError, ResponseError):
            link = None
        finally:
            self._dialling = None
        if link is None or not link.open:
            self._give_up()
            return
        self._link = link
        self._flush_soon()

    def _make_link(self) -> Link:
        return Link(answered=self._answered, lost=self._lost)

    def _answered(self) -> None:
        if self._link is not None:
            while self._flying and self._link.done >= self._flying[0][0]:
                self._flying.popleft()
        if self._waiting:
            self._flush_soon()

    def _lost(self, link: Link) -> None:
        if link is self._link:
            self._link = None
            self._flying.clear()
            if self._waiting and not self._closed:
                self._flush_soon()

    def _look(self) -> None:
        """Ends a socket whose oldest batch is not answered in time; one timer watches all."""
        self._watch = None
        if not self._flying:
            return
        loop = asyncio.get_running_loop()
        left = self._flying[0][1] + self._timeout_s - loop.time()
        if left <= 0 and self._link is not None:
            self._link.abort()
        else:
            self._watch = loop.call_later(max(left, 0.001), self._look)

    def _give_up(self) -> None:
        while self._waiting:
            _, reply = self._waiting.popleft()
            if not reply.done():
                reply.set_result(ConnectionResetError())


def _checked(reply: Any) -> Any:
    if isinstance(reply, Exception):
        if isinstance(reply, OSError):
            raise UnavailableError("the store did not answer")
        if _REFUSAL.match(str(reply)):
            raise UnavailableError("the store refuses the operation") from reply
        raise reply
    return reply
