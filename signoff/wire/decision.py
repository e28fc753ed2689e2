"""Bodies of decisions, by key and by signed callback, and their reading into the domain's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class ResultItem(ClosedBody):
    """The result of one external call, named by its request or by the call's own id."""

    request_id: str | None = None
    tool_use_id: str | None = None
    output: Any
    state: Literal["success", "error"] = "success"
    expected_digest: str | None = None

    def read(self, request_id: str) -> Decision:
        """The decision that it makes on the request."""
        return Decision(
            request_id=request_id,
            result={"output": self.output, "state": self.state},
            expected_digest=self.expected_digest,
        )


class SubmitResults(Body):
    """POST /runs/{id}/results."""

    results: Annotated[list[ResultItem], Field(min_length=1, max_length=MAX_DECISIONS)]

    @property
    def by_call(self) -> bool:
        """True when some result names its call instead of its request."""
        return any(item.tool_use_id is not None for item in self.results)


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


def read_results(items: Sequence[ResultItem], by_call: Mapping[str, str]) -> list[Decision]:
    """The decisions that results make; ``by_call`` has the request of each call.

    Raises InvalidFieldError naming ``results[i]``.
    """
    seen: set[str] = set()
    found: list[Decision] = []
    for n, item in enumerate(items):
        at = f"results[{n}]"
        if (item.request_id is None) == (item.tool_use_id is None):
            msg = f"{at}: give exactly one of request_id and tool_use_id"
            raise InvalidFieldError(msg, field=f"{at}.request_id")
        request_id = item.request_id
        if request_id is None:
            # A call that waits for nothing is refused like a request that is not there.
            request_id = by_call.get(item.tool_use_id or "", "")
        if request_id and request_id in seen:
            msg = f"{at}: the call has two results in one batch"
            raise InvalidFieldError(msg, field=f"{at}.request_id")
        seen.add(request_id)
        found.append(item.read(request_id))
    return found
