"""A command of the service is lost on its way to the store, or the store's answer on its way back.

It is done with every command of a request in turn. The answer is 503, or the request was made all
the same; a repeat makes it whole, and nothing twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from signoff.domain.error import UnavailableError
from tests.integration.flows import tools
from tests.integration.flows.conftest import Flow, calls, question, ran, send

pytestmark = pytest.mark.anyio
END = {"text": "{{last_results}}"}
ARRIVES = pytest.mark.parametrize("arrives", [False, True], ids=["command-lost", "answer-lost"])
Request = Callable[[], Awaitable[httpx.Response]]


class Faults:
    """Takes a request through a fault at its first command, then at its second, and so on."""

    def __init__(self, flow: Flow, *, arrives: bool) -> None:
        self._connection = flow.service.connection
        self._submit = self._connection._submit
        self._arrives = arrives
        self.at = 0
        self._left = 0
        self._struck = True
        self._connection._submit = self._faulty  # type: ignore[method-assign]

    def __aiter__(self) -> AsyncIterator[int]:
        return self._rounds()

    async def _rounds(self) -> AsyncIterator[int]:
        for at in itertools.count(1):
            self.at = at
            yield at
            if not self._struck:
                return

    async def insist(self, request: Request) -> httpx.Response:
        """The answer to the request that meets the fault, or else to its repeat."""
        self._left = self.at
        answer = await request()
        self._struck = self._left <= 0
        self._left = 0
        if answer.status_code < 300:
            return answer
        assert answer.status_code == 503, answer.text
        return await request()

    def _faulty(self, packed: bytes) -> Any:
        self._left -= 1
        if self._left != 0:
            return self._submit(packed)
        return self._lost(self._submit(packed) if self._arrives else None)

    async def _lost(self, reply: Any) -> Any:
        if reply is not None:
            await reply
        raise UnavailableError("the store is away")


@ARRIVES
async def test_a_decision_is_made_once(flow: Flow, *, arrives: bool) -> None:
    """Allow and remember: one verdict, one event, one rule, one execution."""
    faults = Faults(flow, arrives=arrives)
    async for at in faults:
        user = f"u{at}"
        run_id = await flow.create([calls(send("a")), END], user_id=user)
        await flow.drive()
        body = {**await _allow(flow, run_id), "remember": True}
        answer = await faults.insist(_posting(flow, f"/v1/runs/{run_id}/approve", body))
        assert (answer.status_code, answer.json()["status"]) == (200, "allowed"), answer.text
        assert answer.json()["remembered"] is True
        await flow.drive()
        assert await _rules(flow, user) == ["send"]
        assert await flow.status(run_id) == "completed"
    resumed = Counter(event["run_id"] for event in await flow.events("run.resumed"))
    executed = Counter(one.run_id for one in tools.RAN)
    assert set(resumed.values()) == set(executed.values()) == {1}
    assert len(resumed) == len(executed) == at > 5


@ARRIVES
async def test_a_batch_is_decided_once(flow: Flow, *, arrives: bool) -> None:
    """A deny and an answer together: both or none, and in the end both."""
    faults = Faults(flow, arrives=arrives)
    async for _ in faults:
        run_id = await flow.create([calls(send("a"), ("q", "AskUserQuestion", question())), END])
        await flow.drive()
        tool_gate, asked = await flow.pending(run_id)
        items = [
            {"request_id": tool_gate["request_id"], "decision": "deny"},
            {"request_id": asked["request_id"], "answers": {"Which?": "A"}},
        ]
        path = f"/v1/runs/{run_id}/decisions"
        answer = await faults.insist(_posting(flow, path, {"decisions": items}))
        assert answer.status_code == 200, answer.text
        await flow.drive()
        assert await flow.status(run_id) == "completed"
    assert len(await flow.events("run.resumed")) == faults.at > 3
    assert ran() == []


@ARRIVES
async def test_a_run_is_made_once_for_its_key(flow: Flow, *, arrives: bool) -> None:
    """Wherever a create was cut off, its repeat makes the one run, or finds it."""
    faults, made = Faults(flow, arrives=arrives), set()
    async for at in faults:
        body = {"message": f"go {at}", "stream": False, "user_id": f"u{at}"}
        answer = await faults.insist(_posting(flow, "/v1/runs/", body, key=f"key {at}"))
        assert answer.status_code in (200, 201), answer.text
        made.add(answer.json()["id"])
        listed = (await flow.api.get(f"/v1/runs/?user_id=u{at}")).json()["data"]
        assert [row["id"] for row in listed] == [answer.json()["id"]], at
    started = [event["run_id"] for event in await flow.events("run.started")]
    assert sorted(started) == sorted(made)
    assert len(made) == at > 5


@ARRIVES
async def test_a_message_is_taken_once_for_its_key(flow: Flow, *, arrives: bool) -> None:
    """A reply to a parked run waits for its turn, and has one."""
    faults = Faults(flow, arrives=arrives)
    async for at in faults:
        run_id = await flow.create([calls(send("a")), END, END])
        await flow.drive()
        body = {"message": "more", "stream": False}
        path = f"/v1/runs/{run_id}/reply"
        answer = await faults.insist(_posting(flow, path, body, key=f"key {at}"))
        assert answer.status_code < 300, answer.text
        await flow.allow(run_id, await flow.one(run_id))
        await flow.drive()
        history = await flow.store.runs.history(run_id)
        assert [m.text for m in history if m.role == "user"] == ["go", "more"], at
    assert at > 3


@ARRIVES
async def test_a_run_is_cancelled_once(flow: Flow, *, arrives: bool) -> None:
    """The repeat may find it cancelled; nothing runs, and one event tells of it."""
    faults = Faults(flow, arrives=arrives)
    async for _ in faults:
        run_id = await flow.create([calls(send("a")), END])
        await flow.drive()
        answer = await faults.insist(_posting(flow, f"/v1/runs/{run_id}/cancel", {}))
        assert answer.status_code in (200, 409), answer.text
        await flow.drive()
        assert (await flow.status(run_id), await flow.pending(run_id)) == ("cancelled", [])
    ended = Counter(event["run_id"] for event in await flow.events("run.cancelled"))
    assert set(ended.values()) == {1}
    assert len(ended) == faults.at > 3
    assert ran() == []


@ARRIVES
async def test_a_mode_is_switched_whole(flow: Flow, *, arrives: bool) -> None:
    """What waits is allowed and runs once, whatever became of the first try."""
    faults = Faults(flow, arrives=arrives)
    async for _ in faults:
        run_id = await flow.create([calls(send("a"), send("b", "y")), END])
        await flow.drive()
        path = f"/v1/runs/{run_id}/permission-mode"
        answer = await faults.insist(_patching(flow, path, {"permission_mode": "autonomous"}))
        assert answer.status_code == 200, answer.text
        await flow.drive()
        assert await flow.status(run_id) == "completed"
    assert ran() == ["a", "b"] * faults.at
    assert faults.at > 3


@ARRIVES
async def test_a_rule_counts_from_its_answer_and_no_more_from_that_of_its_end(
    flow: Flow, *, arrives: bool
) -> None:
    """Also for workers that have read the rules before."""
    faults = Faults(flow, arrives=arrives)
    body = {"tool": "send", "effect": "deny"}
    script = [calls(send("a")), END]
    async for at in faults:
        await flow.store.catalog.rules("1", 1)
        made = await faults.insist(_posting(flow, "/v1/permissions/", body))
        assert made.status_code in (200, 201), made.text
        denied = await flow.create(script)
        await flow.drive()
        assert await flow.status(denied) == "completed", at
        path = f"/v1/permissions/{made.json()['id']}"
        assert (await flow.api.delete(path)).status_code == 204
    async for _ in (again := Faults(flow, arrives=arrives)):
        made_id = (await flow.post("/v1/permissions/", **body))["id"]
        await flow.drive()
        await flow.store.catalog.rules("1", 1)
        gone = await again.insist(_deleting(flow, f"/v1/permissions/{made_id}"))
        assert gone.status_code in (204, 404), gone.text
        asked = await flow.create(script)
        await flow.drive()
        assert await flow.status(asked) == "awaiting_approval", at
    assert ran() == []


def _posting(flow: Flow, path: str, body: Any, *, key: str | None = None) -> Request:
    headers = {} if key is None else {"idempotency-key": key}

    async def request() -> httpx.Response:
        return await flow.api.post(path, json=body, headers=headers)

    return request


def _patching(flow: Flow, path: str, body: Any) -> Request:
    async def request() -> httpx.Response:
        return await flow.api.patch(path, json=body)

    return request


def _deleting(flow: Flow, path: str) -> Request:
    async def request() -> httpx.Response:
        return await flow.api.delete(path)

    return request


async def _allow(flow: Flow, run_id: int) -> dict[str, Any]:
    return {"request_id": (await flow.one(run_id))["request_id"], "decision": "allow"}


async def _rules(flow: Flow, user: str) -> list[str]:
    page = (await flow.api.get(f"/v1/permissions/?user_id={user}")).json()["data"]
    return [rule["tool_name"] for rule in page]
