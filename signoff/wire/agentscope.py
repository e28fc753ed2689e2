"""The two answer events of AgentScope as they are accepted, and the answers to ``AskUser``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from signoff.wire.body import Body, ClosedBody
from signoff.wire.decision import MAX_DECISIONS, Reason

CONFIRM, EXECUTION = "USER_CONFIRM_RESULT", "EXTERNAL_EXECUTION_RESULT"
CallId = Annotated[str, Field(min_length=1)]


class EventKind(Body):
    """What tells the two apart."""

    type: Literal["USER_CONFIRM_RESULT", "EXTERNAL_EXECUTION_RESULT"]


class CallBlock(Body):
    """A tool call as it was shown, sent back; what else stands in it decides nothing."""

    type: Literal["tool_call"] = "tool_call"
    id: CallId
    name: str
    input: str


class AcceptedRule(ClosedBody):
    """A rule out of a call's suggestions; where it is from does not count."""

    tool_name: str
    rule_content: str | None
    behavior: str
    source: str


class ConfirmResult(ClosedBody):
    """A verdict on one call; ``reason`` and ``request_id`` are ours."""

    confirmed: bool
    tool_call: CallBlock
    rules: Annotated[list[AcceptedRule], Field(max_length=100)] | None = None
    reason: Reason | None = None
    request_id: str | None = None


class TextBlock(Body):
    """A piece of a result."""

    type: Literal["text"]
    text: str


class ResultBlock(ClosedBody):
    """The result of one call."""

    type: Literal["tool_result"] = "tool_result"
    id: CallId
    name: str
    output: str | list[TextBlock]
    state: Literal["success", "error"]
    metadata: dict[str, Any] | None = None
    created_at: str | None = None
    finished_at: str | None = None
    request_id: str | None = None

    @property
    def text(self) -> str:
        """The whole output."""
        if isinstance(self.output, str):
            return self.output
        return "\n".join(block.text for block in self.output)


class _Event(ClosedBody):
    reply_id: str
    id: str | None = None
    created_at: str | None = None
    metadata: dict[str, Any] | None = None


class UserConfirmResult(_Event):
    """USER_CONFIRM_RESULT."""

    type: Literal["USER_CONFIRM_RESULT"]
    confirm_results: Annotated[list[ConfirmResult], Field(min_length=1, max_length=MAX_DECISIONS)]


class ExternalExecutionResult(_Event):
    """EXTERNAL_EXECUTION_RESULT."""

    type: Literal["EXTERNAL_EXECUTION_RESULT"]
    execution_results: Annotated[list[ResultBlock], Field(min_length=1, max_length=MAX_DECISIONS)]


class AnswerEvent(RootModel[UserConfirmResult | ExternalExecutionResult]):
    """POST /runs/{id}/events: one of the two, as ``type`` says."""


class AskUserAnswer(ClosedBody):
    """The answer to one question: labels of its options, or the user's own words."""

    question: str
    selected: list[str] = Field(default_factory=list)
    other: str | None = None


class AskUserMetadata(ClosedBody):
    """``metadata`` of a result that answers questions."""

    answers: Annotated[list[AskUserAnswer], Field(min_length=1)]
