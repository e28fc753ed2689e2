"""MCP servers that an account brings: where they may be, and that their headers stay secret."""

import json
import logging

import pytest

from signoff.mcpserver import MASK
from signoff.store.sealing import SealError
from tests.integration.service.conftest import opened
from tests.integration.service.test_runs import refused
from tests.integration.service.world import settings

pytestmark = pytest.mark.anyio
URL = "https://mcp.example.com/mcp"
SECRET = "Bearer s3cr3t-of-the-account"
CRM = {"name": "crm", "url": URL, "headers": {"Authorization": SECRET}}
SHOWN = {"name": "crm", "url": URL, "headers": {"Authorization": MASK}}


@pytest.fixture
async def world(redis_url):
    """A service whose operator has a server called ``ours``, and allows one network."""
    ours = json.dumps({"ours": {"url": "https://ours.example.com/mcp"}})
    loaded = settings(redis_url, SIGNOFF_MCP_SERVERS=ours, SIGNOFF_WEBHOOK_ALLOW="127.0.0.0/8")
    async with opened(loaded) as made:
        yield made


async def stored(world):
    """Everything in the store, as text."""
    found = []
    call = world.store.connection.call
    for key in await call("KEYS", "*"):
        kind = (await call("TYPE", key)).decode()
        read = {
            "string": ("GET", key),
            "hash": ("HGETALL", key),
            "list": ("LRANGE", key, 0, -1),
            "set": ("SMEMBERS", key),
            "zset": ("ZRANGE", key, 0, -1),
            "stream": ("XRANGE", key, "-", "+"),
        }[kind]
        found.append(f"{key} {await call(*read)}")
    return "\n".join(found)


async def config(world, run_id):
    return (await world.store.runs.load("1", run_id)).config["mcp_servers"]


async def test_headers_are_kept_sealed_and_shown_masked(world, caplog):
    """In agents and runs, whatever is asked of them; not in the store, and not in a log."""
    caplog.set_level(logging.DEBUG)
    answers = [await world.api.post("/v1/agents/", json={"mcp_servers": ["ours", CRM]})]
    agent = answers[0].json()
    assert agent["mcp_servers"] == ["ours", SHOWN]
    answers += [
        await world.api.get(f"/v1/agents/{agent['id']}"),
        await world.api.get("/v1/agents/"),
        await world.api.patch(f"/v1/agents/{agent['id']}", json={"name": "Other"}),
    ]
    inherited = await world.run(agent_id=agent["id"], tools=["mcp__crm__any"])
    brought = await world.run(mcp_servers=[CRM])
    for run_id in (inherited, brought):
        answers += [
            await world.api.get(f"/v1/runs/{run_id}"),
            await world.api.get("/v1/runs/"),
            await world.api.post(f"/v1/runs/{run_id}/reply", json={"message": "x"}),
        ]
    answers += [await world.api.get("/v1/events"), await world.api.get("/v1/audit")]
    assert (await world.api.get(f"/v1/runs/{brought}")).json()["mcp_servers"] == [SHOWN]
    text = "\n".join(answer.text for answer in answers)
    everything = await stored(world)
    assert "mcp.example.com" in everything
    for place in (text, everything, caplog.text):
        assert "s3cr3t" not in place
        assert "sealed" not in text
    (kept,) = await config(world, brought)
    opens = world.store.server_headers.open
    assert opens("1", kept) == CRM["headers"]
    for account, other in (
        ("2", kept),
        ("1", {**kept, "url": "https://evil.example.com/mcp"}),
        ("1", {**kept, "name": "crn"}),
    ):
        with pytest.raises(SealError):
            opens(account, other)


async def test_headers_are_changed_by_patch_and_a_run_keeps_its_own(world):
    """A mask keeps what the same server has; for another address it stands for nothing."""
    agent = (await world.api.post("/v1/agents/", json={"mcp_servers": [CRM]})).json()
    path = f"/v1/agents/{agent['id']}"
    opens = world.store.server_headers.open

    async def headers():
        (item,) = (await world.store.agents.get("1", agent["id"])).profile["mcp_servers"]
        return opens("1", item)

    run_id = await world.run(agent_id=agent["id"])
    for url in ("https://evil.example.com/mcp", f"{URL}/"):
        moved = {"mcp_servers": [{**agent["mcp_servers"][0], "url": url}]}
        field = "mcp_servers[0].headers"
        refused(await world.api.patch(path, json=moved), 422, "validation_error", field)
    assert (await world.api.patch(path, json={"mcp_servers": agent["mcp_servers"]})).is_success
    assert await headers() == CRM["headers"]
    more = {**SHOWN, "headers": {"authorization": MASK, "X-Team": "7"}}
    shown = (await world.api.patch(path, json={"mcp_servers": [more]})).json()
    assert shown["mcp_servers"][0]["headers"] == {"authorization": MASK, "X-Team": MASK}
    assert await headers() == {"authorization": SECRET, "X-Team": "7"}
    bare = {"name": "crm", "url": URL}
    shown = (await world.api.patch(path, json={"mcp_servers": [bare]})).json()
    assert shown["mcp_servers"] == [{**bare, "headers": {}}]
    assert await headers() == {}
    (pinned,) = await config(world, run_id)
    assert opens("1", pinned) == CRM["headers"]
    refused(
        await world.api.post("/v1/runs/", json={"message": "x", "mcp_servers": [SHOWN]}),
        422,
        "validation_error",
        "mcp_servers[0].headers",
    )


async def test_tools_of_an_own_server_may_be_named(world):
    """By the agent, its runs and replies; not of a server that is not there."""
    made = await world.api.post(
        "/v1/agents/", json={"mcp_servers": [CRM], "tools": ["mcp__crm__any"]}
    )
    assert made.json()["tools"] == ["mcp__crm__any"]
    path = f"/v1/agents/{made.json()['id']}"
    assert (await world.api.patch(path, json={"tools": ["mcp__crm__other"]})).is_success
    named = {"tools": ["mcp__crm__x"], "agent_id": made.json()["id"]}
    run_id = await world.run(**named)
    reply = {"message": "x", "tools": ["mcp__crm__y"]}
    path = f"/v1/runs/{run_id}/reply"
    assert (await world.api.post(path, json=reply)).status_code == 409  # it works; the name is fine
    reply["tools"] = ["mcp__cry__y"]
    refused(await world.api.post(path, json=reply), 422, "unknown_tool", "tools[0]")
    body = {"message": "x", **named, "mcp_servers": ["ours"]}
    refused(await world.api.post("/v1/runs/", json=body), 422, "unknown_tool", "tools[0]")


def headers(**given):
    return {**CRM, "headers": given}


@pytest.mark.parametrize(
    ("servers", "code", "field"),
    [
        ([{**CRM, "url": "http://mcp.example.com/"}, CRM], "validation_error", "[1].name"),
        ([{**CRM, "url": "http://10.0.0.1/mcp"}], "invalid_url", "[0].url"),
        ([{**CRM, "url": "http://93.184.215.14/mcp"}], "invalid_url", "[0].url"),
        ([{**CRM, "url": "https://169.254.169.254/mcp"}], "invalid_url", "[0].url"),
        ([{**CRM, "url": "https://[::ffff:10.0.0.1]/mcp"}], "invalid_url", "[0].url"),
        ([{**CRM, "url": "https://redis.internal/mcp"}], "invalid_url", "[0].url"),
        ([{**CRM, "url": "https://user:s3cr3t@mcp.example.com/"}], "invalid_url", "[0].url"),
        ([{**CRM, "url": "file:///etc/passwd"}], "invalid_url", "[0].url"),
        ([{**CRM, "name": "ours"}], "validation_error", "[0].name"),
        (["ours", {**CRM, "name": "ours"}], "validation_error", "[1].name"),
        ([CRM, CRM], "validation_error", "[1].name"),
        ([{**CRM, "name": "a__b"}], "validation_error", "[0].name"),
        ([{**CRM, "name": "CRM"}], "validation_error", "[0].name"),
        ([{**CRM, "command": "sh"}], "validation_error", "[0].command"),
        ([{**CRM, "trusted": True}], "validation_error", "[0].trusted"),
        ([{"name": "crm"}], "validation_error", "[0].url"),
        (["crm"], "validation_error", "[0]"),
        ([7], "validation_error", "[0]"),
        ([{**CRM, "name": f"n{n}"} for n in range(9)], "validation_error", "[8]"),
        ([headers(Host="x")], "validation_error", "[0].headers"),
        ([headers(**{"Mcp-Session-Id": "x"})], "validation_error", "[0].headers"),
        ([headers(**{"Proxy-Authorization": "x"})], "validation_error", "[0].headers"),
        ([headers(**{"X Y": "s3cr3t"})], "validation_error", "[0].headers"),
        ([headers(X="s3cr3t\r\nHost: y")], "validation_error", "[0].headers"),
        ([headers(X="s3cr3t\u00e9")], "validation_error", "[0].headers"),
        ([headers(X="")], "validation_error", "[0].headers"),
        ([headers(X=MASK)], "validation_error", "[0].headers"),
        ([headers(X="1", x="2")], "validation_error", "[0].headers"),
        ([headers(X="s3cr3t" * 2000)], "validation_error", "[0].headers"),
        ([headers(**{f"X{n}": "1" for n in range(17)})], "validation_error", "[0].headers"),
        ([headers(X=7)], "validation_error", "[0].headers.X"),
    ],
)
async def test_servers_that_cannot_be_are_refused(world, servers, code, field):
    """By agents and runs alike, naming the field and never a secret."""
    for path, body in (("/v1/agents/", {}), ("/v1/runs/", {"message": "x"})):
        answer = await world.api.post(path, json={**body, "mcp_servers": servers})
        refused(answer, 422, code, f"mcp_servers{field}")
        assert "s3cr3t" not in answer.text


async def test_what_the_operator_allows_may_be_called_in_the_clear(world):
    """By number, and by names that may lead there; others need https."""
    for url in ("http://127.0.0.1:9/mcp", "http://mcp.example.com/mcp"):
        body = {"mcp_servers": [{"name": "crm", "url": url}]}
        assert (await world.api.post("/v1/agents/", json=body)).status_code == 201
