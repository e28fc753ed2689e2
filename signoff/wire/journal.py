"""Bodies of the event log and of the audit trail."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict


class EventBody(TypedDict):
    """One event, as webhooks get it."""

    id: str
    type: str
    timestamp: str
    data: dict[str, Any]


class AuditBody(TypedDict):
    """One thing that was done in a run: by whom, and what is worth knowing of it."""

    id: str
    created_at: str
    action: str
    run_id: int
    by: str | None
    details: dict[str, str]
