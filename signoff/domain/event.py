"""Events: facts with a stable id, and the one body that every attempt and endpoint gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from signoff.domain.jsontext import compact
from signoff.domain.money import dollars

RUN_STARTED = "run.started"
RUN_COMPLETED = "run.completed"
RUN_FAILED = "run.failed"
RUN_CANCELLED = "run.cancelled"
RUN_AWAITING_INPUT = "run.awaiting_input"
RUN_RESUMED = "run.resumed"
RUN_MESSAGE_RECEIVED = "run.message_received"
RUN_MESSAGE_CANCELLED = "run.message_cancelled"
WEBHOOK_TEST = "webhook.test"
ENDPOINT_DISABLED = "endpoint.disabled"

EVENT_TYPES = frozenset(
    {
        RUN_STARTED,
        RUN_COMPLETED,
        RUN_FAILED,
        RUN_CANCELLED,
        RUN_AWAITING_INPUT,
        RUN_RESUMED,
        RUN_MESSAGE_RECEIVED,
        RUN_MESSAGE_CANCELLED,
        WEBHOOK_TEST,
        ENDPOINT_DISABLED,
    }
)
#: What an endpoint gets when it names no events.
DEFAULT_EVENTS = (RUN_COMPLETED, RUN_FAILED, RUN_CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; ``body`` is UTF-8 JSON ``{"id","type","timestamp","data"}``, fixed for ever."""

    id: str
    type: str
    body: bytes


def make_event(event_id: str, kind: str, timestamp: str, payload: Mapping[str, Any]) -> Event:
    """The event with its body; ``timestamp`` is RFC 3339 in UTC."""
    body = compact({"id": event_id, "type": kind, "timestamp": timestamp, "data": payload})
    return Event(id=event_id, type=kind, body=body.encode())


def run_payload(
    *, run_id: int, agent_id: int, user_id: str | None, status: str, mode: str
) -> dict[str, Any]:
    """``data`` that every run event has."""
    return {
        "run_id": run_id,
        "agent_id": agent_id,
        "teammate_id": agent_id,
        "user_id": user_id,
        "status": status,
        "permission_mode": mode,
    }


class UsageBody(TypedDict):
    """Tokens of a run so far, and what they cost in US dollars; ``"0"`` is not known."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_creation_tokens: int
    total_tokens: int
    cost_usd: str


def usage_payload(usage: Mapping[str, int]) -> UsageBody:
    """Token counts as clients see them, and their price as a decimal string."""
    return {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cache_read_tokens": usage["cache_read_tokens"],
        "cache_creation_tokens": usage["cache_creation_tokens"],
        "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        "cost_usd": dollars(usage.get("cost_micros", 0)),
    }
