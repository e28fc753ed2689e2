"""`signoff demo` as a viewer starts it: what it shows, how it ends, what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from signoff.demo.deployment import DemoError, Deployment
from signoff.supervise.process import Program

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-P", str(REPOSITORY / "signoff/cli/__main__.py"), "demo"]
DEADLINE_S = 60
PAUSE = threading.Event()  # never set
ROWS = [
    r"run\.started +run 1 .*attempt 1: 200 +valid",
    r"run\.awaiting_input +pause 1: question .*attempt 1: 200 +valid",
    r"kill -9 worker +process \d+",
    r"signed callback +signed with another secret .*answered 401 +refused",
    r"signed callback +answer: Saturday 06:00 .*answered 200 +accepted",
    r"run\.awaiting_input +pause 2: plan .*attempt 1: 503 +valid",
    r"run\.awaiting_input +pause 2: plan .*attempt 2: 200 +valid",
    r"signed callback +plan: Approve .*answered 200 +accepted",
    r"run\.awaiting_input +pause 3: send_email .*attempt 1: 200 +valid",
    r"signed callback +allow send_email .*answered 200 +accepted",
    r"signed callback +the same callback again .*answered 200 +accepted",
    r"run\.resumed +run 1 .*attempt 1: 200 +valid",
    r"run\.completed +run 1 .*attempt 1: 200 +valid",
]


class Demo:
    """One demo with everything it starts marked, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        # Without our prefix: settings of the viewer's are kept from the demo's children.
        self.mark = str(uuid.uuid4())
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.process = subprocess.Popen(
            COMMAND,
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "TMPDIR": str(self.temporary),
                "DEMO_MARK": self.mark,
                # A viewer's own settings must not change what the demo shows.
                "SIGNOFF_WEBHOOK_ALLOW": "",
                "SIGNOFF_TOOLS": "no.such.module",
                "OPENAI_API_KEY": "not-used",
                "HTTP_PROXY": "http://127.0.0.1:9",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def left(self) -> list[int]:
        """Processes of this demo that still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"DEMO_MARK={self.mark}".encode() in entry.read_bytes():
                    found.append(int(entry.parent.name))
        return found

    def kill_left(self) -> None:
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def demo(tmp_path):
    started = Demo(tmp_path)
    yield started
    started.process.kill()
    started.process.communicate()
    started.kill_left()


def wait_until(probe, within_s):
    deadline = time.monotonic() + within_s
    while not probe():
        assert time.monotonic() < deadline
        PAUSE.wait(0.02)


def test_the_demo_shows_three_pauses_and_holds_its_promises(demo):
    """From any folder, exit code 0, every row within 100 columns, and nothing is left behind."""
    text, _ = demo.process.communicate(timeout=DEADLINE_S)
    assert demo.process.returncode == 0, text
    _, _, table = text.partition("Timeline")
    for row in ROWS:
        assert re.search(row, table), (row, text)
    assert table.count("kill -9 worker") == 2
    assert "send_email was started 1 time(s)" in table
    assert re.search(r"All \d+ expectations held\.", table)
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert demo.left() == []
    assert list(demo.temporary.iterdir()) == []


def test_a_terminated_demo_ends_all_that_it_started(demo):
    """SIGTERM in the middle ends every process and removes the folder."""
    first = demo.process.stdout.readline()
    assert "Starting" in first
    wait_until(lambda: len(demo.left()) > 3, DEADLINE_S)
    demo.process.terminate()
    demo.process.communicate(timeout=20)
    assert demo.process.returncode == 128 + signal.SIGTERM
    assert demo.left() == []
    assert list(demo.temporary.iterdir()) == []


def test_a_killed_demo_takes_its_processes_along(demo):
    """kill -9 of the demo leaves no process behind."""
    wait_until(lambda: len(demo.left()) > 3, DEADLINE_S)
    demo.process.kill()
    demo.process.wait()
    wait_until(lambda: not demo.left(), 10)


def test_a_deployment_that_ends_is_told_with_its_last_words():
    """A `signoff dev` that cannot start ends the demo with what it said, not with a timeout."""
    script = "print('no room'); raise SystemExit(2)"
    program = Program(name="dev", argv=(sys.executable, "-c", script), environ={})
    with pytest.raises(DemoError) as caught, Deployment(program) as deployment:
        deployment.ready()
    assert "exit code 2" in caught.value.message
    assert "no room" in caught.value.message
