"""Throughput and idle latency of whole lifecycles, next to the bare minimum; see README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import uvloop
from latency import Latency, measure, percentile
from load import PATIENCE_S, Load
from stack import Stack, floor, product

RESULTS = Path(__file__).resolve().parent / "results"
REQUIRED, GOAL = 1 / 7, 2 / 7
WEBHOOK_P50_MS, TOOL_P50_MS, TOOL_P99_MS = 3.0, 5.0, 15.0

Start = Callable[[Path], AbstractContextManager[Stack]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm", type=float, default=2.0)
    parser.add_argument("--samples", type=int, default=200, help="lifecycles decided after 50 ms")
    parser.add_argument("--slow-samples", type=int, default=30, help="... after 2.5 s")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", choices=["floor", "product"])
    options = parser.parse_args()
    report = uvloop.run(bench(options))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / time.strftime("lifecycle-%Y%m%dT%H%M%SZ.json", time.gmtime())
    path.write_text(json.dumps(report, indent=1) + "\n")
    show(report)
    print(f"written to {os.path.relpath(path)}")


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    starts: dict[str, Start] = {
        "floor": floor,
        "product": lambda folder: product(folder, workers=options.workers),
    }
    if options.only:
        starts = {options.only: starts[options.only]}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in starts}
    for number in range(options.rounds):
        for name, start in starts.items():
            rounds[name].append(await one_round(start, options))
            say(f"round {number + 1}/{options.rounds} {name}: {rounds[name][-1]['per_s']:.0f}/s")
    latencies: dict[str, list[dict[str, Any]]] = {}
    for name, start in starts.items():
        latencies[name] = []
        for think_s, samples in ((0.05, options.samples), (2.5, options.slow_samples)):
            if samples:
                say(f"latency {name}, decided after {think_s:g} s, {samples} samples")
                found = await quiet(start, think_s=think_s, samples=samples)
                latencies[name].append(latency_row(found))
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "options": vars(options),
        "rounds": rounds,
        "latency": latencies,
    }


async def one_round(start: Start, options: argparse.Namespace) -> dict[str, Any]:
    """Throughput of one stack from an empty store, with CPU time by process."""
    with tempfile.TemporaryDirectory(prefix="sgb-") as folder, start(Path(folder)) as stack:
        load = Load(stack.port)
        await asyncio.wait_for(load.start(), PATIENCE_S)
        work = asyncio.create_task(
            load.throughput(
                concurrency=options.concurrency, warm_s=options.warm, seconds=options.seconds
            )
        )
        try:
            await asyncio.sleep(options.warm)
            before = stack.cpu_ms()
            await asyncio.wait({work}, timeout=options.seconds)
            after = stack.cpu_ms()
            tally = await asyncio.wait_for(work, PATIENCE_S)
        finally:
            work.cancel()
            load.close()
    receiver = load.receiver
    if receiver.refused or receiver.unexpected or not tally.done:
        raise RuntimeError(f"not a valid round: {receiver.refused=} {receiver.unexpected[:3]=}")
    return {
        "per_s": tally.done / tally.seconds,
        "p50_ms": percentile(tally.took, 0.5) * 1000,
        "p99_ms": percentile(tally.took, 0.99) * 1000,
        "repeated": receiver.repeated,
        "cpu_ms": {name: (after[name] - before[name]) / tally.done for name in after},
    }


async def quiet(start: Start, *, think_s: float, samples: int) -> Latency:
    with tempfile.TemporaryDirectory(prefix="sgb-") as folder, start(Path(folder)) as stack:
        return await measure(stack, think_s=think_s, samples=samples)


def latency_row(found: Latency) -> dict[str, Any]:
    row: dict[str, Any] = {"think_s": found.think_s, "samples": len(found.tool)}
    for name, values in (("webhook", found.webhook), ("tool", found.tool)):
        row[f"{name}_p50_ms"] = percentile(values, 0.5)
        row[f"{name}_p99_ms"] = percentile(values, 0.99)
        row[f"{name}_max_ms"] = max(values)
    return row


def machine() -> dict[str, Any]:
    with Path("/proc/cpuinfo").open() as file:
        model = next((line.split(":")[1].strip() for line in file if "model name" in line), "?")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load_before": os.getloadavg()[0],
    }


def show(report: dict[str, Any]) -> None:
    """Prints both tables."""
    rates, costs = {}, {}
    print(
        f"\n{'':9}{'per s':>7}{'by CPU':>8}{'p50 ms':>8}{'p99 ms':>8}  rounds; CPU ms a lifecycle"
    )
    for name, rows in report["rounds"].items():
        middle = {key: median(rows, key) for key in ("per_s", "p50_ms", "p99_ms")}
        cpu = {key: median([row["cpu_ms"] for row in rows], key) for key in rows[0]["cpu_ms"]}
        rates[name], costs[name] = middle["per_s"], sum(cpu.values())
        bound = report["machine"]["cores"] * 1000 / costs[name]
        numbers = (
            f"{middle['per_s']:7.0f}{bound:8.0f}{middle['p50_ms']:8.1f}{middle['p99_ms']:8.1f}"
        )
        each = " ".join(f"{row['per_s']:.0f}" for row in rows)
        split = ", ".join(f"{key} {value:.2f}" for key, value in cpu.items())
        print(f"{name:9}{numbers}  {each}; {split}")
    if len(rates) > 1:
        ratio = rates["product"] / rates["floor"]
        reached = f"{judged(holds=ratio >= REQUIRED)} 1/7, {judged(holds=ratio >= GOAL)} 2/7"
        by_cpu = costs["floor"] / costs["product"]
        print(f"\nproduct / floor = {ratio:.3f} ({reached}); by CPU time {by_cpu:.3f}")
    print(f"\n{'':9}{'decided':>9}{'n':>5}{'pause to webhook ms':>26}{'decision to tool ms':>26}")
    for name, rows in report["latency"].items():
        for row in rows:
            hook, tool = (
                " / ".join(f"{row[f'{part}_{key}_ms']:.2f}" for key in ("p50", "p99", "max"))
                for part in ("webhook", "tool")
            )
            print(f"{name:9}{row['think_s']:>7g} s{row['samples']:>5}{hook:>26}{tool:>26}")
    print(
        f"p50 / p99 / max; targets: webhook p50 <= {WEBHOOK_P50_MS:g}, "
        f"tool p50 <= {TOOL_P50_MS:g}, p99 <= {TOOL_P99_MS:g}"
    )


def median(rows: list[dict[str, Any]], key: str) -> float:
    return float(statistics.median(row[key] for row in rows))


def judged(*, holds: bool) -> str:
    return "reaches" if holds else "below"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
