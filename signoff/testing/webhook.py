"""Signed sample webhooks, as the service would send them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from signoff import signing
from signoff.domain import event as events
from signoff.domain.error import InvalidFieldError
from signoff.domain.gate import GateKind, listed_call
from signoff.domain.jsontext import sorted_compact
from signoff.domain.timestamp import iso
from signoff.testing.gate import gate_digest

#: What samples are signed with unless another secret is given; of no use anywhere else.
SECRET = "whsec_c2FtcGxlLXNlY3JldC1mb3ItdGVzdHMtb25seS0wMDE="  # noqa: S105 - a published sample
GateName = Literal["tool_approval", "question", "plan", "external", "outcome_unknown"]

_QUESTIONS = [
    {
        "question": "When may the database be down?",
        "header": "Downtime",
        "multiSelect": False,
        "options": [{"label": "Saturday 06:00"}, {"label": "Sunday 06:00"}],
    }
]
_EMAIL = {"to": "ada@example.com", "subject": "Hello", "body": "Hi"}
_CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "tool_approval": ("send_email", _EMAIL),
    "question": ("AskUserQuestion", {"questions": _QUESTIONS}),
    "plan": ("ExitPlanMode", {"plan": "1. Write to Ada"}),
    "external": ("book_flight", {"to": "LIS"}),
    "outcome_unknown": ("send_email", _EMAIL),
}
_STATUS = {
    events.RUN_STARTED: "running",
    events.RUN_RESUMED: "running",
    events.RUN_AWAITING_INPUT: "awaiting_approval",
    events.RUN_INPUT_REMINDER: "awaiting_approval",
    events.RUN_INPUT_EXPIRED: "running",
    events.RUN_COMPLETED: "completed",
    events.RUN_FAILED: "failed",
    events.RUN_CANCELLED: "cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedWebhook:
    """One delivery: post ``body`` with ``headers`` to your receiver."""

    id: str
    type: str
    headers: dict[str, str]
    body: bytes
    #: Where the service would send it; empty for a sample.
    url: str = ""

    @property
    def event(self) -> dict[str, Any]:
        """The body as the receiver reads it."""
        found: dict[str, Any] = json.loads(self.body)
        return found


def signed_webhook(
    kind: str = events.RUN_AWAITING_INPUT,
    *,
    gate: GateName = "tool_approval",
    secret: str = SECRET,
    signature: Literal["standard", "hex"] = "standard",
    timestamp: int | None = None,
    msg_id: str = "evt_sample",
    fields: Mapping[str, Any] | None = None,
) -> SignedWebhook:
    """A sample of any event type; ``fields`` replaces parts of ``data``.

    ``gate`` is what a ``run.awaiting_input`` waits for. ``timestamp`` (now) is when it was signed:
    an old one makes a replay, another ``secret`` a forgery.
    """
    if kind not in events.EVENT_TYPES:
        raise InvalidFieldError(f"no event is called {kind[:64]!a}", field="kind")
    # Samples are made in tests, which have no composition root to take a clock from.
    at = int(time.time()) if timestamp is None else timestamp  # noqa: TID251
    payload = {**_payload(kind, gate, at), **(fields or {})}
    event = events.make_event(msg_id, kind, iso(at * 1000), payload)
    return sign_event(event, secret=secret, signature=signature, timestamp=at)


def sign_event(
    event: events.Event,
    *,
    secret: str,
    signature: str,
    timestamp: int,
    url: str = "",
) -> SignedWebhook:
    """One attempt at delivering ``event``."""
    if signature == "hex":
        signed = signing.sign_hex(secret, msg_id=event.id, timestamp=timestamp, body=event.body)
    else:
        signed = signing.sign([secret], msg_id=event.id, timestamp=timestamp, body=event.body)
    headers = {
        "content-type": "application/json",
        signing.ID_HEADER: event.id,
        signing.TIMESTAMP_HEADER: str(timestamp),
        signing.SIGNATURE_HEADER: signed,
    }
    return SignedWebhook(id=event.id, type=event.type, headers=headers, body=event.body, url=url)


def _payload(kind: str, gate: GateName, at: int) -> dict[str, Any]:
    if kind == events.WEBHOOK_TEST:
        return {"webhook_id": 1, "user_id": None}
    if kind == events.ENDPOINT_DISABLED:
        return {"webhook_id": 1, "user_id": None, "reason": "failing"}
    found = events.run_payload(
        run_id=42, agent_id=1, user_id=None, status=_STATUS.get(kind, "running"), mode="approval"
    )
    if kind == events.RUN_AWAITING_INPUT:
        found |= awaiting(1, [_request(gate, at)])
    elif kind == events.RUN_INPUT_REMINDER:
        found |= {"pause": 1, "requests": [_request(gate, at, timed=True)]}
    elif kind == events.RUN_INPUT_EXPIRED:
        settled = {**_request(gate, at - 3600, timed=True), "status": "denied", "answers": None}
        found |= {"pause": 1, "on_expiry": "deny", "requests": [settled]}
    elif kind in (events.RUN_COMPLETED, events.RUN_FAILED, events.RUN_CANCELLED):
        failed = kind == events.RUN_FAILED
        found |= {
            "output": "Done." if kind == events.RUN_COMPLETED else None,
            "error": "the provider refused the request" if failed else None,
            "error_code": "model_auth" if failed else None,
            "usage": events.usage_payload(
                dict.fromkeys(
                    ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"),
                    0,
                )
            ),
        }
    return found


def _request(gate: GateName, at: int, *, timed: bool = False) -> dict[str, Any]:
    tool, tool_input = listed_call(GateKind(gate), *_CALLS[gate])
    return {
        "request_id": "req_sample",
        "kind": gate,
        "tool_name": tool,
        "tool_input": json.loads(sorted_compact(tool_input)),
        "digest": gate_digest(tool, tool_input),
        "suggested_rules": [{"tool": tool, "effect": "allow"}] if gate == "tool_approval" else [],
        "created_at": iso(at * 1000),
        **({"expires_at": iso((at + 3600) * 1000)} if timed else {}),
    }


def awaiting(pause: int, requests: list[dict[str, Any]]) -> dict[str, Any]:
    """What ``data`` of a ``run.awaiting_input`` has besides the run."""
    asked = [item for item in requests if item["kind"] in ("question", "plan")]
    found: dict[str, Any] = {"pause": pause, "requests": requests}
    if asked:
        found["questions"] = [
            question for item in asked for question in item["tool_input"]["questions"]
        ]
    return found
