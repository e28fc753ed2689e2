"""Event streams of one service process: how late deltas arrive, and the cost; see README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop
from cryptography.fernet import Fernet
from latency import percentile
from load import KEY
from stack import Stack, product

from signoff.domain.frame import frame
from signoff.store.facade import open_store

TARGET_P99_MS = 100.0
QUIET_SCRIPT = {"script": [{"text": "late", "delay_ms": 600_000}]}


@dataclass(slots=True)
class Tally:
    """What all streams of one round saw."""

    missing: int
    all_joined: asyncio.Event = field(default_factory=asyncio.Event)
    late_ms: list[float] = field(default_factory=list)
    counting: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--active", type=int, default=50, help="runs that say something")
    parser.add_argument("--rate", type=float, default=5.0, help="deltas per second and run")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    for spread in ("shared", "alone"):
        with tempfile.TemporaryDirectory(prefix="sgb-") as folder, product(Path(folder)) as stack:
            show(spread, options, uvloop.run(one_round(stack, options, spread)))


async def one_round(stack: Stack, options: argparse.Namespace, spread: str) -> dict[str, float]:
    """``shared``: all streams watch active runs. ``alone``: each its own run, few are active."""
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{stack.port}",
        headers={"authorization": f"Bearer {KEY}"},
        timeout=60,
        limits=httpx.Limits(max_connections=None),
    )
    count = options.active if spread == "shared" else options.streams
    runs = [await create(client) for _ in range(count)]
    tally = Tally(options.streams)
    (service,) = stack.pids["service"]
    empty_mb = rss_mb(service)
    readers = [
        asyncio.create_task(read(stack.port, runs[n % count], tally))
        for n in range(options.streams)
    ]
    await asyncio.wait_for(tally.all_joined.wait(), 60)
    store = open_store(stack.redis_url, secret_keys=[Fernet.generate_key().decode()])
    try:
        writers = [
            asyncio.create_task(write(store, run_id, n / options.active, options))
            for n, run_id in enumerate(runs[: options.active])
        ]
        await asyncio.sleep(1.0)
        tally.counting, before, began = True, stack.cpu_ms(), time.monotonic()
        await asyncio.sleep(options.seconds)
        after, took = stack.cpu_ms(), time.monotonic() - began
        tally.counting = False
        await asyncio.gather(*writers)
        found = {
            "per_s": len(tally.late_ms) / took,
            "p50_ms": percentile(tally.late_ms, 0.5),
            "p99_ms": percentile(tally.late_ms, 0.99),
            "max_ms": max(tally.late_ms),
            "empty_mb": empty_mb,
            "full_mb": rss_mb(service),
        }
        for name in ("service", "store"):
            found[f"{name}_cpu"] = (after[name] - before[name]) / took / 10
        return found
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await store.close()
        await client.aclose()


async def create(client: httpx.AsyncClient) -> int:
    body: dict[str, Any] = {"message": "go", "stream": False, "metadata": QUIET_SCRIPT}
    return int((await client.post("/v1/runs", json=body)).json()["id"])


async def write(store: Any, run_id: int, phase: float, options: argparse.Namespace) -> None:
    """Deltas as a worker writes them, each with the time at which it was written."""
    period = 1 / options.rate
    await asyncio.sleep(phase * period)
    for _ in range(int((options.seconds + 1.5) * options.rate)):
        text = f"{time.monotonic():.6f} of some forty bytes of text"
        await store.runs.append_frame(run_id, frame("text-delta", id="t", delta=text))
        await asyncio.sleep(period)


async def read(port: int, run_id: int, tally: Tally) -> None:
    """One bare HTTP/1.1 client, so that the harness is not what is measured."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"GET /v1/runs/{run_id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    )
    writer.write(head.encode())
    try:
        async for event in events(reader):
            if event["type"] == "replay_complete":
                tally.missing -= 1
                if not tally.missing:
                    tally.all_joined.set()
            elif event["type"] == "text-delta" and tally.counting:
                sent = float(event["delta"].partition(" ")[0])
                tally.late_ms.append((time.monotonic() - sent) * 1000)
    finally:
        writer.close()


async def events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def show(spread: str, options: argparse.Namespace, found: dict[str, float]) -> None:
    """Prints one round."""
    verdict = "reaches" if found["p99_ms"] < TARGET_P99_MS else "misses"
    print(
        f"{spread}: {options.streams} streams, {options.active} active runs, {options.rate:g}/s: "
        f"{found['per_s']:.0f} events/s, p50 {found['p50_ms']:.1f}, p99 {found['p99_ms']:.1f} "
        f"({verdict} < {TARGET_P99_MS:g}), max {found['max_ms']:.1f} ms; "
        f"service {found['empty_mb']:.0f} -> {found['full_mb']:.0f} MB, "
        f"CPU service {found['service_cpu']:.0f} %, store {found['store_cpu']:.1f} % of a core; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
