"""The README's integration as it is written there: commands and receiver, on other ports."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
DEADLINE_S = 40
PAUSE = threading.Event()  # never set

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the README uses curl")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def wait_until(probe):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := probe()):
        assert time.monotonic() < deadline
        PAUSE.wait(0.05)
    return found


class Walk:
    """One walk through the README: every process it starts ends with it."""

    def __init__(self, folder):
        self.ports = {"8000": str(free_port()), "9000": str(free_port())}
        self.folder = folder
        self.processes = []

    def text(self, snippet):
        for written, free in self.ports.items():
            snippet = snippet.replace(written, free)
        # Also where the package was not installed, or into another place.
        snippet = snippet.replace(".venv/bin/signoff", f"{sys.executable} -m signoff.cli")
        return snippet.replace("--data .signoff", f"--data {self.folder}/data")

    def start(self, argv, **environ):
        process = subprocess.Popen(
            argv,
            cwd=REPOSITORY,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": str(REPOSITORY),
                **environ,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def curl(self, snippet):
        command = self.text(snippet).replace("curl ", "curl --silent --fail-with-body ", 1)
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=20, check=True
        )
        return json.loads(done.stdout)

    def get(self, path):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['8000']}{path}",
            headers={"Authorization": "Bearer my-first-api-key"},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.communicate(timeout=20)


@pytest.fixture
def walk(tmp_path):
    one = Walk(tmp_path)
    yield one
    one.end()


def test_the_integration_works_as_written(walk, tmp_path):
    """Start, subscribe, verify, approve by a signed callback: the run of the README completes."""
    dev = next(text for text in blocks("sh") if "signoff dev" in text)
    subscribe, start = [text for text in blocks("sh") if text.startswith("curl")]
    receiver = next(text for text in blocks("python") if "HTTPServer" in text)

    ready = walk.start(["bash", "-c", "exec env " + walk.text(dev)])
    assert ready.stdout.readline().startswith("ready http://127.0.0.1:")
    webhook = walk.curl(subscribe)
    script = tmp_path / "receiver.py"
    script.write_text(walk.text(receiver))
    hooks = walk.start(
        [sys.executable, str(script)],
        SECRET=webhook["secret"],
        CALLBACK_URL=webhook["callback_url"],
    )
    wait_until(lambda: not _refused(int(walk.ports["9000"])) or hooks.poll())
    assert hooks.poll() is None
    hooks.stdin.write("y\n")
    hooks.stdin.flush()
    run = walk.curl(start)
    assert run["status"] == "running"
    done = wait_until(lambda: _ended(walk.get(f"/v1/runs/{run['id']}")))
    assert (done["status"], done["output"]) == ("completed", "Done.")
    gate = walk.get(f"/v1/runs/{run['id']}/permissions")[0]
    assert (gate["status"], gate["decided_by"]) == ("allowed", f"webhook:{webhook['id']}")


def _ended(run):
    return run if run["status"] in ("completed", "failed", "cancelled") else None


def _refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
