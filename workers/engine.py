"""What a worker process needs to drive runs, made once per process by the composition root."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from signoff.domain.error import LeaseLostError, UnavailableError
from signoff.store.facade import Store
from webhooks.publish import Publisher
from workers.agent.roster import Roster
from workers.history import Histories
from workers.judging import Judging
from workers.model.port import Model
from workers.tools import Tools

T = TypeVar("T")
P = ParamSpec("P")
logger = logging.getLogger(__name__)
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The parts that all runs of a process share."""

    store: Store
    publisher: Publisher
    tools: Tools
    judging: Judging
    model: Model
    histories: Histories
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    lease_s: float
    hint: Callable[[int, int], None]
    #: The agents that the operator added to the native one.
    roster: Roster = field(default_factory=Roster)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    #: Set when the process ends: each run goes back at its next commit.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def insist(self, move: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of an idempotent move, tried again while the store is unreachable.

        Gives up as LeaseLostError when the lease cannot be alive any more.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.lease_s
        attempt = 0
        while True:
            try:
                return await move(*args, **kwargs)
            except UnavailableError as error:
                if loop.time() > deadline:
                    raise LeaseLostError("the store was away longer than the lease") from error
                await self.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
                attempt += 1
