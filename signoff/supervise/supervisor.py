"""Keeps a set of children running in this process group, and ends all of them in order."""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from signoff.supervise.process import Child, Program, adopt_orphans

MAX_PENDING_LOG_BYTES = 1_048_576
STRAYS_S = 1.0
LAST_WORDS_S = 0.5

_TURN_S = 1.0
_CHUNK_BYTES = 4096  # PIPE_BUF: a pipe that reports room takes this much without blocking


class Log:
    """Writes lines to a descriptor without ever waiting for its reader; drops and counts."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0

    @property
    def pending(self) -> bool:
        """True while lines wait to be written."""
        return bool(self._lines)

    def add(self, source: str, line: bytes) -> None:
        """Queue one line under the name of its source."""
        if self._size > MAX_PENDING_LOG_BYTES:
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self.add("signoff", f"{dropped} lines were dropped: nobody read them".encode())
        entry = b"[" + source.encode() + b"] " + line + b"\n"
        self._lines.append(entry)
        self._size += len(entry)

    def flush(self) -> None:
        """Write as much as the reader takes now."""
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        try:
            while self._lines and ready.poll(0):
                batch = self._lines[0]
                taken = 1
                while (
                    taken < len(self._lines) and len(batch) + len(self._lines[taken]) < _CHUNK_BYTES
                ):
                    batch += self._lines[taken]
                    taken += 1
                os.write(self._descriptor, batch)
                for _ in range(taken):
                    self._size -= len(self._lines.popleft())
        except OSError:  # the reader is gone: nobody is left to tell
            self._lines.clear()
            self._size = 0


class Supervisor:
    """Runs children from one single-threaded loop; leaving its ``with`` block ends them all.

    Belongs in a process of its own, on its main thread: it takes over the signals, and it
    adopts and at last kills the processes that its children leave behind.
    """

    def __init__(self, *, descriptor: int = 2, clock: Callable[[], float] = time.monotonic) -> None:
        self.stopping = False
        self._log = Log(descriptor)
        self._clock = clock
        self._children: list[Child] = []
        self._stages: dict[int, list[Child]] = {}
        self._hurry = False
        self._first_signal = 0.0
        self._wake, self._waker = socket.socketpair()
        self._previous: dict[signal.Signals, object] = {}
        # A shell that started something and then became us by exec leaves us its children.
        self._foreign = frozenset(_children_of(os.getpid()))

    def __enter__(self) -> Self:
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A hang-up that the caller ignores (nohup) stays ignored, here and in the children.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._on_stop_signal)
        # Without a handler of its own SIGCHLD would not wake the loop.
        self._previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        adopt_orphans()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _on_stop_signal(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if not self.stopping:
            self._first_signal = now
        elif number == signal.SIGINT and now - self._first_signal > 1.0:
            self._hurry = True  # a second Ctrl-C, not an echo of the first
        self.stopping = True

    def say(self, text: str) -> None:
        """Put a line of the supervisor's own into the log."""
        self._log.add("signoff", text.encode())

    def start(self, program: Program, *, stage: int) -> Child:
        """Start a child and keep it running; lower stages are ended before higher ones."""
        child = Child(program, write=lambda line: self._log.add(program.name, line))
        self._children.append(child)
        self._stages.setdefault(stage, []).append(child)
        child.start(self._clock())
        return child

    def wait_until(self, probe: Callable[[], bool], *, every_s: float = 0.05) -> bool:
        """Keep everything running until the probe holds; False if a signal came before."""
        again = self._clock()
        while not self.stopping:
            now = self._clock()
            if now >= again:
                if probe():
                    return True
                again = self._clock() + every_s
            self.turn(max(0.0, again - now))
        return False

    def run(self) -> None:
        """Keep everything running until a signal asks for the end."""
        while not self.stopping:
            self.turn(_TURN_S)

    def turn(self, longest_s: float) -> None:
        """Wait at most so long for something to happen and deal with it."""
        now = self._clock()
        due = [child.due for child in self._children if child.due is not None]
        if due and not self.stopping:
            longest_s = min(longest_s, max(0.0, min(due) - now))
        self._wait(longest_s)
        self._reap()
        if not self.stopping:
            self._restart()
        self._log.flush()

    def _wait(self, longest_s: float) -> None:
        # poll(2), not epoll: the log may be a regular file. A handful of descriptors a turn.
        with selectors.PollSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            for child in self._children:
                if child.pipe is not None:
                    selector.register(child.pipe, selectors.EVENT_READ, child)
            if self._log.pending:
                # Only a sign of life of the reader; what it takes is written by flush().
                longest_s = min(longest_s, 0.05)
            for key, _ in selector.select(longest_s):
                if isinstance(key.data, Child):
                    key.data.pump()
                else:
                    with suppress(BlockingIOError):
                        self._wake.recv(4096)

    def _reap(self) -> None:
        now = self._clock()
        for child in self._children:
            code = child.poll(now)
            if code is not None and not self.stopping:
                self.say(f"{child.program.name} ended ({_describe(code)}); it is started again")
        self._bury_strays()

    def _restart(self) -> None:
        now = self._clock()
        for child in self._children:
            # A signal may have come since: look right before each start.
            if child.due is not None and child.due <= now and not self.stopping:
                child.start(now)

    def stop(self) -> None:
        """End all children, stage after stage, the overdue ones by force; give the signals back."""
        self.stopping = True
        for stage in sorted(self._stages):
            self._end([child for child in self._stages[stage] if child.pid is not None])
        self._kill_strays()
        deadline = self._clock() + LAST_WORDS_S
        while self._log.pending and self._clock() < deadline:
            self._wait(0.01)
            self._log.flush()
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]
        self._previous.clear()
        signal.set_wakeup_fd(-1)
        self._wake.close()
        self._waker.close()

    def _end(self, children: list[Child]) -> None:
        asked = self._clock()
        for child in children:
            child.ask()
        while True:
            left = [child for child in children if child.pid is not None]
            if not left:
                return
            now = self._clock()
            for child in left:
                if now - asked >= child.program.grace_s or self._hurry:
                    child.kill()
            self.turn(0.05)

    def _bury_strays(self) -> None:
        ours = {child.pid for child in self._children}
        with suppress(ChildProcessError):
            while True:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None or found.si_pid in ours:
                    return  # one of ours that ended since the last poll: its turn comes
                os.waitpid(found.si_pid, os.WNOHANG)

    def _kill_strays(self) -> None:
        """Kill what the children left behind, such as the command a killed worker had started."""
        deadline = self._clock() + STRAYS_S
        while self._clock() < deadline:
            strays = set(_children_of(os.getpid())) - self._foreign
            if not strays:
                return
            for pid in strays:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._bury_strays()
            self._wait(0.02)


def _children_of(parent: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The second field is a name in parentheses that may hold anything, blanks included.
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent and after_name[0] != "Z":
                yield int(entry.parent.name)


def _describe(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"
    return f"exit code {code}"
