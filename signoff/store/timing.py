"""What is due for pauses, by the store's clock: reminders and expiries, each done once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from signoff.domain.error import MissingError
from signoff.domain.event import Event
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.decisions import Lapse, Resolution, resolution_args
from signoff.store.keys import Shards, shard_prefix
from signoff.store.records import RunRecord
from signoff.store.runs import Fanout, event_args
from signoff.store.scripts import Args, Scripts, stale
from signoff.store.turns import Announcement


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that is due for a pause."""

    run_id: int
    pause: int
    what: Literal["remind", "expire"]

    @property
    def member(self) -> str:
        """The entry as the store names it."""
        return f"{self.run_id}:{self.pause}:{self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueNow:
    """What is due, and in how many milliseconds the next thing is (None: nothing waits)."""

    entries: list[Entry]
    next_ms: int | None


class Timing:
    """Access to due times. An entry is kept until the script that does it has done it."""

    def __init__(self, connection: Connection, scripts: Scripts, shards: Shards) -> None:
        self._connection = connection
        self._scripts = scripts
        self._shards = shards

    async def clock(self) -> int:
        """The store's clock in Unix milliseconds: what due times are reckoned by."""
        seconds, micros = await self._connection.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def due(self, shard: int, limit: int) -> DueNow:
        """At most ``limit`` due entries of the shard, the longest due first."""
        reply = await self._scripts.run("timed", shard_prefix(shard), Args(limit=limit))
        return DueNow(
            entries=[_entry(item.decode()) for item in reply[1:]],
            next_ms=int(reply[0]) if reply[0] else None,
        )

    async def account_of(self, run_id: int) -> str | None:
        """The account of a run; None when there is no such run any more."""
        key = keys.run(self._shards.prefix(run_id), run_id)
        found = await self._connection.call("HGET", key, "acct")
        return None if found is None else str(found.decode())

    async def postpone(self, entry: Entry, by_ms: int) -> None:
        """Moves an entry that cannot be done now behind the others."""
        key = keys.timed(self._shards.prefix(entry.run_id))
        at = await self.clock() + by_ms
        await self._connection.call("ZADD", key, "XX", at, entry.member)

    async def drop(self, entry: Entry) -> None:
        """Forgets an entry whose run is gone."""
        key = keys.timed(self._shards.prefix(entry.run_id))
        await self._connection.call("ZREM", key, entry.member)

    async def remind(
        self, run: RunRecord, pause: int, gates: Sequence[str], *, event: Event, fanout: Fanout
    ) -> bool:
        """Writes the reminder of a pause, whose open gates are ``gates``; False when it is done.

        Raises StaleError when the mode, the endpoints or the gates moved.
        """
        args = self._args(run, pause, fanout, event)
        args.control["gates"] = list(gates)
        return bool((await self._run("remind", run, args))[0] == b"ok")

    async def expire(
        self,
        run: RunRecord,
        lapse: Lapse,
        resolutions: Sequence[Resolution],
        *,
        resumed: Announcement | None,
        frames: Sequence[bytes] = (),
    ) -> bool | None:
        """Settles all open gates of a pause whose time is over; returns hint, None when done.

        ``resumed`` is for a run that then goes on: it waits for no other gate.
        Raises StaleError when the mode, the endpoints or the gates moved: decide again.
        """
        args = self._args(run, lapse.pause, lapse.fanout, lapse.event)
        args.control["items"] = [resolution_args(args, resolution) for resolution in resolutions]
        args.control["last"] = resumed is not None
        if resumed is not None:
            args.control["resumed"] = event_args(args, resumed.event)
            args.control["resumed_eps"] = list(resumed.fanout.endpoints)
        args.control["frames"] = [args.blob(frame) for frame in frames]
        reply = await self._run("expire", run, args)
        return bool(reply[1]) if reply[0] == b"ok" else None

    def _args(self, run: RunRecord, pause: int, fanout: Fanout, event: Event) -> Args:
        args = Args(
            id=str(run.id),
            acct=run.account,
            pause=str(pause),
            mode_v=run.mode_v,
            subs_v=fanout.version,
            eps=list(fanout.endpoints),
            shard=self._shards.of(run.id),
            shards=self._shards.count,
        )
        args.control["event"] = event_args(args, event)
        return args

    async def _run(self, name: str, run: RunRecord, args: Args) -> Any:
        reply = await self._scripts.run(name, self._shards.prefix(run.id), args)
        if reply[0] == b"missing":
            raise MissingError(f"no run {run.id}")
        if reply[0] == b"stale":
            raise stale(reply)
        return reply


def _entry(member: str) -> Entry:
    run_id, pause, what = member.split(":")
    return Entry(
        run_id=int(run_id), pause=int(pause), what="remind" if what == "remind" else "expire"
    )
