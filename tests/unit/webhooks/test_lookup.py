"""Lookups that hang, fail or pile up hold nothing else up."""

import asyncio
import socket
from ipaddress import ip_address
from threading import Event

import pytest

from webhooks.lookup import SystemLookup

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def answers(*texts):
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 0)) for text in texts]


async def test_the_system_knows_localhost():
    """The real resolver is behind it."""
    assert ip_address("127.0.0.1") in await SystemLookup()("localhost")


async def test_lookups_of_one_name_share_a_thread():
    """Any number of deliveries to a dead name server wait on one thread."""
    asked, go = [], Event()

    def query(name):
        asked.append(name)
        go.wait()
        return answers("192.0.2.1")

    look_up = SystemLookup(query)
    waiting = [asyncio.ensure_future(look_up("a.example")) for _ in range(20)]
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*waiting) == [[ip_address("192.0.2.1")]] * 20
    assert asked == ["a.example"]
    await look_up("a.example")
    assert asked == ["a.example"] * 2


async def test_an_abandoned_lookup_serves_who_still_waits():
    """A deadline cancels the wait of one, not the question of all."""
    go = Event()

    def query(name):
        go.wait()
        return answers("192.0.2.1")

    look_up = SystemLookup(query)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(look_up("a.example"), 0.01)
    second = asyncio.ensure_future(look_up("a.example"))
    await asyncio.sleep(0)
    go.set()
    assert await second == [ip_address("192.0.2.1")]


async def test_pending_lookups_are_bounded():
    """Beyond the bound a lookup fails at once instead of taking another thread."""
    go = Event()

    def query(name):
        go.wait()
        return answers("192.0.2.1")

    look_up = SystemLookup(query, max_pending=1)
    first = asyncio.ensure_future(look_up("a.example"))
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="pending"):
        await look_up("b.example")
    go.set()
    await first


async def test_a_lookup_without_a_thread_fails_and_leaves_nothing(monkeypatch):
    """The next one starts afresh."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    look_up = SystemLookup(lambda _: answers("192.0.2.1"))
    with monkeypatch.context() as patch:
        patch.setattr("webhooks.lookup.Thread.start", refuse)
        with pytest.raises(OSError, match="no thread"):
            await look_up("a.example")
    assert await look_up("a.example") == [ip_address("192.0.2.1")]


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "unknown"), UnicodeError("label")])
async def test_every_failure_is_an_os_error(failure):
    """The names of C and of codecs do not leak."""

    def query(name):
        raise failure

    with pytest.raises(OSError, match=r"unknown|label"):
        await SystemLookup(query)("a.example")
