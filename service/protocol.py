"""HTTP/1.1 connections: uvicorn's protocol with bounds on request heads and on waiting for them.

Its parser takes heads of any size, and nothing in it ends a request that never becomes whole.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of the request line and the headers together; what proxies in front commonly take.
MAX_HEAD = 64 * 1024
MAX_HEADERS = 128


class HeadTooLargeError(Exception):
    """Raised into the parser, which ends the connection with 400."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request head is too large or whose request takes too long to come."""

    #: From the connection, or a request's first byte, to its last byte.
    request_s = 30.0

    _in_head = False
    _size = 0  # of the head so far, as parsed
    _unparsed = 0  # bytes since the last part of a head that the parser has reported
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first request from here on."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The process leaves: who waits for a change is answered as things stand."""
        if (leaving := self.app_state.get("leaving")) is not None:
            leaving()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Feeds the parser; it keeps a header to itself until all of it is there."""
        self._unparsed += len(data)
        super().data_received(data)
        if self._in_head and self._size + self._unparsed > MAX_HEAD:
            self.send_400_response("The request head is too large.")

    def on_message_begin(self) -> None:
        """A request's first byte is here."""
        super().on_message_begin()
        self._in_head, self._size, self._unparsed = True, 0, 0
        self._wait()

    def on_url(self, url: bytes) -> None:
        """A part of the request line; raises HeadTooLargeError."""
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; raises HeadTooLargeError."""
        super().on_header(name, value)
        self._grow(len(name) + len(value))
        if len(self.headers) > MAX_HEADERS:
            raise HeadTooLargeError

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole; from here on only keep-alive is waited for."""
        self._stop_waiting()
        super().on_message_complete()

    def _grow(self, size: int) -> None:
        self._size += size
        self._unparsed = 0
        if self._size > MAX_HEAD:
            raise HeadTooLargeError

    def _wait(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self.request_s, self._expire)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
