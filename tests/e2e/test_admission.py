"""Processes that may not work on a store say so in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from cryptography.fernet import Fernet

from signoff.supervise.embedded import find_binary
from tests.e2e.harness import ROOT, free_port, until

KEY = Fernet.generate_key().decode()


@contextmanager
def server(*options: str) -> Iterator[str]:
    """A store of its own; answers its URL."""
    with tempfile.TemporaryDirectory(prefix="sga-") as folder:
        path = Path(folder) / "s"
        command = [str(find_binary(None)), "--port", "0", "--unixsocket", str(path)]
        command += ["--dir", folder, "--save", "", *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=str(path))

        def answers() -> bool:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

        try:
            until(answers)
            yield f"unix://{path}?db=0"
        finally:
            client.close()
            process.kill()
            process.wait()


def refused(url: str, command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    options = ["--port", str(free_port())] if command == "serve" else []
    return subprocess.run(
        [sys.executable, "-m", "signoff.cli", command, *options],
        cwd=ROOT,
        env={**os.environ, "SIGNOFF_REDIS_URL": url, "SIGNOFF_SECRET_KEYS": KEY, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["serve", "worker", "relay"])
@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--appendonly", "no"), "appendonly"),
        (("--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"), "allkeys-lru"),
    ],
)
def test_a_store_that_may_forget_is_refused(
    command: str, options: tuple[str, ...], word: str
) -> None:
    """Exit code 2 and the reason."""
    with server(*options) as url:
        ended = refused(url, command)
    assert ended.returncode == 2
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["serve", "worker", "relay"])
def test_another_layout_and_other_keys_are_refused(command: str) -> None:
    """One line that names the setting."""
    with server("--appendonly", "yes") as url:
        client = redis.Redis(unix_socket_path=url.removeprefix("unix://").partition("?")[0])
        client.hset("sg:{g}:layout", "shards", "3")
        ended = refused(url, command)
        assert (ended.returncode, "3 shards" in ended.stderr) == (2, True), ended.stderr
        client.hset("sg:{g}:layout", mapping={"shards": "1", "canary": "foreign"})
        ended = refused(url, command)
        client.close()
    assert (ended.returncode, "SIGNOFF_SECRET_KEYS" in ended.stderr) == (2, True), ended.stderr
