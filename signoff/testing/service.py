"""A fake service in memory, to test against without processes: the same calls, the same codes."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import httpx

from signoff.client.async_client import AsyncClient
from signoff.client.client import Client
from signoff.domain.error import SignoffError
from signoff.testing.backend import Backend
from signoff.testing.shown import problem, status_of
from signoff.testing.webhook import SignedWebhook

KEY = "fake-api-key"
URL = "http://signoff.test"
_LOOK_S = 0.01


class FakeService:
    """A service in memory; give its clients to the code under test.

    ``tools`` are run when they are allowed (any other tool answers "ok"), ``read_only`` ones are
    never asked about, and calls of ``external`` ones wait for a result. Runs play
    ``metadata.script`` as the scripted model does, each until its next gate, within the call that
    lets it go on. ``sent`` is what webhook endpoints would have got.

    Not here: agents and users as objects, event streams, deliveries, caps, approvers (those of
    ask rules are shown and not enforced), checks of tool inputs, share links, settings, the event
    log and the audit trail.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
        read_only: Collection[str] = (),
        external: Collection[str] = (),
        api_key: str = KEY,
        now: Callable[[], float] = time.time,  # noqa: TID251 - tests have no composition root
    ) -> None:
        self.api_key = api_key
        self._backend = Backend(
            tools=tools or {},
            read_only=frozenset(read_only),
            external=frozenset(external),
            api_key=api_key,
            now=now,
        )
        self._changed = threading.Condition(threading.RLock())

    @property
    def sent(self) -> Sequence[SignedWebhook]:
        """Every delivery so far, in order; post them to your receiver."""
        return tuple(self._backend.endpoints.sent)

    @property
    def transport(self) -> FakeTransport:
        """What an HTTP client of either kind talks to this service with."""
        return FakeTransport(self)

    def client(self) -> Client:
        """A client of this service."""
        return Client(base_url=URL, api_key=self.api_key, transport=self.transport)

    def async_client(self) -> AsyncClient:
        """An async client of this service."""
        return AsyncClient(base_url=URL, api_key=self.api_key, transport=self.transport)

    def handle(self, request: httpx.Request) -> tuple[int, Any]:
        """The status and body of one request; a long poll is answered at once."""
        with self._changed:
            try:
                status, body = self._backend.dispatch(request)
            except SignoffError as error:
                return status_of(error), problem(error)
            finally:
                self._changed.notify_all()
            return status, body

    def advance(self, seconds: float) -> None:
        """Lets time pass at once: gates with ``remind_after`` and ``expires_in`` get due."""
        with self._changed:
            self._backend.advance(seconds)
            self._changed.notify_all()

    def changed(self, request: httpx.Request) -> bool:
        """False while a long poll has nothing new to tell."""
        found = re.fullmatch(r"/v1/runs/([1-9][0-9]{0,14})", request.url.path)
        known = request.url.params.get("known")
        if request.method != "GET" or found is None or known is None:
            return True
        run = self._backend.runs.get(int(found[1]))
        return run is None or known not in (run.version, run.status.value)

    def wait(self, request: httpx.Request, seconds: float) -> None:
        """Blocks until ``changed``, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self.changed(request), seconds)


class FakeTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """The seam between an HTTP client and the fake."""

    def __init__(self, service: FakeService) -> None:
        self._service = service

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers one request."""
        request.read()
        if not self._service.changed(request):
            self._service.wait(request, _wait_s(request))
        return self._answer(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answers one request without blocking the event loop."""
        await request.aread()
        loop = asyncio.get_running_loop()
        until = loop.time() + _wait_s(request)
        while not self._service.changed(request) and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)  # what changes it may be in another thread
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        status, body = self._service.handle(request)
        content = b"" if body is None else json.dumps(body).encode()
        return httpx.Response(status, content=content, headers={"content-type": "application/json"})


def _wait_s(request: httpx.Request) -> float:
    text = request.url.params.get("wait_s", "")
    return float(text) if text.isdigit() else 0.0
