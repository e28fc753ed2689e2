"""MCP tools on real processes: offered, gated, edited, and what becomes of their servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Client, Dev, running, until

SCRIPT = str(Path(__file__).parents[1] / "support" / "mcp_server.py")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp") / "calls"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[Dev]:
    one = {
        "command": sys.executable,
        "args": [SCRIPT],
        "env": {"MCP_LOG": str(log)},
        "trusted": True,
        "timeout": 20,
    }
    servers = {"one": one, "gone": {"command": "/no/such/server"}}
    environ = {"SIGNOFF_MCP_SERVERS": json.dumps(servers)}
    with running(tmp_path_factory.mktemp("dev"), environ=environ) as started:
        yield started


def script(*uses: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    calls = [{"name": f"mcp__one__{name}", "input": value} for name, value in uses]
    return [{"tool_calls": calls}, {"text": "{{last_results}}"}]


def outputs(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["state"], row["content"]) for row in json.loads(run["output"])]


def ready(client: Client) -> None:
    """The first run may come before the server has listed its tools, and goes on without them."""

    def looked() -> bool:
        run_id = client.create(script(("look", {"what": "ready"})))
        return outputs(client.wait(run_id, "completed"))[0][0] == "success"

    until(looked, within_s=60, what="the server's tools")


def test_calls_are_judged_edited_and_run_like_those_of_any_tool(
    dev: Dev, client: Client, log: Path
) -> None:
    """A read runs unasked, an effect is asked, an edit is checked against the server's schema."""
    ready(client)
    run_id = client.create(script(("look", {"what": "x"}), ("send", {"to": "a"})))
    (gate,) = client.wait_pending(run_id, 1)
    assert (gate["tool_name"], gate["kind"]) == ("mcp__one__send", "tool_approval")
    assert gate["suggested_rules"] == [{"tool": "mcp__one__send", "effect": "allow"}]
    refused = client.approve(run_id, gate["request_id"], input={"to": "b", "count": "2"})
    assert refused.status_code == 422
    assert refused.json()["error"]["details"]["field"] == "input.count"
    edited = client.approve(run_id, gate["request_id"], input={"to": "b", "count": 2})
    assert edited.status_code == 200, edited.text
    (_, looked), (state, sent) = outputs(client.wait(run_id, "completed"))
    assert (looked, state) == ("saw x", "success")
    assert '"sent": "b"' in sent
    assert "send b*2" in log.read_text()
    assert "send a" not in log.read_text()
    wrong = client.create(script(("send", {"to": 1}), ("send", {"to": "c", "odd": 1})))
    assert [state for state, _ in outputs(client.wait(wrong, "completed"))] == ["error"] * 2


def test_names_and_servers_of_runs_and_agents_are_checked(client: Client) -> None:
    """Of a configured server any name will do; another server's is unknown."""
    taken = client.http.post(
        "/v1/agents/", json={"tools": ["mcp__one__any"], "mcp_servers": ["one"]}
    )
    assert (taken.status_code, taken.json()["mcp_servers"]) == (201, ["one"])
    for body, field in (
        ({"tools": ["mcp__two__look"]}, "tools[0]"),
        ({"mcp_servers": ["one", "two"]}, "mcp_servers[1]"),
    ):
        refused = client.http.post("/v1/runs/", json={"message": "go", **body})
        assert refused.status_code == 422
        assert refused.json()["error"]["details"]["field"] == field


def test_a_run_without_the_server_is_not_offered_its_tools(client: Client) -> None:
    """A call of one is an error that the model sees."""
    run_id = client.create(script(("look", {"what": "x"})), mcp_servers=[])
    ((state, content),) = outputs(client.wait(run_id, "completed"))
    assert (state, "no tool called" in content) == ("error", True)


def test_a_server_that_dies_in_a_call_leaves_its_outcome_unknown(client: Client, log: Path) -> None:
    """The model is told, nothing is repeated, and the next run finds the server again."""
    ready(client)
    run_id = client.create(script(("die", {"what": "once"})), permission_mode="autonomous")
    ((state, content),) = outputs(client.wait(run_id, "completed"))
    assert (state, "outcome is unknown" in content) == ("error", True)
    assert log.read_text().count("die once") == 1
    ready(client)


def test_a_killed_worker_takes_its_servers_with_it(dev: Dev, client: Client, log: Path) -> None:
    """A call that was under way has an unknown outcome, which a person is asked about."""
    ready(client)
    run_id = client.create(script(("stuck", {"what": "slow"})), permission_mode="autonomous")
    until(lambda: "stuck slow" in log.read_text(), what="the start of the call")
    pids = [int(line.split()[1]) for line in log.read_text().splitlines() if "start" in line]
    dev.kill_child("worker")
    until(
        lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids),
        what="the end of the servers",
    )
    (gate,) = client.wait_pending(run_id, 1, within_s=40)
    assert (gate["kind"], gate["tool_name"]) == ("outcome_unknown", "mcp__one__stuck")
    client.approve(run_id, gate["request_id"], "deny")
    client.wait(run_id, "completed", within_s=40)
    assert log.read_text().count("stuck slow") == 1
