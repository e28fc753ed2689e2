"""What the service answers, as frozen values; fields that are not known here are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from signoff.domain.question import PLAN_HEADER

T = TypeVar("T")
TERMINAL = frozenset({"completed", "failed", "cancelled", "closed"})


class Value(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Usage(Value):
    """Tokens of a run so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    total_tokens: int = 0
    cost_usd: str | None = None


class Approvers(Value):
    """Who may decide, and how many have to allow."""

    any_of: list[str] | None = None
    quorum: int = 1
    exclude_requester: bool = False


class Approval(Value):
    """One approver's allow, of a request that needs several."""

    by: str
    at: str
    digest: str


class Run(Value):
    """One run; ``version`` differs whenever its turn, its status or its open gates changed."""

    id: int
    status: str
    agent_id: int | None = None
    output: str | None = None
    output_data: Any = None
    error: str | None = None
    error_code: str | None = None
    user_id: str | None = None
    metadata: dict[str, Any] | None = None
    permission_mode: str | None = None
    human_in_the_loop: bool | None = None
    plan_approved: bool | None = None
    model: str | None = None
    tools: list[str] | None = None
    external_tools: list[dict[str, Any]] = Field(default_factory=list)
    mcp_servers: list[str | dict[str, Any]] | None = None
    max_turns: int | None = None
    remind_after: float | None = None
    expires_in: float | None = None
    on_expiry: str | None = None
    approvers: Approvers | None = None
    #: Who asked for the work, as the service knows them.
    requested_by: list[str] = Field(default_factory=list)
    turn: int = 1
    open_requests: int = 0
    version: str | None = None
    usage: Usage | None = None
    created_at: str | None = None
    updated_at: str | None = None
    archived: bool = False
    needs_reply: bool = False
    #: Whether it may be tried again, and whether that might repeat what it did.
    retryable: bool = False
    repeats_actions: bool = False
    retry_of_run_id: int | None = None
    retried_by_run_id: int | None = None
    retry_count: int = 0
    last_viewed_at: str | None = None
    share_token: str | None = Field(default=None, repr=False)
    #: Of a reply: "queued" or "resumed".
    delivery: str | None = None
    queued_message_id: int | None = None
    pending_queued_message_ids: list[int] = Field(default_factory=list)
    cancelled_queued_message_ids: list[int] = Field(default_factory=list)

    @property
    def is_terminal(self) -> bool:
        """True when only a reply or a retry can follow."""
        return self.status in TERMINAL


class Option(Value):
    """One answer that a question offers."""

    label: str
    description: str | None = None


class Question(Value):
    """One question; free text is an answer too, and with ``multi_select`` several labels are."""

    question: str
    header: str = ""
    multi_select: bool = Field(default=False, alias="multiSelect")
    options: list[Option] = Field(default_factory=list)


class PermissionRequest(Value):
    """One gate: a tool call that waits for a decision, or did.

    ``digest`` binds the tool and its input as shown; ``wait`` and ``approve`` send it along as
    ``expected_digest``, so that nothing else can be approved by mistake.
    """

    request_id: str
    status: str
    tool_name: str
    run_id: int | None = None
    kind: str = "tool_approval"
    tool_input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    digest: str | None = None
    suggested_rules: list[dict[str, Any]] = Field(default_factory=list)
    pause: int | None = None
    decided_by: str | None = None
    reason: str | None = None
    edited_input: dict[str, Any] | None = None
    effective_digest: str | None = None
    created_at: str | None = None
    resolved_at: str | None = None
    remind_at: str | None = None
    expires_at: str | None = None
    approvers: Approvers | None = None
    #: Those who have allowed it, while more are needed.
    approvals: list[Approval] = Field(default_factory=list)
    #: Nobody decided it: its time was over.
    auto_resolved: bool = False
    resumed: bool | None = None
    remembered: bool | None = None
    can_remember: bool = True
    #: Of an external call: what its result must look like, if that is declared.
    output_schema: dict[str, Any] | None = None
    #: Of the inbox only.
    user_id: str | None = None
    agent_id: int | None = None

    @property
    def is_pending(self) -> bool:
        """True while it waits for a decision."""
        return self.status == "pending"

    @property
    def is_question(self) -> bool:
        """True when ``answer`` settles it; plans are questions too."""
        return self.kind in ("question", "plan") or self.tool_name == "AskUserQuestion"

    @property
    def is_plan_approval(self) -> bool:
        """True when it is a plan to approve or to send back."""
        if self.kind == "plan":
            return True
        return self.is_question and any(item.header == PLAN_HEADER for item in self.questions)

    @property
    def plan_text(self) -> str | None:
        """The plan; None when it is something else."""
        if not self.is_plan_approval or not self.questions:
            return None
        return self.questions[0].question

    @property
    def questions(self) -> list[Question]:
        """What is asked; nothing when it is no question."""
        found = (self.tool_input or {}).get("questions") if self.is_question else None
        if not isinstance(found, list):
            return []
        return [Question.model_validate(item) for item in found]


class Decided(Value):
    """The answer to a batch: ``resumed`` when no gate of the run is left open."""

    resumed: bool = False
    requests: list[PermissionRequest] = Field(default_factory=list)


class Answered(Value):
    """The answer to an answer."""

    resumed: bool = False


class Message(Value):
    """One message of a run's history."""

    id: int
    run_id: int
    sequence: int
    role: str
    content: str = ""
    content_blocks: list[dict[str, Any]] = Field(default_factory=list)
    created_at: str | None = None


class Policy(Value):
    """A stored rule about calls of a tool."""

    id: int
    tool_name: str
    user_id: str | None = None
    effect: str = "allow"
    source: str | None = None
    created_at: str | None = None
    author: str | None = None
    expires_at: str | None = None
    max_uses: int | None = None
    uses: int = 0
    last_used_at: str | None = None
    #: Who may decide the gates that an ask opens.
    approvers: Approvers | None = None


class Evaluation(Value):
    """What would become of a call: the verdict, the rule that it rests on, and why."""

    verdict: str
    rule: dict[str, Any] | None = None
    why: str = ""


class Webhook(Value):
    """One webhook endpoint; ``secret`` is whole only when it was made or rotated just now."""

    id: int
    url: str
    events: list[str] = Field(default_factory=list)
    secret: str | None = Field(default=None, repr=False)
    signature: str = "standard"
    active: bool = True
    disabled_reason: str | None = None
    user_id: str | None = None
    callback_url: str | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Delivery(Value):
    """One event on its way to one endpoint, with a row of ``log`` for each attempt."""

    id: int
    webhook_endpoint_id: int
    event_type: str
    event_id: str
    status: str
    run_id: int | None = None
    response_status_code: int | None = None
    response_body: str | None = None
    error: str | None = None
    attempts: int = 0
    next_retry_at: str | None = None
    created_at: str | None = None
    log: list[dict[str, Any]] = Field(default_factory=list)


class SentTest(Value):
    """A test event that is on its way."""

    event_id: str
    webhook_endpoint_id: int


class Agent(Value):
    """A name, instructions, a model and tools that runs start from."""

    id: int
    name: str
    instructions: str | None = None
    tools: list[str] | None = None
    external_tools: list[dict[str, Any]] = Field(default_factory=list)
    mcp_servers: list[str | dict[str, Any]] | None = None
    role: str | None = None
    goals: str | None = None
    user_id: str | None = None
    metadata: dict[str, Any] | None = None
    default_permission_mode: str = "autonomous"
    model: str | None = None
    remind_after: float | None = None
    expires_in: float | None = None
    on_expiry: str | None = None
    approvers: Approvers | None = None
    status: str = "enabled"
    active_run_count: int = 0
    active_run_id: int | None = None
    last_active_at: str | None = None
    created_at: str | None = None
    updated_at: str | None = None


class User(Value):
    """An end user of the account."""

    id: int
    user_id: str
    name: str | None = None
    email: str | None = None
    company: str | None = None
    metadata: dict[str, Any] | None = None
    run_limit: int | None = None
    cost_limit_cents: int | None = None
    rate_per_minute: int | None = None
    created_at: str | None = None
    updated_at: str | None = None


class Page(Value, Generic[T]):
    """One page of a list; ``each`` of the resource walks all of them."""

    data: list[T] = Field(default_factory=list)
    has_more: bool = False
    next_starting_after: int | str | None = None

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        """The items of this page."""
        return iter(self.data)

    def __len__(self) -> int:
        """How many items this page has."""
        return len(self.data)


Mode = Literal["autonomous", "approval", "plan"]
#: What becomes of a gate that nobody decided in time.
OnExpiry = Literal["deny", "cancel", "answer"]
Effect = Literal["allow", "ask", "deny"]
AnswerMap = Mapping[str, str | list[str]]
