"""The tools of one run: where they come from, and which of them it may use."""

from __future__ import annotations

from collections.abc import Mapping

from signoff.declared import external_tools
from signoff.store.records import RunRecord
from signoff.tooldef import Tool


class Tools:
    """Finds the tools of runs; those that this deployment loaded are one source of them."""

    def __init__(self, toolbox: Mapping[str, Tool]) -> None:
        self._toolbox = toolbox

    async def of(self, run: RunRecord) -> Mapping[str, Tool]:
        """The tools that ``run`` may use, by name: its list of those that are loaded, or all.

        The external tools that were declared for it are always among them.
        """
        names = run.config.get("tools")
        declared = run.config.get("external_tools")
        found = self._toolbox
        if names is not None:
            found = {name: found[name] for name in names if name in found}
        return {**found, **external_tools(declared)} if declared else found
