"""The drainer: it finds what nobody told it of."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.workers.conftest import Bench
from workers.drain import Drainer

pytestmark = pytest.mark.anyio


async def test_a_ready_run_is_found_without_a_word(bench: Bench) -> None:
    """Wake-up and hint are both lost: the next look starts a drain."""
    run_id = await bench.create([{"text": "end"}])
    drainer = Drainer(bench.engine, name="d", slots=4)
    await drainer.look()
    async with asyncio.timeout(5):
        while await bench.status(run_id) != "completed":
            await asyncio.sleep(0.01)
    await drainer.finish(1.0)


async def test_a_look_at_nothing_leaves_the_drainer_asleep(bench: Bench) -> None:
    """Nothing is ready: no drain, and nobody counts as awake."""
    drainer = Drainer(bench.engine, name="d", slots=4)
    await drainer.look()
    assert await bench.store.connection.call("ZCARD", "sg:{s0}:awake") == 0
    run_id = await bench.create([{"text": "end"}])
    assert await bench.status(run_id) == "running"


async def test_a_worker_goes_on_renewing_whatever_the_store_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unforeseen error in one renewal must not let all leases run out."""
    renewals: list[int] = []
    drainer = Drainer(bench.engine, name="d", slots=4)

    async def failing(*_: object) -> None:
        renewals.append(1)
        raise ValueError("unforeseen")

    async def sleep(_: float) -> None:
        if len(renewals) >= 3:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    monkeypatch.setattr(drainer, "_renew", failing)
    object.__setattr__(bench.engine, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await drainer.renew()
    assert len(renewals) == 3
