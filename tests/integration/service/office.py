"""A service with a worker in process, seen through the event format of AgentScope."""

import itertools
import json

from tests.integration.service.tap import Tap
from workers.driver import Driver
from workers.engine import Engine
from workers.history import Histories
from workers.judging import Judging
from workers.model.scripted import ScriptedModel
from workers.tools import Tools

TOOLS = "examples.demo_tools,tests.integration.service.outside"
FORMAT = b"format=agentscope"
MAIL = {"to": "ada@acme.com", "subject": "Hi", "body": "text"}
QUESTION = {
    "question": "Which one?",
    "header": "Pick",
    "multiSelect": False,
    "options": [{"label": "A", "description": "the first"}, {"label": "B"}],
}


class Listening:
    """The scripted model, with what it was asked."""

    def __init__(self):
        self._model = ScriptedModel()
        self.requests = []

    async def reply(self, request, **ways):
        self.requests.append(request)
        return await self._model.reply(request, **ways)


class Office:
    """Runs are made and decided over HTTP and driven by hand."""

    def __init__(self, world):
        self.world = world
        self.api = world.api
        context, store = world.context, world.store
        self.model = Listening()
        self.engine = Engine(
            store=store,
            publisher=context.publisher,
            tools=Tools(context.toolbox),
            judging=Judging(lambda: f"req_{context.new_id()}"),
            model=self.model,
            histories=Histories(store.runs),
            now_ms=context.now_ms,
            new_id=context.new_id,
            lease_s=store.steps.lease_ms / 1000,
            hint=lambda _shard, _run_id: None,
        )

    async def start(self, *turns, **body):
        """A run of that script that has gone as far as it can; its id."""
        wanted = {
            "message": "go",
            "permission_mode": "approval",
            "human_in_the_loop": True,
            "metadata": {"script": list(turns)},
            **body,
        }
        made = await self.api.post("/v1/runs", json=wanted)
        assert made.status_code == 201, made.text
        await self.drive()
        return made.json()["id"]

    async def drive(self):
        """Drives everything that is due."""
        while held := await self.world.store.steps.take(
            0, drainer="office", room=10, awake_ms=1000
        ):
            for item in held:
                await Driver(self.engine, item).drive()

    async def crash_in_call(self, run_id):
        """A worker dies while it runs the run's first call."""
        store = self.world.store
        (held,) = await store.steps.take(0, drainer="lost", room=10, awake_ms=1000)
        rules = await store.catalog.rules(held.run.account, run_id)
        await store.steps.start_call(held.run, held.calls[0], rules_v=rules.version, attempt=1)
        await store.connection.call("HSET", f"sg:{{s0}}:run:{run_id}", "lease_until", "1")
        await store.connection.call("ZADD", "sg:{s0}:leases", 1, str(run_id))
        await store.steps.sweep(0)

    def tap(self, run_id, *, after=None, query=FORMAT):
        """A stream of the run."""
        headers = () if after is None else [(b"last-event-id", after.encode())]
        return Tap(self.world.app, f"/v1/runs/{run_id}/stream", query=query, headers=headers)

    async def events(self, run_id, *, after=None):
        """(SSE id, event) of all that a stream shows that ends by itself."""
        async with self.tap(run_id, after=after).open() as stream:
            await stream.end()
        assert stream.status == 200, stream.text
        return stream.events

    async def calls(self, run_id):
        """The tool calls that are asked for, by id."""
        return {
            event["tool_calls"][0]["id"]: event["tool_calls"][0]
            for _, event in await self.events(run_id)
            if event["type"].startswith("REQUIRE")
        }

    async def send(self, run_id, event, *, drive=False):
        """Sends an event of AgentScope."""
        answer = await self.api.post(f"/v1/runs/{run_id}/events", json=event)
        if drive:
            await self.drive()
        return answer

    async def history(self, run_id):
        """The messages as they are stored."""
        key = f"{self.world.store.runs.shards.prefix(run_id)}msg:{run_id}"
        return await self.world.store.connection.call("LRANGE", key, 0, -1)


def calls(*items):
    """A scripted turn of calls: (id, tool, input)."""
    return {"tool_calls": [{"id": i, "name": name, "input": value} for i, name, value in items]}


def confirm(run_id, *results, turn=1, **fields):
    """A USER_CONFIRM_RESULT."""
    return {
        "type": "USER_CONFIRM_RESULT",
        "reply_id": f"run_{run_id}_{turn}",
        "confirm_results": list(results),
        **fields,
    }


def verdict(call, *, confirmed=True, **fields):
    """One of its items."""
    return {"confirmed": confirmed, "tool_call": call, **fields}


def executed(run_id, *results, turn=1, **fields):
    """An EXTERNAL_EXECUTION_RESULT."""
    return {
        "type": "EXTERNAL_EXECUTION_RESULT",
        "reply_id": f"run_{run_id}_{turn}",
        "execution_results": list(results),
        **fields,
    }


def result(call, output="found", *, state="success", **fields):
    """One of its items."""
    return {
        "type": "tool_result",
        "id": call["id"],
        "name": call["name"],
        "output": output,
        "state": state,
        **fields,
    }


def answers(*items):
    """Metadata of a result that answers questions: (question, selected, other)."""
    rows = [
        {"question": question, "selected": selected, "other": other}
        for question, selected, other in itertools.starmap(_full, items)
    ]
    return {"answers": rows}


def _full(question, selected=(), other=None):
    return question, list(selected), other


def edited(call, **changes):
    """The call with another input."""
    return {**call, "input": json.dumps({**json.loads(call["input"]), **changes})}


def kinds(events):
    """The types, and of results the state."""
    return [
        f"{event['type']}({event.get('state') or event.get('finished_reason')})"
        if event["type"] in ("TOOL_RESULT_END", "REPLY_END")
        else event["type"]
        for _, event in events
    ]
