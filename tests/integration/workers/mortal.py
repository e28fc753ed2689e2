"""A holder that dies at a given command, and the life of a run around that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

from signoff.domain.error import LeaseLostError
from signoff.store.facade import Store
from tests.integration.workers.conftest import Bench
from workers.driver import Driver


class Died(BaseException):
    """The process is gone; nothing after this runs."""


class Mortal:
    """The holder's scripts; the one numbered ``at`` is its last."""

    def __init__(self, scripts: Any, at: int, *, arrives: bool) -> None:
        self._scripts = scripts
        self._at = at
        self._arrives = arrives
        self.sent = 0

    async def run(self, *args: Any) -> Any:
        self.sent += 1
        if self.sent > self._at:
            raise Died
        if self.sent < self._at:
            return await self._scripts.run(*args)
        if self._arrives:
            await self._scripts.run(*args)
        raise Died


async def expire(store: Store, run_id: int) -> None:
    """The lease of a dead holder runs out."""
    for command in (
        ("HSET", f"sg:{{s0}}:run:{run_id}", "lease_until", "1"),
        ("ZADD", "sg:{s0}:leases", "XX", 1, str(run_id)),
    ):
        await store.connection.call(*command)
    await store.steps.sweep(0)


async def life(
    bench: Bench,
    run_id: int,
    settle: Callable[[Bench, int], Awaitable[object]],
    at: int,
    *,
    arrives: bool,
) -> bool:
    """Drives a run to its end through a death at command ``at``; whether it came to that.

    Between two holders ``settle`` decides what is open.
    """
    mortal = Mortal(bench.store.steps._scripts, at, arrives=arrives)
    died = False
    for _ in range(30):
        if await bench.status(run_id) == "completed":
            return died
        for held in await bench.take():
            alive = bench.store.steps._scripts
            if not died:
                bench.store.steps._scripts = cast("Any", mortal)
            try:
                await Driver(bench.engine, held).drive()
            except Died:
                died = True
            except LeaseLostError:
                pass
            finally:
                bench.store.steps._scripts = alive
        if died:
            await expire(bench.store, run_id)
        await settle(bench, run_id)
    raise AssertionError(f"the run does not end after a death at {at}")


async def one_event_per_pause(store: Store, run_id: int) -> None:
    """The account's event log names each pause of the run exactly once."""
    ids = await store.connection.call("ZRANGE", "sg:{s0}:evs:1", 0, -1)
    pauses: Counter[int] = Counter()
    for event_id in ids:
        kind, body, run = await store.connection.call(
            "HMGET", f"sg:{{s0}}:ev:{event_id.decode()}", "type", "body", "run"
        )
        if kind == b"run.awaiting_input" and run.decode() == str(run_id):
            pauses[int(body.decode().split('"pause":')[1].split(",")[0])] += 1
    assert set(pauses.values()) <= {1}, pauses
    assert sorted(pauses) == list(range(1, len(pauses) + 1))
