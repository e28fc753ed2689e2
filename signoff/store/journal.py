"""What happened in an account: its events and its audit trail, read over all shards in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from signoff.domain.error import MissingError
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards

R = TypeVar("R")
P = TypeVar("P", bound=tuple[Any, ...])
T = TypeVar("T")
#: How many rows one page looks at, at most: a filter that fits nothing has to end.
WINDOW = 2000
_CHUNK = 200
#: Where an event stands: Unix milliseconds, then its id.
_Moment = tuple[int, str]
#: Where an audit entry stands: milliseconds, number within them, shard.
Entry = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[R]):
    """Some rows, and the id behind which there may be more; None at the end.

    A page of few matches may be short, or empty, and still not be the last one.
    """

    rows: list[R] = field(default_factory=list[R])
    next_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """One event; ``body`` is what every endpoint got."""

    id: str
    type: str
    run_id: int | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One entry of the audit trail; ``fields`` are its own, by name."""

    place: Entry
    what: str
    run_id: int
    fields: dict[str, str]

    @property
    def id(self) -> str:
        """Its name: unique in the account, and where it stands."""
        return "-".join(map(str, self.place))


class Journal:
    """Reads events and audit trails newest first; what is past keeping is gone."""

    def __init__(self, connection: Connection, shards: Shards) -> None:
        self._connection = connection
        self._shards = shards

    async def events(
        self,
        account: str,
        *,
        limit: int,
        after: str | None = None,
        kind: str | None = None,
        run_id: int | None = None,
    ) -> Rows[LoggedEvent]:
        """Events from behind ``after``, of one type or of one run if that is asked for.

        MissingError when ``after`` is no event of the account, or not any more.
        """
        before = None if after is None else await self._moment(account, after)
        sources = [self._moments(prefix, account, before) for prefix in self._in(run_id)]

        async def found() -> AsyncIterator[tuple[str, LoggedEvent | None]]:
            async for places in _chunks(_merged(sources), min(limit + 1, _CHUNK)):
                for event_id, event in zip(
                    (at[1] for at, _ in places), await self._load(places), strict=True
                ):
                    fits = event is not None and (
                        kind in (None, event.type) and run_id in (None, event.run_id)
                    )
                    yield event_id, event if fits else None

        return await _page(found(), limit)

    async def audit(
        self, account: str, *, limit: int, after: Entry | None = None, run_id: int | None = None
    ) -> Rows[AuditRow]:
        """Audit entries from behind ``after``, of one run if that is asked for."""
        shards = range(self._shards.count) if run_id is None else [self._shards.of(run_id)]
        sources = [self._entries(shard, account, after) for shard in shards]

        async def found() -> AsyncIterator[tuple[str, AuditRow | None]]:
            async for place, raw in _merged(sources):
                fields = {name: text.decode() for name, text in _texts(raw)}
                row = AuditRow(
                    place=place,
                    what=fields.pop("what"),
                    run_id=int(fields.pop("run")),
                    fields=fields,
                )
                yield row.id, row if run_id in (None, row.run_id) else None

        return await _page(found(), limit)

    def _in(self, run_id: int | None) -> list[str]:
        return self._shards.prefixes() if run_id is None else [self._shards.prefix(run_id)]

    async def _moment(self, account: str, event_id: str) -> _Moment:
        scores = await self._connection.calls(
            *(
                ("ZSCORE", keys.events(prefix, account), event_id)
                for prefix in self._shards.prefixes()
            )
        )
        for score in scores:
            if score is not None:
                return int(float(score)), event_id
        raise MissingError("there is no event that the page could start after")

    async def _moments(
        self, prefix: str, account: str, before: _Moment | None
    ) -> AsyncIterator[tuple[_Moment, str]]:
        top = "+inf" if before is None else before[0]
        start = 0
        while True:
            window = ("WITHSCORES", "LIMIT", start, _CHUNK)
            index = keys.events(prefix, account)
            row = await self._connection.call("ZREVRANGEBYSCORE", index, top, "-inf", *window)
            for item, score in zip(row[::2], row[1::2], strict=True):
                at = int(float(score)), item.decode()
                # Of the cursor's own millisecond some may stand before it.
                if before is None or at < before:
                    yield at, prefix
            if len(row) < 2 * _CHUNK:
                return
            start += _CHUNK

    async def _load(self, places: Sequence[tuple[_Moment, str]]) -> list[LoggedEvent | None]:
        hashes = await self._connection.calls(
            *(("HGETALL", keys.event(prefix, event_id)) for (_, event_id), prefix in places)
        )
        found: list[LoggedEvent | None] = []
        for ((_, event_id), _), raw in zip(places, hashes, strict=True):
            fields = dict(_texts(raw))
            # Dropped between the two reads.
            found.append(_event(event_id, fields) if fields else None)
        return found

    async def _entries(
        self, shard: int, account: str, before: Entry | None
    ) -> AsyncIterator[tuple[Entry, list[bytes]]]:
        stream = keys.audit(keys.shard_prefix(shard), account)
        top = "+"
        if before is not None:
            # Of the cursor's own place the higher shards stand before it.
            top = f"{'(' if shard >= before[2] else ''}{before[0]}-{before[1]}"
        while True:
            rows = await self._connection.call("XREVRANGE", stream, top, "-", "COUNT", _CHUNK)
            for raw_id, raw in rows:
                ms, _, n = raw_id.decode().partition("-")
                yield (int(ms), int(n), shard), raw
            if len(rows) < _CHUNK:
                return
            top = f"({rows[-1][0].decode()}"


def _event(event_id: str, fields: dict[str, bytes]) -> LoggedEvent:
    run = fields["run"]
    return LoggedEvent(
        id=event_id,
        type=fields["type"].decode(),
        run_id=int(run) if run else None,
        body=fields["body"],
    )


def _texts(raw: Sequence[bytes]) -> list[tuple[str, bytes]]:
    return [(name.decode(), text) for name, text in zip(raw[::2], raw[1::2], strict=True)]


async def _merged(sources: Sequence[AsyncIterator[tuple[P, T]]]) -> AsyncIterator[tuple[P, T]]:
    """What all sources give, the highest place first, as each of them gives it."""
    heads = {n: await anext(source, None) for n, source in enumerate(sources)}
    while left := {n: head for n, head in heads.items() if head is not None}:
        n = max(left, key=lambda n: left[n][0])
        yield left[n]
        heads[n] = await anext(sources[n], None)


async def _chunks(source: AsyncIterator[T], size: int) -> AsyncIterator[list[T]]:
    chunk: list[T] = []
    async for item in source:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def _page(found: AsyncIterator[tuple[str, R | None]], limit: int) -> Rows[R]:
    rows: list[R] = []
    last, seen = "", 0
    async for name, row in found:
        if row is not None and len(rows) == limit:
            return Rows(rows=rows, next_id=last)
        if row is not None:
            rows.append(row)
        last, seen = name, seen + 1
        if seen == WINDOW:
            return Rows(rows=rows, next_id=last)
    return Rows(rows=rows)
