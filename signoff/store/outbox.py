"""Deliveries: claimed under a lease and a token, settled in batches, listed by endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.domain.delivery import DeliveryState
from signoff.domain.error import MissingError
from signoff.domain.event import Event
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards, shard_prefix
from signoff.store.runs import Fanout, dumps, event_args
from signoff.store.scripts import Args, Scripts, pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDelivery:
    """One claimed delivery; ``body`` are the bytes to sign and send."""

    id: int
    attempt: int
    endpoint_id: int
    account: str
    event_id: str
    type: str
    run_id: int | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a claim brought, and when the next row is due (milliseconds from now, or None)."""

    rows: list[DueDelivery]
    next_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The outcome of one attempt; ``log`` is its row in the attempt log."""

    id: int
    attempt: int
    outcome: Literal["success", "retry", "failed", "cancelled"]
    status: int | None
    error: str | None
    body: str
    log: dict[str, Any]
    delay_ms: int | None = None
    hold_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """One delivery as it is listed; times are Unix milliseconds."""

    id: int
    endpoint_id: int
    event_id: str
    event_type: str
    run_id: int | None
    state: DeliveryState
    status_code: int | None
    error: str | None
    response_body: str | None
    attempts: int
    next_ms: int | None
    created_ms: int
    log: list[dict[str, Any]] = field(default_factory=list)


class Outbox:
    """Access to deliveries in all shards."""

    def __init__(self, connection: Connection, scripts: Scripts, shards: Shards) -> None:
        self._connection = connection
        self._scripts = scripts
        self._shards = shards

    async def claim(
        self,
        shard: int,
        *,
        token: str,
        limit: int,
        cap: int,
        lease_ms: int,
        busy: Mapping[str, int] | None = None,
        first_ms: int = 0,
    ) -> Claim:
        """At most ``limit`` due rows, at most ``cap`` in flight for one endpoint.

        ``busy`` is what the caller has in flight by account: none gets more slots than it leaves
        free for the others. A first attempt is made ``first_ms`` after its event.
        """
        args = Args(limit=limit, cap=cap, lease_ms=lease_ms, token=token)
        if busy is not None:
            args.control["busy"] = dict(busy)
        if first_ms:
            args.control["first_ms"] = first_ms
        reply = await self._scripts.run("claim", shard_prefix(shard), args)
        rows = [
            DueDelivery(
                id=int(row[0]),
                attempt=int(row[1]),
                endpoint_id=int(row[2]),
                account=row[7].decode(),
                event_id=row[3].decode(),
                type=row[4].decode(),
                run_id=int(row[5]) if row[5] else None,
                body=row[6],
            )
            for row in reply[1]
        ]
        return Claim(rows=rows, next_ms=int(reply[0]) if reply[0] else None)

    async def extend(self, shard: int, *, token: str, ids: Sequence[int], lease_ms: int) -> None:
        """Keeps the leases of deliveries that are still on their way."""
        args = Args(token=token, ids=[str(item) for item in ids], lease_ms=lease_ms)
        await self._scripts.run("extend", shard_prefix(shard), args)

    async def settle(
        self, shard: int, *, token: str, items: Sequence[Settled]
    ) -> dict[int, int | None]:
        """Stores outcomes; answers per accepted row how long its endpoint has only failed (ms).

        Rows whose lease another relay took over are left out.
        """
        args = Args(token=token)
        args.control["items"] = [
            {
                "id": str(item.id),
                "n": item.attempt,
                "outcome": item.outcome,
                "status": "" if item.status is None else str(item.status),
                "error": item.error or "",
                "attempt": args.blob(dumps(item.log)),
                "body": args.blob(item.body),
                "delay_ms": item.delay_ms,
                "hold_ms": item.hold_ms,
            }
            for item in items
        ]
        reply = await self._scripts.run("ack", shard_prefix(shard), args)
        return {int(row[0]): int(row[2]) if row[2] else None for row in reply if row[1]}

    async def emit(self, shard: int, account: str, event: Event, fanout: Fanout) -> None:
        """Writes an event that belongs to no run; idempotent by event id."""
        args = Args(
            acct=account,
            eps=list(fanout.endpoints),
            shard=shard,
            shards=self._shards.count,
        )
        args.control["event"] = event_args(args, event)
        await self._scripts.run("emit_event", shard_prefix(shard), args)

    async def forgive(self, endpoint_id: int) -> None:
        """Ends the endpoint's streak of failures, which would soon disable it again."""
        await self._connection.calls(
            *(
                ("DEL", keys.endpoint_failures(prefix, endpoint_id))
                for prefix in self._shards.prefixes()
            )
        )

    async def page(
        self, endpoint_id: int, *, limit: int, before: int | None
    ) -> tuple[list[DeliveryRecord], bool]:
        """Deliveries of an endpoint newest first, and whether there are more."""
        top = "+inf" if before is None else f"({before}"
        rows = await self._connection.calls(
            *(
                (
                    "ZREVRANGEBYSCORE",
                    keys.endpoint_deliveries(prefix, endpoint_id),
                    top,
                    "-inf",
                    "LIMIT",
                    0,
                    limit + 1,
                )
                for prefix in self._shards.prefixes()
            )
        )
        ids = sorted((int(item) for row in rows for item in row), reverse=True)
        found = await asyncio.gather(*(self._find(item) for item in ids[:limit]))
        return [item for item in found if item is not None], len(ids) > limit

    async def _find(self, delivery_id: int) -> DeliveryRecord | None:
        """The delivery, unless it is not kept any more by now."""
        try:
            return await self.get(delivery_id)
        except MissingError:
            return None

    async def get(self, delivery_id: int) -> DeliveryRecord:
        """One delivery with its attempt log, or MissingError."""
        prefix = self._shards.prefix(delivery_id)
        raw, log = await self._connection.calls(
            ("HGETALL", keys.delivery(prefix, delivery_id)),
            ("LRANGE", keys.attempts(prefix, delivery_id), 0, -1),
        )
        if not raw:
            raise MissingError(f"no delivery {delivery_id}")
        fields = pairs(raw)
        return DeliveryRecord(
            id=delivery_id,
            endpoint_id=int(fields["ep"]),
            event_id=fields["ev"],
            event_type=fields["type"],
            run_id=int(fields["run"]) if fields["run"] else None,
            state=DeliveryState(fields["state"]),
            status_code=int(fields["status"]) if fields.get("status") else None,
            error=fields.get("error") or None,
            response_body=fields.get("body") or None,
            attempts=int(fields["n"]),
            next_ms=int(fields["next"]) if fields.get("next") else None,
            created_ms=int(fields["created"]),
            log=[json.loads(row) for row in log],
        )
