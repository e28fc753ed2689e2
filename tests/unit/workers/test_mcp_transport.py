"""Requests to MCP servers over HTTP: what fails ends its own call, and no answer is too long."""

import json

import httpx2
import pytest

from workers.mcp import transport
from workers.mcp.transport import NOT_MADE, _Contained

pytestmark = pytest.mark.anyio

CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}}
LIST = {"jsonrpc": "2.0", "id": 8, "method": "tools/list"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def send(handler, body, on_end=lambda: None, **headers):
    contained = _Contained(httpx2.MockTransport(handler), on_end)
    async with httpx2.AsyncClient(transport=contained) as client:
        return await client.post("http://mcp.test/", json=body, headers=headers)


def raising(error):
    def handler(request):
        raise error("gone", request=request)

    return handler


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx2.ConnectError, NOT_MADE),
        (httpx2.ConnectTimeout, NOT_MADE),
        (httpx2.ReadError, -32000),
        (httpx2.RemoteProtocolError, -32000),
        (httpx2.WriteError, -32000),
    ],
)
async def test_a_failed_call_is_answered_in_place_of_the_server(error, code):
    """By whether it can have been made; any other request fails as it does."""
    answer = await send(raising(error), CALL)
    body = answer.json()
    assert (answer.status_code, body["id"], body["error"]["code"]) == (503, 7, code)
    with pytest.raises(error):
        await send(raising(error), LIST)


async def test_a_forgotten_session_ends_and_its_call_was_not_made():
    """As after a restart of the server; a 404 without a session means something else."""
    ended: list[int] = []
    session = {"mcp-session-id": "s"}
    answer = await send(lambda _: httpx2.Response(404), CALL, lambda: ended.append(1), **session)
    assert (answer.json()["error"]["code"], ended) == (NOT_MADE, [1])
    assert (await send(lambda _: httpx2.Response(404), CALL)).status_code == 404


async def test_an_answer_is_bounded(monkeypatch):
    """What is longer ends in an error of the connection; what is not comes as it is."""
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 1000)

    def handler(request):
        size = json.loads(request.content)["size"]

        async def body():
            for _ in range(size):
                yield b"x" * 100

        return httpx2.Response(200, content=body())

    assert len((await send(handler, {"size": 10})).content) == 1000
    with pytest.raises(httpx2.ReadError):
        await send(handler, {"size": 11})
