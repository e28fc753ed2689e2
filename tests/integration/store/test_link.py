"""The link: where a URL leads, what is said first, and what a strange server can do."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest

from signoff.domain.error import UnavailableError
from signoff.store.connection import Connection
from signoff.supervise.embedded import find_binary

pytestmark = pytest.mark.anyio
PASSWORD = "p@ss word/1"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server that asks for a password and knows a user."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="sgt-") as folder:
        # fmt: off
        server = subprocess.Popen(
            [
                find_binary(os.environ.get("PATH")), "--port", str(number), "--bind", "127.0.0.1",
                "--dir", folder, "--save", "", "--requirepass", PASSWORD,
                "--user", "app", "on", ">secret", "~*", "&*", "+@all", "--loglevel", "warning",
            ],
            stdout=subprocess.DEVNULL,
        )
        # fmt: on
        try:
            yield number
        finally:
            server.kill()
            server.wait()


async def until_up(url: str) -> Connection:
    """A connection that has been answered, for the first time within ten seconds."""
    connection = Connection(url)
    for _ in range(1000):
        try:
            await connection.call("PING")
        except UnavailableError:
            await asyncio.sleep(0.01)
        else:
            return connection
    raise AssertionError(url)


async def test_password_and_database_of_the_url_are_used(port: int) -> None:
    """What is written to database 3 is not in database 0."""
    third = await until_up(f"redis://:p%40ss%20word%2F1@127.0.0.1:{port}/3")
    first = await until_up(f"redis://:p%40ss%20word%2F1@127.0.0.1:{port}")
    await third.call("SET", "here", "3")
    assert await third.call("GET", "here") == b"3"
    assert await first.call("GET", "here") is None
    await third.close()
    await first.close()


async def test_a_user_of_the_url_is_used(port: int) -> None:
    """AUTH with a name."""
    connection = await until_up(f"redis://app:secret@127.0.0.1:{port}")
    assert await connection.call("ACL", "WHOAMI") == b"app"
    await connection.close()


async def test_a_wrong_password_is_unavailable(port: int) -> None:
    """Nothing was done, and nothing hangs."""
    await (await until_up(f"redis://app:secret@127.0.0.1:{port}")).close()
    connection = Connection(f"redis://app:wrong@127.0.0.1:{port}")
    with pytest.raises(UnavailableError):
        await connection.call("PING")
    await connection.close()


@pytest.fixture
async def stranger() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers whatever it is told to, and its answers."""
    answers: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answers and await reader.read(65536):
            writer.write(answers.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", answers
    server.close()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+one\r\n+too many\r\n", b"$5\r\nab"]
)
async def test_an_answer_out_of_step_ends_the_socket(
    stranger: tuple[str, list[bytes]], answer: bytes
) -> None:
    """Not the protocol, a reply nobody asked for, or a reply cut off: later calls are clean."""
    url, answers = stranger
    connection = Connection(url, timeout_s=1.0)
    answers.append(answer)
    try:
        first = await connection.call("PING")
    except UnavailableError:
        first = None
    assert first in (None, b"one")
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await connection.call("PING")
    await connection.close()


async def test_replies_cut_anywhere_are_put_together(stranger: tuple[str, list[bytes]]) -> None:
    """One byte at a time would do as well."""
    url, answers = stranger
    connection = Connection(url)
    answers += [b"*2\r\n$3\r\nab", b"c\r\n:7\r\n"]
    call = asyncio.create_task(connection.call("X"))
    while len(answers) > 1:
        await asyncio.sleep(0)
    other = asyncio.create_task(connection.call("Y"))
    assert await call == [b"abc", 7]
    await connection.close()
    with pytest.raises(UnavailableError):
        await other
