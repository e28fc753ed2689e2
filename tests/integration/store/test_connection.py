"""The connection: replies reach whom they belong to, whatever happens to callers and server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from signoff.domain.error import UnavailableError
from signoff.store.connection import Connection, _checked
from signoff.store.facade import Store
from signoff.store.scripts import Args
from signoff.supervise.embedded import find_binary
from tests.integration.store.conftest import Desk

pytestmark = pytest.mark.anyio


class Server:
    """A server of this test's own, which may be killed, frozen and started again."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/s?db=0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = find_binary(os.environ.get("PATH"))
        # fmt: off
        self.process = subprocess.Popen(
            [
                binary, "--port", "0", "--unixsocket", f"{self.folder}/s", "--dir", self.folder,
                "--save", "", "--appendonly", "yes", "--appendfsync", "always",
                "--loglevel", "warning",
            ],
            stdout=subprocess.DEVNULL,
        )
        # fmt: on

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            Path(self.folder, "s").unlink(missing_ok=True)


@pytest.fixture
def server() -> Iterator[Server]:
    """A running server with an AOF."""
    with tempfile.TemporaryDirectory(prefix="sgt-") as folder:
        made = Server(folder)
        made.start()
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    """A connection to it with a short timeout."""
    made = Connection(server.url, timeout_s=0.3)
    await until_up(made)
    yield made
    await made.close()


@pytest.fixture
async def shared(redis_url: str) -> AsyncIterator[Connection]:
    """A connection to the server that lives on."""
    made = Connection(redis_url)
    yield made
    await made.close()


async def until_up(connection: Connection) -> None:
    """Polls until the server answers, at most ten seconds."""
    deadline = time.monotonic() + 10
    while True:
        try:
            await connection.call("PING")
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.01)
        else:
            return


async def echo(connection: Connection, text: str) -> str:
    reply = await connection.call("ECHO", text)
    return str(reply.decode())


async def test_a_thousand_calls_at_once_get_their_own_replies(shared: Connection) -> None:
    """They travel in batches; the order of replies is that of the batch."""
    texts = [str(n) for n in range(1000)]
    assert await asyncio.gather(*(echo(shared, text) for text in texts)) == texts


async def test_a_cancelled_caller_never_gets_or_gives_anothers_reply(shared: Connection) -> None:
    """Five hundred calls, half of them cancelled at various points of their way."""
    for round_ in range(10):
        texts = [f"{round_}:{n}" for n in range(50)]
        tasks = [asyncio.create_task(echo(shared, text)) for text in texts]
        for _ in range(round_):
            await asyncio.sleep(0)
        for task in tasks[:: 1 + round_ % 3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for text, reply in zip(texts, found, strict=True):
            assert reply == text or isinstance(reply, asyncio.CancelledError)
        assert await echo(shared, f"after {round_}") == f"after {round_}"


async def test_a_cancelled_write_is_not_done_twice(shared: Connection) -> None:
    """Nothing is re-sent: each command reaches the server at most once."""
    tasks = [asyncio.create_task(shared.call("INCR", "n")) for _ in range(200)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    numbers = [reply for reply in found if isinstance(reply, int)]
    assert len(numbers) == len(set(numbers)) >= 100
    assert int(await shared.call("GET", "n")) <= 200


async def test_an_error_of_the_server_is_its_callers_alone(shared: Connection) -> None:
    """The others of the batch have their replies, and the connection goes on."""
    await shared.call("SET", "text", "x")
    found = await asyncio.gather(
        echo(shared, "a"),
        shared.call("INCR", "text"),
        shared.call("NONSENSE"),
        echo(shared, "b"),
        return_exceptions=True,
    )
    assert (found[0], found[3]) == ("a", "b")
    assert all(isinstance(found[n], ResponseError) for n in (1, 2))


async def test_a_text_without_utf8_form_fails_its_caller_alone(shared: Connection) -> None:
    """The rest of the batch is not touched by it, and nothing of it is sent."""
    found = await asyncio.gather(
        echo(shared, "a"),
        shared.call("SET", "k", "\ud800"),
        echo(shared, "b"),
        return_exceptions=True,
    )
    assert (found[0], found[2]) == ("a", "b")
    assert isinstance(found[1], UnicodeEncodeError)
    assert await shared.call("EXISTS", "k") == 0


async def test_a_server_that_refuses_writes_is_unavailable(shared: Connection) -> None:
    """Out of memory: reads go on, writes are to be retried later."""
    await shared.call("SET", "k", "v")
    _, limit = await shared.call("CONFIG", "GET", "maxmemory")
    await shared.call("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(UnavailableError):
            await shared.call("SET", "k", "w")
        assert await shared.call("GET", "k") == b"v"
    finally:
        await shared.call("CONFIG", "SET", "maxmemory", limit)
    await shared.call("SET", "k", "w")


async def test_a_primary_that_lost_its_replicas_is_unavailable(shared: Connection) -> None:
    """A refusal of the moment is no error of the caller's."""
    await shared.call("CONFIG", "SET", "min-replicas-to-write", "1")
    try:
        with pytest.raises(UnavailableError):
            await shared.call("SET", "k", "w")
    finally:
        await shared.call("CONFIG", "SET", "min-replicas-to-write", "0")


@pytest.mark.parametrize(
    "text",
    [
        "BUSY Redis is busy running a script.",
        "CLUSTERDOWN The cluster is down",
        "ERR max number of clients reached",
        "ERR Error running script (call to f_1): @user_script:12: -OOM command not allowed",
    ],
)
def test_what_a_server_says_of_itself_is_no_error_of_the_caller(text: str) -> None:
    """Also in the words of servers before 7.0, which report it out of the script."""
    with pytest.raises(UnavailableError):
        _checked(ResponseError(text))


async def test_a_script_is_refused_whole_or_done_whole(store: Store) -> None:
    """Out of memory: nothing of a run is written, and the same call goes through later."""
    desk = Desk(store=store)
    run = await desk.new_run()
    _, limit = await store.connection.call("CONFIG", "GET", "maxmemory")
    before = await store.connection.call("DBSIZE")
    await store.connection.call("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(UnavailableError):
            await store.runs.create(run)
        assert await store.connection.call("DBSIZE") == before
    finally:
        await store.connection.call("CONFIG", "SET", "maxmemory", limit)
    await store.runs.create(run)
    assert (await desk.load(run.id)).status == "running"


async def test_a_killed_server_is_unavailable_until_it_is_back(
    server: Server, connection: Connection
) -> None:
    """Every waiting call fails at once; after the restart the same connection works."""
    await connection.call("SET", "k", "kept")
    server.kill()
    started = time.monotonic()
    found = await asyncio.gather(
        *(connection.call("GET", "k") for _ in range(200)), return_exceptions=True
    )
    assert all(isinstance(reply, UnavailableError) for reply in found)
    assert time.monotonic() - started < 2
    server.start()
    await until_up(connection)
    assert await connection.call("GET", "k") == b"kept"


async def test_calls_in_flight_when_the_server_dies_are_unavailable(
    server: Server, connection: Connection
) -> None:
    """Whether they were done is not known; none hangs and none is sent again."""
    server.signal(signal.SIGSTOP)
    tasks = [asyncio.create_task(connection.call("INCR", "n")) for _ in range(300)]
    await asyncio.sleep(0)
    server.kill()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(reply) for reply in found} == {UnavailableError}
    server.start()
    await until_up(connection)
    assert int(await connection.call("GET", "n") or 0) <= 300


async def test_a_frozen_server_is_unavailable_within_the_timeout(
    server: Server, connection: Connection
) -> None:
    """And the reply that comes late reaches nobody."""
    server.signal(signal.SIGSTOP)
    started = time.monotonic()
    try:
        for text in ("one", "two"):
            with pytest.raises(UnavailableError):
                await echo(connection, text)
        assert 0.5 < time.monotonic() - started < 2
    finally:
        server.signal(signal.SIGCONT)
    await until_up(connection)
    assert await echo(connection, "three") == "three"


async def test_a_cancelled_caller_at_a_frozen_server_leaves_order(
    server: Server, connection: Connection
) -> None:
    """Its place is given up at once; later calls get their own replies."""
    server.signal(signal.SIGSTOP)
    task = asyncio.create_task(echo(connection, "mine"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.signal(signal.SIGCONT)
    assert await asyncio.gather(*(echo(connection, str(n)) for n in range(20))) == [
        str(n) for n in range(20)
    ]


async def test_scripts_come_back_after_the_server_lost_them(store: Store) -> None:
    """SCRIPT FLUSH, or a restart: the source is sent once more."""
    args = Args(drainer="d", force=True)
    assert await store.scripts.run("sleep", "sg:{s0}:", args) == 1
    await store.connection.call("SCRIPT", "FLUSH")
    found = await asyncio.gather(*(store.scripts.run("sleep", "sg:{s0}:", args) for _ in range(5)))
    assert found == [1] * 5


async def test_a_closed_connection_leaves_no_caller_waiting(redis_url: str) -> None:
    """What waits when it is closed fails as unavailable, and so does what comes later."""
    made = Connection(redis_url)
    await made.call("PING")
    tasks = [asyncio.create_task(echo(made, str(n))) for n in range(500)]
    await asyncio.sleep(0)
    await made.close()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    for n, reply in enumerate(found):
        assert reply == str(n) or isinstance(reply, UnavailableError)
    with pytest.raises(UnavailableError):
        await made.call("PING")
