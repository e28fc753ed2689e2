"""Sample webhooks verify, and the real service's fields are in them."""

import pytest

from signoff import SignatureError, verify
from signoff.domain.error import InvalidFieldError
from signoff.domain.event import EVENT_TYPES
from signoff.signing import verify_hex
from signoff.testing import SECRET, FakeService, signed_webhook


@pytest.mark.parametrize("kind", sorted(EVENT_TYPES))
def test_every_event_type_has_a_sample_that_verifies(kind):
    """In both forms; the id is that of the event."""
    sample = signed_webhook(kind)
    assert verify(sample.body, sample.headers, SECRET).msg_id == sample.event["id"]
    assert sample.event["type"] == kind
    sample = signed_webhook(kind, signature="hex")
    assert verify_hex(sample.body, sample.headers, SECRET).msg_id == sample.id


@pytest.mark.parametrize(
    "gate", ["tool_approval", "question", "plan", "external", "outcome_unknown"]
)
def test_a_pause_may_be_of_any_kind(gate):
    """questions is there for questions and plans only."""
    data = signed_webhook(gate=gate).event["data"]
    assert data["requests"][0]["kind"] == gate
    assert ("questions" in data) is (gate in ("question", "plan"))


def test_replays_and_forgeries_can_be_made():
    """An old timestamp, another secret."""
    old = signed_webhook(timestamp=1)
    with pytest.raises(SignatureError, match="past"):
        verify(old.body, old.headers, SECRET)
    forged = signed_webhook(secret="whsec_" + "A" * 43 + "=")
    with pytest.raises(SignatureError, match="no signature matches"):
        verify(forged.body, forged.headers, SECRET)


def test_parts_of_the_payload_can_be_replaced_and_kinds_are_checked():
    """fields win; a misspelt event is an error."""
    assert signed_webhook("run.completed", fields={"run_id": 7}).event["data"]["run_id"] == 7
    with pytest.raises(InvalidFieldError):
        signed_webhook("run.complete")


def test_days_pass_at_once_in_the_fake():
    """Nobody waits in a test: time is moved, and what is due happens."""
    fake = FakeService()
    with fake.client() as client:
        run = client.runs.create(
            "go",
            human_in_the_loop=True,
            permission_mode="approval",
            metadata={"script": [{"tool_calls": [{"name": "send_email", "input": {}}]}, {}]},
            remind_after=3600,
            expires_in=3 * 86_400,
        )
        client.webhooks.create(
            "https://a.example", events=["run.input_reminder", "run.input_expired"]
        )
        fake.advance(2 * 86_400)
        assert client.runs.get(run.id).status == "awaiting_approval"
        assert [item.type for item in fake.sent] == ["run.input_reminder"]
        fake.advance(86_400)
        assert client.runs.get(run.id).status == "completed"
        assert [item.type for item in fake.sent][1:] == ["run.input_expired"]
