"""The least HTTP/1.1 that a load generator needs: keep-alive, Content-Length, no chunks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

OK_EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_LENGTH = b"content-length"

OnMessage = Callable[["Peer", bytes, bytes], None]


def header(head: bytes, name: bytes) -> bytes | None:
    """The value of one header; ``name`` in lower case."""
    lowered = head.lower()
    start = lowered.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


def request(method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """One request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def response(status: int, body: bytes) -> bytes:
    """One JSON response as bytes."""
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


class Peer(asyncio.Protocol):
    """One connection of either side; calls ``on_message(peer, head, body)`` for each message."""

    def __init__(self, on_message: OnMessage) -> None:
        self._on_message = on_message
        self._buffer = b""
        self.transport: asyncio.Transport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of messages, cut anywhere."""
        self._buffer = buffer = self._buffer + data if self._buffer else data
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            head = buffer[:end]
            length = int(header(head, _LENGTH) or 0)
            stop = end + 4 + length
            if len(buffer) < stop:
                return
            self._buffer = rest = buffer[stop:]
            self._on_message(self, head, buffer[end + 4 : stop])
            buffer = rest

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The socket has ended; said by a message without a head."""
        self.lost = True
        self._on_message(self, b"", b"")

    def write(self, message: bytes) -> None:
        """Sends bytes; a lost connection swallows them."""
        if self.transport is not None and not self.lost:
            self.transport.write(message)


class Client:
    """Keep-alive connections to one address; one request at a time on each."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._idle: deque[Peer] = deque()
        self._waiting: dict[Peer, asyncio.Future[tuple[int, bytes]]] = {}

    async def send(self, message: bytes) -> tuple[int, bytes]:
        """The status and body of the answer; raises ConnectionError when it is lost."""
        loop = asyncio.get_running_loop()
        peer = self._pop()
        if peer is None:
            _, peer = await loop.create_connection(lambda: Peer(self._answered), *self._address)
        future: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._waiting[peer] = future
        peer.write(message)
        return await future

    def close(self) -> None:
        """Ends the idle connections."""
        while (peer := self._pop()) is not None:
            if peer.transport is not None:
                peer.transport.close()

    def _pop(self) -> Peer | None:
        while self._idle:
            peer = self._idle.pop()
            if not peer.lost:
                return peer
        return None

    def _answered(self, peer: Peer, head: bytes, body: bytes) -> None:
        future = self._waiting.pop(peer, None)
        if not peer.lost:
            self._idle.append(peer)
        if future is None or future.done():
            return
        if head:
            future.set_result((int(head[9:12]), body))
        else:
            future.set_exception(ConnectionError("the connection was lost before an answer"))
