"""Looks after runs that nobody looks after: dead leases, and ready runs whose hint was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from signoff.domain.error import UnavailableError
from signoff.store.facade import Store

logger = logging.getLogger(__name__)


async def sweep_once(store: Store, hint: Callable[[int], None]) -> int:
    """One look at every shard; hints those with ready runs, awake drainers or not."""
    expired = 0
    for shard in range(store.shards.count):
        count, ready = await store.steps.sweep(shard)
        expired += count
        if ready:
            hint(shard)
        if count:
            logger.info("leases_expired shard=%d count=%d", shard, count)
    return expired


async def sweep_for_ever(store: Store, hint: Callable[[int], None], *, every_s: float) -> None:
    """Sweeps until it is cancelled; an unreachable store is tried again at the next turn."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await sweep_once(store, hint)
        except UnavailableError:
            logger.warning("sweep_failed")
