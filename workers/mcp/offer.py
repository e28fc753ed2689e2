"""What runs are offered of a server: the tools that its listing comes to."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from mcp_types import Tool as Listed

from signoff.declared import SchemaInputs
from signoff.domain.error import InvalidFieldError
from signoff.mcpserver import McpServer, full_name
from signoff.shape import shape_of
from signoff.strictjson import well_formed
from signoff.tooldef import Tool

logger = logging.getLogger(__name__)
#: What a tool's own limit has on top, so that the server's comes first and names the server.
SLACK_S = 5.0
MAX_DESCRIPTION = 10_000
#: What a server lists may change with each listing.
MAX_TOLD = 256


class Offer:
    """The tools of one server by full name; made once for each listing."""

    def __init__(
        self, server: McpServer, call: Callable[[str, dict[str, Any]], Awaitable[str]]
    ) -> None:
        self._server = server
        self._call = call
        self._made: tuple[int, dict[str, Tool]] | None = None
        self._told: set[str] = set()

    def tools(self, listed: Iterable[Listed] | None, version: int) -> dict[str, Tool]:
        """The tools of a listing, which is known by its version."""
        if self._made is None or self._made[0] != version:
            made = [self._tool(item) for item in listed or ()]
            self._made = version, {tool.name: tool for tool in made if tool is not None}
        return self._made[1]

    def _tool(self, listed: Listed) -> Tool | None:
        """The tool as runs have it; None for one that is not to be offered, or cannot be."""
        server = self._server
        if server.tools is not None and listed.name not in server.tools:
            return None
        name = full_name(server.name, listed.name)
        if name is None:
            # Under another name it could be mistaken for another tool.
            self._tell(listed.name, "name")
            return None
        try:
            shape_of(listed.input_schema, field="input_schema", closed=True)
        except InvalidFieldError as error:
            self._tell(listed.name, f"schema.{error.field}")
            return None

        async def call(**arguments: Any) -> str:
            return await self._call(listed.name, arguments)

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

    def _tell(self, tool: str, cause: str) -> None:
        """Says once that a tool is left out; listings are repeated."""
        if tool not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(tool)
            logger.warning(
                "mcp_tool_left_out server=%s tool=%s cause=%s",
                self._server.name,
                ascii(tool[:64]),
                cause,
            )


def _effect(server: McpServer, listed: Listed) -> tuple[bool, bool]:
    """Whether it only reads, and whether it may be repeated: as it says, if its server is trusted.

    What calls itself destructive is neither, whatever else it says.
    """
    hints = listed.annotations
    if not server.trusted or hints is None or hints.destructive_hint is True:
        return False, False
    return hints.read_only_hint is True, hints.idempotent_hint is True
