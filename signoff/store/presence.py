"""Signs of life of workers and relays, and what the server says of its durability."""

from __future__ import annotations

from dataclasses import dataclass

from redis.exceptions import ResponseError

from signoff.domain.error import SignoffError
from signoff.store import keys
from signoff.store.connection import Connection

#: How often a process says that it is alive.
BEAT_S = 4.0
#: Two beats may be lost before it counts as gone.
ALIVE_S = 10.0


class VolatileStoreError(SignoffError):
    """The Redis server may forget what was acknowledged."""

    code = "volatile_store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """The server's own words on keeping data."""

    aof: bool
    fsync: str
    eviction: str

    @property
    def safe(self) -> bool:
        """True when nothing acknowledged is evicted or kept in memory only."""
        return self.aof and self.eviction == "noeviction"


class Presence:
    """Heartbeats by kind of process, on the store's clock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def beat(self, kind: str, name: str) -> None:
        """Says that the process ``name`` makes progress."""
        await self._connection.call("ZADD", keys.heartbeat(kind), await self._now(), name)

    async def leave(self, kind: str, name: str) -> None:
        """Says that the process ends."""
        await self._connection.call("ZREM", keys.heartbeat(kind), name)

    async def alive(self, kind: str, within_s: float) -> int:
        """How many processes of the kind gave a sign within the time."""
        since = await self._now() - within_s
        await self._connection.call("ZREMRANGEBYSCORE", keys.heartbeat(kind), "-inf", since - 3600)
        return int(await self._connection.call("ZCOUNT", keys.heartbeat(kind), since, "+inf"))

    async def alive_on(self, kind: str, host: str, within_s: float) -> bool:
        """Whether a process of the kind on ``host`` gave a sign within the time."""
        since = await self._now() - within_s
        names = await self._connection.call("ZRANGEBYSCORE", keys.heartbeat(kind), since, "+inf")
        return any(name.decode().startswith(f"{host}:") for name in names)

    async def ping(self) -> bool:
        """True when the store answers."""
        return bool(await self._connection.call("PING"))

    async def durability(self) -> Durability:
        """AOF, fsync policy and eviction policy as configured."""
        aof, fsync, policy = await self._connection.calls(
            ("CONFIG", "GET", "appendonly"),
            ("CONFIG", "GET", "appendfsync"),
            ("CONFIG", "GET", "maxmemory-policy"),
        )
        return Durability(
            aof=aof[1] == b"yes", fsync=fsync[1].decode(), eviction=policy[1].decode()
        )

    async def check_durable(self) -> None:
        """Raises VolatileStoreError when the server evicts or keeps no AOF."""
        try:
            found = await self.durability()
        except ResponseError as error:
            msg = "the store does not tell its durability (CONFIG GET is refused)"
            raise VolatileStoreError(msg) from error
        if not found.safe:
            msg = (
                f"the store runs with appendonly={'yes' if found.aof else 'no'} and "
                f"maxmemory-policy={found.eviction}; it must keep an AOF and evict nothing"
            )
            raise VolatileStoreError(msg)

    async def _now(self) -> float:
        seconds, micros = await self._connection.call("TIME")
        return int(seconds) + int(micros) / 1e6
