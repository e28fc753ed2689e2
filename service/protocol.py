"""HTTP/1.1 connections: uvicorn's protocol with bounds on request heads and on waiting for them.

Its parser takes heads of any size, and nothing in it ends a request that never becomes whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Bytes of the request line and the headers together; what proxies in front commonly take.
MAX_HEAD = 64 * 1024
MAX_HEADERS = 128


#: Where the request scope's extensions have the ``Line`` that the request came over.
LINE = "signoff.line"
#: How long a watcher that did not read has for the last it is sent.
_LINGER_S = 5.0


class Line:
    """What an answer that goes on for long may know of its connection."""

    def __init__(self, last_word: Callable[[], None]) -> None:
        #: True once the server is going down; ``ending`` is called then.
        self.closing = False
        self.ending: Callable[[], None] | None = None
        #: Lets one more write through although the client does not read, and then ends it all.
        self.last_word = last_word

    def close(self) -> None:
        """The server is going down."""
        self.closing = True
        if self.ending is not None:
            self.ending()


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
    _line: Line

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first request from here on."""
        super().connection_made(transport)
        self._line = Line(self._last_word)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser; it keeps a header to itself until all of it is there."""
        self._unparsed += len(data)
        super().data_received(data)
        if self._in_head and self._size + self._unparsed > MAX_HEAD:
            self.send_400_response("The request head is too large.")

    def on_message_begin(self) -> None:
        """A request's first byte is here."""
        super().on_message_begin()
        extensions: dict[Any, Any] = {LINE: self._line}
        self.scope["extensions"] = extensions
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

    def shutdown(self) -> None:
        """The server goes down: answers that never end have to, and long polls are answered."""
        if (leaving := self.app_state.get("leaving")) is not None:
            leaving()
        super().shutdown()
        self._line.close()

    def _last_word(self) -> None:
        self.flow.resume_writing()
        self.loop.call_later(_LINGER_S, self.transport.abort)

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
