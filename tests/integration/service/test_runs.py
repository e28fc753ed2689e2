"""Runs through the API: made once, read, listed, ended."""

import pytest

pytestmark = pytest.mark.anyio


async def test_a_new_run_is_running_and_names_itself_first(world):
    """The answer is 201, opens with the id, and has every field that clients read."""
    made = await world.api.post("/v1/runs/", json={"message": "hello", "stream": False})
    assert made.status_code == 201
    body = made.json()
    assert made.text.startswith('{"id":%d,' % body["id"])
    assert body["status"] == "running"
    assert body["permission_mode"] == "autonomous"
    assert body["teammate_id"] == body["agent_id"]
    assert body["usage"]["total_tokens"] == 0
    assert body["model"] == "scripted"
    assert made.headers["cache-control"] == "no-store"
