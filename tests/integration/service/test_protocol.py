"""Connections of the HTTP service: bounded heads, and an end to requests that never come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from service.protocol import MAX_HEAD, MAX_HEADERS, BoundedProtocol

pytestmark = pytest.mark.anyio


class HastyProtocol(BoundedProtocol):
    request_s = 0.05


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body, once all of it is there."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await PlainTextResponse(str(size))(scope, receive, send)


@asynccontextmanager
async def served(protocol: type[asyncio.Protocol], app: ASGIApp = echo) -> AsyncIterator[int]:
    config = uvicorn.Config(app, port=0, http=protocol, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def said(port: int, *parts: bytes) -> bytes:
    """Everything the server says until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    "head",
    [
        GET + b"x: " + b"y" * MAX_HEAD + b"\r\n\r\n",
        GET + b"x: " + b"y" * (40 * MAX_HEAD),  # never ends
        b"GET /" + b"y" * MAX_HEAD + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        GET + b"x: y\r\n" * MAX_HEADERS + b"\r\n",
    ],
    ids=["long header", "endless header", "long path", "many headers"],
)
async def test_a_head_that_is_too_large_ends_the_connection(head: bytes) -> None:
    """It is refused before the application sees it, however it is cut into packets."""
    async with served(BoundedProtocol) as port:
        half = len(head) // 2
        assert (await said(port, head[:half], head[half:]))[:12] in (b"HTTP/1.1 400", b"")


async def test_an_ordinary_head_and_a_large_body_pass() -> None:
    """The bound is on heads only; the next request on the connection starts anew."""
    body = b"b" * (4 * MAX_HEAD)
    post = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    many = GET + b"x: y\r\n" * (MAX_HEADERS - 2) + b"\r\n"
    async with served(BoundedProtocol) as port:
        answer = await said(port, post + body, post, body, many)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.count(b"%d" % len(body)) == 2


@pytest.mark.parametrize(
    "part",
    [b"", b"GET / HTTP/1.1\r\nx: ", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1"],
    ids=["silence", "half a head", "half a body"],
)
async def test_a_request_that_does_not_become_whole_ends_the_connection(part: bytes) -> None:
    """A silent client holds its connection for a bounded time only."""
    async with served(HastyProtocol) as port:
        assert await said(port, part) == b""


async def test_a_slow_answer_is_waited_for() -> None:
    """The bound is on the request; what the application needs for its answer is its own matter."""
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        asyncio.get_running_loop().call_later(3 * HastyProtocol.request_s, release.set)
        await release.wait()
        await PlainTextResponse("late")(scope, receive, send)

    async with served(HastyProtocol, slow) as port:
        assert (await said(port, GET + b"\r\n")).endswith(b"late")
