"""The tools of one run: where they come from, and which of them it may use."""

from __future__ import annotations

from collections.abc import Mapping

from signoff.store.records import RunRecord
from signoff.tooldef import Tool


class Tools:
    """Finds the tools of runs; those that this deployment loaded are one source of them."""

    def __init__(self, toolbox: Mapping[str, Tool]) -> None:
        self._toolbox = toolbox

    async def of(self, run: RunRecord) -> Mapping[str, Tool]:
        """The tools that ``run`` may use, by name, in its order: its list, or every one."""
        names = run.config.get("tools")
        if names is None:
            return self._toolbox
        return {name: self._toolbox[name] for name in names if name in self._toolbox}
