"""A flow: people at the API, an engine that is driven by hand, and what the model was asked."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import httpx
import pytest

from signoff.domain.message import Message, ToolResult, ToolUse
from signoff.store.facade import Store, open_store
from signoff.toolbox import Toolbox
from tests.conftest import SECRET_KEY
from tests.integration.flows import tools
from tests.integration.service.world import KEY, client, serving, settings
from webhooks.publish import Publisher
from workers.driver import Driver
from workers.engine import Engine
from workers.history import Histories
from workers.judging import Judging
from workers.model.port import Count, Model, ModelReply, ModelRequest, OnText
from workers.model.scripted import ScriptedModel
from workers.tools import Tools

SHARD = "sg:{s0}:"


class Listening:
    """Another model, and all that it was asked."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.asked: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        self.asked.append(request)
        return await self.model.reply(request, on_text=on_text, count=count)


class Flow:
    """One service and one engine on a real store."""

    def __init__(self, url: str, api: httpx.AsyncClient, service: Store) -> None:
        self.url = url
        self.api = api
        #: The store as the service has it.
        self.service = service
        self.model = Listening(ScriptedModel())
        self._name, self._ids = f"id{secrets.token_hex(4)}_", itertools.count(1)
        self.store: Store
        self.engine: Engine
        self.open(tools)

    def open(self, module: ModuleType, *, now_ms: int = 1) -> None:
        """Makes an engine that knows nothing yet, with the tools of ``module``."""
        self.store = open_store(self.url, secret_keys=[SECRET_KEY], lease_s=30.0)

        def new_id() -> str:
            return f"{self._name}{next(self._ids)}"

        self.engine = Engine(
            store=self.store,
            publisher=Publisher(self.store.catalog, now_ms=lambda: now_ms, token=new_id),
            tools=Tools(Toolbox({"tools": module})),
            judging=Judging(lambda: f"req_{new_id()}"),
            model=self.model,
            histories=Histories(self.store.runs),
            now_ms=lambda: now_ms,
            new_id=new_id,
            lease_s=30.0,
            hint=lambda _shard, _run_id: None,
            sleep=lambda _seconds: asyncio.sleep(0),
        )

    async def restart(self, module: ModuleType = tools) -> None:
        """The worker process ends, and another one comes up, perhaps with other tools."""
        await self.store.close()
        self.open(module)

    def speak(self, model: Model) -> None:
        """From now on that model is asked."""
        self.model.model = model

    # -- what people do ------------------------------------------------------------------------

    async def create(self, script: Sequence[Mapping[str, Any]] = (), **body: Any) -> int:
        """A run of that script, with a person in the loop."""
        made = await self.post(
            "/v1/runs/",
            message="go",
            stream=False,
            human_in_the_loop=True,
            permission_mode=body.pop("permission_mode", "approval"),
            metadata={"script": list(script)},
            **body,
        )
        return int(made["id"])

    async def post(self, path: str, **body: Any) -> Any:
        """The answer to a request that must not be refused."""
        answer = await self.api.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def say(self, run_id: int, text: str) -> None:
        """One more message."""
        await self.post(f"/v1/runs/{run_id}/reply", message=text, stream=False)

    async def switch(self, run_id: int, mode: str) -> None:
        """Another mode."""
        path = f"/v1/runs/{run_id}/permission-mode"
        answer = await self.api.patch(path, json={"permission_mode": mode})
        assert answer.status_code == 200, answer.text

    async def decide(
        self, run_id: int, gate: Mapping[str, Any], decision: str = "allow", **more: Any
    ) -> httpx.Response:
        """One verdict, whatever is answered to it."""
        body = {"request_id": gate["request_id"], "decision": decision, **more}
        return await self.api.post(f"/v1/runs/{run_id}/approve", json=body)

    async def allow(self, run_id: int, gate: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """An allow that is taken."""
        answer = await self.decide(run_id, gate, **more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def deny(self, run_id: int, gate: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """A deny that is taken."""
        answer = await self.decide(run_id, gate, "deny", **more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def answer(self, run_id: int, answers: Mapping[str, Any], **more: Any) -> Any:
        """The answers to the open question."""
        return await self.post(f"/v1/runs/{run_id}/answer", answers=answers, **more)

    # -- what they see -------------------------------------------------------------------------

    async def gates(self, run_id: int) -> list[dict[str, Any]]:
        """All requests of the run, oldest first."""
        return list((await self.api.get(f"/v1/runs/{run_id}/permissions")).json())

    async def pending(self, run_id: int) -> list[dict[str, Any]]:
        """Those that are open."""
        return [gate for gate in await self.gates(run_id) if gate["status"] == "pending"]

    async def one(self, run_id: int) -> dict[str, Any]:
        """The one that is open."""
        (gate,) = await self.pending(run_id)
        return gate

    async def status(self, run_id: int) -> str:
        """The status of the run."""
        return str((await self.api.get(f"/v1/runs/{run_id}")).json()["status"])

    async def events(self, kind: str) -> list[dict[str, Any]]:
        """The payloads of that kind in the account's event log, oldest first."""
        page = (await self.api.get(f"/v1/events?type={kind}&limit=100")).json()
        return [event["data"] for event in reversed(page["data"])]

    # -- what machines do ----------------------------------------------------------------------

    async def drive(self) -> None:
        """Drives all that is ready."""
        while held := await self.store.steps.take(0, drainer="d", room=10, awake_ms=1):
            for item in held:
                await Driver(self.engine, item).drive()

    async def lose(self, run_id: int) -> None:
        """The holder of the run is gone, and its lease is over."""
        connection = self.store.connection
        await connection.call("HSET", f"{SHARD}run:{run_id}", "lease_until", "1")
        await connection.call("ZADD", f"{SHARD}leases", 1, str(run_id))
        await self.store.steps.sweep(0)


def calls(*items: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A scripted turn of tool calls (id, name, input)."""
    return {"tool_calls": [{"id": i, "name": n, "input": v} for i, n, v in items]}


def send(call_id: str, what: str = "x") -> tuple[str, str, dict[str, Any]]:
    """A call that needs a person."""
    return (call_id, "send", {"what": what})


def question(text: str = "Which?") -> dict[str, Any]:
    """The input of one question."""
    options = [{"label": "A"}, {"label": "B"}]
    return {
        "questions": [{"question": text, "header": "H", "multiSelect": False, "options": options}]
    }


def ran(tool: str | None = None) -> list[str]:
    """The ids of the calls that were executed, in order."""
    return [one.call for one in tools.RAN if tool in (None, one.tool)]


def spoken(messages: Sequence[Message]) -> list[str]:
    """The calls and results of a history in order: ``+id`` asked, ``-id`` answered."""
    return [
        f"+{block.id}" if isinstance(block, ToolUse) else f"-{block.tool_use_id}"
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolUse | ToolResult)
    ]


def results(request: ModelRequest) -> list[ToolResult]:
    """The results that the model was shown, in order."""
    return [
        block
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    ]


@asynccontextmanager
async def flowing(url: str) -> AsyncGenerator[Flow]:
    """A flow on the store of ``url``, which may have been used before."""
    tools.RAN.clear()
    loaded = settings(url, SIGNOFF_TOOLS="tests.integration.flows.tools")
    async with serving(loaded) as app:
        store = app.state.context.store
        account = await store.accounts.ensure("one")
        await store.accounts.add_key(account, secret=KEY, name="test", now_ms=0)
        async with client(app, KEY) as api:
            found = Flow(url, api, store)
            yield found
            await found.store.close()
    tools.RAN.clear()


@pytest.fixture
async def flow(redis_url: str) -> AsyncIterator[Flow]:
    """The flow, on an empty store."""
    async with flowing(redis_url) as found:
        yield found
