"""Rules, tools, agents and processes that change while a run waits."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from signoff import tool
from tests.integration.flows import tools
from tests.integration.flows.conftest import Flow, calls, question, ran, results, send
from tests.integration.service.world import KEY, client, serving, settings
from workers.driver import Driver
from workers.model.port import Count, ModelReply, ModelRequest, OnText
from workers.model.scripted import ScriptedModel

pytestmark = pytest.mark.anyio
END = {"text": "{{last_results}}"}


def module(**changed: Any) -> ModuleType:
    """The tools of the next release: those of this one, but for ``changed`` (None: gone)."""
    found = ModuleType("changed")
    for name in ("look", "send", "put"):
        setattr(found, name, getattr(tools, name))
    for name, value in changed.items():
        if value is None:
            delattr(found, name)
        else:
            setattr(found, name, value)
    return found


def _released(name: str = "send", **declared: Any) -> Any:
    """A tool of another release."""

    async def run(what: str) -> str:
        return tools._ran(what=what)

    return tool(name=name, **declared)(run)


def _other_schema() -> Any:
    async def run(what: int) -> str:
        return tools._ran(what=what)

    return tool(name="send")(run)


def _more_required() -> Any:
    async def run(what: str, sure: bool) -> str:
        return tools._ran(what=what, sure=sure)

    return tool(name="send")(run)


@pytest.mark.parametrize(
    "release",
    [lambda: None, _other_schema, _more_required, lambda: _released(external=True)],
    ids=["gone", "other-type", "more-required", "external"],
)
async def test_a_tool_that_changed_meanwhile_does_not_run_on_the_old_approval(
    flow: Flow, release: Callable[[], Any]
) -> None:
    """What was approved fits the tool no more: an error result, and the run goes on."""
    run_id = await flow.create([calls(send("a")), END])
    await flow.drive()
    gate = await flow.one(run_id)
    await flow.restart(module(send=release()))
    await flow.allow(run_id, gate)
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", [])
    (result,) = results(flow.model.asked[-1])
    assert (result.tool_use_id, result.state) == ("a", "error")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_rule_that_forbids_meanwhile_wins_over_the_approval(flow: Flow, when: str) -> None:
    """A deny rule that came while the call waited, or between the approval and the start."""
    run_id = await flow.create([calls(send("a")), END])
    await flow.drive()
    gate = await flow.one(run_id)
    if when == "after":
        await flow.allow(run_id, gate)
    await flow.post("/v1/permissions/", tool="send", effect="deny")
    if when == "before":
        await flow.allow(run_id, gate)
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", [])


async def test_what_was_shown_and_allowed_is_what_started(flow: Flow) -> None:
    """One digest in the list, the event, the inbox, the decision and the start of the tool."""
    run_id = await flow.create([calls(send("a"), send("b")), END])
    await flow.drive()
    first, second = await flow.pending(run_id)
    (event,) = await flow.events("run.awaiting_input")
    inbox = (await flow.api.get("/v1/requests")).json()["data"]
    await flow.allow(run_id, first, expected_digest=first["digest"])
    edited = await flow.allow(run_id, second, input={"what": "y"})
    await flow.restart()
    await flow.drive()
    trail = (await flow.api.get("/v1/audit?limit=100")).json()["data"]
    by_action = {
        action: sorted(row["details"]["digest"] for row in trail if row["action"] == action)
        for action in ("decision", "tool_start")
    }
    shown = [first["digest"], second["digest"]]
    assert [row["digest"] for row in event["requests"]] == shown
    assert [row["digest"] for row in inbox] == shown
    started = [first["digest"], edited["effective_digest"]]
    assert by_action == {"decision": sorted(started), "tool_start": sorted(started)}
    assert [one.digest for one in tools.RAN] == started


class LastWords:
    """The scripted model; the process is told to end while it speaks."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._model = ScriptedModel()

    async def reply(self, request: ModelRequest, *, on_text: OnText, count: Count) -> ModelReply:
        self._flow.engine.stopping.set()
        return await self._model.reply(request, on_text=on_text, count=count)


async def test_a_free_call_that_would_have_effects_by_now_is_asked(flow: Flow) -> None:
    """Judged as read-only and not started; the next release says that it has effects."""
    run_id = await flow.create([calls(("a", "look", {"what": "x"})), END])
    flow.speak(LastWords(flow))
    (held,) = await flow.store.steps.take(0, drainer="d", room=1, awake_ms=1)
    await Driver(flow.engine, held).drive()
    flow.speak(ScriptedModel())
    await flow.restart(module(look=_released("look")))
    await flow.drive()
    assert ran() == []
    gate = await flow.one(run_id)
    assert (gate["kind"], gate["tool_name"]) == ("tool_approval", "look")
    await flow.allow(run_id, gate)
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", ["a"])


async def test_a_call_is_repeated_only_if_both_releases_say_that_it_may_be(flow: Flow) -> None:
    """Idempotent when it was judged, not any more when it was cut off: a person is asked."""
    run_id = await flow.create([calls(("p", "put", {"what": "x"})), END])
    await flow.drive()
    await flow.allow(run_id, await flow.one(run_id))
    await flow.restart(module(put=_released("put")))
    await _start_and_die(flow, run_id)
    await flow.drive()
    assert ran() == []
    assert (await flow.one(run_id))["kind"] == "outcome_unknown"


async def _start_and_die(flow: Flow, run_id: int) -> None:
    """Takes the run, starts its only call, and is gone."""
    (held,) = await flow.store.steps.take(0, drainer="d", room=1, awake_ms=1)
    rules = await flow.store.catalog.rules("1", run_id)
    await flow.store.steps.start_call(held.run, held.calls[0], rules_v=rules.version, attempt=1)
    await flow.lose(run_id)


async def test_a_run_keeps_the_agent_that_it_started_with(flow: Flow) -> None:
    """Instructions, tools and mode that change while it waits are those of later runs."""
    agent = await flow.post(
        "/v1/agents/", name="Old", instructions="old words", tools=["send", "look"]
    )
    run_id = await flow.create([calls(send("a")), END], agent_id=agent["id"])
    await flow.drive()
    changed = await flow.api.patch(
        f"/v1/agents/{agent['id']}",
        json={"name": "New", "instructions": "new words", "tools": ["look"]},
    )
    assert changed.status_code == 200, changed.text
    await flow.restart()
    await flow.allow(run_id, await flow.one(run_id))
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("completed", ["a"])
    before, after = flow.model.asked
    assert (after.instructions, after.tools, after.model) == (
        before.instructions,
        before.tools,
        before.model,
    )
    assert before.instructions == "old words"
    await flow.create([END], agent_id=agent["id"])
    await flow.drive()
    later = flow.model.asked[-1]
    assert later.instructions == "new words"
    assert "send" not in [spec.name for spec in later.tools]


async def test_what_waits_is_the_same_in_the_next_server(flow: Flow, redis_url: str) -> None:
    """Lists, inbox and counts of another process, and its decisions count."""
    ids = [
        await flow.create([calls(send("a"), ("q", "AskUserQuestion", question())), END])
        for _ in range(3)
    ]
    await flow.drive()
    paths = [
        "/v1/requests",
        "/v1/runs/",
        *(f"/v1/runs/{run_id}{more}" for run_id in ids for more in ("", "/permissions")),
    ]
    before = [(await flow.api.get(path)).json() for path in paths]
    loaded = settings(redis_url, SIGNOFF_TOOLS="tests.integration.flows.tools")
    async with serving(loaded) as app, client(app, KEY) as api:
        flow.api = api
        assert [(await api.get(path)).json() for path in paths] == before
        await flow.allow(ids[0], (await flow.pending(ids[0]))[0])
        await flow.answer(ids[0], {"Which?": "A"})
        await flow.drive()
        assert (await flow.status(ids[0]), ran()) == ("completed", ["a"])


async def test_each_pause_is_announced_to_one_subscription_and_to_who_looks(flow: Flow) -> None:
    """Three pauses: a delivery each without asking again, and the same ids in list and log."""
    hook = await flow.post(
        "/v1/webhooks/", url="https://example.com/hook", events=["run.awaiting_input"]
    )
    run_id = await flow.create([*(calls(send(f"c{n}")) for n in range(3)), END])
    polled = []
    for _ in range(3):
        await flow.restart()
        await flow.drive()
        gate = await flow.one(run_id)
        polled.append(gate["request_id"])
        await flow.allow(run_id, gate)
    await flow.drive()
    assert await flow.status(run_id) == "completed"
    page = (await flow.api.get(f"/v1/webhooks/{hook['id']}/deliveries")).json()
    assert [row["event_type"] for row in page["data"]] == ["run.awaiting_input"] * 3
    told = await flow.events("run.awaiting_input")
    assert [event["pause"] for event in told] == [1, 2, 3]
    assert [event["requests"][0]["request_id"] for event in told] == polled


async def test_a_parked_run_is_cancelled_without_a_worker(flow: Flow) -> None:
    """At once and for good: no request is left, one event, and a late decision is refused."""
    run_id = await flow.create([calls(send("a"), ("q", "AskUserQuestion", question())), END])
    await flow.drive()
    gate, asked = await flow.pending(run_id)
    cancelled = await flow.api.post(f"/v1/runs/{run_id}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    late = [await flow.decide(run_id, gate, verdict) for verdict in ("allow", "deny")]
    assert {answer.status_code for answer in late} == {404}
    named = {"answers": {"Which?": "A"}, "request_id": asked["request_id"]}
    answered = await flow.api.post(f"/v1/runs/{run_id}/answer", json=named)
    assert answered.status_code == 404
    assert (await flow.api.get("/v1/requests")).json()["data"] == []
    await flow.drive()
    assert (await flow.status(run_id), ran()) == ("cancelled", [])
    assert [event["run_id"] for event in await flow.events("run.cancelled")] == [run_id]
