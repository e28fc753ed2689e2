"""Recent histories of runs, so that a step loads only what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from signoff.domain.message import Message
from signoff.store.runs import Runs

_RUNS = 512
_MESSAGES = 2000


class Histories:
    """Messages by run, read from the store where this process has not seen them yet.

    Histories are append-only, so what was read once stays true.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._known: OrderedDict[int, list[Message]] = OrderedDict()

    async def load(self, run_id: int) -> tuple[Message, ...]:
        """All messages of the run."""
        known = self._known.pop(run_id, [])
        known = known + await self._runs.history(run_id, len(known))
        self._keep(run_id, known)
        return tuple(known)

    def add(self, run_id: int, messages: Sequence[Message]) -> None:
        """Notes messages that this process has just committed after a load."""
        if run_id in self._known:
            self._keep(run_id, self._known.pop(run_id) + list(messages))

    def forget(self, run_id: int) -> None:
        """Drops what is known of the run."""
        self._known.pop(run_id, None)

    def _keep(self, run_id: int, messages: list[Message]) -> None:
        if len(messages) > _MESSAGES:
            return
        self._known[run_id] = messages
        while len(self._known) > _RUNS:
            self._known.popitem(last=False)
