"""What all tests share: a scrubbed environment, and a real store of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest
from cryptography.fernet import Fernet

from signoff.store.facade import Store, open_store
from signoff.supervise.embedded import find_binary

for _name in list(os.environ):
    if _name.startswith("SIGNOFF_") or _name.endswith(("_API_KEY", "_BASE_URL")):
        del os.environ[_name]

# A gate must give the same verdict twice on the same code: CI replays the same examples each
# time, runs by hand explore. Shared machines are slow at times, so no example has a deadline.
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "explore")

SECRET_KEY = Fernet.generate_key().decode()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Everything runs on asyncio."""
    return "asyncio"


def _say(path: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as conn:
        conn.settimeout(5)
        conn.connect(str(path))
        conn.sendall(command)
        return conn.recv(1024)


@pytest.fixture(scope="session")
def redis_socket() -> Iterator[Path]:
    """A real server with an AOF on a unix socket, for this test process alone."""
    binary = find_binary(os.environ.get("PATH"))
    with tempfile.TemporaryDirectory(prefix="sgt-") as folder:
        path = Path(folder) / "s"
        server = subprocess.Popen(
            [
                binary,
                "--port",
                "0",
                "--unixsocket",
                path,
                "--dir",
                folder,
                "--save",
                "",
                "--appendonly",
                "yes",
                "--maxmemory-policy",
                "noeviction",
                "--loglevel",
                "warning",
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 10
            while True:
                try:
                    if _say(path, b"PING\r\n").startswith(b"+PONG"):
                        break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)
            yield path
        finally:
            server.kill()
            server.wait()


@pytest.fixture
def redis_url(redis_socket: Path) -> str:
    """The URL of an empty database."""
    assert _say(redis_socket, b"FLUSHALL SYNC\r\n").startswith(b"+OK")
    return f"unix://{redis_socket}?db=0"


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    """The store, empty."""
    opened = open_store(redis_url, secret_keys=[SECRET_KEY], lease_s=5.0)
    await opened.scripts.load()
    yield opened
    await opened.close()
