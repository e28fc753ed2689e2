"""Why the fake service takes no decision, told as the service tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from signoff.domain.error import GateRefusedError, SignoffError
from signoff.domain.gate import Gate, GateState


class BatchRefusedError(Exception):
    """Which decisions are in the way, by position, and why."""

    def __init__(self, refusals: Sequence[tuple[int, SignoffError]]) -> None:
        super().__init__()
        self.refusals = refusals


def refused(message: str, code: str, gate: Gate) -> GateRefusedError:
    """The refusal, with the decision that stands."""
    details: dict[str, Any] = {}
    if gate.state is not GateState.PENDING:
        details["standing"] = {"status": gate.state.value, "decided_by": gate.decided_by}
    return GateRefusedError(message, code=code, details=details)
