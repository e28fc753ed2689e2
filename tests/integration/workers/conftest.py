"""An engine in process: real store, real tools, the scripted model, driven by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from signoff.canonical import canonical, digest
from signoff.declared import SchemaInputs
from signoff.domain import event as events
from signoff.domain.call import Call, CallState, cut_off, results_message
from signoff.domain.decision import Decision, settle
from signoff.domain.gate import Gate
from signoff.domain.message import Message, Text, ToolResult
from signoff.domain.rule import Verdict
from signoff.store.decisions import Decided, Resolution
from signoff.store.facade import Store
from signoff.store.runs import NewRun
from signoff.store.steps import Held
from signoff.store.turns import Announcement, NewTurn
from signoff.tooldef import Tool, current_call, tool
from webhooks.publish import Publisher
from workers.driver import Driver
from workers.engine import Engine
from workers.history import Histories
from workers.judging import Judging
from workers.model.scripted import ScriptedModel
from workers.tools import Tools

ACCOUNT = "1"


def make_tools(log: list[str]) -> dict[str, Tool]:
    """Tools that note that they ran."""

    def note(value: str) -> str:
        log.append(f"{current_call().tool_use_id}:{value}")
        return f"did {value}"

    @tool(read_only=True)
    def look(what: str) -> str:
        return note(what)

    @tool
    def send(what: str, copies: int = 1, urgent: bool = False) -> str:
        return note(f"{what}*{copies}{'!' if urgent else ''}")

    @tool(idempotent=True)
    def put(what: str) -> str:
        return note(what)

    @tool(external=True)
    def outside(what: str) -> str:
        return note(what)

    return {item.name: item for item in (look, send, put, outside)}


@dataclass(kw_only=True)
class Bench:
    """Creates, drives and decides runs without any process in between."""

    store: Store
    engine: Engine
    tools: dict[str, Tool]
    log: list[str]
    ids: Any = field(default_factory=lambda: itertools.count(1))

    async def create(self, script: list[dict[str, Any]], **options: Any) -> int:
        run_id = await self.store.runs.next_id()
        user_id = options.get("user_id")
        fanout = await self.engine.publisher.fanout_for(
            ACCOUNT, run_id, user_id, events.RUN_STARTED
        )
        await self.store.runs.create(
            NewRun(
                id=run_id,
                account=ACCOUNT,
                agent_id=1,
                user_id=user_id,
                mode=options.get("mode", "approval"),
                human_in_the_loop=options.get("hitl", True),
                config={
                    "model": options.get("model", "scripted"),
                    "metadata": {"script": script},
                    "max_turns": options.get("max_turns", 50),
                    "tools": options.get("tools"),
                    "external_tools": options.get("external_tools"),
                    "output_schema": options.get("output_schema"),
                    **options.get("limits", {}),
                },
                message=Message(role="user", blocks=(Text("go"),), turn=1, step=0),
                started=self.engine.publisher.event(events.RUN_STARTED, {"run_id": run_id}),
                fanout=fanout,
            )
        )
        return run_id

    async def take(self) -> list[Held]:
        return await self.store.steps.take(0, drainer="test", room=10, awake_ms=1000)

    async def drive(self) -> int:
        """Drives everything that is ready; returns how many runs were taken."""
        taken = 0
        while held := await self.take():
            for item in held:
                taken += 1
                await Driver(self.engine, item).drive()
        return taken

    async def gates(self, run_id: int) -> list[Gate]:
        return [g for g in await self.store.runs.gates(run_id) if g.state == "pending"]

    async def decide(
        self, run_id: int, *decisions: Decision, schema: dict[str, Any] | None = None
    ) -> Decided:
        run, gates = await self.store.runs.load_with_gates(ACCOUNT, run_id)
        by_id = {gate.id: gate for gate in gates}
        verdicts = [
            Resolution(
                gate_id=d.request_id,
                settlement=settle(
                    by_id[d.request_id],
                    d,
                    check_input=self.check if schema is None else checker(schema),
                ),
                by="test",
                reason=d.reason,
                expected_digest=d.expected_digest,
                grant=f"gate:{d.request_id}",
            )
            for d in decisions
        ]
        publisher = self.engine.publisher
        return await self.store.decisions.decide(
            run,
            verdicts,
            resumed=publisher.run_event(run, events.RUN_RESUMED, status="running"),
            fanout=await publisher.fanout(run, events.RUN_RESUMED),
        )

    def check(self, name: str, value: Any) -> tuple[str, str]:
        self.tools[name].check(dict(value))
        return canonical(dict(value)).decode(), digest(name, dict(value))

    async def results(self, run_id: int) -> list[ToolResult]:
        return [
            block
            for message in await self.store.runs.history(run_id)
            for block in message.blocks
            if isinstance(block, ToolResult)
        ]

    async def rule(self, tool: str, effect: str) -> None:
        """Stores a rule for every run of the account."""
        await self.store.policies.put(
            account=ACCOUNT,
            user_id=None,
            tool=tool,
            effect=Verdict(effect),
            source="api",
            now_ms=1,
        )
        self.store.catalog.forget(ACCOUNT)

    async def expire(self, run_id: int) -> None:
        """The holder dies: its lease is over."""
        await self.store.connection.call("HSET", f"sg:{{s0}}:run:{run_id}", "lease_until", "1")
        await self.store.connection.call("ZADD", "sg:{s0}:leases", 1, str(run_id))
        await self.store.steps.sweep(0)

    async def cancel(self, run_id: int) -> None:
        """As the service does it, of a run that is parked."""
        publisher = self.engine.publisher
        run, open_calls = await self.store.runs.load(ACCOUNT, run_id), await self.calls(run_id)
        closed = cut_off(open_calls, "It was cancelled.")
        await self.store.decisions.cancel(
            run,
            by="test",
            results={
                call.n: call.result or {}
                for call, was in zip(closed, open_calls, strict=True)
                if was.state is not CallState.DONE
            },
            message=results_message(closed, turn=run.turn, step=run.step, at_ms=1),
            cancelled=publisher.ended(run, "cancelled"),
            fanout=await publisher.fanout(run, events.RUN_CANCELLED),
        )

    async def reply(self, run_id: int, text: str, *before: Message) -> None:
        """The next turn of a run that has ended."""
        publisher = self.engine.publisher
        run = await self.store.runs.load(ACCOUNT, run_id)
        said = Message(role="user", blocks=(Text(text),), turn=run.turn + 1, step=run.step)
        started = Announcement(
            event=publisher.run_event(run, events.RUN_STARTED, status="running"),
            fanout=await publisher.fanout(run, events.RUN_STARTED),
        )
        turn = NewTurn(message_id=next(self.ids), messages=[*before, said], announcements=[started])
        await self.store.turns.start(run, turn, queued=False)

    async def calls(self, run_id: int) -> list[Call]:
        return await self.store.runs.calls(run_id)

    async def status(self, run_id: int) -> str:
        return (await self.store.runs.load(ACCOUNT, run_id)).status.value


def checker(schema: dict[str, Any]) -> Callable[[str, Any], tuple[str, str]]:
    """Checks an edit by the schema that the gate kept, as the service does."""

    def check(name: str, value: Any) -> tuple[str, str]:
        SchemaInputs(schema).check(dict(value))
        return canonical(dict(value)).decode(), digest(name, dict(value))

    return check


@pytest.fixture
def log() -> list[str]:
    """What the tools did, in order."""
    return []


@pytest.fixture
def bench(store: Store, log: list[str]) -> Bench:
    """The engine in process."""
    tools = make_tools(log)
    counter = itertools.count(1)

    def new_id() -> str:
        return f"id{next(counter)}"

    engine = Engine(
        store=store,
        publisher=Publisher(store.catalog, now_ms=lambda: 1_700_000_000_000, token=new_id),
        tools=Tools(tools),
        judging=Judging(lambda: f"req_{new_id()}"),
        model=ScriptedModel(),
        histories=Histories(store.runs),
        now_ms=lambda: 1_700_000_000_000,
        new_id=new_id,
        lease_s=store.steps.lease_ms / 1000,
        hint=lambda _shard, _run_id: None,
    )
    return Bench(store=store, engine=engine, tools=tools, log=log)


def calls(*items: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A scripted turn of tool calls (id, name, input)."""
    return {"tool_calls": [{"id": i, "name": n, "input": v} for i, n, v in items]}


def dumps(value: Any) -> str:
    return json.dumps(value)


Make = Callable[..., Any]
