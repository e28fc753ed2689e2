"""Bodies of decisions, by key and by signed callback, and their reading into the domain's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from signoff.domain.decision import Decision
from signoff.domain.error import InvalidFieldError
from signoff.wire.body import Body, ClosedBody

MAX_DECISIONS = 100
Reason = Annotated[str, Field(max_length=10_000)]
Answers = Annotated[dict[str, Any], Field(min_length=1)]
Rules = Annotated[list[dict[str, Any]], Field(max_length=100)]


class Approve(ClosedBody):
    """POST /runs/{id}/approve."""

    request_id: str
    decision: Literal["allow", "deny"]
    remember: bool | None = None
    reason: Reason | None = None
    input: dict[str, Any] | None = None
    rules: Rules | None = None
    expected_digest: str | None = None

    def read(self) -> Decision:
        """The decision that it makes."""
        return Decision(
            request_id=self.request_id,
            verdict=self.decision,
            reason=self.reason,
            input=self.input,
            remember=self.remember is True,
            rules=tuple(self.rules or ()),
            expected_digest=self.expected_digest,
        )


class Answer(ClosedBody):
    """POST /runs/{id}/answer; without ``request_id`` the oldest open question is meant."""

    answers: Answers
    request_id: str | None = None


class DecisionItem(ClosedBody):
    """One decision of a batch or a callback: a verdict, answers, or a result."""

    request_id: str
    decision: Literal["allow", "deny"] | None = None
    answers: Answers | None = None
    result: dict[str, Any] | None = None
    reason: Reason | None = None
    input: dict[str, Any] | None = None
    remember: bool | None = None
    rules: Rules | None = None
    expected_digest: str | None = None

    def read(self) -> Decision:
        """The decision that it makes; raises InvalidFieldError unless it makes exactly one."""
        given = [self.decision, self.answers, self.result]
        if sum(value is not None for value in given) != 1:
            msg = "give exactly one of decision, answers and result"
            raise InvalidFieldError(msg, field="decision")
        return Decision(
            request_id=self.request_id,
            verdict=self.decision,
            answers=self.answers,
            result=self.result,
            reason=self.reason,
            input=self.input,
            remember=self.remember is True,
            rules=tuple(self.rules or ()),
            expected_digest=self.expected_digest,
        )


Items = Annotated[list[DecisionItem], Field(min_length=1, max_length=MAX_DECISIONS)]


class DecideBatch(Body):
    """POST /runs/{id}/decisions."""

    decisions: Items


class CallbackEnvelope(Body):
    """POST /callbacks/{id}: what ``data`` is depends on ``type``."""

    type: Literal["decision", "decisions"]
    data: dict[str, Any]


class SignedDecision(DecisionItem):
    """``data`` of a ``decision`` callback."""

    run_id: int


class SignedBatch(ClosedBody):
    """``data`` of a ``decisions`` callback."""

    run_id: int
    decisions: Items


def read_batch(items: Sequence[DecisionItem]) -> list[Decision]:
    """The decisions of a batch; raises InvalidFieldError naming ``decisions[i]``."""
    seen: set[str] = set()
    found: list[Decision] = []
    for n, item in enumerate(items):
        try:
            found.append(item.read())
        except InvalidFieldError as error:
            at = f"decisions[{n}]"
            raise InvalidFieldError(f"{at}: {error.message}", field=f"{at}.{error.field}") from None
        if item.request_id in seen:
            at = f"decisions[{n}]"
            msg = f"{at}: the request is decided twice in one batch"
            raise InvalidFieldError(msg, field=f"{at}.request_id")
        seen.add(item.request_id)
    return found
