"""Events have one body, fixed for ever."""

from __future__ import annotations

import json

from signoff.domain.event import DEFAULT_EVENTS, EVENT_TYPES, make_event, run_payload


def test_the_body_is_compact_utf8_json_in_a_fixed_order() -> None:
    """Same facts, same bytes; names beyond ASCII travel as they are."""
    event = make_event("evt_1", "run.started", "2026-01-01T00:00:00.000Z", {"user_id": "Zoë"})
    assert (
        event.body
        == (
            '{"id":"evt_1","type":"run.started","timestamp":"2026-01-01T00:00:00.000Z",'
            '"data":{"user_id":"Zoë"}}'
        ).encode()
    )
    again = make_event("evt_1", "run.started", "2026-01-01T00:00:00.000Z", {"user_id": "Zoë"})
    assert again == event


def test_every_run_event_has_the_same_fields() -> None:
    """agent_id and teammate_id are the same number."""
    payload = run_payload(run_id=1, agent_id=2, user_id=None, status="running", mode="plan")
    assert payload == {
        "run_id": 1,
        "agent_id": 2,
        "teammate_id": 2,
        "user_id": None,
        "status": "running",
        "permission_mode": "plan",
    }
    assert json.loads(json.dumps(payload)) == payload


def test_the_types_are_those_of_the_product() -> None:
    """Twelve types; endpoints that name none get the three endings."""
    assert {
        "run.started",
        "run.completed",
        "run.failed",
        "run.cancelled",
        "run.awaiting_input",
        "run.input_reminder",
        "run.input_expired",
        "run.resumed",
        "run.message_received",
        "run.message_cancelled",
        "webhook.test",
        "endpoint.disabled",
    } == EVENT_TYPES
    assert DEFAULT_EVENTS == ("run.completed", "run.failed", "run.cancelled")
