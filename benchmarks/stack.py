"""Starts what is measured, each on an empty embedded store, and reads its processes' CPU time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from load import KEY

from signoff.supervise.embedded import EmbeddedStore, embedded_store, socket_path
from signoff.supervise.folder import DataFolder

ROOT = Path(__file__).resolve().parent.parent
START_S = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
#: The command of a process of the product, and what it is called here.
_ROLES = {"serve": "service", "worker": "worker", "relay": "relay"}


@dataclass(frozen=True, slots=True)
class Stack:
    """One running server with its processes by name."""

    name: str
    port: int
    redis_url: str
    ledger: Path
    pids: dict[str, list[int]] = field(default_factory=dict)

    def cpu_ms(self) -> dict[str, float]:
        """CPU time so far by process name, and of this process as ``harness``."""
        used = {name: sum(map(_cpu_ms, pids)) for name, pids in self.pids.items()}
        return used | {"harness": _cpu_ms(os.getpid())}


@contextmanager
def product(folder: Path, *, workers: int = 1) -> Iterator[Stack]:
    """`signoff dev` with the demo tools and the scripted model."""
    port, ledger, data = free_port(), folder / "ledger.jsonl", folder / "data"
    argv = [sys.executable, "-m", "signoff.cli", "dev", "--port", str(port), "--data", str(data)]
    argv += ["--key", KEY, "--workers", str(workers), "--fsync", "everysec"]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("SIGNOFF_")}
    environ |= {
        "SIGNOFF_TOOLS": "examples.demo_tools",
        "SIGNOFF_SCRIPTED_MODEL": "1",
        "SIGNOFF_DEMO_LEDGER": str(ledger),
    }
    with _running(argv, environ, folder / "log") as process:
        children = {pid: name for pid in _children(process.pid) if (name := _role(pid))}
        pids: dict[str, list[int]] = {"supervisor": [process.pid]}
        for pid, name in children.items():
            pids.setdefault(name, []).append(pid)
        url = f"unix://{socket_path(data)}?db=0"
        yield Stack("product", port, url, ledger, pids)


@contextmanager
def floor(folder: Path) -> Iterator[Stack]:
    """The bare minimum on a store with the same settings."""
    port, ledger = free_port(), folder / "ledger.jsonl"
    held = DataFolder(folder / "data")
    store = embedded_store(held, search=os.environ.get("PATH"), fsync="everysec")
    keeper = subprocess.Popen(
        store.program().argv, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _wait_for(store)
        argv = [sys.executable, str(Path(__file__).with_name("floor.py")), "--port", str(port)]
        argv += ["--redis", store.url, "--ledger", str(ledger)]
        with _running(argv, dict(os.environ), folder / "log") as process:
            pids = {"floor": [process.pid], "store": [keeper.pid]}
            yield Stack("floor", port, store.url, ledger, pids)
    finally:
        keeper.terminate()
        keeper.wait()
        held.close()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(
    argv: list[str], environ: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as errors:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith(b"ready"):
            tail = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{argv[1:4]} did not get ready:\n{tail}")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stdout.close()


def _wait_for(store: EmbeddedStore) -> None:
    deadline = time.monotonic() + START_S
    while not store.ping():
        if time.monotonic() > deadline:
            raise RuntimeError("the embedded store does not answer")
        time.sleep(0.02)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry.parent.name))
    return found


def _role(pid: int) -> str | None:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    if "-server" in words[0]:
        return "store"
    return next((_ROLES[word] for word in words if word in _ROLES), None)


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / _TICKS
