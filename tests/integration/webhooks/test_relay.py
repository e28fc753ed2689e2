"""The relay in process: giving an endpoint up, and coming back after the store was away."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from signoff.domain import event as events
from signoff.store.endpoints import Endpoint, EndpointChange
from signoff.store.facade import Store
from webhooks.guard import Policy
from webhooks.publish import Publisher
from webhooks.relay import Relay, Terms
from webhooks.sender import Sender

pytestmark = pytest.mark.anyio
SECRET = "whsec_" + "A" * 43 + "="
NOW_MS = 1_700_000_000_000


class Receiver:
    """Answers each request with the status that ``answer`` gives for its number."""

    def __init__(self, answer: Callable[[int], int]) -> None:
        self.count = 0
        self.url = ""
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                await reader.readexactly(length)
                self.count += 1
                status = self._answer(self.count)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status)
        writer.close()


@asynccontextmanager
async def receiving(answer: Callable[[int], int]) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        server.close()


def publisher_of(store: Store) -> Publisher:
    ids = itertools.count(1)
    return Publisher(store.catalog, now_ms=lambda: NOW_MS, token=lambda: f"e{next(ids)}")


@asynccontextmanager
async def relaying(store: Store, terms: Terms, *, token: str = "t1") -> AsyncIterator[Relay]:
    async with Sender(Policy.load("127.0.0.0/8"), clock=lambda: NOW_MS / 1000) as sender:
        relay = Relay(
            0,
            store=store,
            sender=sender,
            publisher=publisher_of(store),
            terms=terms,
            now_ms=lambda: NOW_MS,
            token=token,
        )
        task = asyncio.create_task(relay.run())
        try:
            yield relay
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def subscribe(store: Store, url: str, *kinds: str) -> Endpoint:
    return await store.endpoints.create(
        account="1",
        user_id=None,
        url=url,
        events=kinds,
        signature="standard",
        secret=SECRET,
        now_ms=NOW_MS,
    )


async def emit(store: Store, event_id: str) -> None:
    found = await store.catalog.subscriptions("1", 1)
    event = publisher_of(store).event(events.WEBHOOK_TEST, {})
    event = type(event)(id=event_id, type=event.type, body=event.body)
    await store.outbox.emit(0, "1", event, found.fanout(events.WEBHOOK_TEST, None))


async def until(probe: Callable[[], Any]) -> Any:
    async with asyncio.timeout(10):
        while not (found := await probe()):
            await asyncio.sleep(0.01)
    return found


async def test_nothing_but_failures_for_long_enough_disables(store: Store) -> None:
    """The streak counts from its first failure; the endpoint ends inactive with the reason."""
    async with receiving(lambda _: 500) as receiver:
        endpoint = await subscribe(store, receiver.url, events.WEBHOOK_TEST)
        terms = Terms(schedule=(0, 0.02, 0.02, 0.02), jitter=lambda: 0.0, disable_after_s=0.03)
        async with relaying(store, terms):
            await emit(store, "evt_1")
            found = await until(lambda: disabled(store, endpoint.id))
    assert found.disabled_reason == "only_failures"


async def disabled(store: Store, endpoint_id: int) -> Endpoint | None:
    found = await store.endpoints.get("1", endpoint_id)
    return None if found.active else found


async def test_a_success_ends_the_streak(store: Store) -> None:
    """A failure after a success starts counting anew, so the endpoint stays active."""
    async with receiving(lambda n: 200 if n == 2 else 500) as receiver:
        endpoint = await subscribe(store, receiver.url, events.WEBHOOK_TEST)
        terms = Terms(schedule=(0, 0.4), jitter=lambda: 0.0, disable_after_s=0.3)
        async with relaying(store, terms) as relay:
            await emit(store, "evt_1")
            relay.wake()
            await until(lambda: states(store, endpoint.id, "success"))
            # The second one is settled after all that follows from the first one's failure.
            for event_id in ("evt_2", "evt_3"):
                await emit(store, event_id)
                relay.wake()
                await until(partial(logged, store, endpoint.id, event_id))
            assert (await store.endpoints.get("1", endpoint.id)).active


async def states(store: Store, endpoint_id: int, state: str) -> bool:
    rows, _ = await store.outbox.page(endpoint_id, limit=10, before=None)
    return any(row.state == state for row in rows)


async def logged(store: Store, endpoint_id: int, event_id: str) -> bool:
    rows, _ = await store.outbox.page(endpoint_id, limit=10, before=None)
    return any(row.event_id == event_id and row.log for row in rows)


async def test_a_disabled_endpoint_gets_nothing_and_its_deliveries_end(store: Store) -> None:
    """What was due when it was switched off ends as cancelled, unsent."""
    async with receiving(lambda _: 200) as receiver:
        endpoint = await subscribe(store, receiver.url, events.WEBHOOK_TEST)
        await emit(store, "evt_1")
        await store.connection.call("HSET", f"sg:{{g}}:ep:{endpoint.id}", "active", "0")
        terms = Terms(schedule=(0,), jitter=lambda: 0.0)
        async with relaying(store, terms):
            await until(lambda: states(store, endpoint.id, "cancelled"))
        assert receiver.count == 0


async def test_a_secret_that_does_not_open_holds_nobody_else_up(store: Store) -> None:
    """Its own deliveries wait, unsent and unsigned; the relay goes on with the others."""
    async with receiving(lambda _: 200) as receiver:
        sealed = await subscribe(store, receiver.url, events.WEBHOOK_TEST)
        whole = await subscribe(store, receiver.url, events.WEBHOOK_TEST)
        await store.connection.call("HSET", f"sg:{{g}}:ep:{sealed.id}", "secret", "damaged")
        terms = Terms(schedule=(0, 3600), jitter=lambda: 0.0)
        async with relaying(store, terms):
            await emit(store, "evt_1")
            await until(lambda: states(store, whole.id, "success"))
            await until(lambda: tried(store, sealed.id))
        assert receiver.count == 1


async def tried(store: Store, endpoint_id: int) -> bool:
    rows, _ = await store.outbox.page(endpoint_id, limit=1, before=None)
    return bool(rows) and (rows[0].state, rows[0].error) == ("pending", "signing")


async def test_a_retry_goes_to_the_address_of_now(store: Store) -> None:
    """An endpoint that moved between two attempts is retried where it is, with the same event."""
    async with receiving(lambda _: 500) as old, receiving(lambda _: 200) as new:
        endpoint = await subscribe(store, old.url, events.WEBHOOK_TEST)
        terms = Terms(schedule=(0, 0.5), jitter=lambda: 0.0)
        async with relaying(store, terms) as relay:
            await emit(store, "evt_1")
            relay.wake()
            await until(partial(logged, store, endpoint.id, "evt_1"))
            await store.endpoints.change(endpoint, EndpointChange(url=new.url), now_ms=NOW_MS)
            await until(lambda: states(store, endpoint.id, "success"))
        assert (old.count, new.count) == (1, 1)
        (row,), _ = await store.outbox.page(endpoint.id, limit=10, before=None)
        assert (row.event_id, row.attempts) == ("evt_1", 2)


async def test_three_relays_send_each_delivery_once(store: Store) -> None:
    """Relays side by side claim, and never make the same attempt twice."""
    async with receiving(lambda _: 200) as receiver, AsyncExitStack() as relays:
        endpoint = await subscribe(store, receiver.url, events.WEBHOOK_TEST)
        terms = Terms(schedule=(0,), jitter=lambda: 0.0)
        for token in ("t1", "t2", "t3"):
            await relays.enter_async_context(relaying(store, terms, token=token))
        for n in range(60):
            await emit(store, f"evt_{n}")
        await until(partial(all_sent, store, endpoint.id, 60))
        assert receiver.count == 60


async def all_sent(store: Store, endpoint_id: int, count: int) -> bool:
    rows, _ = await store.outbox.page(endpoint_id, limit=100, before=None)
    return [row.state for row in rows] == ["success"] * count
