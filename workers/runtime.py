"""One event loop thread per worker process; Celery's threads hand their drains over to it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

import uvloop

from signoff.domain.error import UnavailableError
from signoff.store import keys
from signoff.store.facade import Store
from signoff.store.listener import Listener
from signoff.store.presence import BEAT_S
from workers.drain import Drainer, drainer_name
from workers.engine import Engine

logger = logging.getLogger(__name__)
#: Shorter than what the supervisor grants, so that runs are handed back before the end by force.
GRACE_S = 7.0
#: For servers to end by themselves; the kernel ends what is left with this process.
CLOSE_S = 1.0
#: A loop that answers later than this is blocked by something that should be in a thread.
LAG_S = 0.25


class Runtime:
    """The long-lived loop of one worker process: made lazily, so that forks stay safe."""

    def __init__(self, build: Callable[[], Engine], *, redis_url: str, slots: int) -> None:
        self._build = build
        self._redis_url = redis_url
        self._slots = slots
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drainer: Drainer | None = None
        self._engine: Engine | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._name = ""

    def start(self) -> None:
        """Starts the loop thread; safe to call again."""
        with self._lock:
            if self._loop is not None:
                return
            loop = _new_loop()
            ready: Future[None] = Future()
            threading.Thread(
                target=self._main, args=(loop, ready), name="signoff-loop", daemon=True
            ).start()
            ready.result()
            self._loop = loop

    def drain(self, shard: int) -> None:
        """Runs a drain of ``shard`` and waits for its end."""
        self.start()
        if self._drainer is not None:
            self._submit(self._drainer.drain(shard)).result()

    def stop(self) -> None:
        """Hands held runs back and ends; waits at most the grace time."""
        if self._loop is None or self._drainer is None:
            return
        try:
            self._submit(self._finish()).result(timeout=GRACE_S + 2)
        except TimeoutError:
            logger.warning("stop_timed_out")

    def stop_taking(self) -> None:
        """From now on no run is taken, and each goes back at its next commit."""
        if self._loop is not None and self._drainer is not None:
            self._submit(self._drainer.finish(GRACE_S))

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        if self._loop is None:
            raise RuntimeError("the worker's loop is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _main(self, loop: asyncio.AbstractEventLoop, ready: Future[None]) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._open())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            ready.set_exception(error)
            return
        ready.set_result(None)
        loop.run_forever()

    async def _open(self) -> None:
        engine = self._build()
        self._engine = engine
        self._name = drainer_name(socket.gethostname(), os.getpid(), engine.new_id)
        self._drainer = Drainer(engine, name=self._name, slots=self._slots)
        heard = _heard(self._drainer, engine.store)
        listener = Listener(self._redis_url, list(heard))
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._drainer.renew()),
            loop.create_task(listener.listen(lambda channel, message: heard[channel](message))),
            loop.create_task(self._beat(engine.store)),
        ]
        try:
            await engine.store.scripts.load()
        except UnavailableError:
            logger.warning("store_unavailable_at_start")

    async def _beat(self, store: Store) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await store.presence.beat("worker", self._name)
                if self._drainer is not None:
                    await self._drainer.look()
            except UnavailableError:
                logger.warning("beat_failed")
            except Exception:
                logger.exception("beat_failed")
            due = loop.time() + BEAT_S
            await asyncio.sleep(BEAT_S)
            lag = loop.time() - due
            if lag > LAG_S:
                logger.warning("loop_blocked ms=%d", int(lag * 1000))

    async def _finish(self) -> None:
        if self._drainer is None or self._engine is None:
            return
        await self._drainer.finish(GRACE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._engine.tools.close()
        except TimeoutError:
            logger.warning("tools_close_timed_out")
        try:
            await self._engine.store.presence.leave("worker", self._name)
        except UnavailableError:
            logger.warning("leave_failed")
        await self._engine.store.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop()


def _heard(drainer: Drainer, store: Store) -> dict[str, Callable[[str], None]]:
    """What each of the store's channels means for this process."""
    heard: dict[str, Callable[[str], None]] = {}
    for shard, prefix in enumerate(store.shards.prefixes()):
        heard[keys.channel(prefix, "wake")] = partial(_woken, drainer, shard)
        heard[keys.channel(prefix, "held")] = lambda run_id: drainer.changed(int(run_id))
    return heard


def _woken(drainer: Drainer, shard: int, _run_id: str) -> None:
    drainer.woken(shard)
