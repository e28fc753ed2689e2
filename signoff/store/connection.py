"""Pipelined access to Redis for one event loop.

Commands that are issued while others are on their way travel together in one round trip, so
the cost of the client is shared by all tasks of the process. A cancelled caller leaves the
connection in order: replies belong to the sender, not to the caller. Nothing is re-sent here;
a lost reply is an UnavailableError and the caller, whose scripts are idempotent, decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from signoff.domain.error import UnavailableError

Command = tuple[str | bytes | int | float, ...]
_BATCH = 128
# The client turns some codes into classes, and their texts lose the code then.
_REFUSALS = (MasterDownError, OutOfMemoryError, ReadOnlyError)
_REFUSAL_CODES = ("MISCONF", "BUSY ", "NOREPLICAS", "UNKILLABLE")


class Connection:
    """Sends commands in batches over at most ``senders`` connections of one event loop."""

    def __init__(self, url: str, *, timeout_s: float = 5.0, senders: int = 2) -> None:
        self._pool = ConnectionPool.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[Command, asyncio.Future[Any]]] = deque()
        self._idle: list[AbstractConnection] = []
        self._spare = senders
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._closed = False

    async def call(self, *command: str | bytes | float) -> Any:
        """The reply to one command.

        Raises UnavailableError when the server cannot be reached, does not answer within the
        timeout or refuses writes; ResponseError for what the server says of this command.
        """
        if self._closed:
            raise UnavailableError("the connection to the store is closed")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Encoded here, so that a text without a UTF-8 form fails its caller and not the batch.
        encoded = tuple(part.encode() if isinstance(part, str) else part for part in command)
        self._waiting.append((encoded, future))
        self._wake()
        reply = await future
        if isinstance(reply, ResponseError):
            if isinstance(reply, _REFUSALS) or str(reply).startswith(_REFUSAL_CODES):
                msg = "the store refuses the operation"
                raise UnavailableError(msg) from reply
            raise reply
        return reply

    async def calls(self, *commands: Command) -> list[Any]:
        """The replies to several commands that travel together; no transaction."""
        return await asyncio.gather(*(self.call(*command) for command in commands))

    async def close(self) -> None:
        """Ends the connections; commands that wait fail as unavailable."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail(list(self._waiting))
        self._waiting.clear()
        for connection in self._idle:
            await connection.disconnect(nowait=True)
        await self._pool.disconnect()

    def _wake(self) -> None:
        if not self._scheduled and (self._idle or self._spare):
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if not self._waiting or not (self._idle or self._spare):
            return
        if self._idle:
            connection = self._idle.pop()
        else:
            self._spare -= 1
            connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: AbstractConnection) -> None:
        try:
            while self._waiting:
                size = min(len(self._waiting), _BATCH)
                await self._send(connection, [self._waiting.popleft() for _ in range(size)])
        finally:
            self._idle.append(connection)
        if self._waiting and not self._closed:
            self._wake()

    async def _send(
        self, connection: AbstractConnection, batch: list[tuple[Command, asyncio.Future[Any]]]
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                packed = connection.pack_commands([command for command, _ in batch])
                await connection.send_packed_command(packed, check_health=False)
                for _, future in batch:
                    reply = await self._reply(connection)
                    if not future.done():
                        future.set_result(reply)
        except (RedisError, OSError, TimeoutError):
            await self._drop(connection)
            self._fail(batch)
        except BaseException:
            await self._drop(connection)
            self._fail(batch)
            raise

    @staticmethod
    async def _reply(connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response(disable_decoding=True, timeout=math.inf)
        except ResponseError as error:
            return error

    @staticmethod
    async def _drop(connection: AbstractConnection) -> None:
        with contextlib.suppress(Exception):
            await connection.disconnect(nowait=True)

    @staticmethod
    def _fail(batch: list[tuple[Command, asyncio.Future[Any]]]) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(UnavailableError("the store did not answer"))
