"""Long polls: who waits for which run to change, woken by one connection of the whole process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Protocol

from signoff.store.records import RunRecord

MAX_WAIT_S = 30
#: Wake-ups may be lost, and the first waiter of a process may be there before its listener is:
#: so a waiter looks by itself as well, ever more slowly.
FIRST_LOOK_S = 0.1
LOOK_S = 3.0


class Listens(Protocol):
    """What tells of changes: ``signoff.store.listener.Listener``."""

    async def listen(self, heard: Callable[[str, str], None]) -> None:
        """Calls ``heard(channel, run id)`` for ever."""
        ...


def run_version(run: RunRecord) -> str:
    """What differs whenever the run's turn, its status or the set of its open gates has changed.

    Gates open in numbered pauses, and between two of them the open ones only get fewer.
    """
    return f"{run.turn}.{run.status.value}.{run.pause_n}.{run.open}"


class Watch:
    """The waiters of one process; the listener starts with the first of them."""

    def __init__(self, listener: Listens) -> None:
        self._listener = listener
        self._listening: asyncio.Task[None] | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._released = False

    async def changed(
        self, load: Callable[[], Awaitable[RunRecord]], run: RunRecord, known: str, *, wait_s: float
    ) -> RunRecord:
        """The run as soon as it is not as ``known`` says (a version or a status) any more.

        After ``wait_s`` seconds, or when the process leaves, the run as it stands.
        """
        loop = asyncio.get_running_loop()
        deadline, look_s = loop.time() + wait_s, FIRST_LOOK_S
        with self._watching(run.id) as event:
            # Read again: it may have changed before the event was there to tell.
            while known in (run_version(run := await load()), run.status.value):
                left = deadline - loop.time()
                if left <= 0 or self._released:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, look_s)):
                        await event.wait()
                event.clear()
                look_s = min(2 * look_s, LOOK_S)
        return run

    def release(self) -> None:
        """Answers everybody who waits, now and later: the process is about to leave."""
        self._released = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def close(self) -> None:
        """Ends the listener."""
        self.release()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    @contextlib.contextmanager
    def _watching(self, run_id: int) -> Generator[asyncio.Event]:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listener.listen(self._heard))
        event, key = asyncio.Event(), str(run_id)
        self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]

    def _heard(self, _channel: str, run_id: str) -> None:
        for event in self._waiting.get(run_id, ()):
            event.set()
