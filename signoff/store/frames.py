"""The frames of runs, as watchers read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from signoff.domain.frame import START, Entry, Place
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.link import Command

#: Streams that one read asks for.
_STREAMS = 500
_MAX_PART = 2**63


class Frames:
    """Reads streams; what is older than their length allows is gone."""

    def __init__(self, connection: Connection, shards: Shards) -> None:
        self._connection = connection
        self._shards = shards

    def channel(self, run_id: int) -> str:
        """Where the store says that the run's stream has grown."""
        return keys.stream(self._shards.prefix(run_id), run_id)

    async def page(self, run_id: int, after: Place, limit: int) -> list[Entry]:
        """Up to ``limit`` entries behind ``after``, oldest first."""
        start = f"({_text(after)}"
        rows = await self._connection.call(
            "XRANGE", self.channel(run_id), start, "+", "COUNT", limit
        )
        return [_entry(row) for row in rows]

    async def entry(self, run_id: int, place: Place) -> Entry | None:
        """The entry of that place; None if the run has none there, or not any more."""
        if max(place) >= _MAX_PART:
            return None
        at = _text(place)
        rows = await self._connection.call("XRANGE", self.channel(run_id), at, at)
        return _entry(rows[0]) if rows else None

    async def end(self, run_id: int) -> Place:
        """The place of the newest entry."""
        rows = await self._connection.call("XREVRANGE", self.channel(run_id), "+", "-", "COUNT", 1)
        return _entry(rows[0]).place if rows else START

    async def news(self, places: Sequence[tuple[int, Place]], limit: int) -> dict[int, list[Entry]]:
        """For each (run, place) with entries behind it, up to ``limit`` of them."""
        commands: list[Command] = []
        for at in range(0, len(places), _STREAMS):
            chunk = places[at : at + _STREAMS]
            streams = [self.channel(run_id) for run_id, _ in chunk]
            behind = [_text(place) for _, place in chunk]
            commands.append(("XREAD", "COUNT", limit, "STREAMS", *streams, *behind))
        replies = await self._connection.calls(*commands)
        return {
            int(key.rpartition(b":")[2]): [_entry(row) for row in rows]
            for reply in replies
            for key, rows in reply or ()
        }


def _text(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _entry(row: list[Any]) -> Entry:
    ms, _, seq = row[0].partition(b"-")
    return Entry((int(ms), int(seq)), tuple(row[1][1::2]))
