"""One child process: how it is started, tied to its parent, read, restarted and ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0
SETTLED_S = 10.0
# A child that left cleanly or by SIGTERM may be the first to show a signal sent to all of us.
AFTER_SIGNAL_S = 0.5
# With its prefix a line stays below PIPE_BUF, so that one write never blocks nor is torn apart.
MAX_LINE_BYTES = 3900

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_READ_BYTES = 65_536
_SHIELDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CLEAN = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def _load_libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


# Loaded before any fork: the child may do no more than call it.
_LIBC = _load_libc()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What runs as one child, and how long it may take to end."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    grace_s: float = 5.0
    umask: int = -1
    #: Asks the child to end by other means than SIGTERM. A child that has this is shielded: a
    #: SIGTERM or SIGINT to the whole group does not reach it, so that it can be ended last.
    ask: Callable[[], None] | None = None


def restart_delay(quick_exits: int) -> float:
    """Return the seconds to wait before the next start, after so many short lives in a row."""
    return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(quick_exits, 16))


def adopt_orphans() -> None:
    """Make processes whose parent died below this one its children, where the kernel can."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _tie(parent: int, *, shielded: bool) -> Callable[[], None]:
    """Return what the child does between fork and exec: die with its parent, set its signals."""

    def before_exec() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the request above could take hold
            os._exit(127)
        signal.pthread_sigmask(signal.SIG_SETMASK, _SHIELDED if shielded else ())

    return before_exec


class Lines:
    """Cuts a stream of bytes into lines of bounded length."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete now; an overlong one is cut and marked."""
        *ended, self._rest = (self._rest + chunk).split(b"\n")
        lines: list[bytes] = []
        for line in ended:
            if not self._skipping:
                lines.append(_cut(line.rstrip(b"\r")))
            self._skipping = False
        if self._skipping:
            self._rest = b""
        elif len(self._rest) > MAX_LINE_BYTES:
            lines.append(_cut(self._rest))
            self._rest, self._skipping = b"", True
        return lines

    def finish(self) -> list[bytes]:
        """Return what stands without an end of line, as the last line."""
        rest, self._rest = self._rest, b""
        return [_cut(rest)] if rest and not self._skipping else []


def _cut(line: bytes) -> bytes:
    return line if len(line) <= MAX_LINE_BYTES else line[:MAX_LINE_BYTES] + b" ... [cut]"


class Child:
    """Keeps one program running: at most one process at a time, restarted with growing delays.

    Must be started from the main thread: the kernel ties a child to the thread that forked it.
    """

    def __init__(self, program: Program, *, write: Callable[[bytes], None]) -> None:
        self.program = program
        self.exits = 0
        self.last_code: int | None = None
        #: When to start it again; None while it runs, and before its first start.
        self.due: float | None = None
        self._write = write
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = Lines()
        self._started = 0.0
        self._quick_exits = 0

    @property
    def pid(self) -> int | None:
        """The running process, or None between two lives."""
        return None if self._process is None else self._process.pid

    @property
    def pipe(self) -> int | None:
        """The descriptor to wait on for output, or None."""
        stream = None if self._process is None else self._process.stdout
        return None if stream is None or stream.closed else stream.fileno()

    def start(self, now: float) -> None:
        """Start the process; a failure to start counts as an exit and is retried."""
        program = self.program
        self._started, self.due, self._lines = now, None, Lines()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own argument vector, no shell
                program.argv,
                env=dict(program.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                umask=program.umask,
                # Single-threaded parent, and the child only makes system calls before exec.
                preexec_fn=_tie(os.getpid(), shielded=program.ask is not None),  # noqa: PLW1509
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._write(f"cannot be started: {error}".encode())
            self._note_exit(127, now)
            return
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def pump(self) -> None:
        """Pass on the output that is there, without waiting for more."""
        descriptor = self.pipe
        if descriptor is None or self._process is None or self._process.stdout is None:
            return
        try:
            chunk = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        for line in self._lines.feed(chunk) if chunk else self._lines.finish():
            self._write(line)
        if not chunk:
            self._process.stdout.close()

    def poll(self, now: float) -> int | None:
        """Return the exit code if the process has just ended, and plan its next start."""
        code = None if self._process is None else self._process.poll()
        if code is None or self._process is None:
            return None
        self.pump()
        for line in self._lines.finish():
            self._write(line)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        self._note_exit(code, now)
        return code

    def _note_exit(self, code: int, now: float) -> None:
        self.exits += 1
        self.last_code = code
        if now - self._started >= SETTLED_S:
            self._quick_exits = 0
        delay = restart_delay(self._quick_exits)
        self._quick_exits += 1
        self.due = now + (max(delay, AFTER_SIGNAL_S) if code in _CLEAN else delay)

    def ask(self) -> None:
        """Ask the process to end."""
        if self.program.ask is not None and self._process is not None:
            with suppress(OSError):
                self.program.ask()
        else:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
