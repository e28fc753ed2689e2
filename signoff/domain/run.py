"""A run's statuses and the moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from signoff.domain.error import IllegalMoveError


class RunStatus(StrEnum):
    """Where a run stands; scheduling is separate from it."""

    #: The agent works, or waits for a worker.
    RUNNING = "running"
    #: At least one gate is open; allowed calls still run.
    AWAITING_APPROVAL = "awaiting_approval"
    #: The model ended the turn without asking for a tool.
    COMPLETED = "completed"
    #: The turn cannot go on; ``error_code`` says why.
    FAILED = "failed"
    #: Somebody ended it.
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """True when only a reply or a retry can follow."""
        return self in TERMINAL

    def to(self, target: RunStatus) -> RunStatus:
        """``target``, or IllegalMoveError when the table has no such move."""
        if target not in MOVES[self]:
            raise IllegalMoveError(self, target)
        return target


TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
#: A retry starts the same work again as a new run.
RETRYABLE = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})
MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.RUNNING: TERMINAL | {RunStatus.AWAITING_APPROVAL},
    # A parked run cannot complete: the model is called only when every call has its result.
    RunStatus.AWAITING_APPROVAL: frozenset(
        {RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED}
    ),
    # A reply starts a new turn of the same run.
    RunStatus.COMPLETED: frozenset({RunStatus.RUNNING}),
    RunStatus.FAILED: frozenset({RunStatus.RUNNING}),
    RunStatus.CANCELLED: frozenset({RunStatus.RUNNING}),
}

#: The code of a run whose turn took as many steps as it may.
MAX_TURNS_EXCEEDED = "max_turns_exceeded"
#: Statuses that only filters know (the wire of the reference platform).
FILTER_ONLY = frozenset({"paused", "closed", "archived"})
