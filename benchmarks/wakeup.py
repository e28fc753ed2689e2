"""A worker loop of the floor that runs only while something is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Loop:
    """Calls ``work`` until it says that nothing is left, once more for each wake meanwhile."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def wake(self) -> None:
        """Something is due."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            self._again = True

    async def _run(self) -> None:
        while True:
            self._again = False
            if not await self._work() and not self._again:
                break
        self._task = None
