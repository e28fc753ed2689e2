"""One event loop for all agents of the operator, apart from the one that keeps runs alive.

An agent that blocks then holds up other agents and no lease; one that blocks for good is left
behind with its loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)
#: A loop that does not answer within this time after a timeout is given up.
PING_S = 1.0


class AgentLoop:
    """A thread with an event loop, made when it is first needed, so that forks stay safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Callable[[], Awaitable[T]], *, timeout_s: float | None = None) -> T:
        """The result of ``work`` on that loop; TimeoutError after ``timeout_s``.

        A caller that is cancelled, or does not wait any longer, cancels the work.
        """
        loop = self._running()
        future = asyncio.run_coroutine_threadsafe(_awaited(work), loop)
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if limit.expired():
                await self._ping(loop)
            raise
        finally:
            future.cancel()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="signoff-agents", daemon=True
                ).start()
            return self._loop

    async def _ping(self, loop: asyncio.AbstractEventLoop) -> None:
        pong: concurrent.futures.Future[None] = concurrent.futures.Future()
        loop.call_soon_threadsafe(pong.set_result, None)
        try:
            async with asyncio.timeout(PING_S):
                await asyncio.wrap_future(pong)
        except TimeoutError:
            logger.error("agent_loop_blocked")  # noqa: TRY400 - the trace says nothing of the agent
            with self._lock:
                if self._loop is loop:
                    self._loop = None


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        # SystemExit would end the loop, and with it every other agent's work; one that nobody
        # else knows would pass every handler on its way.
        raise RuntimeError(f"it raised {type(error).__name__}") from error


def back_on(
    loop: asyncio.AbstractEventLoop, call: Callable[[str], Awaitable[T]]
) -> Callable[[str], Awaitable[T]]:
    """``call`` for use on the agents' loop, run on ``loop`` all the same."""

    async def there(text: str) -> T:
        work = _awaited(lambda: call(text))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    return there
