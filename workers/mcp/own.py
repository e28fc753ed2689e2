"""The MCP servers that accounts bring: reached through the guard, shared with nobody, let go."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from signoff.domain.error import SignoffError
from signoff.domain.jsontext import sorted_compact
from signoff.mcpserver import McpServer, server_of
from signoff.tooldef import Tool, ToolFailedError
from webhooks.guard import Policy, check_url
from webhooks.lookup import SystemLookup
from webhooks.resolve import Lookup
from webhooks.trust import system_trust
from workers.mcp.connection import Connection
from workers.mcp.guarded import Guarded
from workers.mcp.offer import Offer

logger = logging.getLogger(__name__)
#: A session that nobody used for so long is closed; the next use opens another.
IDLE_S = 300.0
#: What is open at once, of one account and in the process.
MAX_OF_ACCOUNT = 16
MAX_OPEN = 128

#: The headers of a stored server, or SignoffError when they cannot be opened.
OpenHeaders = Callable[[str, Mapping[str, Any]], dict[str, str]]
#: The account and what it has stored, secrets included: nothing else is the same server.
_Key = tuple[str, str]


class OwnServers:
    """The sessions with servers of accounts in one process; each is of one account alone."""

    def __init__(
        self,
        *,
        policy: Policy,
        open_headers: OpenHeaders,
        taken: Collection[str],
        lookup: Lookup | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self._policy = policy
        self._open_headers = open_headers
        #: Names of the operator's: a server that was named before the operator's was is left out.
        self._taken = taken
        self._lookup = lookup or SystemLookup()
        self._idle_s = idle_s
        self._trust = system_trust()
        self._open: dict[_Key, Connection] = {}
        self._used: dict[_Key, float] = {}
        self._offers: dict[_Key, Offer] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def tools(
        self, *, account: str, given: Sequence[Mapping[str, Any]], names: Collection[str] | None
    ) -> dict[str, Tool]:
        """The tools of the servers ``given`` that are among ``names``; None is all of them.

        A server that does not answer is not waited for long; one that may not be called, or for
        which there is no room, has none.
        """
        wanted = None if names is None else {server_of(name) for name in names}
        asked = [
            stored
            for stored in given
            if (wanted is None or stored["name"] in wanted) and self._is_free(account, stored)
        ]
        each = await asyncio.gather(*(self._of(account, stored) for stored in asked))
        found = {name: tool for tools in each for name, tool in tools.items()}
        if names is None:
            return found
        return {name: found[name] for name in names if name in found}

    async def close(self) -> None:
        """Ends all sessions."""
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._open):
            self._let_go(key)
        await asyncio.gather(*self._closing)

    def _is_free(self, account: str, stored: Mapping[str, Any]) -> bool:
        if stored["name"] not in self._taken:
            return True
        logger.warning("mcp_name_taken account=%s server=%s", account, stored["name"])
        return False

    async def _of(self, account: str, stored: Mapping[str, Any]) -> dict[str, Tool]:
        try:
            connection = self._at(account, stored)
        except SignoffError as error:
            logger.warning(
                "mcp_server_refused account=%s server=%s cause=%s",
                account,
                stored["name"],
                error.code,
            )
            return {}
        await connection.listing()
        key = _key(account, stored)
        self._touch(key)
        offer = self._offers.get(key)
        if offer is None:
            # Calls find the session anew: it may have been let go while the model was asked.
            offer = Offer(connection.server, partial(self._call, account, stored))
            if key in self._open:
                self._offers[key] = offer
        return offer.tools(connection.listed, connection.version)

    async def _call(
        self, account: str, stored: Mapping[str, Any], name: str, arguments: dict[str, Any]
    ) -> str:
        try:
            connection = self._at(account, stored)
        except SignoffError as error:
            msg = f"the MCP server {stored['name']} may not be called; the call was not made"
            raise ToolFailedError(msg) from error
        try:
            return await connection.call(name, arguments)
        finally:
            self._touch(_key(account, stored))

    def _at(self, account: str, stored: Mapping[str, Any]) -> Connection:
        """The session with a server; raises SignoffError for one that may not be had."""
        key = _key(account, stored)
        if key not in self._open:
            target = check_url(stored["url"], self._policy)
            server = McpServer(
                name=stored["name"], url=target.url, headers=self._open_headers(account, stored)
            )
            self._make_room(account)
            dial = partial(
                Guarded, target, policy=self._policy, lookup=self._lookup, trust=self._trust
            )
            label = f"{account}/{server.name}"
            self._open[key] = Connection(server, dial=dial, label=label)
        self._touch(key)
        return self._open[key]

    def _make_room(self, account: str) -> None:
        own = [key for key in self._open if key[0] == account]
        if len(own) >= MAX_OF_ACCOUNT:
            self._evict(own)
        elif len(self._open) >= MAX_OPEN:
            self._evict(list(self._open))

    def _evict(self, keys: Sequence[_Key]) -> None:
        idle = [key for key in keys if not self._open[key].busy]
        if not idle:
            raise SignoffError("too many servers are in use", code="too_many_servers")
        self._let_go(min(idle, key=lambda key: self._used[key]))

    def _touch(self, key: _Key) -> None:
        loop = asyncio.get_running_loop()
        if key in self._open:
            self._used[key] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time() - self._idle_s
        for key, connection in list(self._open.items()):
            if self._used[key] <= since and not connection.busy:
                self._let_go(key)
        again = bool(self._open)
        self._timer = loop.call_later(self._idle_s / 2, self._sweep) if again else None

    def _let_go(self, key: _Key) -> None:
        self._offers.pop(key, None)
        self._used.pop(key, None)
        task = asyncio.get_running_loop().create_task(self._open.pop(key).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _key(account: str, stored: Mapping[str, Any]) -> _Key:
    return account, hashlib.sha256(sorted_compact(stored).encode()).hexdigest()
