"""Wake-ups from the store: one connection that listens to channels and calls back."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

_RETRY_S = 0.5


class Listener:
    """Listens until it is cancelled; wake-ups may be lost, so callers poll as well."""

    def __init__(self, url: str, channels: Sequence[str]) -> None:
        self._pool = ConnectionPool.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=1.0,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._channels = list(channels)

    async def listen(self, heard: Callable[[str, str], None]) -> None:
        """Calls ``heard(channel, message)`` for each message; reconnects for ever."""
        while True:
            connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
            try:
                packed = connection.pack_commands([("SUBSCRIBE", *self._channels)])
                await connection.send_packed_command(packed, check_health=False)
                while True:
                    reply = await connection.read_response(disable_decoding=True, timeout=math.inf)
                    if reply is not None and reply[0] == b"message":
                        heard(reply[1].decode(), reply[2].decode())
            except (RedisError, OSError):
                await asyncio.sleep(_RETRY_S)
            finally:
                with contextlib.suppress(Exception):
                    await connection.disconnect(nowait=True)
