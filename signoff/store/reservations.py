"""Idempotency keys: one key, one body, one answer, kept for a day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.scripts import Args, Scripts

KEEP_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What stands under a key. ``other``: another body; ``stale``: the guard moved."""

    kind: Literal["new", "same", "other", "stale"]
    value: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an earlier request left under a key."""

    digest: str
    value: str


class Reservations:
    """Claims on keys; the record is written before the work it guards."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts

    async def reserve(
        self, key: str, *, digest: str, value: str = "", guard: tuple[str, str] | None = None
    ) -> Reservation:
        """Claims ``key`` for the body of ``digest``; ``value`` is what the first claim notes.

        ``guard`` (endpoint key, rev) makes the claim conditional on an unchanged endpoint.
        """
        args = Args(key=key, digest=digest, ttl_ms=KEEP_MS)
        args.control["value"] = args.blob(value)
        if guard is not None:
            args.control.update(guard=guard[0], rev=guard[1])
        reply = await self._scripts.run("reserve", keys.GLOBAL, args)
        kind: Literal["new", "same", "other", "stale"] = reply[0].decode()
        if kind != "same":
            return Reservation(kind=kind)
        return Reservation(kind=kind, value=reply[1].decode(), answer=reply[2].decode())

    async def find(self, key: str) -> Claim | None:
        """What stands under ``key``, without claiming it."""
        digest, value = await self._connection.call("HMGET", key, "digest", "value")
        return None if digest is None else Claim(digest=digest.decode(), value=value.decode())

    async def answer(self, key: str, answer: str) -> str:
        """Keeps the answer for repeats of the request; returns the one kept, which is the first."""
        first, _ = await self._connection.calls(
            ("HSETNX", key, "answer", answer),
            # The claim may have run out in the meantime; nothing here lives for ever.
            ("PEXPIRE", key, KEEP_MS),
        )
        if first:
            return answer
        return str((await self._connection.call("HGET", key, "answer")).decode())

    async def release(self, key: str) -> None:
        """Takes a claim back whose request turned out to change nothing and to be retryable."""
        await self._connection.call("DEL", key)
