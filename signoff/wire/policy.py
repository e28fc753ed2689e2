"""Bodies of stored rules, which the wire calls permissions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from signoff.wire.body import Approvers, ApproversBody, Body, ModeName, UserId

EffectName = Literal["allow", "ask", "deny"]
MAX_USES = 10_000


class CreatePolicy(Body):
    """POST /permissions/."""

    tool: str
    user_id: UserId | None = None
    effect: EffectName | None = None
    #: ISO 8601 with an offset; from then on the rule covers nothing.
    expires_at: str | None = None
    #: An allow lets that many calls start.
    max_uses: Annotated[int, Field(ge=1, le=MAX_USES)] | None = None
    #: Who may decide the gates that an ask opens.
    approvers: Approvers | None = None


class EvaluatedCall(Body):
    """The call that a dry run is about."""

    tool: str
    input: dict[str, Any]


class EvaluatedRule(Body):
    """A rule that a dry run is to assume."""

    tool: str
    effect: EffectName
    approvers: Approvers | None = None


class Evaluate(Body):
    """POST /permissions/evaluate."""

    call: EvaluatedCall
    rules: Annotated[list[EvaluatedRule], Field(max_length=1000)] | None = None
    mode: ModeName | None = None
    user_id: UserId | None = None


class PolicyBody(TypedDict):
    """One stored rule."""

    id: int
    user_id: str | None
    tool_name: str
    effect: str
    source: str
    created_at: str
    author: str | None
    expires_at: str | None
    max_uses: int | None
    uses: int
    last_used_at: str | None
    approvers: ApproversBody | None


class DecidingRule(TypedDict):
    """The rule that a verdict rests on; ``id`` is null for an assumed one."""

    id: int | None
    tool: str
    effect: str
    user_id: str | None
    approvers: ApproversBody | None


class EvaluationBody(TypedDict):
    """What would become of a call."""

    verdict: str
    rule: DecidingRule | None
    why: str
