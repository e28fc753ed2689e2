"""The async client: the same calls by the same names, on an event loop of asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from signoff.client.bind import AsyncResource
from signoff.client.connection import (
    RETRIES,
    TIMEOUT_S,
    Options,
    answer_of,
    failure,
    read_options,
    request_args,
)
from signoff.client.effects import (
    FIRST_PAUSE_S,
    Answer,
    Consult,
    Effect,
    Now,
    Perform,
    Send,
    Sleep,
    Steps,
    exchange,
    read,
)
from signoff.client.op import Op, at, nothing
from signoff.client.resources import (
    AsyncAgents,
    AsyncAudit,
    AsyncEvents,
    AsyncPermissions,
    AsyncRequests,
    AsyncSettings,
    AsyncUsage,
    AsyncUsers,
    AsyncWebhooks,
    RunCalls,
)
from signoff.client.sse import EventReading, Frame, Reading

T = TypeVar("T")


class _Driver:
    """Carries effects out one after the other, without blocking the loop."""

    def __init__(self, options: Options, transport: httpx.AsyncBaseTransport | None) -> None:
        self.options = options
        self._policy = options.policy()
        self.http = httpx.AsyncClient(transport=transport, **options.http())

    async def run(self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = await self._carry_out(effect)
                except Exception as error:  # noqa: BLE001 - the steps decide what it means
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    async def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Perform(op):
                return await self.run(exchange(op, self._policy))
            case Send():
                return await self._send(effect)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Now():
                return asyncio.get_running_loop().time()
            case Consult(callback, request):
                said = callback(request)
                return await said if inspect.isawaitable(said) else said
        return None

    async def _send(self, send: Send) -> Answer:
        try:
            return answer_of(await self.http.request(**request_args(send, self.options)))
        except httpx.HTTPError as error:
            raise failure(error, self.options) from error


class AsyncRuns(RunCalls, AsyncResource):
    """Runs, their gates, and waiting for them."""

    driver: _Driver

    def stream(self, run_id: int, *, last_event_id: str | None = None) -> AsyncIterator[Frame]:
        """The events of a run under way, from its start, until its turn is over or parked.

        A connection that breaks is taken up where it broke. Raises StreamInterruptedError when
        that does not help, RunNotActiveError when the run is not under way.
        """
        return self._read(run_id, Reading(last_event_id))

    async def agentscope_events(
        self, run_id: int, *, last_event_id: str | None = None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The same as AgentScope's events, for what renders those; answer by ``send_event``."""
        async with aclosing(self._read(run_id, EventReading(last_event_id))) as frames:
            async for frame in frames:
                yield frame.fields

    async def _read(self, run_id: int, reading: Reading) -> AsyncGenerator[Frame, None]:
        driver = self.driver
        op = Op(method="GET", path=at("runs", run_id, "stream"), read=nothing)
        left = driver.options.retries
        while True:
            try:
                async with driver.http.stream(
                    "GET", op.path, params=reading.query, headers=reading.headers()
                ) as response:
                    if response.is_error or response.is_redirect:
                        await response.aread()
                        read(op, answer_of(response))
                    async for chunk in response.aiter_bytes():
                        for frame in reading.feed(chunk):
                            yield frame
            except httpx.HTTPError as error:
                broke: httpx.HTTPError | None = error
            else:
                broke = None
            if reading.whole:
                return
            # Without an id the next connection would begin anew and show everything twice.
            if left == 0 or reading.last_event_id is None:
                raise reading.interrupted() from broke
            left -= 1
            await asyncio.sleep(FIRST_PAUSE_S)


class AsyncClient:
    """The API of one service, for one API key, on one event loop.

    ``retries`` is how often a request that may be repeated is, besides the first try.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeout: float = TIMEOUT_S,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        options = read_options(base_url=base_url, api_key=api_key, timeout=timeout, retries=retries)
        self._driver = _Driver(options, transport)
        self.runs = AsyncRuns(self._driver)
        self.permissions = AsyncPermissions(self._driver)
        self.requests = AsyncRequests(self._driver)
        self.webhooks = AsyncWebhooks(self._driver)
        self.agents = AsyncAgents(self._driver)
        self.users = AsyncUsers(self._driver)
        self.settings = AsyncSettings(self._driver)
        self.usage = AsyncUsage(self._driver)
        self.events = AsyncEvents(self._driver)
        self.audit = AsyncAudit(self._driver)

    def __repr__(self) -> str:
        return f"AsyncClient(base_url={self._driver.options.base_url!r})"

    async def close(self) -> None:
        """Ends the connections."""
        await self._driver.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
