"""One socket to Redis: where it leads, its greeting, and replies in the order of commands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.connection import ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ResponseError

Command = tuple[str | bytes | float, ...]
#: Gets what the server answers as a value, also when that is an error; ConnectionResetError
#: stands for a reply that will not come.
Reply = asyncio.Future[Any]


def pack(command: Command) -> bytes:
    """The bytes of a command; raises UnicodeEncodeError for text without UTF-8 form."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # a stub of 1-tuples
    return packed


class Link(asyncio.Protocol):
    """Pairs replies with commands; every future given to ``send`` gets a value in the end."""

    def __init__(self, *, answered: Callable[[], None], lost: Callable[[Link], None]) -> None:
        """``answered`` is called after replies came, ``lost`` once, when the socket has ended."""
        #: How many commands were sent, and how many of them have their reply.
        self.sent = 0
        self.done = 0
        self._replies: deque[Reply] = deque()
        self._answered = answered
        self._lost = lost
        self._reader = hiredis.Reader(replyError=ResponseError)
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        """False once the socket has ended."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # A cast, because the transports of uvloop do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The socket has ended."""
        self._transport = None
        while self._replies:
            _settle(self._replies.popleft(), ConnectionResetError())
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of replies, cut anywhere."""
        try:
            self._reader.feed(data)
            while (value := self._reader.gets()) is not False:
                _settle(self._replies.popleft(), value)
                self.done += 1
        except (hiredis.ProtocolError, IndexError):
            self.abort()  # out of step with the server: nothing that comes can be believed
            return
        self._answered()

    def send(self, packed: Sequence[bytes], replies: Sequence[Reply]) -> None:
        """Sends packed commands in one write."""
        if self._transport is None:
            for reply in replies:
                _settle(reply, ConnectionResetError())
            return
        self.sent += len(replies)
        self._replies.extend(replies)
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))

    def abort(self) -> None:
        """Ends the socket at once; ``lost`` follows."""
        if self._transport is not None:
            self._transport.abort()


class Address:
    """Where ``url`` leads, with the options that redis-py reads from one."""

    def __init__(self, url: str) -> None:
        # Never connected: it is asked for what it understood of the URL.
        self._options = ConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]

    async def dial(self, make: Callable[[], Link]) -> Link:
        """An open link that has said who it is; raises OSError or ResponseError."""
        loop, options = asyncio.get_running_loop(), self._options
        if isinstance(options, UnixDomainSocketConnection):
            _, link = await loop.create_unix_connection(make, options.path)
        else:
            assert isinstance(options, TcpConnection)
            tls = options.ssl_context.get() if isinstance(options, SSLConnection) else None
            _, link = await loop.create_connection(make, options.host, options.port, ssl=tls)
        try:
            await self._greet(link)
        except BaseException:
            link.abort()
            raise
        return link

    async def _greet(self, link: Link) -> None:
        options = self._options
        commands: list[Command] = []
        if options.password:
            who = (options.username,) if options.username else ()
            commands.append(("AUTH", *who, options.password))
        if options.db:
            commands.append(("SELECT", int(options.db)))
        for command in commands:
            reply: Reply = asyncio.get_running_loop().create_future()
            link.send([pack(command)], [reply])
            if isinstance(answer := await reply, Exception):
                raise answer


def _settle(reply: Reply, value: Any) -> None:
    if not reply.done():  # its caller may have been cancelled
        reply.set_result(value)
