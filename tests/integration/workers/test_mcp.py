"""MCP servers as workers know them: real ones that hang, die and come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from signoff.mcpserver import McpServer
from signoff.tooldef import ToolFailedError, ToolTimeoutError
from tests.e2e.harness import free_port, until
from workers.mcp.servers import Servers

pytestmark = pytest.mark.anyio

SCRIPT = str(Path(__file__).parents[2] / "support" / "mcp_server.py")


@pytest.fixture
def anyio_backend():
    return "asyncio"


def said(log: Path) -> str:
    """What the server noted."""
    return log.read_text()


class Remote:
    """A server over HTTP that can be killed and started again at its address."""

    def __init__(self, log: Path) -> None:
        self.log, self.port = log, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        environ = {**os.environ, "MCP_LOG": str(self.log)}
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, str(self.port)],
            env=environ,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if b"running on" in line:
                return
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stderr is not None
            self.process.stderr.close()
            self.process = None


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def remote(log: Path) -> Iterator[Remote]:
    made = Remote(log)
    yield made
    made.kill()


def stdio(log: Path, **options: Any) -> McpServer:
    fields = {"trusted": True, "timeout_s": 10.0, **options}
    return McpServer(
        name="t", command=sys.executable, args=(SCRIPT,), env={"MCP_LOG": str(log)}, **fields
    )


@asynccontextmanager
async def reached(*servers: McpServer) -> AsyncIterator[Servers]:
    made = Servers({server.name: server for server in servers})
    try:
        yield made
    finally:
        async with asyncio.timeout(20):
            await made.close()


async def tools(servers: Servers, **wanted: Any) -> dict[str, Any]:
    """The tools, once the first listing is there."""
    async with asyncio.timeout(40):
        while not (found := await servers.tools(**{"names": None, "servers": None, **wanted})):
            await asyncio.sleep(0.05)
    return found


async def call(found: dict[str, Any], name: str, **arguments: Any) -> str:
    return str(await found[f"mcp__t__{name}"].run(found[f"mcp__t__{name}"].check(arguments)))


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, log: Path, remote: Remote) -> McpServer:
    if request.param == "stdio":
        return stdio(log)
    remote.start()
    return McpServer(name="t", url=remote.url, trusted=True, timeout_s=10.0)


async def test_tools_are_listed_called_and_their_results_read(server: McpServer) -> None:
    """Texts as they are, structured content as JSON, images by name, errors as errors."""
    async with reached(server) as servers:
        found = await tools(servers)
        assert "mcp__t__look" in found
        assert not any("odd" in name for name in found)
        assert found["mcp__t__look"].description == "Look something up."
        assert await call(found, "look", what="x") == "saw x"
        assert json.loads(await call(found, "send", to="a", count=2)) == {"sent": "a", "count": 2}
        assert await call(found, "picture") == "here:\n[an image is left out: image/png]"
        with pytest.raises(ToolFailedError, match="fail"):
            await call(found, "fail", why="because")
        await call(found, "grow")
        async with asyncio.timeout(10):
            while "mcp__t__grown" not in await tools(servers):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("trusted", [True, False])
async def test_hints_count_for_trusted_servers_only(log: Path, trusted: bool) -> None:
    """And what calls itself destructive is believed in that."""
    async with reached(stdio(log, trusted=trusted)) as servers:
        found = await tools(servers)
    effects = {
        name.removeprefix("mcp__t__"): (item.read_only, item.idempotent)
        for name, item in found.items()
        if item.read_only or item.idempotent
    }
    assert effects == ({"look": (True, False), "put": (False, True)} if trusted else {})
    assert not any(item.loaded or item.external for item in found.values())


async def test_a_run_gets_the_tools_it_names_of_the_servers_it_has(log: Path) -> None:
    """An allow-list of the operator, a list of names, a list of servers."""
    async with reached(stdio(log, tools=("look", "put"))) as servers:
        assert sorted(await tools(servers)) == ["mcp__t__look", "mcp__t__put"]
        named = await servers.tools(names=["mcp__t__put", "mcp__t__send", "x"], servers=None)
        assert list(named) == ["mcp__t__put"]
        assert await servers.tools(names=None, servers=[]) == {}
        assert await servers.tools(names=["x"], servers=None) == {}


async def test_a_call_that_its_server_dies_in_has_an_unknown_outcome(
    server: McpServer, log: Path
) -> None:
    """It is said so, and it is not made again."""
    async with reached(server) as servers:
        found = await tools(servers)
        with pytest.raises(ToolFailedError, match="outcome is unknown"):
            await call(found, "die", what="x")
    assert said(log).count("die x") == 1


async def test_a_server_that_does_not_answer_ends_its_call_and_no_other(
    server: McpServer,
) -> None:
    """Its neighbours go on, during the call and afterwards."""
    quick = McpServer(**{name: getattr(server, name) for name in McpServer.__slots__})
    object.__setattr__(quick, "timeout_s", 1.0)
    async with reached(quick) as servers:
        found = await tools(servers)
        stuck = asyncio.create_task(call(found, "stuck", what="x"))
        assert await call(found, "look", what="y") == "saw y"
        with pytest.raises(ToolTimeoutError, match="outcome is unknown"):
            await stuck
        assert await call(found, "look", what="z") == "saw z"


async def test_a_server_that_is_down_keeps_its_tools_and_fails_their_calls(
    remote: Remote,
) -> None:
    """Clearly, and saying that nothing was done; it is found again when it is back."""
    remote.start()
    here = McpServer(name="t", url=remote.url, timeout_s=10.0)
    async with reached(here) as servers:
        found = await tools(servers)
        remote.kill()
        # The connection that was open may only show its end to the first who uses it.
        with pytest.raises(ToolFailedError):
            await call(found, "look", what="x")
        with pytest.raises(ToolFailedError, match="not made"):
            await call(found, "look", what="x")
        assert "mcp__t__look" in await tools(servers)
        remote.start()
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await call(found, "look", what="back") == "saw back"
                except ToolFailedError:
                    await asyncio.sleep(0.1)
                    continue
                break


async def test_a_server_that_was_never_there_holds_nobody_up() -> None:
    """A run goes on without its tools, and the next does not wait either."""
    gone = McpServer(name="t", url=f"http://127.0.0.1:{free_port()}/mcp")
    missing = McpServer(name="u", command="/no/such/command")
    loop = asyncio.get_running_loop()
    async with reached(gone, missing) as servers:
        assert await servers.tools(names=None, servers=None) == {}
        began = loop.time()
        assert await servers.tools(names=None, servers=None) == {}
        assert loop.time() - began < 1


async def test_a_server_that_connects_and_then_hangs_is_waited_for_once_and_briefly() -> None:
    """One that takes the connection and never says a word."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        async with reached(McpServer(name="t", url=url)) as servers:
            began = loop.time()
            assert await servers.tools(names=None, servers=None) == {}
            assert loop.time() - began < 8


async def test_a_killed_process_is_started_again(log: Path) -> None:
    """Without anybody asking; a call that comes meanwhile waits a little."""
    async with reached(stdio(log)) as servers:
        found = await tools(servers)
        first = int(said(log).split()[1])
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(40):
            while said(log).count("start") < 2:
                await asyncio.sleep(0.05)
            while True:
                try:
                    assert await call(found, "look", what="x") == "saw x"
                except ToolFailedError:
                    await asyncio.sleep(0.1)
                    continue
                break
        second = int(said(log).split("start ")[2].split()[0])
    until(lambda: not Path(f"/proc/{second}").exists(), what="the end of the server")
