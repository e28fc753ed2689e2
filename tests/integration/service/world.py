"""The service in process, its clients, and hands that park runs the way a worker does."""

import base64
import json
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from service.app import create_app
from signoff.canonical import canonical, digest
from signoff.domain.call import CallState, Effect
from signoff.domain.gate import GateKind, listed_call
from signoff.domain.message import Message, Text, ToolUse
from signoff.domain.rule import suggested_rules
from signoff.settings import Settings
from signoff.signing import sign_decision
from signoff.store.steps import Held, NewCall, NewGate, StepCommit
from tests.conftest import SECRET_KEY
from tests.integration.service.contract import check_response

KEY, OTHER_KEY = "key-of-account-one", "key-of-account-two"
ROOT = Path(__file__).resolve().parents[3]
KINDS = {"AskUserQuestion": GateKind.QUESTION, "ExitPlanMode": GateKind.PLAN}
SEND = {"to": "a@acme.com", "subject": "Hi", "body": "text"}
QUESTIONS = {
    "questions": [
        {
            "question": "Which one?",
            "header": "Pick",
            "multiSelect": False,
            "options": [{"label": "A"}, {"label": "B"}],
        }
    ]
}


class World:
    """A running service with clients of two accounts."""

    def __init__(self, app, clients) -> None:
        self.app = app
        self.context = app.state.context
        self.store = self.context.store
        self.api, self.other, self.nobody = clients
        self.steps = 0
        self.held: dict[int, Held] = {}

    async def run(self, **body):
        """A run made through the API."""
        made = await self.api.post("/v1/runs/", json={"message": "go", "stream": False, **body})
        assert made.status_code == 201, made.text
        return made.json()["id"]

    async def park(self, run_id, *calls, kind=None):
        """Opens a gate for each (tool, input), as one pause; returns the gates as listed."""
        for taken in await self.store.steps.take(0, drainer="t", room=100, awake_ms=1):
            self.held[taken.run.id] = taken
        held = self.held.pop(run_id)
        self.steps += 1
        uses = [ToolUse(f"call_{n}", tool, value) for n, (tool, value) in enumerate(calls)]
        new, gates, listed = [], [], []
        for n, use in enumerate(uses):
            gate_kind = kind or KINDS.get(use.name, GateKind.TOOL_APPROVAL)
            bound = digest(*listed_call(gate_kind, use.name, use.input))
            new.append(
                NewCall(
                    id=use.id,
                    tool=use.name,
                    input_json=canonical(use.input).decode(),
                    digest=bound,
                    state=CallState.ASKED,
                    effect=Effect.ONCE,
                )
            )
            suggested = []
            if gate_kind is GateKind.TOOL_APPROVAL:
                suggested = suggested_rules(use.name, patterned=use.name == "Bash")
            gate_id = f"req_{run_id}_{self.steps}_{n}"
            gates.append(NewGate(id=gate_id, kind=gate_kind, n=n, suggested_rules=suggested))
            listed.append(
                self.context.publisher.request_payload(
                    request_id=gate_id,
                    kind=gate_kind,
                    tool=use.name,
                    tool_input=listed_call(gate_kind, use.name, use.input)[1],
                    digest=bound,
                    suggested_rules=suggested,
                )
            )
        run = held.run
        message = Message(role="assistant", blocks=(Text("hm"), *uses), turn=1, step=1)
        rules = await self.store.catalog.rules(run.account, run.id)
        await self.store.steps.commit(
            run,
            StepCommit(
                commit_id=f"commit_{run_id}_{self.steps}",
                messages=[message],
                usage={"input_tokens": 3},
                rules_v=rules.version,
                calls=new,
                gates=gates,
                pause=self.context.publisher.awaiting_input(run, listed),
                fanout=await self.context.publisher.fanout(run, "run.awaiting_input"),
            ),
        )
        return await self.gates(run_id)

    async def parked(self, *calls, kind=None, **body):
        """A run that is parked on a gate per call: its id and the gates."""
        run_id = await self.run(human_in_the_loop=True, **body)
        return run_id, await self.park(run_id, *(calls or [("send_email", SEND)]), kind=kind)

    async def gates(self, run_id):
        """The gates as the API lists them."""
        return (await self.api.get(f"/v1/runs/{run_id}/permissions")).json()

    async def status(self, run_id):
        """The status of the run as the API tells it."""
        return (await self.api.get(f"/v1/runs/{run_id}")).json()["status"]

    async def call(self, run_id, n=0):
        """A call of the run's current step as stored."""
        return (await self.store.runs.calls(run_id))[n]

    async def webhook(self, **body):
        """An endpoint that may call back."""
        wanted = {"url": "https://example.com/hook", "events": ["run.awaiting_input"], **body}
        made = await self.api.post("/v1/webhooks/", json=wanted)
        assert made.status_code == 201, made.text
        return made.json()

    async def callback(self, webhook, body, *, msg_id="msg_1", at=None, secret=None, headers=None):
        """A signed callback to the endpoint."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed = sign_decision(
            secret or webhook["secret"],
            raw,
            msg_id=msg_id,
            timestamp=int(time.time()) if at is None else at,
        )
        return await self.nobody.post(
            f"/v1/callbacks/{webhook['id']}",
            content=raw,
            headers={"content-type": "application/json", **signed, **(headers or {})},
        )


def settings(redis_url, **environ):
    """Settings of a service on that store."""
    return Settings.load(
        {
            "SIGNOFF_REDIS_URL": redis_url,
            "SIGNOFF_SECRET_KEYS": SECRET_KEY,
            "SIGNOFF_SCRIPTED_MODEL": "1",
            "SIGNOFF_TOOLS": "examples.demo_tools",
            **environ,
        }
    )


@asynccontextmanager
async def serving(loaded):
    """The running application of these settings."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        app = create_app(loaded)
    finally:
        os.chdir(before)
    async with app.router.lifespan_context(app):
        yield app


def client(app, key=None):
    """A client of the application; each answer is held against the document."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    # Errors that escape the application are failures of the test, not answers.
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx.AsyncClient(
        transport=transport,
        base_url="http://signoff.test",
        headers=headers,
        event_hooks={"response": [check_response]},
    )


def other_secret():
    """A well-formed secret that no endpoint has."""
    return "whsec_" + base64.b64encode(bytes(32)).decode()
