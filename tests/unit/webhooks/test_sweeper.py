"""The sweeper looks at every shard and hints those in which a run is ready."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from signoff.domain.error import UnavailableError
from signoff.store.facade import Store
from webhooks.sweeper import sweep_for_ever, sweep_once

pytestmark = pytest.mark.anyio


class Steps:
    """Answers for each shard with (leases that ran out, runs that are ready), or fails."""

    def __init__(self, *found: tuple[int, int] | UnavailableError) -> None:
        self._found = found
        self.looks = 0

    async def sweep(self, shard: int) -> tuple[int, int]:
        self.looks += 1
        found = self._found[shard]
        if isinstance(found, UnavailableError):
            raise found
        return found


class Shards:
    def __init__(self, count: int) -> None:
        self.count = count


class Stored:
    def __init__(self, *found: tuple[int, int] | UnavailableError) -> None:
        self.steps = Steps(*found)
        self.shards = Shards(len(found))


async def test_every_shard_with_a_ready_run_is_hinted() -> None:
    """Also one whose run was ready before: its hint may have been lost."""
    hints: list[int] = []
    store = cast("Store", cast("Any", Stored((0, 0), (2, 2), (1, 0), (0, 5))))
    assert await sweep_once(store, hints.append) == 3
    assert hints == [1, 3]


async def test_an_unreachable_store_does_not_end_the_sweeper() -> None:
    """It is tried again at the next turn."""
    stored = Stored(UnavailableError("away"))
    sweeping = asyncio.create_task(
        sweep_for_ever(cast("Store", cast("Any", stored)), lambda _: None, every_s=0)
    )
    async with asyncio.timeout(5):
        while stored.steps.looks < 3:
            await asyncio.sleep(0)
    assert not sweeping.done()
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
