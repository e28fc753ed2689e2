"""Moves of the store with the arguments that most tests do not care about."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from signoff.domain.call import Call, CallState, Effect
from signoff.domain.decision import Settlement
from signoff.domain.event import Event
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.message import Message, Text
from signoff.store.decisions import Decided, Resolution
from signoff.store.facade import Store
from signoff.store.records import RunRecord
from signoff.store.runs import Fanout, NewRun
from signoff.store.steps import Ending, Held, NewCall, NewGate, StepCommit

ACCOUNT = "1"
SHARD = "sg:{s0}:"


def user_says(text: str = "go") -> Message:
    return Message(role="user", blocks=(Text(text),), turn=1, step=0)


@dataclass(kw_only=True)
class Desk:
    """A store with the moves of a holder and of a decider, by hand."""

    store: Store
    ids: Any = field(default_factory=lambda: itertools.count(1))

    def event(self, kind: str, **payload: Any) -> Event:
        number = next(self.ids)
        return Event(id=f"evt_{number}", type=kind, body=json.dumps(payload).encode())

    async def version(self, what: str, account: str = ACCOUNT) -> str:
        found = await self.store.connection.call("HGET", f"{SHARD}ver", f"{what}:{account}")
        return "0" if found is None else str(found.decode())

    async def fanout(self, *endpoints: str, account: str = ACCOUNT) -> Fanout:
        return Fanout(version=await self.version("subs", account), endpoints=endpoints)

    async def new_run(self, *, account: str = ACCOUNT, **changed: Any) -> NewRun:
        fields: dict[str, Any] = {
            "id": await self.store.runs.next_id(),
            "account": account,
            "agent_id": 1,
            "user_id": None,
            "mode": "approval",
            "human_in_the_loop": True,
            "config": {"model": "scripted"},
            "message": user_says(),
            "started": self.event("run.started"),
            "fanout": await self.fanout(account=account),
        }
        return NewRun(**{**fields, **changed})

    async def create(self, **changed: Any) -> int:
        run = await self.new_run(**changed)
        await self.store.runs.create(run)
        return run.id

    async def take(self, room: int = 10, *, awake_ms: int = 0) -> list[Held]:
        return await self.store.steps.take(0, drainer="d", room=room, awake_ms=awake_ms)

    async def held(self, **changed: Any) -> RunRecord:
        """A new run under a lease."""
        await self.create(**changed)
        (item,) = await self.take()
        return item.run

    async def step(
        self, run: RunRecord, calls: Sequence[NewCall], *endpoints: str, **changed: Any
    ) -> StepCommit:
        """The commit of a step; each asked call opens a gate ``req_<run>_<call id>``."""
        gates = [
            NewGate(id=f"req_{run.id}_{c.id}", kind=GateKind.TOOL_APPROVAL, n=n)
            for n, c in enumerate(calls)
            if c.state is CallState.ASKED
        ]
        fields: dict[str, Any] = {
            "commit_id": f"commit-{next(self.ids)}",
            "messages": [Message(role="assistant", blocks=(Text("t"),), turn=1, step=run.step + 1)],
            "usage": {"input_tokens": 3, "output_tokens": 0},
            "rules_v": await self.version("rules", run.account),
            "calls": calls,
            "gates": gates,
        }
        if gates:
            fields["pause"] = self.event("run.awaiting_input", pause=run.pause_n + 1)
            fields["fanout"] = await self.fanout(*endpoints, account=run.account)
        return StepCommit(**{**fields, **changed})

    async def ending(self, *endpoints: str, status: str = "completed") -> Ending:
        return Ending(
            status=status,
            event=self.event(f"run.{status}"),
            fanout=await self.fanout(*endpoints),
            output="out",
        )

    async def parked(self, *endpoints: str, calls: Sequence[str] = ("a",)) -> RunRecord:
        """A run that waits on one gate for each of ``calls``."""
        run = await self.held()
        asked = [new_call(name, "asked") for name in calls]
        await self.store.steps.commit(run, await self.step(run, asked, *endpoints))
        return await self.load(run.id)

    async def load(self, run_id: int, account: str = ACCOUNT) -> RunRecord:
        return await self.store.runs.load(account, run_id)

    async def call(self, run_id: int, n: int = 0) -> Call:
        return (await self.store.runs.calls(run_id))[n]

    async def gates(self, run_id: int) -> dict[str, Gate]:
        return {gate.tool_use_id: gate for gate in await self.store.runs.gates(run_id)}

    async def decide(
        self, run: RunRecord, *verdicts: Resolution, endpoints: Sequence[str] = ()
    ) -> Decided:
        return await self.store.decisions.decide(
            run,
            verdicts,
            resumed=self.event("run.resumed"),
            fanout=await self.fanout(*endpoints, account=run.account),
        )

    async def expire(self, run_id: int) -> tuple[int, int]:
        """The holder dies: its lease is over, and the sweeper comes."""
        await self.store.connection.calls(
            ("HSET", f"{SHARD}run:{run_id}", "lease_until", "1"),
            ("ZADD", f"{SHARD}leases", 1, str(run_id)),
        )
        return await self.store.steps.sweep(0)

    async def raw(self, run_id: int) -> dict[str, str]:
        """The run's hash, the parts that only compare."""
        flat = await self.store.connection.call("HGETALL", f"{SHARD}run:{run_id}")
        return {k.decode(): v.decode() for k, v in zip(flat[::2], flat[1::2], strict=True)}

    async def audit(self, account: str = ACCOUNT) -> list[dict[str, str]]:
        rows = await self.store.connection.call("XRANGE", f"{SHARD}audit:{account}", "-", "+")
        return [
            {k.decode(): v.decode() for k, v in zip(row[::2], row[1::2], strict=True)}
            for _, row in rows
        ]

    async def events(self, kind: str, account: str = ACCOUNT) -> list[str]:
        """The ids of the account's events of one type."""
        ids = await self.store.connection.call("ZRANGE", f"{SHARD}evs:{account}", 0, -1)
        types = [
            await self.store.connection.call("HGET", f"{SHARD}ev:{i.decode()}", "type") for i in ids
        ]
        return [i.decode() for i, found in zip(ids, types, strict=True) if found.decode() == kind]


def new_call(name: str, state: str, effect: str = "once", grant: str = "mode") -> NewCall:
    return NewCall(
        id=name,
        tool="send",
        input_json='{"what":"x"}',
        digest="digest-" + name,
        state=CallState(state),
        effect=Effect(effect),
        grant=grant if state == "allowed" else "",
        result={"state": "error", "content": "no"} if state == "done" else None,
    )


def verdict(gate_id: str, kind: str = "allow", **settled: Any) -> Resolution:
    """A verdict as the API would make it; ``kind`` is allow or deny."""
    allow = kind == "allow"
    fields: dict[str, Any] = {
        "state": GateState.ALLOWED if allow else GateState.DENIED,
        "fingerprint": kind,
        "allows": allow,
        "result": None if allow else {"state": "denied", "content": "denied"},
    }
    outer = {
        "by": settled.pop("by", "tester"),
        "reason": settled.pop("reason", None),
        "expected_digest": settled.pop("expected_digest", None),
    }
    settlement = Settlement(**{**fields, **settled})
    return Resolution(gate_id=gate_id, settlement=settlement, grant=f"gate:{gate_id}", **outer)


@pytest.fixture
def desk(store: Store) -> Desk:
    """The empty store, by hand."""
    return Desk(store=store)
