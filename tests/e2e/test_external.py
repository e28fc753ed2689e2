"""External tools on real processes: their calls are announced, and results come by every way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signoff import AsyncClient
from signoff import Client as Sdk
from signoff.client import Supply
from signoff.client import errors as e
from tests.e2e.harness import KEY, Client, Dev, Receiver, callback, until

pytestmark = pytest.mark.anyio

BOOK: dict[str, Any] = {
    "name": "book_room",
    "description": "Books a room.",
    "input_schema": {
        "type": "object",
        "properties": {"room": {"type": "string"}},
        "required": ["room"],
    },
    "output_schema": {
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
    },
}


def script(*rooms: str) -> list[dict[str, Any]]:
    uses = [{"id": f"call_{r}", "name": "book_room", "input": {"room": r}} for r in rooms]
    return [{"tool_calls": uses}, {"text": "{{last_results}}"}]


def outputs(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["state"], row["content"]) for row in json.loads(run["output"])]


def test_calls_are_announced_and_their_results_come_by_api_and_signed_callback(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """In parts, without people, without asking first; a wrong output leaves the gate open."""
    webhook = client.subscribe(receiver.url, "run.awaiting_input", "run.completed")
    run_id = client.create(
        script("a", "b"),
        external_tools=[BOOK],
        human_in_the_loop=False,
        permission_mode="autonomous",
    )
    asked = receiver.pause(run_id, 1).event["data"]["requests"]
    assert [(item["kind"], item["tool_name"], item["tool_input"]) for item in asked] == [
        ("external", "book_room", {"room": "a"}),
        ("external", "book_room", {"room": "b"}),
    ]
    assert asked[0]["output_schema"] == BOOK["output_schema"]
    path = f"/v1/runs/{run_id}/results"
    wrong = client.http.post(
        path, json={"results": [{"tool_use_id": "call_a", "output": {"code": 7}}]}
    )
    assert wrong.status_code == 422
    assert wrong.json()["error"]["details"]["field"] == "results[0].output.code"
    taken = client.http.post(
        path, json={"results": [{"tool_use_id": "call_a", "output": {"code": "A"}}]}
    )
    assert (taken.status_code, taken.json()["resumed"]) == (200, False)

    def signed(output: Any, **more: Any) -> dict[str, Any]:
        item = {"request_id": asked[1]["request_id"], "result": {"output": output, **more}}
        return {"type": "decision", "data": {"run_id": run_id, **item}}

    assert callback(dev.url, webhook, signed({"code": 7})).status_code == 422
    assert callback(dev.url, webhook, signed("full", state="error")).status_code == 200
    assert outputs(client.wait(run_id, "completed")) == [
        ("success", '{"code":"A"}'),
        ("error", "full"),
    ]
    assert dev.starts(run_id) == []


def test_results_come_by_the_sdk(dev: Dev) -> None:
    """From a callback while waiting, and submitted at once; an agent's tools are inherited."""
    with Sdk(base_url=dev.url, api_key=KEY) as sdk:
        agent = sdk.agents.create("Booker", external_tools=[BOOK])
        run = sdk.runs.create_and_wait(
            "go",
            agent_id=agent.id,
            metadata={"script": script("a", "b")},
            on_external=lambda gate: (
                {"code": f"code-{(gate.tool_input or {})['room']}"}
                if gate.tool_use_id == "call_a"
                else Supply(output="full", state="error")
            ),
        )
        assert run.output is not None
        assert [row["content"] for row in json.loads(run.output)] == ['{"code":"code-a"}', "full"]
        parked = sdk.runs.create("go", agent_id=agent.id, metadata={"script": script("a")})
        until(lambda: sdk.runs.get(parked.id).status == "awaiting_approval", what="a pause")
        with pytest.raises(e.ValidationError):
            sdk.runs.submit_results(parked.id, [{"tool_use_id": "call_a", "output": {}}])
        item = {"tool_use_id": "call_a", "output": {"code": "A"}}
        assert sdk.runs.submit_results(parked.id, [item]).resumed
        assert sdk.runs.wait(parked.id).status == "completed"
        sdk.runs.submit_results(parked.id, [item])
        with pytest.raises(e.GateResolvedOtherwiseError):
            sdk.runs.submit_results(parked.id, [{**item, "output": {"code": "B"}}])


async def test_results_come_by_the_async_sdk(dev: Dev) -> None:
    """With the same names."""

    async def book(_: Any) -> dict[str, str]:
        return {"code": "A"}

    async with AsyncClient(base_url=dev.url, api_key=KEY) as sdk:
        run = await sdk.runs.create_and_wait(
            "go", external_tools=[BOOK], metadata={"script": script("a")}, on_external=book
        )
        assert run.status == "completed"
        again = await sdk.runs.submit_results(
            run.id, [{"tool_use_id": "call_a", "output": {"code": "A"}}]
        )
        assert again.requests[0].status == "allowed"


def test_a_result_is_taken_while_no_worker_is_there(
    dev: Dev, client: Client, receiver: Receiver
) -> None:
    """The service needs no worker to check it; the next one goes on with it."""
    run_id = client.create(script("a"), external_tools=[BOOK])
    client.wait_pending(run_id, 1)
    dev.kill_child("worker")
    (gate,) = client.pending(run_id)
    result = {"results": [{"request_id": gate["request_id"], "output": {"code": "A"}}]}
    assert client.http.post(f"/v1/runs/{run_id}/results", json=result).status_code == 200
    assert outputs(client.wait(run_id, "completed", within_s=40)) == [("success", '{"code":"A"}')]
    assert receiver.got == []
