"""An MCP server that an agent brings, on real processes: listed, asked, called with its headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Client, Dev, until
from tests.integration.workers.test_mcp import Remote

SECRET = "s3cr3t-of-the-agent"


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    made = Remote(tmp_path / "calls")
    made.start()
    yield made
    made.kill()


def outputs(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["state"], row["content"]) for row in json.loads(run["output"])]


def test_an_agents_own_server_is_asked_about_and_called(
    dev: Dev, client: Client, remote: Remote
) -> None:
    """Its reads are asked as well, since nobody vouches for it; its secret is in no log."""
    server = {"name": "crm", "url": remote.url, "headers": {"X-Key": SECRET}}
    made = client.http.post("/v1/agents/", json={"mcp_servers": [server], "tools": None})
    assert made.status_code == 201, made.text
    assert made.json()["mcp_servers"][0]["headers"] == {"X-Key": "…"}
    uses = [
        {"name": "mcp__crm__look", "input": {"what": "x"}},
        {"name": "mcp__crm__heard", "input": {"header": "x-key"}},
    ]
    script: list[dict[str, Any]] = [{"tool_calls": uses}, {"text": "{{last_results}}"}]

    def parked() -> int | None:
        # The first run may come before the server has listed its tools, and goes on without.
        run_id = client.create(script, agent_id=made.json()["id"])
        over = ("awaiting_approval", "completed")
        until(lambda: client.run(run_id)["status"] in over, within_s=30)
        return run_id if client.pending(run_id) else None

    run_id = until(parked, within_s=60, what="the server's tools")
    gates = client.wait_pending(run_id, 2)
    assert [gate["tool_name"] for gate in gates] == ["mcp__crm__look", "mcp__crm__heard"]
    for gate in gates:
        assert client.approve(run_id, gate["request_id"]).status_code == 200
    run = client.wait(run_id, "completed")
    assert outputs(run) == [("success", "saw x"), ("success", SECRET)]
    assert SECRET not in dev.log()
    assert SECRET not in json.dumps(run["mcp_servers"])
    other = client.create(script)
    assert {state for state, _ in outputs(client.wait(other, "completed"))} == {"error"}
