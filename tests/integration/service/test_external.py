"""External tools at the edge: declared on agents and runs, and their results."""

import json
from typing import Any

import pytest

from signoff.domain.gate import GateKind
from signoff.store.steps import NewGate
from tests.integration.service import world as worlds

pytestmark = pytest.mark.anyio

BOOK: dict[str, Any] = {
    "name": "book",
    "description": "Book a room.",
    "input_schema": {"type": "object", "properties": {"room": {"type": "string"}}},
}
OUT: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "price": {"type": "integer"}},
    "required": ["code"],
}


def refusal(response):
    error = response.json()["error"]
    return response.status_code, error["error_code"], error["details"].get("field")


@pytest.fixture
def declared(monkeypatch):
    """Gates of external calls are opened with what their results must look like."""

    def gate(**fields):
        if fields["kind"] is GateKind.EXTERNAL:
            fields["output_schema"] = json.dumps(OUT)
        return NewGate(**fields)

    monkeypatch.setattr(worlds, "NewGate", gate)


async def parked(world, *rooms, **body):
    calls = [("book", {"room": room}) for room in rooms or ("1",)]
    return await world.parked(*calls, kind=GateKind.EXTERNAL, external_tools=[BOOK], **body)


async def submit(world, run_id, *items, api=None):
    return await (api or world.api).post(f"/v1/runs/{run_id}/results", json={"results": items})


async def test_a_run_keeps_the_external_tools_of_its_agent_and_its_own(world):
    """Of one name its own; later changes of the agent change nothing."""
    agent = (await world.api.post("/v1/agents/", json={"external_tools": [BOOK]})).json()
    assert agent["external_tools"] == [BOOK]
    other = {**BOOK, "name": "cancel", "output_schema": OUT}
    mine = {**BOOK, "description": "Book it."}
    run_id = await world.run(agent_id=agent["id"], external_tools=[mine, other], tools=["book"])
    path = f"/v1/agents/{agent['id']}"
    changed = await world.api.patch(path, json={"external_tools": None})
    assert changed.json()["external_tools"] == []
    run = (await world.api.get(f"/v1/runs/{run_id}")).json()
    assert (run["external_tools"], run["tools"]) == ([mine, other], ["book"])
    plain = (await world.api.get(f"/v1/runs/{await world.run()}")).json()
    assert plain["external_tools"] == []


async def test_declarations_that_cannot_be_offered_are_refused(world):
    """On runs and agents alike: nothing is made."""
    wrong = {**BOOK, "name": "send_email"}
    for path, body in (("/v1/runs/", {"message": "go"}), ("/v1/agents/", {"name": "A"})):
        made = await world.api.post(path, json={**body, "external_tools": [BOOK, wrong]})
        assert refusal(made) == (422, "reserved_tool", "external_tools[1].name")
        bad = {**BOOK, "input_schema": {"type": "object", "properties": 3}}
        made = await world.api.post(path, json={**body, "external_tools": [bad]})
        assert refusal(made)[0] == 422
        made = await world.api.post(path, json={**body, "tools": ["book"]})
        assert refusal(made) == (422, "unknown_tool", "tools[0]")
        made = await world.api.post(path, json={**body, "external_tools": [{"name": "x"}]})
        assert refusal(made)[0] == 422


async def test_results_settle_calls_by_request_or_by_call(world):
    """In parts; the model sees the output, and an error as an error."""
    run_id, gates = await parked(world, "1", "2", "3")
    first = await submit(world, run_id, {"request_id": gates[0]["request_id"], "output": "ok"})
    assert (first.status_code, first.json()["resumed"]) == (200, False)
    rest = await submit(
        world,
        run_id,
        {"tool_use_id": "call_1", "output": {"code": "A"}},
        {"tool_use_id": "call_2", "output": "full", "state": "error"},
    )
    assert (rest.json()["status"], rest.json()["resumed"]) == ("ok", True)
    assert [item["status"] for item in rest.json()["requests"]] == ["allowed", "allowed"]
    found = [(await world.call(run_id, n)).result for n in range(3)]
    assert found == [
        {"state": "success", "content": "ok"},
        {"state": "success", "content": '{"code":"A"}'},
        {"state": "error", "content": "full"},
    ]
    assert await world.status(run_id) == "running"


async def test_places_in_results_are_written_in_one_way(world):
    """Whether the form of a result is wrong or its call; a list that is too short says so."""
    run_id, _ = await parked(world)
    item = {"tool_use_id": "call_0", "output": 1}
    odd = await submit(world, run_id, {**item, "state": "odd"})
    assert refusal(odd) == (422, "validation_error", "results[0].state")
    none = await submit(world, run_id)
    assert "results: must have at least 1 item" in none.json()["error"]["message"]


async def test_a_repeat_is_the_same_and_another_result_is_refused(world):
    """As with any decision, and the standing one is named."""
    run_id, _ = await parked(world)
    item = {"tool_use_id": "call_0", "output": {"n": 1}}
    for _ in range(2):
        assert (await submit(world, run_id, item)).status_code == 200
    other = await submit(world, run_id, {**item, "output": {"n": 2}})
    assert refusal(other) == (404, "gate_resolved_otherwise", "results[0]")
    assert other.json()["error"]["details"]["standing"]["verdict"] == "result"


async def test_a_batch_of_results_applies_as_a_whole(world):
    """One in the way, and none is taken; each is named."""
    run_id, (first, _) = await parked(world, "1", "2")
    good = {"request_id": first["request_id"], "output": "x"}
    for bad, expected in (
        ({"tool_use_id": "call_9", "output": 1}, (404, "gate_not_found", "results[1]")),
        ({"request_id": "req_none", "output": 1}, (404, "gate_not_found", "results[1]")),
        ({"output": 1}, (422, "validation_error", "results[1].request_id")),
        (
            {"tool_use_id": "call_0", "output": 1},
            (422, "validation_error", "results[1].request_id"),
        ),
        (
            {"tool_use_id": "call_1", "output": "x" * 400_001},
            (422, "validation_error", "results[1].output"),
        ),
    ):
        answer = await submit(world, run_id, good, bad)
        assert refusal(answer) == expected, bad
    for bad in (
        {"tool_use_id": "call_1"},
        {"tool_use_id": "call_1", "output": 1, "state": "running"},
        {"tool_use_id": "call_1", "output": 1, "reason": "no"},
    ):
        assert refusal(await submit(world, run_id, good, bad))[0] == 422, bad
    assert [gate["status"] for gate in await world.gates(run_id)] == ["pending", "pending"]


async def test_other_gates_and_other_accounts_take_no_results(world):
    """A tool approval is no external call, and a foreign run is no run."""
    run_id, (gate,) = await world.parked()
    item = {"request_id": gate["request_id"], "output": 1}
    assert refusal(await submit(world, run_id, item)) == (422, "validation_error", "results[0]")
    by_call = {"tool_use_id": "call_0", "output": 1}
    assert refusal(await submit(world, run_id, by_call))[1] == "gate_not_found"
    ours, _ = await parked(world)
    assert (await submit(world, ours, by_call, api=world.other)).status_code == 404


async def test_an_output_is_checked_against_what_was_declared(world, declared):
    """By results, decisions and callbacks alike; an error is not, and a repeat is compared only."""
    hook = await world.webhook()
    run_id, (gate, _) = await parked(world, "1", "2")
    assert gate["output_schema"] == OUT
    wrong = {"code": "A", "price": "12"}
    item = {"request_id": gate["request_id"]}
    found = await submit(world, run_id, {**item, "output": wrong})
    assert refusal(found) == (422, "validation_error", "results[0].output.price")
    decided = {"decisions": [{**item, "result": {"output": wrong}}]}
    found = await world.api.post(f"/v1/runs/{run_id}/decisions", json=decided)
    assert refusal(found)[2] == "decisions[0].result.output.price"
    signed: dict[str, Any] = {
        "type": "decision",
        "data": {"run_id": run_id, **item, "result": {"output": wrong}},
    }
    found = await world.callback(hook, signed)
    assert refusal(found) == (422, "validation_error", "data.result.output.price")
    assert [row["status"] for row in await world.gates(run_id)] == ["pending", "pending"]
    signed["data"]["result"] = {"output": {"code": "A", "price": 12}}
    assert (await world.callback(hook, signed, msg_id="msg_2")).status_code == 200
    failed = {"tool_use_id": "call_1", "output": "no room", "state": "error"}
    assert (await submit(world, run_id, failed)).json()["resumed"] is True
    assert refusal(await submit(world, run_id, {**item, "output": wrong}))[0] == 404


async def test_an_edited_input_is_checked_against_the_schema_that_the_gate_keeps(
    world, monkeypatch
):
    """For a tool that only the worker knows."""
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}

    def gate(**fields):
        return NewGate(**fields, input_schema=json.dumps(schema))

    monkeypatch.setattr(worlds, "NewGate", gate)
    run_id, (row,) = await world.parked(("remote", {"to": "a"}))
    path, body = f"/v1/runs/{run_id}/approve", {"request_id": row["request_id"]}
    edits = [{"to": 1}, {}, {"to": "b", "x": 1}]
    for edit, field in zip(edits, ("input.to", "input.to", "input.x"), strict=True):
        refused = await world.api.post(path, json={**body, "decision": "allow", "input": edit})
        assert refusal(refused) == (422, "invalid_tool_input", field)
    allowed = await world.api.post(path, json={**body, "decision": "allow", "input": {"to": "b"}})
    assert allowed.json()["edited_input"] == {"to": "b"}
