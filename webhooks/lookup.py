"""Name lookups through the system's resolver that cannot hold anything else up.

``getaddrinfo`` blocks for as long as the C library likes, and no deadline of ours can stop it. So
each runs on a daemon thread, which does not delay the end of the process, and lookups of one name
share one thread, so that endpoints with a dead name server cost one thread a name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread
from typing import Any, TypeAlias

from webhooks.address import Address

Query: TypeAlias = Callable[[str], Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]]]

# A waiting thread costs some tens of kilobytes; beyond this the resolver is what is down.
_MAX_PENDING = 256


def _system_query(name: str) -> Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]]:
    return socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)


class SystemLookup:
    """Returns all addresses of a name, or raises ``OSError``; safe to abandon at any time."""

    def __init__(self, query: Query = _system_query, *, max_pending: int = _MAX_PENDING) -> None:
        self._query = query
        self._max_pending = max_pending
        self._pending: dict[str, asyncio.Future[list[Address] | OSError]] = {}

    async def __call__(self, name: str) -> list[Address]:
        """Return the addresses in the order of the answers."""
        future = self._pending.get(name) or self._start(name)
        # Shielded: one caller's deadline must not cancel what other callers wait for.
        outcome = await asyncio.shield(future)
        if isinstance(outcome, OSError):
            raise OSError(str(outcome)) from outcome
        return outcome

    def _start(self, name: str) -> asyncio.Future[list[Address] | OSError]:
        if len(self._pending) >= self._max_pending:
            raise OSError("too many name lookups are pending")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Address] | OSError] = loop.create_future()
        thread = Thread(target=self._run, args=(loop, name), name="lookup", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError("no thread for a name lookup") from error
        self._pending[name] = future
        return future

    def _run(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        outcome: list[Address] | OSError
        try:
            outcome = [ip_address(str(answer[4][0])) for answer in self._query(name)]
        except OSError as error:
            outcome = error
        except ValueError as error:  # UnicodeError for labels that the C library's codec refuses
            outcome = OSError(str(error))
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._settle, name, outcome)

    def _settle(self, name: str, outcome: list[Address] | OSError) -> None:
        self._pending.pop(name).set_result(outcome)
