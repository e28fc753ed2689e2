"""Turns after the first: replies that start one, and messages that wait for one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.event import Event
from signoff.domain.message import Message, encode
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.records import RunRecord
from signoff.store.runs import Fanout, dumps, event_args
from signoff.store.scripts import Args, Scripts, moved


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A user message that waits for the turn before it to end."""

    id: int
    text: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An event with the endpoints that get it."""

    event: Event
    fanout: Fanout


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTurn:
    """The next turn of a run that has ended; None leaves what the run has."""

    message_id: int
    messages: Sequence[Message]
    announcements: Sequence[Announcement]
    mode: str | None = None
    human_in_the_loop: bool | None = None
    config: dict[str, Any] | None = None
    plan_again: bool = False
    frames: Sequence[bytes] = ()


class Turns:
    """Moves between the turns of a run."""

    def __init__(self, connection: Connection, scripts: Scripts, shards: Shards) -> None:
        self._connection = connection
        self._scripts = scripts
        self._shards = shards

    async def next_message_id(self) -> int:
        """An id for a message; ids that are never used leave gaps."""
        return int(await self._connection.call("INCR", keys.sequence("message")))

    async def queue(
        self, run: RunRecord, message: QueuedMessage, announcement: Announcement
    ) -> None:
        """Keeps the message for the next turn; idempotent by its id.

        Raises StaleError when the run has ended meanwhile, or the endpoints moved.
        """
        args = self._args(run, message.id)
        item = {"id": message.id, "text": message.text, "at": message.at_ms}
        args.control["item"] = args.blob(dumps(item))
        args.control["event"] = event_args(args, announcement.event)
        args.control["eps"] = list(announcement.fanout.endpoints)
        args.control["subs_v"] = announcement.fanout.version
        await self._run("queue_message", run, args)

    async def start(self, run: RunRecord, turn: NewTurn, *, queued: bool) -> bool:
        """Starts the turn; answers whether a hint is needed. Idempotent by message id.

        ``queued``: the holder of the run takes the oldest queued message. Raises StaleError when
        the run or the endpoints moved, LeaseLostError when the holder is another one.
        """
        args = self._args(run, turn.message_id)
        control = args.control
        control["rev"] = run.rev
        if queued:
            control["fence"] = run.fence
        control["messages"] = [args.blob(encode(message)) for message in turn.messages]
        control["frames"] = [args.blob(frame) for frame in turn.frames]
        control["events"] = [
            {"event": event_args(args, item.event), "eps": list(item.fanout.endpoints)}
            for item in turn.announcements
        ]
        control["subs_v"] = turn.announcements[0].fanout.version
        control["plan_again"] = turn.plan_again
        if turn.mode is not None:
            control["mode"] = turn.mode
        if turn.human_in_the_loop is not None:
            control["hitl"] = "1" if turn.human_in_the_loop else "0"
        if turn.config is not None:
            control["config"] = args.blob(dumps(turn.config))
        reply = await self._run("start_turn", run, args)
        return reply[0] == b"ok" and bool(reply[1])

    async def inbox(self, run_id: int) -> list[QueuedMessage]:
        """The messages that wait, oldest first."""
        key = f"{self._shards.prefix(run_id)}inbox:{run_id}"
        rows = [json.loads(row) for row in await self._connection.call("LRANGE", key, 0, -1)]
        return [QueuedMessage(id=row["id"], text=row["text"], at_ms=row["at"]) for row in rows]

    def _args(self, run: RunRecord, message_id: int) -> Args:
        return Args(
            id=str(run.id),
            acct=run.account,
            message_id=str(message_id),
            shard=self._shards.of(run.id),
            shards=self._shards.count,
        )

    async def _run(self, name: str, run: RunRecord, args: Args) -> list[Any]:
        return moved(run.id, await self._scripts.run(name, self._shards.prefix(run.id), args))
