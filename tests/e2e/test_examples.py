"""Each example receiver as a process of its own, against a real service."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import httpx
import pytest

from signoff import Client
from signoff.testing import signed_webhook
from tests.e2e.harness import KEY, ROOT, free_port, until

APPS = ("starlette_app", "fastapi_app", "flask_app", "django_app")
ASK = {
    "name": "AskUserQuestion",
    "input": {
        "questions": [
            {
                "question": "Which?",
                "header": "Pick",
                "options": [{"label": "First"}, {"label": "Second"}],
            }
        ]
    },
}


def mail(to):
    return {"name": "send_email", "input": {"to": to, "subject": "Hello", "body": "Hi"}}


@contextmanager
def started(app, port, **environ) -> Iterator[str]:
    """The running example; its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"examples.receivers.{app}"],
        cwd=ROOT,
        env={**os.environ, "PORT": str(port), **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    url = f"http://127.0.0.1:{port}/hooks"

    def up():
        assert process.poll() is None, process.stderr and process.stderr.read()
        with suppress(httpx.HTTPError):
            return httpx.post(url, content=b"{}").status_code
        return None

    try:
        until(up, what=f"{app} to listen")
        yield url
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("app", APPS)
def test_a_receiver_verifies_deduplicates_and_decides(app, dev):
    """Its callbacks carry a run through a question, an allowed and a denied call."""
    port = free_port()
    with closing(Client(base_url=dev.url, api_key=KEY)) as client:
        hook = client.webhooks.create(
            f"http://127.0.0.1:{port}/hooks", events=["run.awaiting_input"], user_id=app
        )
        assert hook.secret is not None
        assert hook.callback_url is not None
        environ = {"SIGNOFF_WEBHOOK_SECRET": hook.secret, "SIGNOFF_CALLBACK_URL": hook.callback_url}
        with started(app, port, **environ) as url:
            script = [
                {"tool_calls": [ASK]},
                {"tool_calls": [mail("ada@example.com"), mail("eve@evil.test")]},
                {"text": "{{last_results}}"},
            ]
            run = client.runs.create_and_wait(
                "go",
                user_id=app,
                human_in_the_loop=True,
                permission_mode="approval",
                metadata={"script": script},
                decided_elsewhere=True,
                timeout=30,
            )
            assert run.status == "completed"
            question, allowed, denied = client.runs.permissions(run.id)
            assert (question.tool_input or {})["answers"] == {"Which?": "First"}
            assert (allowed.status, denied.status) == ("allowed", "denied")
            assert {gate.decided_by for gate in (question, allowed, denied)} == {
                f"webhook:{hook.id}"
            }
            forged = signed_webhook(msg_id="evt_forged")
            good = signed_webhook("run.completed", secret=hook.secret, msg_id="evt_once")
            statuses = [
                httpx.post(url, content=sample.body, headers=sample.headers).status_code
                for sample in (forged, good, good)
            ]
            assert statuses == [401, 202, 200]
        client.webhooks.delete(hook.id)
