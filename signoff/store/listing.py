"""Runs in lists: pages by filter and order, those that wait for a person, what is going on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.records import RunRecord, run_record
from signoff.store.scripts import pairs

_CHUNK = 100
Archived = Literal["exclude", "only", "include"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of runs; ``more`` is exact."""

    runs: list[RunRecord] = field(default_factory=list)
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which runs are listed: of one user, of none (``user_id`` None), or of all."""

    user_id: str | None = None
    every_user: bool = False
    status: str | None = None
    agent_id: int | None = None
    archived: Archived = "exclude"

    @property
    def scope(self) -> str | None:
        """The scope as keys name it; None for all."""
        return None if self.every_user else keys.scope_key(self.user_id)

    def takes(self, run: RunRecord) -> bool:
        """True for a run of the scope that the filter lists."""
        if self.status is not None and run.status != self.status:
            return False
        return self.agent_id is None or run.agent_id == self.agent_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """What changes when anything in a scope's list does."""

    total: int
    awaiting: int
    latest_run_id: int | None
    changed_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What one agent does; ``run_id`` is its run that is not over, if there is exactly one."""

    count: int = 0
    run_id: int | None = None
    last_ms: int | None = None


class Listing:
    """Reads lists over all shards; an archived run is in none unless it is asked for."""

    def __init__(self, connection: Connection, shards: Shards) -> None:
        self._connection = connection
        self._shards = shards

    async def page(
        self,
        account: str,
        wanted: Filter,
        *,
        limit: int,
        after: int | None = None,
        priority: bool = False,
    ) -> Page:
        """Runs newest first, from behind the run ``after``.

        With ``priority`` those that wait for a person come before the others. The order is that
        of the moment: a run that starts or stops waiting between two pages changes its place.
        """
        found: list[RunRecord] = []
        async for ids in self._ids(account, wanted, after, priority=priority):
            found += [run for run in await self._load(ids) if wanted.takes(run)]
            if len(found) > limit:
                break
        return Page(runs=found[:limit], more=len(found) > limit)

    async def freshness(self, account: str, user_id: str | None) -> Freshness:
        """The state of one scope's list, at a cost that does not grow with the list."""
        scope = keys.scope_key(user_id)
        rows = await self._connection.calls(
            *(
                command
                for prefix in self._shards.prefixes()
                for command in (
                    ("ZCARD", keys.runs(prefix, account, scope)),
                    ("ZCARD", keys.blocked_runs(prefix, account, scope)),
                    ("ZREVRANGE", keys.runs(prefix, account, scope), 0, 0),
                    ("HGET", keys.changed_scopes(prefix, account), scope),
                )
            )
        )
        latest = [int(item) for row in rows[2::4] for item in row]
        changed = [int(item) for item in rows[3::4] if item is not None]
        return Freshness(
            total=sum(rows[0::4]),
            awaiting=sum(rows[1::4]),
            latest_run_id=max(latest, default=None),
            changed_ms=max(changed, default=None),
        )

    async def blocked(self, account: str, user_id: str | None, limit: int) -> list[RunRecord]:
        """The newest of a scope's runs that wait for a person."""
        scope = keys.scope_key(user_id)
        rows = await self._connection.calls(
            *(
                ("ZREVRANGE", keys.blocked_runs(prefix, account, scope), 0, limit - 1)
                for prefix in self._shards.prefixes()
            )
        )
        return await self._load(_newest_first(rows)[:limit])

    async def activity(self, account: str, user_id: str | None) -> list[RunRecord]:
        """A scope's runs that are not over, and of each agent the newest that is; newest first."""
        scope = keys.scope_key(user_id)
        rows = await self._connection.calls(
            *(
                command
                for prefix in self._shards.prefixes()
                for command in (
                    ("ZREVRANGE", keys.live_runs(prefix, account, scope), 0, -1),
                    ("HVALS", keys.settled_runs(prefix, account, scope)),
                )
            )
        )
        runs = await self._load(_newest_first(rows))
        agents: set[int] = set()
        shown: list[RunRecord] = []
        for run in runs:
            # Each shard has its own newest; a run that a reply started again is not over.
            if run.status.terminal and run.agent_id in agents:
                continue
            if run.status.terminal:
                agents.add(run.agent_id)
            shown.append(run)
        return shown

    async def of_agents(self, account: str, agent_ids: Sequence[int]) -> list[Activity]:
        """What each of the agents does, in their order; one round trip for all."""
        rows = await self._connection.calls(
            *(
                command
                for agent_id in agent_ids
                for prefix in self._shards.prefixes()
                for command in (
                    ("ZCARD", keys.busy_runs(prefix, account, agent_id)),
                    ("ZRANGE", keys.busy_runs(prefix, account, agent_id), 0, 0),
                    ("HGET", keys.active_agents(prefix, account), str(agent_id)),
                )
            )
        )
        size = 3 * len(self._shards.prefixes())
        return [
            _activity(rows[start : start + size]) for start in range(0, size * len(agent_ids), size)
        ]

    async def _ids(
        self, account: str, wanted: Filter, after: int | None, *, priority: bool
    ) -> AsyncIterator[Sequence[int]]:
        """The ids of the scope in order, in chunks, from behind ``after``."""
        first: list[int] = []
        if priority and wanted.archived != "only":
            first = await self._blocked(account, wanted.scope)
            if after is None or after in first:
                waiting = [item for item in first if after is None or item < after]
                for start in range(0, len(waiting), _CHUNK):
                    yield waiting[start : start + _CHUNK]
                after = None
        seen = frozenset(first)
        async for ids in self._chunks(_indexes(account, wanted), after):
            yield [item for item in ids if item not in seen]

    async def _blocked(self, account: str, scope: str | None) -> list[int]:
        rows = await self._connection.calls(
            *(
                ("ZRANGE", keys.blocked_runs(prefix, account, scope), 0, -1)
                for prefix in self._shards.prefixes()
            )
        )
        return _newest_first(rows)

    async def _chunks(
        self, indexes: Sequence[Callable[[str], str]], before: int | None
    ) -> AsyncIterator[list[int]]:
        while True:
            top = "+inf" if before is None else f"({before}"
            rows = await self._connection.calls(
                *(
                    ("ZREVRANGEBYSCORE", index(prefix), top, "-inf", "LIMIT", 0, _CHUNK)
                    for prefix in self._shards.prefixes()
                    for index in indexes
                )
            )
            ids = _newest_first(rows)[:_CHUNK]
            if ids:
                yield ids
            if len(ids) < _CHUNK:
                return
            before = ids[-1]

    async def _load(self, ids: Sequence[int]) -> list[RunRecord]:
        rows = await self._connection.calls(
            *(("HGETALL", keys.run(self._shards.prefix(item), item)) for item in ids)
        )
        return [run_record(item, pairs(row)) for item, row in zip(ids, rows, strict=True) if row]


def _activity(rows: Sequence[Any]) -> Activity:
    count = sum(rows[0::3])
    ids = [int(item) for row in rows[1::3] for item in row]
    times = [int(item) for item in rows[2::3] if item is not None]
    return Activity(
        count=count,
        run_id=ids[0] if count == 1 and ids else None,
        last_ms=max(times, default=None),
    )


def _indexes(account: str, wanted: Filter) -> list[Callable[[str], str]]:
    found: list[Callable[[str], str]] = []
    if wanted.archived != "only":
        found.append(lambda prefix: keys.runs(prefix, account, wanted.scope))
    if wanted.archived != "exclude":
        found.append(lambda prefix: keys.archived_runs(prefix, account, wanted.scope))
    return found


def _newest_first(rows: Iterable[Iterable[bytes]]) -> list[int]:
    return sorted({int(item) for row in rows for item in row}, reverse=True)
