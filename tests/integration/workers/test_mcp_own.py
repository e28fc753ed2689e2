"""MCP servers of accounts: called through the guard, shared with nobody, let go when idle."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest

from signoff.domain.error import SignoffError
from signoff.tooldef import ToolFailedError
from tests.integration.test_sender import certificate, served
from tests.integration.workers.test_mcp import Remote, said
from webhooks.address import Address
from webhooks.guard import Policy, check_url
from workers.mcp import connection, own
from workers.mcp.guarded import Guarded
from workers.mcp.own import OwnServers

pytestmark = pytest.mark.anyio
LOOPBACK = Policy(allow=(IPv4Network("127.0.0.1/32"),))
NAME = "mcp.example.com"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is waited for; no test is about how long."""
    monkeypatch.setattr(connection, "PATIENCE_S", 30.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def remote(log: Path) -> Iterator[Remote]:
    made = Remote(log)
    made.start()
    yield made
    made.kill()


class Names:
    """A resolver whose answers the test changes."""

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.asked = 0

    async def __call__(self, name: str) -> list[Address]:
        assert name == NAME
        self.asked += 1
        return [ip_address(text) for text in self.answers]


def opened(account: str, stored: Any) -> dict[str, str]:
    """Headers as if they had been sealed for the account."""
    sealed = stored.get("sealed")
    if sealed is None:
        return {}
    if not sealed.startswith(f"{account}:"):
        raise SignoffError("not yours", code="sealed_value")
    return {"x-key": sealed}


@asynccontextmanager
async def reaching(policy: Policy = LOOPBACK, **options: Any) -> AsyncIterator[OwnServers]:
    made = OwnServers(policy=policy, open_headers=opened, taken={"ours"}, **options)
    try:
        yield made
    finally:
        async with asyncio.timeout(20):
            await made.close()


def server(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "t", "url": url, **more}


async def tools(servers: OwnServers, *given: dict[str, Any], account: str = "one") -> Any:
    return await servers.tools(account=account, given=given, names=None)


async def call(found: Any, name: str, **arguments: Any) -> str:
    return str(await found[f"mcp__t__{name}"].run(found[f"mcp__t__{name}"].check(arguments)))


class Refusing:
    """A server that answers everything with the same bytes, and counts who came."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.port = self.connections = 0
        self.paths: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.paths.add(head.split(b" ")[1].decode())
            if self.answer is None:
                await asyncio.Event().wait()
            else:
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[Refusing]:
    made = Refusing(answer)
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made
        await made.end()


async def test_a_server_of_an_account_is_called_and_never_trusted(remote: Remote) -> None:
    """Its headers go along; whatever it says of its tools, they have effects."""
    async with reaching() as servers:
        found = await tools(servers, server(remote.url, sealed="one:secret"))
        assert await call(found, "look", what="x") == "saw x"
        assert await call(found, "heard", header="x-key") == "one:secret"
        assert not any(item.read_only or item.idempotent for item in found.values())
        named = await servers.tools(
            account="one", given=[server(remote.url)], names=["mcp__t__look", "mcp__u__look"]
        )
        assert list(named) == ["mcp__t__look"]


async def test_a_name_is_sent_as_it_is_and_dialled_as_it_was_judged(remote: Remote) -> None:
    """Host has the name, the connection goes to its one address."""
    names = Names("127.0.0.1")
    url = remote.url.replace("127.0.0.1", NAME)
    async with reaching(lookup=names) as servers:
        found = await tools(servers, server(url))
        assert await call(found, "heard", header="host") == f"{NAME}:{remote.port}"
    assert names.asked >= 2


@pytest.mark.parametrize(
    "answers", [("127.0.0.2",), ("127.0.0.1", "10.0.0.1"), ("169.254.169.254",), ()]
)
async def test_a_name_that_turns_to_another_address_is_not_called(
    remote: Remote, log: Path, answers: tuple[str, ...]
) -> None:
    """Between listing and call, and back again: each request is judged by its own answers."""
    names = Names("127.0.0.1")
    url = remote.url.replace("127.0.0.1", NAME)
    async with reaching(lookup=names) as servers:
        found = await tools(servers, server(url))
        names.answers = answers
        with pytest.raises(ToolFailedError, match="the call was not made"):
            await call(found, "put", what="rebound")
        names.answers = ("127.0.0.1",)
        assert await call(found, "put", what="again") == "put again"
    assert "rebound" not in said(log)


async def test_what_the_operator_has_not_allowed_is_not_connected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By number or by name, over https as well; nobody even knocks."""
    caplog.set_level(logging.WARNING)
    names = Names("127.0.0.1")
    async with answering(None) as inside, reaching(Policy(), lookup=names) as servers:
        for url in (
            f"http://127.0.0.1:{inside.port}/mcp",
            f"https://127.0.0.1:{inside.port}/mcp",
            f"https://localhost:{inside.port}/mcp",
            f"http://{NAME}:{inside.port}/mcp",
            f"https://{NAME}:{inside.port}/mcp",
            f"https://[::ffff:127.0.0.1]:{inside.port}/mcp",
        ):
            assert await tools(servers, server(url)) == {}
        assert (inside.connections, names.asked > 0) == (0, True)
    assert "mcp_server_refused account=one server=t cause=invalid_url" in caplog.text
    assert "mcp_server_lost server=one/t cause=ConnectError" in caplog.text


async def test_http_is_for_allowed_networks_only() -> None:
    """A name may be public, and is then not called in the clear."""
    names = Names("93.184.215.14")
    async with reaching(lookup=names) as servers:
        assert await tools(servers, server(f"http://{NAME}:9/mcp")) == {}


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_redirect_is_not_followed(elsewhere: bool) -> None:
    """Neither to another server nor to another path of the same."""
    async with answering(None) as other, reaching() as servers:
        location = f"http://127.0.0.1:{other.port}/mcp" if elsewhere else "/other"
        answer = f"HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        async with answering(answer.encode()) as first:
            assert await tools(servers, server(f"http://127.0.0.1:{first.port}/mcp")) == {}
            assert (first.paths, other.connections) == ({"/mcp"}, 0)


async def test_two_accounts_never_share_a_session(remote: Remote) -> None:
    """Not with the same name and address, and not with the other's headers."""
    async with reaching() as servers:
        mine = await tools(servers, server(remote.url, sealed="one:a"))
        yours = await tools(servers, server(remote.url, sealed="two:b"), account="two")
        assert await call(mine, "heard", header="x-key") == "one:a"
        assert await call(yours, "heard", header="x-key") == "two:b"
        bare = [server(remote.url)]
        await asyncio.gather(*(tools(servers, *bare, account=name) for name in ("one", "two")))
        assert len(servers._open) == 4
        assert await tools(servers, server(remote.url, sealed="one:a"), account="two") == {}


async def test_a_session_that_nobody_uses_is_closed_and_opened_again(remote: Remote) -> None:
    """Also for a call of tools that were listed before."""
    async with reaching(idle_s=0.05) as servers:
        found = await tools(servers, server(remote.url))
        async with asyncio.timeout(10):
            while servers._open or servers._closing:
                await asyncio.sleep(0.01)
        assert await call(found, "look", what="later") == "saw later"


async def test_what_one_account_opens_is_bounded(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was used least lately makes room; one in a call does not."""
    monkeypatch.setattr(own, "MAX_OF_ACCOUNT", 1)
    async with reaching() as servers:
        first = await tools(servers, server(remote.url))
        second = server(remote.url, name="u")
        assert "mcp__u__look" in await tools(servers, second)
        assert len(servers._open) == 1
        stuck = asyncio.create_task(call(first, "stuck", what="x"))
        async with asyncio.timeout(10):
            while not any(each.busy for each in servers._open.values()):
                await asyncio.sleep(0.01)
        assert await tools(servers, second) == {}
        assert "mcp__u__look" in await tools(servers, second, account="two")
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)


async def test_a_server_that_hangs_holds_only_its_own_run_up_and_briefly(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are listed beside it."""
    monkeypatch.setattr(connection, "PATIENCE_S", 0.5)
    async with answering(None) as hung, reaching() as servers:
        slow = asyncio.create_task(
            tools(servers, server(f"http://127.0.0.1:{hung.port}/mcp"), account="two")
        )
        await asyncio.sleep(0)
        assert "mcp__t__look" in await tools(servers, server(remote.url))
        async with asyncio.timeout(5):
            assert await slow == {}


async def test_a_name_that_the_operator_took_since_is_left_out(remote: Remote) -> None:
    """Its tools would be mistaken for the operator's."""
    async with reaching() as servers:
        assert await tools(servers, server(remote.url, name="ours")) == {}
        assert servers._open == {}


async def test_an_answer_that_would_have_to_be_unpacked_is_none(remote: Remote) -> None:
    """What is small on its way and large in memory has no bound."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n"
    async with answering(answer + b"content-length: 1\r\n\r\nx") as packed, reaching() as servers:
        assert await tools(servers, server(f"http://127.0.0.1:{packed.port}/mcp")) == {}
        assert packed.connections > 0


@pytest.mark.parametrize("certified", [NAME, "other.example.com"])
async def test_the_certificate_is_checked_for_the_name(tmp_path: Path, certified: str) -> None:
    """Though an address was dialled; one for another name gets no request."""
    files = certificate(tmp_path, certified)
    seen: list[str | None] = []
    context = served(files)
    context.sni_callback = lambda _, name, __: seen.append(name)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        guarded = Guarded(
            check_url(f"https://{NAME}:{port}/mcp", LOOPBACK),
            policy=LOOPBACK,
            lookup=Names("127.0.0.1"),
            trust=ssl.create_default_context(cafile=str(files[0])),
        )
        async with httpx2.AsyncClient(transport=guarded) as client:
            if certified == NAME:
                assert (await client.get(f"https://{NAME}:{port}/mcp")).text == "ok"
                assert f"host: {NAME}:{port}".encode() in heads[0].lower()
            else:
                with pytest.raises(httpx2.ConnectError):
                    await client.get(f"https://{NAME}:{port}/mcp")
                assert heads == []
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"https://{NAME}:{port + 1}/mcp")
    assert set(seen) == {NAME}
