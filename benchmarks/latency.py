"""Idle latency: one lifecycle at a time, and where each point in time comes from.

pause → webhook    from the commit of the pause, as the store noted it in the gate (its own clock,
                   cut to the millisecond, so a figure is up to 1 ms too high, never too low), to
                   the last byte of the webhook at the receiver
decision → tool    from the moment before the callback request is written, to the first line of the
                   tool, as the tool itself notes it in its ledger

Both ends are read from the wall clock of one machine. Nothing is polled while it runs: the gates
and the ledger are read when all samples are taken.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from load import Lifecycle, Load
from stack import Stack

from signoff.store.connection import Connection
from signoff.store.keys import shard_prefix

REST_S = 0.05


@dataclass(frozen=True, slots=True)
class Latency:
    """Samples in milliseconds, by what they measure."""

    think_s: float
    webhook: list[float]
    tool: list[float]


async def measure(stack: Stack, *, think_s: float, samples: int) -> Latency:
    """``samples`` lifecycles, each decided ``think_s`` after its webhook."""
    load = Load(stack.port)
    await load.start()
    try:
        await load.lifecycle()  # connections and caches are warm from here on
        seen = []
        for _ in range(samples):
            await asyncio.sleep(REST_S)
            seen.append(await load.lifecycle(think_s=think_s))
    finally:
        load.close()
    paused = await _paused_ms(stack.redis_url, seen)
    started = _started_s(stack.ledger)
    return Latency(
        think_s=think_s,
        webhook=[one.notified * 1000 - at for one, at in zip(seen, paused, strict=True)],
        tool=[(started[one.run_id] - one.decided) * 1000 for one in seen],
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


async def _paused_ms(redis_url: str, seen: Sequence[Lifecycle]) -> list[int]:
    connection = Connection(redis_url)
    try:
        keys = [f"{shard_prefix(0)}gate:{one.request_id}" for one in seen]
        return [int(at) for at in await connection.calls(*(("HGET", k, "created") for k in keys))]
    finally:
        await connection.close()


def _started_s(ledger: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    return {row["run_id"]: row["ts"] for row in rows if row["phase"] == "start"}
