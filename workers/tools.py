"""The tools of one run: where they come from, and which of them it may use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

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


class Tools:
    """Finds the tools of runs: loaded ones, those of MCP servers, and those declared for a run."""

    def __init__(self, toolbox: Mapping[str, Tool], elsewhere: Elsewhere | None = None) -> None:
        self._toolbox = toolbox
        self._elsewhere = elsewhere

    async def of(self, run: RunRecord) -> Mapping[str, Tool]:
        """The tools that ``run`` may use, by name: those of its list, or all.

        The external tools that were declared for it are always among them.
        """
        names = run.config.get("tools")
        found = self._toolbox
        if names is not None:
            found = {name: found[name] for name in names if name in found}
        if self._elsewhere is not None:
            servers = run.config.get("mcp_servers")
            found = {**found, **await self._elsewhere.tools(names=names, servers=servers)}
        declared = run.config.get("external_tools")
        return {**found, **external_tools(declared)} if declared else found

    async def close(self) -> None:
        """Ends the sessions with servers."""
        if self._elsewhere is not None:
            await self._elsewhere.close()
