"""The drainer: it finds what nobody told it of."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.workers.conftest import Bench
from workers.drain import NEWER_S, Drainer
from workers.driver import MAX_TAKEOVERS

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


async def test_a_run_of_a_newer_release_is_left_to_it(bench: Bench) -> None:
    """While releases overlap the older one gives such a run back, and never counts a crash."""
    run_id = await bench.create([{"text": "end"}])
    connection, key = bench.store.connection, f"sg:{{s0}}:msg:{run_id}"
    (readable,) = await connection.call("LRANGE", key, 0, -1)
    await connection.call("LSET", key, 0, readable.replace(b'"v":1', b'"v":2'))
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    object.__setattr__(bench.engine, "sleep", sleep)
    drainer = Drainer(bench.engine, name="d", slots=4)
    await drainer.look()
    async with asyncio.timeout(5):
        while len(waited) < 2 * MAX_TAKEOVERS:
            await bench.store.steps.sweep(0)
            await asyncio.sleep(0.01)
    run = await bench.store.runs.load("1", run_id)
    assert (run.status, run.takeovers) == ("running", 0)
    assert set(waited) == {NEWER_S}
    await connection.call("LSET", key, 0, readable)  # now the newer release takes it
    async with asyncio.timeout(5):
        while await bench.status(run_id) != "completed":
            await asyncio.sleep(0.01)
    await drainer.finish(1.0)


async def test_a_run_that_cannot_be_read_harms_nobody_beside_it(bench: Bench) -> None:
    """One record of unknown form among those that are taken: the others are driven."""
    ids = [await bench.create([{"text": "end"}]) for _ in range(3)]
    key = f"sg:{{s0}}:run:{ids[1]}"
    await bench.store.connection.call("HSET", key, "mode", "of-a-later-release")
    drainer = Drainer(bench.engine, name="d", slots=4)
    await drainer.look()
    async with asyncio.timeout(5):
        while [await bench.status(ids[n]) for n in (0, 2)] != ["completed"] * 2:
            await asyncio.sleep(0.01)
    await drainer.finish(1.0)
    await bench.store.connection.call("HSET", key, "mode", "approval")
    assert await bench.status(ids[1]) == "running"
