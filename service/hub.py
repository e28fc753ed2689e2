"""Follows the streams of watched runs for all watchers of this process.

Watchers pull: a run that is watched keeps its newest entries once, for all of them, and whoever
is further behind reads the store. So a slow watcher costs no memory, and each entry is read once
however many watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from signoff.domain.error import UnavailableError
from signoff.domain.frame import Entry, Place, kind_of
from signoff.store.frames import Frames

logger = logging.getLogger(__name__)
#: Entries that one read takes of one stream.
PAGE = 32
_KEPT, _KEPT_BYTES = 256, 256 * 1024
#: Notes may be lost; every watched stream is looked at this often.
POLL_S = 2.0
_RETRY_S = 0.5


class Notes(Protocol):
    """Says which streams have grown."""

    def add(self, channel: str) -> None:
        """Listens to ``channel``."""

    def remove(self, channel: str) -> None:
        """Listens to it no more."""

    async def listen(self) -> None:
        """Goes on until cancelled."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long watchers may be silent, deaf, or unchecked."""

    #: Below what proxies commonly wait for a byte.
    keep_alive_s: float = 15.0
    #: A key that was revoked ends its streams within this time.
    check_s: float = 20.0
    #: A send that makes no progress for this long is to a watcher that stopped reading.
    stall_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Frame ``n`` of the entry at ``place``, with its type and its bytes on the wire."""

    kind: str
    wire: bytes
    place: Place
    n: int

    @property
    def raw(self) -> bytes:
        """The frame itself."""
        return self.wire.partition(b"data: ")[2].rstrip(b"\n")


@dataclass(frozen=True, slots=True)
class Item:
    """One entry, ready to be sent."""

    place: Place
    frames: tuple[Shown, ...]
    size: int


class Topic:
    """The newest entries of one watched run."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.wakes: set[asyncio.Event] = set()
        #: How far the stream was read for all; None until a watcher has caught up.
        self.place: Place | None = None
        self._floor: Place | None = None
        self._items: deque[Item] = deque()
        self._size = 0

    def settle(self, place: Place) -> None:
        """A watcher has read everything up to ``place`` by itself."""
        if self.place is None:
            self.place = self._floor = place

    def add(self, items: Sequence[Item]) -> None:
        """Takes what follows ``place`` and wakes the watchers."""
        for item in items:
            self._items.append(item)
            self._size += item.size
            self.place = item.place
        while len(self._items) > _KEPT or self._size > _KEPT_BYTES:
            dropped = self._items.popleft()
            self._size -= dropped.size
            self._floor = dropped.place
        for wake in self.wakes:
            wake.set()

    def after(self, place: Place) -> list[Item] | None:
        """The kept entries behind ``place``; None when some are kept no more."""
        if self._floor is None or place < self._floor:
            return None
        found: list[Item] = []
        for item in reversed(self._items):
            if item.place <= place:
                break
            found.append(item)
        found.reverse()
        return found


class Watch:
    """One watcher of one run."""

    def __init__(self, hub: Hub, topic: Topic) -> None:
        self._hub = hub
        self._topic = topic
        self.wake = asyncio.Event()

    def settle(self, place: Place) -> None:
        """Everything up to ``place`` is read; what comes later is told."""
        self._topic.settle(place)
        self._hub.moved(self._topic)

    def kept(self, place: Place) -> list[Item] | None:
        """The entries behind ``place``, if they are kept here."""
        return self._topic.after(place)


class Hub:
    """All watched runs of this process."""

    def __init__(self, frames: Frames, notes: Callable[[Callable[[str], None]], Notes]) -> None:
        self._frames = frames
        self._notes = notes(self._heard)
        self._topics: dict[str, Topic] = {}
        self._dirty: set[Topic] = set()
        self._stirred = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.pace = Pace()
        self.closed = False

    def start(self) -> None:
        """Begins to follow; needs a running event loop."""
        work = (self._notes.listen(), self._pump(), self._poll())
        self._tasks = [asyncio.create_task(item) for item in work]

    async def close(self) -> None:
        """Ends every stream."""
        self.closed = True
        for topic in self._topics.values():
            for wake in topic.wakes:
                wake.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def watchers(self) -> int:
        """How many streams are open."""
        return sum(len(topic.wakes) for topic in self._topics.values())

    @contextlib.contextmanager
    def watch(self, run_id: int) -> Generator[Watch]:
        """Watches a run."""
        channel = self._frames.channel(run_id)
        topic = self._topics.get(channel)
        if topic is None:
            topic = self._topics[channel] = Topic(run_id)
            self._notes.add(channel)
        watch = Watch(self, topic)
        topic.wakes.add(watch.wake)
        try:
            yield watch
        finally:
            topic.wakes.discard(watch.wake)
            if not topic.wakes:
                del self._topics[channel]
                self._dirty.discard(topic)
                self._notes.remove(channel)

    async def page(self, run_id: int, after: Place, limit: int) -> list[Item]:
        """Up to ``limit`` entries behind ``after``."""
        return [item_of(entry) for entry in await self._frames.page(run_id, after, limit)]

    def moved(self, topic: Topic) -> None:
        """The topic's stream may have grown."""
        self._dirty.add(topic)
        self._stirred.set()

    def _heard(self, channel: str) -> None:
        topic = self._topics.get(channel)
        if topic is not None:
            self.moved(topic)

    async def _pump(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            topics = {
                topic.run_id: (topic, topic.place)
                for topic in self._dirty
                if topic.place is not None
            }
            self._dirty.clear()
            places = [(run_id, place) for run_id, (_, place) in topics.items()]
            try:
                news = await self._frames.news(places, PAGE)
            except Exception as error:  # all streams hang on this task
                if not isinstance(error, UnavailableError):
                    logger.exception("streams_not_read")
                await asyncio.sleep(_RETRY_S)
                news = {}
                for topic, _ in topics.values():
                    self.moved(topic)
            for run_id, entries in news.items():
                topic = topics[run_id][0]
                topic.add([item_of(entry) for entry in entries])
                if len(entries) == PAGE:
                    self.moved(topic)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            for topic in self._topics.values():
                self.moved(topic)


def item_of(entry: Entry, behind: int = -1) -> Item:
    """The entry with its frames behind number ``behind``."""
    place = f"{entry.place[0]}-{entry.place[1]}"
    shown = tuple(
        Shown(
            kind_of(raw),
            b"id: %s-%d\ndata: %s\n\n" % (place.encode(), n, _line(raw)),
            entry.place,
            n,
        )
        for n, raw in enumerate(entry.frames)
        if n > behind
    )
    return Item(entry.place, shown, sum(len(frame.wire) for frame in shown))


def _line(raw: bytes) -> bytes:
    # JSON has no line ends outside of its white space, and ours is compact: never true.
    return raw.replace(b"\r", b"").replace(b"\n", b"") if b"\n" in raw or b"\r" in raw else raw
