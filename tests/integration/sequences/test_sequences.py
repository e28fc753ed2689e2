"""Whatever people, machines and crashes do to a run, its history stays one a provider accepts."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from signoff.domain.error import LeaseLostError, UnavailableError
from signoff.store.facade import Store, open_store
from signoff.toolbox import Toolbox
from tests.conftest import SECRET_KEY
from tests.integration.sequences import tools
from tests.integration.sequences.strict import QUESTION, StrictProvider
from tests.integration.service.world import KEY, client, serving, settings
from tests.time_travel import do_due, pass_time
from webhooks.publish import Publisher
from workers.driver import Driver
from workers.engine import Engine
from workers.history import Histories
from workers.judging import Judging
from workers.tools import Tools

pytestmark = pytest.mark.anyio
MOVES = 14
EXPIRES_S = 3600
SHARD = "sg:{s0}:"
DECLARED = [
    {
        "name": name,
        "description": name,
        "input_schema": {"type": "object", "properties": {field: {"type": kind}}},
    }
    for name, field, kind in (("declared", "what", "string"), ("AskUser", "questions", "array"))
]


class Died(Exception):  # noqa: N818 - not an error of the product
    """The worker process ends here."""


class Life:
    """One store, one service, one worker that may die at any script, and a provider."""

    def __init__(self, url: str, api: httpx.AsyncClient) -> None:
        self.api = api
        self.provider = StrictProvider()
        self.ids = itertools.count(1)
        self.store = open_store(url, secret_keys=[SECRET_KEY], lease_s=30.0)
        self.engine = self._engine(self.store)
        #: At the how manieth script of that name ("": of any) what happens.
        self.fault: tuple[int, str, str] | None = None
        original = self.store.scripts.run

        async def run(name: str, prefix: str, args: Any) -> Any:
            kind = self._due(name)
            if kind == "before":
                raise Died
            reply = await original(name, prefix, args)
            if kind == "after":
                raise Died
            if kind == "lost":
                raise UnavailableError("lost")
            return reply

        self.store.scripts.run = run  # type: ignore[method-assign]

    def _engine(self, store: Store) -> Engine:
        def new_id() -> str:
            return f"id{next(self.ids)}"

        return Engine(
            store=store,
            publisher=Publisher(store.catalog, now_ms=lambda: 1, token=new_id),
            tools=Tools(Toolbox({"tools": tools})),
            judging=Judging(lambda: f"req_{new_id()}"),
            model=self.provider,
            histories=Histories(store.runs),
            now_ms=lambda: 1,
            new_id=new_id,
            lease_s=30.0,
            hint=lambda _shard, _run_id: None,
            sleep=lambda _seconds: asyncio.sleep(0),
        )

    def _due(self, name: str) -> str | None:
        if self.fault is None or self.fault[2] not in ("", name):
            return None
        left, kind, script = self.fault
        self.fault = (left - 1, kind, script) if left else None
        return None if left else kind

    async def drive(self) -> None:
        """Drives all that is ready; after a death the lease ends and the sweeper comes."""
        while True:
            # The taking is not part of the schedule: a death there loses nothing but the lease.
            fault, self.fault = self.fault, None
            held = await self.store.steps.take(0, drainer="d", room=10, awake_ms=1)
            self.fault = fault
            if not held:
                return
            for item in held:
                try:
                    await Driver(self.engine, item).drive()
                except (Died, LeaseLostError):
                    await self._expire(item.run.id)

    async def _expire(self, run_id: int) -> None:
        self.fault = None
        connection, key = self.store.connection, f"{SHARD}run:{run_id}"
        if await connection.call("HGET", key, "lease_until") != b"0":
            await connection.calls(
                ("HSET", key, "lease_until", "1"), ("ZADD", f"{SHARD}leases", 1, str(run_id))
            )
        await self.store.steps.sweep(0)

    # -- what people do ------------------------------------------------------------------------

    async def create(self, rng: random.Random) -> int:
        mode = rng.choice(("approval", "approval", "autonomous"))
        made = await self.api.post(
            "/v1/runs/",
            json={
                "message": "go",
                "stream": False,
                "human_in_the_loop": True if mode == "approval" else rng.random() < 0.7,
                "permission_mode": mode,
                "max_turns": rng.choice((3, 50)),
                "expires_in": EXPIRES_S,
                "external_tools": DECLARED,
                "on_expiry": rng.choice(("deny", "deny", "answer", "cancel")),
            },
        )
        assert made.status_code == 201, made.text
        number: int = made.json()["id"]
        return number

    async def move(self, rng: random.Random, run_id: int) -> None:
        """One random move; whatever it answers, it is no server error."""
        pending = await self.pending(run_id)
        kinds = ["drive", "drive", "crash", "reply", "switch", "rule"]
        kinds += ["cancel"] if rng.random() < 0.25 else []
        kinds += ["decide", "decide", "batch", "expire"] if pending else []
        kind = rng.choice(kinds)
        if kind == "drive":
            await self.drive()
        elif kind == "crash":
            self.fault = (rng.randrange(8), rng.choice(("before", "after", "lost")), "")
            await self.drive()
            self.fault = None
        elif kind == "reply":
            await self.say(run_id, "more")
        elif kind == "cancel":
            await self._post(f"/v1/runs/{run_id}/cancel", {})
        elif kind == "switch":
            await self._switch(run_id, rng.choice(("approval", "autonomous", "plan")))
        elif kind == "rule":
            await self._rule(rng)
        elif kind == "expire":
            await self.nobody_decides()
        else:
            chosen = rng.sample(pending, k=len(pending) if kind == "batch" else 1)
            items = [self.decision(rng, gate) for gate in chosen]
            await self._post(f"/v1/runs/{run_id}/decisions", {"decisions": items})

    async def say(self, run_id: int, text: str) -> None:
        await self._post(f"/v1/runs/{run_id}/reply", {"message": text, "stream": False})

    async def nobody_decides(self) -> None:
        """The time of the open gates is over."""
        await pass_time(self.store, EXPIRES_S + 1)
        await do_due(self.store, self.engine.publisher)

    def decision(self, rng: random.Random, gate: dict[str, Any]) -> dict[str, Any]:
        """A decision that fits the gate."""
        item: dict[str, Any] = {"request_id": gate["request_id"]}
        if gate["kind"] == "question":
            return {**item, "answers": {QUESTION["question"]: rng.choice(("A", "B", "other"))}}
        if gate["kind"] == "plan":
            return {**item, "answers": {"Plan Approval": rng.choice(("Approve", "not yet"))}}
        if gate["kind"] == "external":
            state = rng.choice(("success", "error"))
            return {**item, "result": {"output": "from outside", "state": state}}
        if rng.random() < 0.4:
            return {**item, "decision": "deny", "reason": "no"}
        if gate["kind"] == "tool_approval" and rng.random() < 0.4:
            return {**item, "decision": "allow", "input": {"what": "edited"}}
        if gate["kind"] == "tool_approval" and rng.random() < 0.2:
            return {**item, "decision": "allow", "remember": True}
        return {**item, "decision": "allow"}

    async def pending(self, run_id: int) -> list[dict[str, Any]]:
        listed = (await self.api.get(f"/v1/runs/{run_id}/permissions")).json()
        return [gate for gate in listed if gate["status"] == "pending"]

    async def status(self, run_id: int) -> str:
        text: str = (await self.api.get(f"/v1/runs/{run_id}")).json()["status"]
        return text

    async def _switch(self, run_id: int, mode: str) -> None:
        answer = await self.api.patch(
            f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": mode}
        )
        assert answer.status_code < 500, answer.text

    async def _rule(self, rng: random.Random) -> None:
        listed = (await self.api.get("/v1/permissions/")).json()["data"]
        if listed and rng.random() < 0.7:
            await self.api.delete(f"/v1/permissions/{listed[0]['id']}")
            return
        effect = rng.choice(("allow", "ask", "deny"))
        await self._post(
            "/v1/permissions/", {"tool": rng.choice(("send", "put")), "effect": effect}
        )

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.api.post(path, json=body)
        assert answer.status_code < 500, answer.text

    async def to_the_end(self, rng: random.Random, run_id: int) -> None:
        """Everybody does what is asked of them, until the run is over."""
        for _ in range(60):
            await self.drive()
            pending = await self.pending(run_id)
            if pending:
                items = [self.decision(rng, gate) for gate in pending]
                await self._post(f"/v1/runs/{run_id}/decisions", {"decisions": items})
            elif await self.status(run_id) in ("completed", "failed", "cancelled"):
                return
        raise AssertionError(f"run {run_id} does not end: {await self.status(run_id)}")


@pytest.fixture
async def life(redis_url: str) -> AsyncIterator[Life]:
    loaded = settings(redis_url, SIGNOFF_TOOLS="tests.integration.sequences.tools")
    async with serving(loaded) as app:
        store = app.state.context.store
        account = await store.accounts.ensure("one")
        await store.accounts.add_key(account, secret=KEY, name="test", now_ms=0)
        async with client(app, KEY) as api:
            life = Life(redis_url, api)
            yield life
            await life.store.close()


async def live(life: Life, seed: int) -> None:
    """One run from its start through random moves to its end, and one turn more."""
    rng = random.Random(seed)
    life.provider.seed = seed
    tools.RAN.clear()
    run_id = await life.create(rng)
    for _ in range(rng.randrange(2, MOVES)):
        await life.move(rng, run_id)
    await life.to_the_end(rng, run_id)
    await life.say(run_id, "and now?")
    await life.to_the_end(rng, run_id)
    assert not life.provider.violations, f"seed {seed}: {life.provider.violations}"


async def test_a_queued_turn_starts_once_although_the_reply_to_that_is_lost(life: Life) -> None:
    """Two messages wait, and the first one's turn starts unseen: both turns come, none twice."""
    run_id = await life.create(random.Random(1))
    for text in ("one", "two"):
        await life.say(run_id, text)
    life.fault = (0, "lost", "start_turn")
    async with asyncio.timeout(10):
        await life.to_the_end(random.Random(1), run_id)
    came_to_that = life.fault is None
    assert came_to_that
    history = await life.store.runs.history(run_id)
    assert [m.text for m in history if m.role == "user"] == ["go", "one", "two"]


@pytest.mark.parametrize("part", range(4))
async def test_a_strict_provider_sees_only_pairs(life: Life, part: int) -> None:
    """Approve, deny, edit, expire, cancel, reply, crash in any order: never an unpaired call."""
    for seed in range(part * 25, part * 25 + 25):
        await live(life, seed)
    assert life.provider.requests > 50


@pytest.mark.soak
async def test_a_strict_provider_sees_only_pairs_a_thousand_times(life: Life) -> None:
    """The same over a thousand sequences."""
    for seed in range(1000):
        await live(life, seed)
    assert life.provider.requests > 2000
