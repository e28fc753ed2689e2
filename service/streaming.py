"""The event stream of one run as an answer: what was, then what comes, until it ends or parks."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.context import Call
from service.hub import Item, Shown, Watch, item_of
from service.protocol import LINE, Line
from signoff.domain.error import (
    ConflictError,
    InvalidFieldError,
    MissingError,
    UnauthorizedError,
    UnavailableError,
)
from signoff.domain.frame import START, TERMINAL, Place, Progress, frame
from signoff.store.records import RunRecord

logger = logging.getLogger(__name__)
#: What one send carries; a frame that is longer goes alone.
_CHUNK = 64 * 1024
#: Entries that a page begins with, and has at most.
_FEW, _MOST = 4, 128
_RETRY_S = 0.5
_DONE = b"data: [DONE]\n\n"
_KEEP_ALIVE = b": keep-alive\n\n"
#: An id of an event, as clients see it.
MARK = "^([0-9]{1,20})-([0-9]{1,20})(?:-([0-9]{1,5}))?$"
_MARK = re.compile(MARK.encode())
_WHOLE = 10**6


class _StalledError(Exception):
    """The watcher does not take what it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which part of a run's stream to send.

    ``first`` is sent before what follows ``after``. A joined stream replays what is there, and
    says when it is done with that; any other begins now and ends with the turn.
    """

    run_id: int
    after: Place = START
    joined: bool = False
    first: Item | None = None


def begun(
    call: Call, run_id: int, *, after: Place = START, headers: Mapping[str, str] | None = None
) -> EventStream:
    """The stream of a turn that begins now, behind ``after``."""
    return EventStream(call, Plan(run_id=run_id, after=after), headers)


async def joined(call: Call, run: RunRecord) -> EventStream:
    """The stream of a run that is under way, whole or from the ``Last-Event-ID`` of the request.

    Raises ConflictError ``run_not_active`` for a run that has ended, unless the request resumes
    and something is left to be sent.
    """
    plan, left = await _resumed(call, run), True
    if run.status.terminal:
        resuming = plan.after != START
        left = resuming and bool(
            (plan.first and plan.first.frames)
            or await call.context.store.frames.page(run.id, plan.after, 1)
        )
    if not left:
        raise ConflictError(
            f"the run is {run.status.value}: it has no stream to join",
            code="run_not_active",
            details={"run_status": run.status.value},
        )
    return EventStream(call, plan)


async def _resumed(call: Call, run: RunRecord) -> Plan:
    mark = call.header(b"last-event-id")
    if not mark:
        return Plan(run_id=run.id, joined=True)
    found = _MARK.fullmatch(mark)
    if found is None:
        msg = "Last-Event-ID is not an id of this stream"
        raise InvalidFieldError(msg, field="last-event-id")
    place = int(found[1]), int(found[2])
    entry = await call.context.store.frames.entry(run.id, place)
    if entry is None:
        # Another run's, or too old to be there: the watcher gets everything there is.
        return Plan(run_id=run.id, joined=True)
    first = item_of(entry, int(found[3]) if found[3] else _WHOLE)
    return Plan(run_id=run.id, after=place, joined=True, first=first)


class EventStream(Response):
    """Frames as server-sent events; everything that can be refused was refused before."""

    media_type = "text/event-stream"

    def __init__(self, call: Call, plan: Plan, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(
            headers={
                **(headers or {}),
                "cache-control": "no-store",
                "x-accel-buffering": "no",
                "x-run-id": str(plan.run_id),
            }
        )
        del self.headers["content-length"]
        self._call = call
        self._plan = plan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the body; ends within a moment of the watcher."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        line: Line | None = scope.get("extensions", {}).get(LINE)
        with self._call.context.streams.watch(self._plan.run_id) as watch:
            if line is not None:
                line.ending = watch.wake.set
            body = asyncio.create_task(_Body(self._call, self._plan, watch, send, line).write())
            gone = asyncio.create_task(_gone(receive))
            try:
                await asyncio.wait({body, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                finished = body.done()
                gone.cancel()
                body.cancel()
                await asyncio.gather(gone, body, return_exceptions=True)
                if line is not None:
                    line.ending = None
        if finished:
            body.result()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Body:
    """Writes one body."""

    def __init__(self, call: Call, plan: Plan, watch: Watch, send: Send, line: Line | None) -> None:
        self._call = call
        self._plan = plan
        self._watch = watch
        self._send = send
        self._line = line
        self._hub = call.context.streams
        self._place = plan.after
        self._count = _FEW
        self._progress = Progress()
        self._clock = asyncio.get_running_loop().time
        self._sent_at = self._checked_at = self._clock()

    async def write(self) -> None:
        """Everything from the first frame to the end of the body."""
        try:
            await self._put(_data(frame("metadata", payload={"run_id": self._plan.run_id})))
            if not (self._plan.joined and await self._replay()):
                self._watch.settle(self._place)
                await self._follow()
        except _StalledError:
            await self._drop()
            return
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    # -- what was ------------------------------------------------------------------------------

    async def _replay(self) -> bool:
        """Sends what is there; True when the body ends with it."""
        ended: Shown | None = None
        items = [] if self._plan.first is None else [self._plan.first]
        while True:
            out: list[bytes] = []
            for shown in _frames(items):
                self._progress.note(shown.kind, shown.raw)
                # What follows the end of a turn belongs to the next one.
                ended = shown if shown.kind in TERMINAL else None
                if ended is None:
                    out.append(shown.wire)
            await self._put(*out)
            items = await self._page()
            if items:
                continue
            if ended is None:
                break
            if await self._over():
                items = await self._page()
                if not items:
                    break
            else:
                ended = None  # the next turn has begun and has said nothing yet
                break
        if self._ending:
            return True
        await self._put(_data(frame("replay_complete")))
        if ended is not None:
            await self._put(ended.wire, _DONE)
            return True
        return await self._parked()

    async def _page(self) -> list[Item]:
        """The next entries of the store, waiting for it if it is away."""
        while not self._ending:
            try:
                items = await self._hub.page(self._plan.run_id, self._place, self._count)
            except UnavailableError:
                await self._wait(_RETRY_S)
                continue
            # A page is held for as long as its reader takes, so it is small in bytes.
            size = sum(item.size for item in items)
            if size > _CHUNK:
                self._count = max(1, self._count // 2)
            elif size < _CHUNK // 2:
                self._count = min(_MOST, self._count * 2)
            if items:
                self._place = items[-1].place
            return items
        return []

    # -- what comes ----------------------------------------------------------------------------

    async def _follow(self) -> None:
        while not self._ending:
            self._watch.wake.clear()
            items = self._watch.kept(self._place)
            if items is None:
                items = await self._page()
            if items:
                self._place = items[-1].place
                if await self._show(items):
                    return
            # Only here: what follows a gate may be its decision.
            elif await self._parked():
                return
            if not await self._still_allowed():
                return
            if not items:
                await self._idle()

    async def _show(self, items: list[Item]) -> bool:
        """Sends entries; True when the turn ends with them."""
        out: list[bytes] = []
        for shown in _frames(items):
            self._progress.note(shown.kind, shown.raw)
            out.append(shown.wire)
            if shown.kind in TERMINAL:
                await self._put(*out, _DONE)
                return True
        await self._put(*out)
        return False

    async def _parked(self) -> bool:
        """Whether gates are open, so that the body may end; shows one again if it has to."""
        restated = self._progress.restated()
        if restated is not None:
            await self._put(_data(restated))
        return self._progress.parked

    async def _idle(self) -> None:
        """Waits for news; says that the stream is alive when there are none for long."""
        pace, now = self._hub.pace, self._clock()
        silent_at = self._sent_at + pace.keep_alive_s
        await self._wait(min(silent_at, self._checked_at + pace.check_s) - now)
        if not self._watch.wake.is_set() and self._clock() >= silent_at:
            await self._put(_KEEP_ALIVE)

    async def _still_allowed(self) -> bool:
        """Whether the key is still good and the run is not over, as far as looked at lately."""
        if self._clock() < self._checked_at + self._hub.pace.check_s:
            return True
        self._checked_at = self._clock()
        try:
            principal = await self._call.context.keys.principal(self._call.scope)
            if principal.account != self._call.account:
                return False
            if not await self._over():
                return True
            # Its last frame is there, unless the stream was lost.
            items = await self._page()
            if not (items and await self._show(items)):
                await self._put(_DONE)
        except UnauthorizedError:
            return False
        except UnavailableError:
            return True
        return False

    async def _over(self) -> bool:
        """Whether the run has ended, as soon as the store can tell."""
        runs = self._call.context.store.runs
        while not self._ending:
            try:
                run = await runs.load(self._call.account, self._plan.run_id)
            except MissingError:
                return True
            except UnavailableError:
                await self._wait(_RETRY_S)
                continue
            return run.status.terminal
        return True

    # -- sending -------------------------------------------------------------------------------

    @property
    def _ending(self) -> bool:
        return self._hub.closed or (self._line is not None and self._line.closing)

    async def _put(self, *parts: bytes) -> None:
        """Sends parts, some at a time; raises _StalledError when the watcher does not read."""
        for chunk in _chunks(parts):
            try:
                async with asyncio.timeout(self._hub.pace.stall_s):
                    await self._send(
                        {"type": "http.response.body", "body": chunk, "more_body": True}
                    )
            except TimeoutError:
                raise _StalledError from None
            self._sent_at = self._clock()

    async def _drop(self) -> None:
        """Ends the body of a watcher that does not read, with a last word if there is a way."""
        logger.info("stream_dropped run=%d code=slow_reader", self._plan.run_id)
        text = "This stream was not read fast enough. The run goes on: join it again."
        last = _data(frame("error", error=text, error_code="slow_reader"))
        message: dict[str, Any] = {"type": "http.response.body", "body": last, "more_body": False}
        if self._line is not None:
            self._line.last_word()
            await self._send(message)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._watch.wake.wait()
        except TimeoutError:
            pass


def _data(raw: bytes) -> bytes:
    return b"data: %s\n\n" % raw


def _frames(items: list[Item]) -> Iterator[Shown]:
    return (shown for item in items for shown in item.frames)


def _chunks(parts: tuple[bytes, ...]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        if waiting and size + len(part) > _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
    if waiting:
        yield b"".join(waiting)
