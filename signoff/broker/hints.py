"""Sends hints: at most one on its way per shard, never waited for, never required."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from celery import Celery

from signoff.broker.options import DRAIN_TASK, QUEUE

logger = logging.getLogger(__name__)
#: An idle worker is woken by the store itself, within a millisecond; a message that came at the
#: same time would only keep it, and the sender, busy in that moment.
DELAY_S = 0.01


class Hints:
    """Sends hints from an event loop through one thread that keeps its connection.

    Hints for a shard that are asked for while one is on its way are folded into one more: the
    drain it starts takes whatever is ready. A hint that cannot be sent is the sweeper's business.
    """

    def __init__(self, app: Celery, *, delay_s: float = DELAY_S) -> None:
        self._app = app
        self._delay_s = delay_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hints")
        self._sending: set[int] = set()
        self._again: set[int] = set()
        self._closed = False

    def send(self, shard: int, run_id: int | None = None) -> None:
        """Asks for a drain of ``shard``; returns at once."""
        if self._closed:
            return
        if shard in self._sending:
            self._again.add(shard)
            return
        self._sending.add(shard)
        asyncio.get_running_loop().call_later(self._delay_s, self._start, shard, run_id)

    def close(self) -> None:
        """Ends the sending thread; hints not yet sent are dropped."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start(self, shard: int, run_id: int | None) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, self._publish, shard, run_id)
        future.add_done_callback(lambda _: self._sent(shard))

    def _sent(self, shard: int) -> None:
        self._sending.discard(shard)
        if shard in self._again:
            self._again.discard(shard)
            self.send(shard)

    def _publish(self, shard: int, run_id: int | None) -> None:
        try:
            # Expires: an old hint says nothing that the next sweep does not.
            self._app.send_task(
                DRAIN_TASK, args=(shard, run_id), queue=QUEUE, ignore_result=True, expires=60
            )
        except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the sweeper covers it
            logger.warning("hint_lost shard=%d cause=%s", shard, type(error).__name__)
