"""`signoff dev` as a child of the demo: started, watched, its worker found, ended."""

from __future__ import annotations

import select
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from signoff.domain.error import SignoffError
from signoff.supervise.process import Child, Program

#: More than `signoff dev` itself needs to end all its children.
GRACE_S = 15.0
START_S = 40.0
_TURN_S = 0.05
_SHOWN_LINES = 15


class DemoError(SignoffError):
    """The demo cannot go on; the message says what it waited for."""

    code = "demo_failed"


class Deployment:
    """The processes of `signoff dev`; they die with this one, however it ends."""

    def __init__(self, program: Program) -> None:
        self._lines: deque[str] = deque(maxlen=200)
        self._url = ""
        self._child = Child(program, write=self._read)

    def __enter__(self) -> Self:
        self._child.start(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + GRACE_S
        self._child.ask()
        while self._child.pid is not None:
            if time.monotonic() > deadline:
                self._child.kill()
            self._pump()
            self._child.poll(time.monotonic())

    def ready(self) -> str:
        """Wait for the line `ready URL`; return the URL."""
        self.until(lambda: bool(self._url), "the processes to be ready", within_s=START_S)
        return self._url

    def until(self, probe: Callable[[], bool], what: str, *, within_s: float) -> None:
        """Wait until the probe holds; raise DemoError when it does not, or when all has ended."""
        deadline = time.monotonic() + within_s
        while not probe():
            if time.monotonic() > deadline:
                raise DemoError(f"waited {within_s:g} s for {what}")
            self.turn()

    def turn(self) -> None:
        """Let a moment pass."""
        self._pump()
        if self._child.poll(time.monotonic()) is not None:
            tail = "\n".join(list(self._lines)[-_SHOWN_LINES:])
            raise DemoError(f"signoff dev ended (exit code {self._child.last_code}):\n{tail}")

    def worker(self) -> int | None:
        """The process id of the worker that runs now."""
        for pid, parent, arguments in _processes():
            if parent == self._child.pid and arguments.endswith(" worker"):
                return pid
        return None

    def _pump(self) -> None:
        pipe = self._child.pipe
        if pipe is None:
            time.sleep(_TURN_S)
            return
        ready = select.poll()
        ready.register(pipe, select.POLLIN)
        if ready.poll(_TURN_S * 1000):
            self._child.pump()

    def _read(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._lines.append(text)
        if text.startswith("ready "):
            self._url = text.removeprefix("ready ").strip()


def _processes() -> list[tuple[int, int, str]]:
    """Every process as (pid, parent, command line)."""
    found: list[tuple[int, int, str]] = []
    if Path("/proc/self/stat").exists():
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError, IndexError):
                # The second field is a name in parentheses that may hold anything.
                parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
                arguments = entry.with_name("cmdline").read_bytes().rstrip(b"\0")
                text = arguments.replace(b"\0", b" ").decode(errors="replace")
                found.append((int(entry.parent.name), parent, text))
        return found
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,args="],  # noqa: S607 - the system's own, wherever it is
        capture_output=True,
        text=True,
        check=True,
    )
    for row in listed.stdout.splitlines():
        pid, parent_text, arguments_text = row.split(None, 2)
        found.append((int(pid), int(parent_text), arguments_text))
    return found
