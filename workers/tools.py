"""The tools of one run: where they come from, and which of them it may use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from signoff.declared import external_tools
from signoff.store.records import RunRecord
from signoff.tooldef import Tool


class Elsewhere(Protocol):
    """Tools that are asked for over the network."""

    async def tools(
        self, *, names: Collection[str] | None, servers: Collection[str] | None
    ) -> dict[str, Tool]:
        """The tools of ``servers`` that are among ``names``; None is all of either."""
        ...

    async def close(self) -> None:
        """Ends what is open."""
        ...


class Strangers(Protocol):
    """Tools of servers that accounts have named."""

    async def tools(
        self, *, account: str, given: Sequence[Mapping[str, Any]], names: Collection[str] | None
    ) -> dict[str, Tool]:
        """The tools of the servers ``given`` that are among ``names``; None is all of them."""
        ...

    async def close(self) -> None:
        """Ends what is open."""
        ...


logger = logging.getLogger(__name__)


class Tools:
    """Finds the tools of runs: loaded ones, those of MCP servers, and those declared for a run."""

    def __init__(
        self,
        toolbox: Mapping[str, Tool],
        elsewhere: Elsewhere | None = None,
        strangers: Callable[[], Strangers] | None = None,
    ) -> None:
        self._toolbox = toolbox
        self._elsewhere = elsewhere
        self._make_strangers = strangers
        self._strangers: asyncio.Task[Strangers | None] | None = None

    async def of(self, run: RunRecord) -> Mapping[str, Tool]:
        """The tools that ``run`` may use, by name: those of its list, or all.

        The external tools that were declared for it are always among them.
        """
        names = run.config.get("tools")
        found = self._toolbox
        if names is not None:
            found = {name: found[name] for name in names if name in found}
        found = {**found, **await self._reached(run, names)}
        declared = run.config.get("external_tools")
        return {**found, **external_tools(declared)} if declared else found

    async def close(self) -> None:
        """Ends the sessions with servers."""
        if self._elsewhere is not None:
            await self._elsewhere.close()
        if self._strangers is not None and (strangers := await self._strangers) is not None:
            await strangers.close()

    async def _reached(self, run: RunRecord, names: Collection[str] | None) -> dict[str, Tool]:
        """Those of the operator's servers and of the run's own, asked side by side."""
        listed = run.config.get("mcp_servers")
        servers = None if listed is None else [item for item in listed if isinstance(item, str)]
        own = [item for item in listed or () if not isinstance(item, str)]
        asked = []
        if self._elsewhere is not None:
            asked.append(self._elsewhere.tools(names=names, servers=servers))
        if own and (strangers := await self._reaching()) is not None:
            asked.append(strangers.tools(account=run.account, given=own, names=names))
        return {name: tool for each in await asyncio.gather(*asked) for name, tool in each.items()}

    async def _reaching(self) -> Strangers | None:
        """What reaches servers of accounts; made, and its packages loaded, when one is needed."""
        if self._strangers is None:
            self._strangers = asyncio.get_running_loop().create_task(self._made())
        return await asyncio.shield(self._strangers)

    async def _made(self) -> Strangers | None:
        if self._make_strangers is None:
            return None
        try:
            return await asyncio.to_thread(self._make_strangers)
        except ModuleNotFoundError as error:
            logger.error("mcp_missing module=%s", error.name)  # noqa: TRY400 - no traceback is of use
            return None
