"""Permission modes: what happens to calls that no rule decides."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The permission mode of a run."""

    #: Calls run; only questions, external calls and ask rules pause.
    AUTONOMOUS = "autonomous"
    #: Calls with effects are asked.
    APPROVAL = "approval"
    #: A plan is presented first; once approved, as ``approval``.
    PLAN = "plan"

    @property
    def needs_person(self) -> bool:
        """True when the mode makes no sense without human in the loop."""
        return self is not Mode.AUTONOMOUS
