"""A real MCP server for tests: over stdio, or over HTTP when a port is given.

Each call is appended to the file named by MCP_LOG. ``stuck`` never answers; ``die`` ends the
process in the middle of a call.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("tests")


def note(line: str) -> None:
    with Path(os.environ["MCP_LOG"]).open("a") as log:
        log.write(f"{line}\n")


def hints(**given: bool) -> ToolAnnotations:
    return ToolAnnotations(**given)


@server.tool(annotations=hints(read_only_hint=True))
def look(what: str) -> str:
    """Look something up."""
    note(f"look {what}")
    return f"saw {what}"


@server.tool(annotations=hints(idempotent_hint=True))
def put(what: str) -> str:
    """Put something."""
    note(f"put {what}")
    return f"put {what}"


@server.tool(annotations=hints(read_only_hint=True, idempotent_hint=True, destructive_hint=True))
def wipe(what: str) -> str:
    """Wipe something."""
    return f"wiped {what}"


@server.tool()
def send(to: str, count: int = 1) -> dict[str, object]:
    """Send something."""
    note(f"send {to}*{count}")
    return {"sent": to, "count": count}


@server.tool()
def picture() -> CallToolResult:
    """Show a picture."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="here:"),
            ImageContent(type="image", data="AAAA", mime_type="image/png"),
        ]
    )


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool()
async def stuck(what: str) -> str:
    """Never answer."""
    note(f"stuck {what}")
    # Keeps the process although its input ends.
    threading.Thread(target=time.sleep, args=(600,)).start()
    await asyncio.sleep(600)
    return "late"


@server.tool()
def die(what: str) -> str:
    """End the process in the middle of the call."""
    note(f"die {what}")
    os._exit(9)


@server.tool()
def heard(ctx: Context, header: str) -> str:
    """Say what a header of the request was."""
    return (ctx.headers or {}).get(header, "nothing")


@server.tool(name="odd.name")
def odd() -> str:
    """Has a name that no tool here can have."""
    return "odd"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool and announce it."""

    def grown() -> str:
        """Be new."""
        return "new"

    server.add_tool(grown)
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    note(f"start {os.getpid()}")
    if len(sys.argv) > 1:
        anything = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.run(
            "streamable-http",
            host="127.0.0.1",
            port=int(sys.argv[1]),
            transport_security=anything,  # tests call it by other names as well
        )
    else:
        server.run("stdio")
