"""The sync client: carries effects out while its caller waits."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from signoff.client.bind import Resource
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
from signoff.client.errors import CallbackResultError
from signoff.client.op import Op, at, nothing
from signoff.client.resources import (
    Agents,
    Audit,
    Events,
    Permissions,
    Requests,
    RunCalls,
    Settings,
    Usage,
    Users,
    Webhooks,
)
from signoff.client.sse import EventReading, Frame, Reading

T = TypeVar("T")


class _Driver:
    """Carries effects out one after the other."""

    def __init__(self, options: Options, transport: httpx.BaseTransport | None) -> None:
        self.options = options
        self._policy = options.policy()
        self.http = httpx.Client(transport=transport, **options.http())

    def run(self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = self._carry_out(effect)
                except Exception as error:  # noqa: BLE001 - the steps decide what it means
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            steps.close()

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Perform(op):
                return self.run(exchange(op, self._policy))
            case Send():
                return self._send(effect)
            case Sleep(seconds):
                time.sleep(seconds)
            case Now():
                return time.monotonic()
            case Consult(callback, request):
                said = callback(request)
                if inspect.isawaitable(said):
                    if inspect.iscoroutine(said):
                        said.close()
                    raise CallbackResultError("a Client takes plain callbacks; see AsyncClient")
                return said
        return None

    def _send(self, send: Send) -> Answer:
        try:
            return answer_of(self.http.request(**request_args(send, self.options)))
        except httpx.HTTPError as error:
            raise failure(error, self.options) from error


class Runs(RunCalls, Resource):
    """Runs, their gates, and waiting for them."""

    driver: _Driver

    def stream(self, run_id: int, *, last_event_id: str | None = None) -> Iterator[Frame]:
        """The events of a run under way, from its start, until its turn is over or parked.

        A connection that breaks is taken up where it broke. Raises StreamInterruptedError when
        that does not help, RunNotActiveError when the run is not under way.
        """
        yield from self._read(run_id, Reading(last_event_id))

    def agentscope_events(
        self, run_id: int, *, last_event_id: str | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """The same as AgentScope's events, for what renders those; answer by ``send_event``."""
        for frame in self._read(run_id, EventReading(last_event_id)):
            yield frame.fields

    def _read(self, run_id: int, reading: Reading) -> Iterator[Frame]:
        driver = self.driver
        op = Op(method="GET", path=at("runs", run_id, "stream"), read=nothing)
        left = driver.options.retries
        while True:
            try:
                with driver.http.stream(
                    "GET", op.path, params=reading.query, headers=reading.headers()
                ) as response:
                    if response.is_error or response.is_redirect:
                        response.read()
                        read(op, answer_of(response))
                    for chunk in response.iter_bytes():
                        yield from reading.feed(chunk)
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
            time.sleep(FIRST_PAUSE_S)


class Client:
    """The API of one service, for one API key; safe to share between threads.

    ``retries`` is how often a request that may be repeated is, besides the first try.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeout: float = TIMEOUT_S,
        retries: int = RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        options = read_options(base_url=base_url, api_key=api_key, timeout=timeout, retries=retries)
        self._driver = _Driver(options, transport)
        self.runs = Runs(self._driver)
        self.permissions = Permissions(self._driver)
        self.requests = Requests(self._driver)
        self.webhooks = Webhooks(self._driver)
        self.agents = Agents(self._driver)
        self.users = Users(self._driver)
        self.settings = Settings(self._driver)
        self.usage = Usage(self._driver)
        self.events = Events(self._driver)
        self.audit = Audit(self._driver)

    def __repr__(self) -> str:
        return f"Client(base_url={self._driver.options.base_url!r})"

    def close(self) -> None:
        """Ends the connections."""
        self._driver.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
