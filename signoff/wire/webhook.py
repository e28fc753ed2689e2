"""Bodies of webhook endpoints and their deliveries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from signoff.domain.event import EVENT_TYPES
from signoff.wire.body import Body, UserId

MAX_OVERLAP_S = 604_800


#: Which names there are is checked later, so that a refusal says which one is not.
Events = list[Annotated[str, Field(json_schema_extra={"enum": [*sorted(EVENT_TYPES)]})]]


class CreateWebhook(Body):
    """POST /webhooks/; without ``events`` the ends of runs are sent."""

    url: str
    events: Events | None = None
    user_id: UserId | None = None
    signature: Literal["standard", "hex"] | None = None


class ChangeWebhook(Body):
    """PATCH /webhooks/{id}; what is omitted stays."""

    url: str | None = None
    events: Events | None = None
    active: bool | None = None
    rotate_secret: bool | None = None
    overlap_seconds: Annotated[int, Field(ge=0, le=MAX_OVERLAP_S)] | None = None


class WebhookBody(TypedDict):
    """One endpoint; the whole secret is shown when it is made and never again."""

    id: int
    url: str
    events: list[str]
    secret: str
    signature: str
    active: bool
    disabled_reason: str | None
    user_id: str | None
    callback_url: str
    created_at: str
    updated_at: str


class TestedBody(TypedDict):
    """The event that was sent to try an endpoint."""

    status: Literal["ok"]
    event_id: str
    webhook_endpoint_id: int


class DeliveryBody(TypedDict):
    """One event on its way to one endpoint; ``log`` has a row per attempt."""

    id: int
    webhook_endpoint_id: int
    event_type: str
    event_id: str
    run_id: int | None
    status: str
    response_status_code: int | None
    response_body: str | None
    error: str | None
    attempts: int
    next_retry_at: str | None
    created_at: str
    log: list[dict[str, Any]]
