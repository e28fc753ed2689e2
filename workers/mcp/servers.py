"""All MCP servers of the operator, and the tools that their listings come to."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from signoff.mcpserver import McpServer, server_of
from signoff.tooldef import Tool
from workers.mcp.connection import Connection
from workers.mcp.offer import Offer


class Servers:
    """The configured servers of one process; each is reached when a run first needs it."""

    def __init__(self, configured: Mapping[str, McpServer]) -> None:
        self._connections = {name: Connection(server) for name, server in configured.items()}
        self._offers = {
            name: Offer(each.server, each.call) for name, each in self._connections.items()
        }

    async def tools(
        self, *, names: Collection[str] | None, servers: Collection[str] | None
    ) -> dict[str, Tool]:
        """The tools of ``servers`` that are among ``names``; None is all of either.

        Servers are asked side by side, and one that does not answer is not waited for: its tools
        are those of its last listing, or none.
        """
        wanted = self._connections.keys() if servers is None else set(servers)
        if names is not None:
            wanted = wanted & {server_of(name) for name in names}
        asked = {name: each for name, each in self._connections.items() if name in wanted}
        await asyncio.gather(*(each.listing() for each in asked.values()))
        found = {
            tool.name: tool
            for name, each in asked.items()
            for tool in self._offers[name].tools(each.listed, each.version).values()
        }
        if names is None:
            return found
        return {name: found[name] for name in names if name in found}

    async def close(self) -> None:
        """Ends all sessions and the processes behind them."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))
