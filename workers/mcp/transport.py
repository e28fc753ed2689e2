"""How a server is reached: its process or its address, and when its stream has ended."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, TypeAlias

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from signoff.mcpserver import McpServer

# Their lines hold addresses and what servers sent; the connection logs what operators need.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("httpx2").setLevel(logging.WARNING)

CONNECT_S = 10.0
#: Within the range that JSON-RPC leaves to implementations, and used by nothing else here.
NOT_MADE = -32090
#: A result is cut far below this; more is a mistake or an attack on the worker's memory.
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_SESSION = "mcp-session-id"
Dial: TypeAlias = Callable[[], httpx2.AsyncBaseTransport]
#: Before the id of this process, the server's name and its command.
_START = ("-I", "-S", str(Path(__file__).with_name("tether.py")))


@asynccontextmanager
async def open_streams(
    server: McpServer, *, on_end: Callable[[], None], dial: Dial | None = None
) -> AsyncGenerator[tuple[Any, Any]]:
    """The server's streams; ``on_end`` is called when nothing will come of them any more.

    Requests go through what ``dial`` makes; without it, straight to where the operator has said.

    A call that was certainly not handed over ends with the code NOT_MADE, one that may have been
    with CONNECTION_CLOSED.
    """
    if server.command is not None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[*_START, str(os.getpid()), server.name, server.command, *server.args],
            env=dict(server.env),
            cwd=server.cwd,
        )
        # Not what Celery may have put in its place: the child needs a real file.
        errors = sys.__stderr__ or sys.stderr
        async with stdio_client(parameters, errlog=errors) as (read, write):
            yield _Watched(read, on_end), write
        return
    assert server.url is not None
    client = httpx2.AsyncClient(
        # Nothing is to be unpacked: a bound on what arrives is then a bound on what it becomes.
        headers={**server.headers, "accept-encoding": "identity"},
        # Each request has a limit of its own; streams of announcements are silent for hours.
        timeout=httpx2.Timeout(CONNECT_S, read=None),
        transport=_Contained(dial() if dial else httpx2.AsyncHTTPTransport(), on_end),
    )
    async with (
        client,
        streamable_http_client(server.url, http_client=client) as (read, write),
    ):
        yield _Watched(read, on_end), write


class _Watched:
    """A stream of messages that says when it has ended."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The sender's context of the last message, where the stream has one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """The next message."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Closes the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        """The messages."""
        return self

    async def __anext__(self) -> Any:
        """The next message."""
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        """The stream itself."""
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        """Closes the stream."""
        return await self._stream.__aexit__(*exc)


class _Contained(httpx2.AsyncBaseTransport):
    """Answers a tool call that failed on its way with an error of its own.

    The protocol's client ends the whole session, and every other call with it, when one request
    cannot be sent.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer of the server, or ours."""
        call_id = _call_id(request)
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            if call_id is None:
                raise
            return _failed(call_id, NOT_MADE)
        except httpx2.TransportError:
            if call_id is None:
                raise
            return _failed(call_id, CONNECTION_CLOSED)
        if response.status_code == HTTPStatus.NOT_FOUND and _SESSION in request.headers:
            # The server has forgotten the session, as after a restart: another one is needed.
            self._on_end()
            if call_id is not None:
                await response.aclose()
                return _failed(call_id, NOT_MADE)
        if response.headers.get("content-encoding", "identity") != "identity":
            # It was told not to: what unpacks to more than arrives would have no bound.
            await response.aclose()
            response = httpx2.Response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            return response if call_id is None else _failed(call_id, CONNECTION_CLOSED)
        if isinstance(response.stream, httpx2.AsyncByteStream) and not _is_events(response):
            response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """An answer that ends in an error when it is longer than any that is of use."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Its bytes."""
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise httpx2.ReadError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        """Closes the answer."""
        await self._inner.aclose()


def _is_events(response: httpx2.Response) -> bool:
    """Whether it is a stream of events, each of which the protocol's client bounds."""
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _call_id(request: httpx2.Request) -> Any:
    """The id of a tool call; None for every other request."""
    try:
        body = json.loads(request.content)
    except (ValueError, RecursionError, httpx2.StreamError):
        return None
    is_call = isinstance(body, dict) and body.get("method") == "tools/call"
    return body.get("id") if is_call else None


def _failed(call_id: Any, code: int) -> httpx2.Response:
    error = {"code": code, "message": "the request failed"}
    body = {"jsonrpc": "2.0", "id": call_id, "error": error}
    return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE, json=body)
