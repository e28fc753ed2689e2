"""The parts of the demo that judge: receiver, ledger, timeline. The whole is in tests/e2e."""

from __future__ import annotations

import io
import json
import secrets
import time

import httpx
import pytest
from rich.console import Console

from signoff.demo.ledger import Ledger
from signoff.demo.receiver import Receiver, verdict_on
from signoff.demo.script import SCRIPT
from signoff.demo.story import declined
from signoff.demo.timeline import Row, Timeline
from signoff.script import check_script
from signoff.signing import new_secret, sign_decision

SECRET = new_secret(secrets.token_bytes)


def event(kind="run.started", **content):
    return {
        "id": "evt_1",
        "type": kind,
        "timestamp": "2026-11-30T18:05:43.674Z",
        "data": {"run_id": 1, **content},
    }


def signed(body, secret=SECRET):
    return sign_decision(secret, body, msg_id="evt_1", timestamp=int(time.time()))


@pytest.fixture
def receiver():
    with Receiver(clock=time.time, decline=declined) as listening:
        listening.expect(SECRET)
        yield listening


def post(receiver, value, secret=SECRET):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return httpx.post(receiver.url, content=body, headers=signed(body, secret), trust_env=False)


def test_a_signed_webhook_is_valid_and_its_changed_copy_is_not(receiver):
    """What both verifiers accept is valid; the same event in other bytes is refused by them."""
    assert post(receiver, event()).status_code == 200
    (received,) = receiver.fresh()
    assert (received.verdict, received.forgery_refused, received.attempt) == ("valid", True, 1)
    assert receiver.fresh() == []


def test_a_wrong_signature_is_shown_as_refused(receiver):
    """Another secret gets 401, and the verdict says that it was refused."""
    assert post(receiver, event(), new_secret(secrets.token_bytes)).status_code == 401
    (received,) = receiver.fresh()
    assert received.verdict.startswith("refused: ")
    assert not received.valid


def test_the_plan_is_declined_once(receiver):
    """The first attempt at the plan's event is answered 503, the second 200."""
    plan = event("run.awaiting_input", pause=2, requests=[{"kind": "plan"}])
    assert [post(receiver, plan).status_code for _ in range(2)] == [503, 200]
    assert [received.attempt for received in receiver.fresh()] == [1, 2]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"timestamp": 1}', b"\xff"])
def test_what_is_no_event_is_refused(receiver, body):
    """A body that is no event gets 400 and is not kept."""
    assert post(receiver, body).status_code == 400
    assert receiver.fresh() == []


def test_another_path_is_not_served(receiver):
    """Only the path that was subscribed is answered."""
    url = receiver.url.replace("/hooks/signoff", "/other")
    assert httpx.post(url, content=b"{}", trust_env=False).status_code == 404


def test_a_verdict_names_what_is_wrong():
    """Headers that are missing or garbled give a verdict, never an exception."""
    body = b"{}"
    assert verdict_on(body, signed(body), SECRET) == "valid"
    for broken in ({}, {**signed(body), "webhook-signature": "v1"}):
        assert verdict_on(body, broken, SECRET).startswith("refused: ")


def test_the_ledger_waits_for_whole_lines(tmp_path):
    """A line without its end is not read; a missing file is an empty ledger."""
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.entries() == []
    row = {
        "run_id": 1,
        "tool": "send_email",
        "phase": "start",
        "digest": "d",
        "idempotency_key": "1:1:c",
        "attempt": 1,
        "ts": 1.0,
    }
    ledger.path.write_text(json.dumps(row) + "\n" + json.dumps(row)[:20])
    (entry,) = ledger.entries("send_email", "start")
    assert (entry.tool, entry.idempotency_key) == ("send_email", "1:1:c")
    assert ledger.entries("other") == []


def test_what_does_not_hold_is_listed():
    """Failed expectations are counted and named at the end; markup in a text is shown as it is."""
    out = io.StringIO()
    timeline = Timeline(Console(file=out, width=100, highlight=False))
    timeline.add(Row(at=0.5, event="run.started", what="[bold]run 1"))
    timeline.check("this holds", holds=True)
    timeline.show([])
    assert "All 1 expectations held." in out.getvalue()
    assert out.getvalue().count("[bold]run 1") == 2
    timeline.check("this does not", holds=False)
    timeline.show([])
    assert timeline.failures == ["this does not"]
    assert "1 expectations did not hold:\n  - this does not" in out.getvalue()


def test_the_script_has_the_form_that_the_service_checks():
    """The demo's script is accepted by the check that the service makes."""
    check_script({"script": SCRIPT})
