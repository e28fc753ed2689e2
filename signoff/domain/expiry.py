"""Time on a gate: when people are reminded, when it expires, and what becomes of it then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from signoff.domain.decision import Settlement, answer_settlement, deny_settlement, questions_of
from signoff.domain.error import InvalidFieldError
from signoff.domain.gate import EXPIRY, Gate, GateKind
from signoff.domain.question import Question

#: No gate can be told to wait longer than this; without a limit it waits for ever.
MAX_WAIT_S = 30 * 86_400
#: What the record of a gate says that nobody decided.
NOBODY = "Nobody decided in time."
RECOMMENDED = "(Recommended)"
_LATE = {
    GateKind.TOOL_APPROVAL: "Nobody decided about this tool call in time; it was not executed.",
    GateKind.QUESTION: "Nobody answered in time. Go on without an answer, or end the turn.",
    GateKind.PLAN: "Nobody decided about the plan in time; it is not approved.",
    GateKind.EXTERNAL: "Nobody supplied the result of this tool call in time.",
    GateKind.OUTCOME_UNKNOWN: (
        "It is unknown whether this tool call took effect: it was interrupted, and nobody decided "
        "in time whether to run it again."
    ),
}


class OnExpiry(StrEnum):
    """What becomes of a pause that nobody settled in time."""

    #: Its calls are refused; the model is told that nobody decided.
    DENY = "deny"
    #: The whole run ends.
    CANCEL = "cancel"
    #: Questions get their recommended option; everything else is denied.
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The time that gates have, in seconds; None is for ever."""

    remind_after: float | None = None
    expires_in: float | None = None
    on_expiry: OnExpiry | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Limits:
        """The limits among ``fields``; what is not there is not set."""
        policy = fields.get("on_expiry")
        return cls(
            remind_after=fields.get("remind_after"),
            expires_in=fields.get("expires_in"),
            on_expiry=None if policy is None else OnExpiry(policy),
        )

    def over(self, defaults: Limits) -> Limits:
        """These limits, and those of ``defaults`` for what is not set here."""
        return Limits(
            remind_after=_first(self.remind_after, defaults.remind_after),
            expires_in=_first(self.expires_in, defaults.expires_in),
            on_expiry=self.on_expiry or defaults.on_expiry,
        )

    def checked(self) -> Limits:
        """These limits; raises InvalidFieldError for an ``on_expiry`` that can never happen."""
        if self.on_expiry is not None and self.expires_in is None:
            msg = "on_expiry says what happens after expires_in, which is not given"
            raise InvalidFieldError(msg, field="on_expiry")
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """The limits as a run keeps and shows them."""
        policy = None if self.expires_in is None else self.on_expiry or OnExpiry.DENY
        return {
            "remind_after": self.remind_after,
            "expires_in": self.expires_in,
            "on_expiry": None if policy is None else policy.value,
        }

    def times(self, opened_ms: int) -> GateTimes | None:
        """When gates opened at ``opened_ms`` are due; None when they wait for ever."""
        remind = _after(opened_ms, self.remind_after)
        expires = _after(opened_ms, self.expires_in)
        if remind is not None and expires is not None and remind >= expires:
            remind = None
        if remind is None and expires is None:
            return None
        return GateTimes(opened_ms=opened_ms, remind_ms=remind, expires_ms=expires)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTimes:
    """When the gates of one pause are due, in Unix milliseconds of the store's clock."""

    opened_ms: int
    remind_ms: int | None
    expires_ms: int | None


def settle_expired(gate: Gate, policy: OnExpiry) -> Settlement:
    """What becomes of a gate that nobody settled in time, unless the whole run is cancelled.

    ``answer`` answers a question whose every question has a recommended option: the one marked,
    or of several choices all that are marked. Nothing is guessed: everything else is denied.
    """
    if gate.kind is GateKind.QUESTION and policy is OnExpiry.ANSWER:
        questions = questions_of(gate)
        answers = {question.text: _recommended(question) for question in questions}
        if all(answers.values()):
            note = "Nobody answered in time; the recommended option was taken."
            return answer_settlement(gate, answers, note=note)
    denied = gate.kind is GateKind.TOOL_APPROVAL or gate.kind is GateKind.OUTCOME_UNKNOWN
    return deny_settlement(gate, "denied" if denied else "error", _LATE[gate.kind])


def auto_resolved(gate: Gate) -> bool:
    """True when nobody decided the gate: its time had run out."""
    return gate.decided_by == EXPIRY


def _recommended(question: Question) -> list[str]:
    marked = [label for label in question.labels if label.rstrip().endswith(RECOMMENDED)]
    # Of one choice, two recommendations are none.
    return marked if question.multi or len(marked) == 1 else []


def _first(value: float | None, default: float | None) -> float | None:
    return default if value is None else value


def _after(opened_ms: int, seconds: float | None) -> int | None:
    return None if seconds is None else opened_ms + max(1, round(seconds * 1000))
