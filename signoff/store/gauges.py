"""Numbers of the whole store for those who run it: how much there is, and how late it is."""

from __future__ import annotations

from dataclasses import dataclass

from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards

#: Endpoints of a shard whose queues are counted, at most: a reading has to stay cheap.
ENDPOINTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at the store; no account can be told from it."""

    ready_runs: int
    leased_runs: int
    waiting_runs: int
    runs: int
    open_gates: int
    awake_workers: int
    due_deliveries: int
    deliveries_in_flight: int
    #: How long the longest waiting due delivery is due, in seconds; 0 when none is.
    oldest_due_s: float
    #: By kind of process: seconds since the newest sign of life, None when there never was one.
    silent_s: dict[str, float | None]


class Gauges:
    """Reads the numbers; the cost grows with accounts and busy endpoints, not with runs."""

    def __init__(self, connection: Connection, shards: Shards) -> None:
        self._connection = connection
        self._shards = shards

    async def read(self) -> Reading:
        """One reading."""
        call, calls = self._connection.call, self._connection.calls
        seconds, micros = await call("TIME")
        now_s = int(seconds) + int(micros) / 1e6
        now_ms = int(now_s * 1000)
        ready, leased, flying, awake = await self._queues(now_ms)
        waiting, runs, gates = await self._accounts()
        due, oldest_ms = await self._due(now_ms)
        kinds = ("worker", "relay")
        beats = await calls(
            *(("ZREVRANGE", keys.heartbeat(kind), 0, 0, "WITHSCORES") for kind in kinds)
        )
        return Reading(
            ready_runs=ready,
            leased_runs=leased,
            waiting_runs=waiting,
            runs=runs,
            open_gates=gates,
            awake_workers=awake,
            due_deliveries=due,
            deliveries_in_flight=flying,
            oldest_due_s=0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
            silent_s={
                kind: max(0.0, now_s - float(beat[1])) if beat else None
                for kind, beat in zip(kinds, beats, strict=True)
            },
        )

    async def _queues(self, now_ms: int) -> list[int]:
        rows = await self._connection.calls(
            *(
                command
                for prefix in self._shards.prefixes()
                for command in (
                    ("ZCARD", keys.queue(prefix, "ready")),
                    ("ZCARD", keys.queue(prefix, "leases")),
                    ("ZCARD", keys.queue(prefix, "dlease")),
                    ("ZCOUNT", keys.queue(prefix, "awake"), f"({now_ms}", "+inf"),
                )
            )
        )
        return [sum(rows[n::4]) for n in range(4)]

    async def _accounts(self) -> list[int]:
        accounts = await self._connection.call("HVALS", keys.accounts())
        rows = await self._connection.calls(
            *(
                ("ZCARD", key)
                for account in accounts
                for prefix in self._shards.prefixes()
                for key in (
                    keys.blocked_runs(prefix, account.decode(), None),
                    keys.runs(prefix, account.decode(), None),
                    keys.open_gates(prefix, account.decode()),
                )
            )
        )
        return [sum(rows[n::3]) for n in range(3)]

    async def _due(self, now_ms: int) -> tuple[int, int | None]:
        """How many deliveries are due, and since when the first of them."""
        total, oldest = 0, list[int]()
        for prefix in self._shards.prefixes():
            # An endpoint that has all it may have in flight is not in the first list.
            free, full = await self._connection.calls(
                ("ZRANGEBYSCORE", keys.queue(prefix, "eps"), "-inf", now_ms, "LIMIT", 0, ENDPOINTS),
                ("HKEYS", keys.queue(prefix, "epin")),
            )
            endpoints = [item.decode() for item in {*free, *full[:ENDPOINTS]}]
            rows = await self._connection.calls(
                *(
                    command
                    for item in endpoints
                    for command in (
                        ("ZCOUNT", keys.due(prefix, item), "-inf", now_ms),
                        ("ZRANGE", keys.due(prefix, item), 0, 0, "WITHSCORES"),
                    )
                )
            )
            total += sum(rows[0::2])
            firsts = [int(float(row[1])) for row in rows[1::2] if row]
            oldest += [at_ms for at_ms in firsts if at_ms <= now_ms]
        return total, min(oldest, default=None)
