"""Takes ready runs of the store and drives them, many at once, until nothing is ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from signoff.domain.error import LeaseLostError, SignoffError, UnavailableError
from signoff.domain.message import NewerFormatError
from signoff.store.steps import SUSPECT, Held
from workers.driver import Driver
from workers.engine import Engine

logger = logging.getLogger(__name__)
#: How long a drainer without work stays awake: a wake-up in that time needs no hint.
LINGER_S = 1.0
#: A drain hands over after this long, so that a deploy waits for a step and no more.
DRAIN_S = 60.0
#: The store counts a drainer as awake for this long after its last sign.
AWAKE_MS = 1000
POLL_S = 0.25
#: How long a run of a newer release is kept before others may take it.
NEWER_S = 1.0


class Drainer:
    """All runs that this process holds; one drain per shard at a time."""

    def __init__(self, engine: Engine, *, name: str, slots: int) -> None:
        self._engine = engine
        self._name = name
        self._slots = slots
        self._drivers: dict[int, Driver] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._draining: set[int] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def drain(self, shard: int) -> None:
        """Drives what is ready in ``shard``; returns at once when a drain is on already."""
        if shard in self._draining or self._engine.stopping.is_set():
            self._changed.set()
            return
        self._draining.add(shard)
        try:
            await self._drain(shard)
        except UnavailableError:
            logger.warning("drain_ended shard=%d cause=unavailable", shard)
        finally:
            self._draining.discard(shard)

    def woken(self, shard: int) -> None:
        """The store says that a run is ready: the first to look takes it.

        Spares an idle worker the way through the broker; the hint that comes all the same finds
        the drain on, and is what counts when this word was lost.
        """
        self._changed.set()
        if shard not in self._draining:
            self._keep(self.drain(shard))

    async def look(self) -> None:
        """Wakes up where runs are ready of which no word came.

        Wake-up and hint can both be lost, and after a long outage Celery takes its time to come
        back to the broker.
        """
        for shard in range(self._engine.store.shards.count):
            if shard not in self._draining and not await self._engine.store.steps.sleep(
                shard, drainer=self._name
            ):
                self.woken(shard)

    def changed(self, run_id: int) -> None:
        """The store says that a run was changed by somebody else than its holder."""
        driver = self._drivers.get(run_id)
        if driver is not None:
            self._keep(self._look(driver))

    async def renew(self) -> None:
        """Renews all leases in time, for ever; a run whose lease is lost is dropped at once."""
        interval = self._engine.lease_s / 3
        while True:
            await self._engine.sleep(interval)
            for shard in range(self._engine.store.shards.count):
                try:
                    await self._renew(shard, list(self._drivers.values()))
                except UnavailableError:
                    logger.warning("renewal_failed shard=%d", shard)
                except Exception:
                    # Whatever it was: a worker that renews no more would lose all its runs.
                    logger.exception("renewal_failed shard=%d", shard)

    async def finish(self, grace_s: float) -> None:
        """Lets every run go back at its next commit, and ends what is left after ``grace_s``."""
        self._engine.stopping.set()
        self._changed.set()
        for driver in self._drivers.values():
            driver.nudge.set()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            left = [driver for n, driver in self._drivers.items() if self._tasks.get(n) in late]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for driver in left:
                await self._give_back(driver)

    async def _give_back(self, driver: Driver) -> None:
        """Frees a run that was cut off, so that nobody has to wait for its lease to run out."""
        try:
            await self._engine.store.steps.release(driver.run, force=True)
        except SignoffError as error:
            logger.warning("release_failed run=%d code=%s", driver.run.id, error.code)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _drain(self, shard: int) -> None:
        engine, loop = self._engine, asyncio.get_running_loop()
        deadline, idle_since = loop.time() + DRAIN_S, loop.time()
        while not engine.stopping.is_set():
            self._changed.clear()
            room = self._slots - len(self._drivers)
            taken = await engine.store.steps.take(
                shard,
                drainer=self._name,
                room=room,
                awake_ms=AWAKE_MS,
                alone=all(d.run.takeovers < SUSPECT for d in self._drivers.values()),
            )
            for held in taken:
                self._start(held)
            now = loop.time()
            if taken or self._drivers:
                idle_since = now
            if now > deadline:
                break
            if now - idle_since > LINGER_S and await engine.store.steps.sleep(
                shard, drainer=self._name
            ):
                return
            if not (taken and len(self._drivers) < self._slots):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), POLL_S)
        await engine.store.steps.sleep(shard, drainer=self._name, force=True)
        engine.hint(shard, 0)

    def _start(self, held: Held) -> None:
        driver = Driver(self._engine, held)
        run_id = held.run.id
        self._drivers[run_id] = driver
        task = asyncio.get_running_loop().create_task(self._drive(driver))
        self._tasks[run_id] = task

        def ended(_: asyncio.Task[None]) -> None:
            if self._drivers.get(run_id) is driver:
                del self._drivers[run_id]
                del self._tasks[run_id]
            self._changed.set()

        task.add_done_callback(ended)

    async def _drive(self, driver: Driver) -> None:
        run_id = driver.run.id
        try:
            await driver.drive()
        except LeaseLostError:
            self._engine.histories.forget(run_id)
            logger.info("lease_lost run=%d", run_id)
        except UnavailableError:
            logger.warning("run_dropped run=%d cause=unavailable", run_id)
        except NewerFormatError:
            # While releases overlap: this one is no crash, and somebody else can go on with it.
            logger.warning("run_of_newer_release run=%d", run_id)
            await self._engine.sleep(NEWER_S)
            await self._give_back(driver)
        except SignoffError as error:
            logger.exception("run_dropped run=%d code=%s", run_id, error.code)
        except Exception:
            # Its lease runs out, somebody takes it over, and after five times it fails.
            logger.exception("run_dropped run=%d", run_id)

    async def _look(self, driver: Driver) -> None:
        """The run was changed by somebody else: go on with the news, or drop it."""
        try:
            await self._renew(self._engine.store.shards.of(driver.run.id), [driver])
        except UnavailableError:
            return
        driver.nudge.set()

    async def _renew(self, shard: int, drivers: list[Driver]) -> None:
        of = self._engine.store.shards.of
        held = [(d.run.id, d.run.fence) for d in drivers if of(d.run.id) == shard]
        if not held:
            return
        awake = shard in self._draining and not self._engine.stopping.is_set()
        rows = await self._engine.store.steps.renew(
            shard,
            held,
            drainer=self._name if awake else None,
            room=self._slots - len(self._drivers),
            awake_ms=AWAKE_MS,
        )
        for row in rows:
            driver = self._drivers.get(row.run_id)
            if driver is None:
                continue
            if not row.held:
                self._tasks[row.run_id].cancel()
            elif row.wake != driver.run.wake:
                driver.nudge.set()


def drainer_name(host: str, pid: int, token: Callable[[], str]) -> str:
    """A name that no other process has, also after a restart under the same pid."""
    return f"{host}:{pid}:{token()[:8]}"
