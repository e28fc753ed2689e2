"""All MCP servers of a worker, and the tools that their listings come to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

from mcp_types import Tool as Listed

from signoff.declared import SchemaInputs
from signoff.domain.error import InvalidFieldError
from signoff.mcpserver import McpServer, full_name, server_of
from signoff.shape import shape_of
from signoff.strictjson import well_formed
from signoff.tooldef import Tool
from workers.mcp.connection import Connection

logger = logging.getLogger(__name__)
#: What a tool's own limit has on top, so that the server's comes first and names the server.
SLACK_S = 5.0
MAX_DESCRIPTION = 10_000


class Servers:
    """The configured servers of one process; each is reached when a run first needs it."""

    def __init__(self, configured: Mapping[str, McpServer]) -> None:
        self._connections = {name: Connection(server) for name, server in configured.items()}
        self._made: dict[str, tuple[int, dict[str, Tool]]] = {}
        self._told: set[str] = set()

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
        asked = [connection for name, connection in self._connections.items() if name in wanted]
        await asyncio.gather(*(connection.listing() for connection in asked))
        found = {name: tool for each in asked for name, tool in self._tools(each).items()}
        if names is None:
            return found
        return {name: found[name] for name in names if name in found}

    async def close(self) -> None:
        """Ends all sessions and the processes behind them."""
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    def _tools(self, connection: Connection) -> dict[str, Tool]:
        name, version = connection.server.name, connection.version
        if name not in self._made or self._made[name][0] != version:
            made = [self._tool(connection, item) for item in connection.listed or ()]
            self._made[name] = version, {tool.name: tool for tool in made if tool is not None}
        return self._made[name][1]

    def _tool(self, connection: Connection, listed: Listed) -> Tool | None:
        """The tool as runs have it; None for one that is not to be offered, or cannot be."""
        server = connection.server
        if server.tools is not None and listed.name not in server.tools:
            return None
        name = full_name(server.name, listed.name)
        if name is None:
            # Under another name it could be mistaken for another tool.
            self._tell(server.name, listed.name, "name")
            return None
        try:
            shape_of(listed.input_schema, field="input_schema", closed=True)
        except InvalidFieldError as error:
            self._tell(server.name, listed.name, f"schema.{error.field}")
            return None

        async def call(**arguments: Any) -> str:
            return await connection.call(listed.name, arguments)

        read_only, idempotent = _effect(server, listed)
        return Tool(
            name=name,
            description=well_formed((listed.description or "")[:MAX_DESCRIPTION]),
            function=call,
            parameters=SchemaInputs(listed.input_schema),
            read_only=read_only,
            idempotent=idempotent,
            timeout=server.timeout_s + SLACK_S,
            external=False,
            patterns=None,
            loaded=False,
        )

    def _tell(self, server: str, tool: str, cause: str) -> None:
        """Says once that a tool is left out; listings are repeated."""
        if f"{server} {tool}" not in self._told:
            self._told.add(f"{server} {tool}")
            logger.warning(
                "mcp_tool_left_out server=%s tool=%s cause=%s", server, ascii(tool[:64]), cause
            )


def _effect(server: McpServer, listed: Listed) -> tuple[bool, bool]:
    """Whether it only reads, and whether it may be repeated: as it says, if its server is trusted.

    What calls itself destructive is neither, whatever else it says.
    """
    hints = listed.annotations
    if not server.trusted or hints is None or hints.destructive_hint is True:
        return False, False
    return hints.read_only_hint is True, hints.idempotent_hint is True
