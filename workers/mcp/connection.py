"""One server's session: opened when first needed, opened again after it broke, never waited on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, Tool, ToolListChangedNotification

from signoff.mcpserver import McpServer
from signoff.tooldef import ToolFailedError, ToolTimeoutError
from workers.mcp.answer import text_of
from workers.mcp.transport import NOT_MADE, Dial, open_streams

logger = logging.getLogger(__name__)
#: A server must be connected and have listed its tools within this time.
OPEN_S = 20.0
#: A listing is asked for again after this time, if the server did not announce a change before.
FRESH_S = 60.0
#: The pause after a listing, whatever the server announces.
SETTLE_S = 1.0
#: How long a run waits for the first listing, and a call for a server that is being reached.
PATIENCE_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
#: The protocol's client gives a process this long: to leave, to heed SIGTERM, to be killed.
CLOSE_S = 7.0
MAX_TOOLS = 256
_MAX_PAGES = 100
_BROKEN = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    httpx2.HTTPError,
    OSError,
)


class Connection:
    """The way to one server; everything here runs on one event loop."""

    def __init__(
        self,
        server: McpServer,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        dial: Dial | None = None,
        label: str | None = None,
    ) -> None:
        self.server = server
        #: What the logs call it; an account's server is only known together with the account.
        self._label = label or server.name
        self._dial = dial
        #: As last listed; None before the first listing. They stay while the server is away.
        self.listed: tuple[Tool, ...] | None = None
        #: Counts the listings, so that what is made of one can be kept.
        self.version = 0
        self._sleep = sleep
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # the first try has ended, well or not
        self._connected = asyncio.Event()
        self._stir = asyncio.Event()  # the session broke, or its tools changed
        self._wanted = asyncio.Event()  # somebody waits: no need to sleep on
        self._broken = asyncio.Event()
        self._in_flight = self._waiting = 0
        self._closing = False

    @property
    def busy(self) -> bool:
        """Whether a call is on its way, or somebody waits for the first listing."""
        return self._in_flight + self._waiting > 0

    async def listing(self) -> tuple[Tool, ...]:
        """The tools as last listed; waits for the first listing, but not for long."""
        self._start()
        if self.listed is None and not self._settled.is_set():
            self._waiting += 1
            try:
                await _within(PATIENCE_S, self._settled)
            finally:
                self._waiting -= 1
        return self.listed or ()

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """What the tool answers, as text.

        Raises ToolFailedError or ToolTimeoutError; their messages say whether the call was made,
        was not made, or may have been: then it is never made again by itself.
        """
        self._in_flight += 1
        try:
            return await self._called(await self._ready(), name, arguments)
        finally:
            self._in_flight -= 1

    async def _called(self, client: Client, name: str, arguments: dict[str, Any]) -> str:
        try:
            result = await client.call_tool(
                name, arguments, read_timeout_seconds=self.server.timeout_s
            )
        except MCPError as error:
            raise self._failure(error, client) from error
        except _BROKEN as error:
            raise self._lost(client) from error
        except (RuntimeError, ValueError) as error:
            # What does not fit the server's own schema: the tool has run all the same.
            msg = f"the call was made, but its answer cannot be used: {error}"
            raise ToolFailedError(msg) from error
        if result.is_error:
            raise ToolFailedError(text_of(result) or "the tool reports an error")
        return text_of(result)

    async def close(self) -> None:
        """Ends the session, and the server's process with it."""
        self._closing = True
        if self._task is None:
            return
        if self._connected.is_set():
            # A session that is told ends its server's process by itself; one that is cancelled in
            # the midst of that may leave it.
            self._break()
            await asyncio.wait([self._task], timeout=CLOSE_S)
        # Once may not be enough: a session that is failing at this moment swallows it.
        while not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CLOSE_S)

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def _ready(self) -> Client:
        self._start()
        if not self._connected.is_set():
            self._wanted.set()
            await _within(PATIENCE_S, self._connected)
        if self._client is None:
            raise self._unreachable()
        return self._client

    def _unreachable(self) -> Exception:
        msg = f"the MCP server {self.server.name} cannot be reached; the call was not made"
        return ToolFailedError(msg)

    def _failure(self, error: MCPError, client: Client) -> Exception:
        if error.code == CONNECTION_CLOSED:
            return self._lost(client)
        if error.code == NOT_MADE:
            return self._unreachable()
        if error.code == REQUEST_TIMEOUT:
            name, limit = self.server.name, self.server.timeout_s
            msg = f"the MCP server {name} did not answer within {limit:g} s; the outcome is unknown"
            return ToolTimeoutError(msg)
        return ToolFailedError(error.message)

    def _lost(self, client: Client) -> Exception:
        if client is self._client and self.server.command is not None:
            self._break()  # requests over HTTP stand for themselves
        msg = (
            f"the MCP server {self.server.name} went away during the call; the outcome is unknown, "
            "and the call was not made again"
        )
        return ToolFailedError(msg)

    def _break(self) -> None:
        self._broken.set()
        self._client = None
        self._connected.clear()
        self._stir.set()

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001 - a server may fail in any way
                logger.warning("mcp_server_lost server=%s cause=%s", self._label, _cause(error))
            finally:
                self._client = None
                self._connected.clear()
                self._settled.set()
            if self._closing:
                return
            lived = asyncio.get_running_loop().time() - began
            failures = 0 if lived > LONGEST_PAUSE_S else failures + 1
            await self._sleep(FIRST_PAUSE_S)
            pause = min(FIRST_PAUSE_S * 2.0 ** min(failures, 10), LONGEST_PAUSE_S)
            self._wanted.clear()
            await _within(pause - FIRST_PAUSE_S, self._wanted)

    async def _session(self) -> None:
        """Connects, lists, and goes on until the session breaks."""
        self._broken.clear()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(OPEN_S):
                client = await stack.enter_async_context(self._open())
                await self._list(client)
            self._client = client
            self._connected.set()
            self._settled.set()
            logger.info("mcp_server_ready server=%s", self._label)
            watcher = asyncio.get_running_loop().create_task(self._listen(client))
            stack.push_async_callback(_end, watcher)
            while not self._broken.is_set():
                stirred = await _within(FRESH_S, self._stir)
                self._stir.clear()
                # A busy server may take its time to list, and must not lose its call for it.
                if not self._broken.is_set() and (stirred or self._in_flight == 0):
                    await self._refresh(client)
                    # One that never stops announcing changes is not asked without a pause.
                    await _within(SETTLE_S, self._broken)

    def _open(self) -> Client:
        streams = open_streams(self.server, on_end=self._break, dial=self._dial)
        return Client(streams, message_handler=self._hear, cache=None)

    async def _refresh(self, client: Client) -> None:
        try:
            async with asyncio.timeout(OPEN_S):
                await self._list(client)
        except TimeoutError:
            logger.warning("mcp_listing_late server=%s", self._label)

    async def _list(self, client: Client) -> None:
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_TOOLS:
                break
        if len(found) > MAX_TOOLS:
            logger.warning("mcp_tools_left_out server=%s most=%d", self._label, MAX_TOOLS)
        self.listed = tuple(found[:MAX_TOOLS])
        self.version += 1

    async def _hear(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._stir.set()

    async def _listen(self, client: Client) -> None:
        """Newer servers announce changes to those only who ask for it."""
        with contextlib.suppress(
            ListenNotSupportedError, MCPError, SubscriptionLost, TimeoutError, *_BROKEN
        ):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._stir.set()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _cause(error: BaseException) -> str:
    """The kind of failure; its text may hold what the operator keeps secret."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__
