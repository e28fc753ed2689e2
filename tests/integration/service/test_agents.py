"""Agents over the API, and the runs that they make."""

import pytest

from tests.integration.service.test_runs import refused

pytestmark = pytest.mark.anyio
FULL = {
    "name": "Bot",
    "instructions": "Be kind",
    "tools": ["send_email"],
    "role": "support",
    "goals": "none",
    "user_id": "u",
    "metadata": {"team": {"id": 42}, "tags": ["a"]},
    "allowed_senders": ["@acme.com"],
    "default_permission_mode": "approval",
    "model": "scripted",
    "effort": "high",
    "enable_memory": False,
    "prompt_profile": "bare",
    "disabled_builtin_tools": ["x"],
    "display_order": 3,
}

DOES = ("active_run_count", "active_run_id", "last_active_at")


async def make(world, **body):
    made = await world.api.post("/v1/agents/", json=body)
    assert made.status_code == 201, made.text
    return made.json()


async def ids(world, query=""):
    return [row["id"] for row in (await world.api.get(f"/v1/agents/{query}")).json()["data"]]


async def test_an_agent_is_what_it_was_made_with(world):
    """Every field comes back, under both names and both prefixes."""
    agent = await make(world, **FULL)
    assert {name: agent[name] for name in FULL} == FULL
    assert agent["status"] == "enabled"
    for path in ("/v1/agents", "/api/v2/agents", "/v1/teammates", "/api/v2/teammates"):
        assert (await world.api.get(f"{path}/{agent['id']}")).json() == agent


async def test_an_agent_says_what_it_does(world):
    """How many of its runs are not over, which one if it is one, and when one last moved."""
    agent = await make(world)
    path = f"/v1/agents/{agent['id']}"

    async def shown():
        one = (await world.api.get(path)).json()
        for query in ("", "?fields=summary"):
            (row,) = (await world.api.get(f"/v1/agents/{query}")).json()["data"]
            assert {name: row[name] for name in DOES} == {name: one[name] for name in DOES}
        return tuple(one[name] for name in DOES)

    assert await shown() == (0, None, None)
    first = await world.run(agent_id=agent["id"])
    count, run_id, at = await shown()
    assert (count, run_id) == (1, first)
    assert at is not None
    second = await world.run(agent_id=agent["id"])
    assert (await shown())[:2] == (2, None)
    await world.api.post(f"/v1/runs/{first}/archive")
    await world.api.post(f"/v1/runs/{first}/cancel")
    assert (await shown())[:2] == (1, second)
    await world.api.post(f"/v1/runs/{second}/cancel")
    count, run_id, later = await shown()
    assert (count, run_id) == (0, None)
    assert later >= at


async def test_an_agent_needs_nothing(world):
    """It gets a name; it may use every tool, which is said by saying nothing."""
    agent = await make(world)
    assert agent["name"] == f"Agent {agent['id']}"
    assert "tools" not in agent
    assert (agent["instructions"], agent["user_id"], agent["metadata"]) == (None, None, None)
    assert (await make(world, tools=[]))["tools"] == []


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"name": ""}, 422, "validation_error", "name"),
        ({"name": "  "}, 422, "validation_error", "name"),
        ({"name": "A" * 256}, 422, "validation_error", "name"),
        ({"tools": ["gmail"]}, 422, "unknown_tool", "tools[0]"),
        ({"model": "gpt-5"}, 422, "unknown_model", "model"),
        ({"effort": "much"}, 422, "validation_error", "effort"),
        ({"default_permission_mode": "never"}, 422, "validation_error", "default_permission_mode"),
        ({"user_id": ""}, 422, "validation_error", "user_id"),
        ({"metadata": []}, 422, "validation_error", "metadata"),
        ({"from_template": "x", "name": "A"}, 400, "from_template_conflict", "name"),
        ({"from_template": "x"}, 422, "validation_error", "from_template"),
    ],
)
async def test_wrong_agents_are_refused(world, body, status, code, field):
    """Nothing is made, and the field is named."""
    refused(await world.api.post("/v1/agents/", json=body), status, code, field)
    assert await ids(world) == []


async def test_a_change_leaves_what_it_does_not_name(world):
    """Null clears what can be empty; a mode and a name are never empty."""
    agent = await make(world, **FULL)
    path = f"/v1/agents/{agent['id']}"
    changed = await world.api.patch(path, json={"name": "New", "metadata": {"b": 1}})
    assert {**agent, "name": "New", "metadata": {"b": 1}, "updated_at": None} == {
        **changed.json(),
        "updated_at": None,
    }
    clearing = ["model", "effort", "display_order", "enable_memory", "instructions", "tools"]
    nulls = dict.fromkeys([*clearing, "default_permission_mode", "name"])
    cleared = (await world.api.patch(path, json=nulls)).json()
    assert [cleared.get(name) for name in clearing] == [None] * len(clearing)
    assert (cleared["default_permission_mode"], cleared["name"]) == ("approval", "New")
    assert (await world.api.get(path)).json() == cleared
    refused(await world.api.patch(path, json={"tools": ["gmail"]}), 422, "unknown_tool", "tools[0]")


async def test_lists_are_of_one_user_or_of_all(world):
    """Without a user every agent is listed; a summary has the roster's fields only."""
    one, two, none = [(await make(world, user_id=user))["id"] for user in ("u", "v", None)]
    assert await ids(world) == [none, two, one]
    assert await ids(world, "?user_id=u") == [one]
    page = (await world.api.get("/v1/agents/?limit=2&fields=summary")).json()
    assert (page["has_more"], page["next_starting_after"]) == (True, two)
    assert "instructions" not in page["data"][0]
    assert await ids(world, f"?limit=2&starting_after={two}") == [one]
    refused(await world.api.get("/v1/agents/?fields=all"), 422, "validation_error", "fields")
    assert (await world.other.get("/v1/agents/")).json()["data"] == []


async def test_another_users_agent_is_missing(world):
    """For every way to name it; without a user the account sees it."""
    agent = await make(world, user_id="u")
    path = f"/v1/agents/{agent['id']}"
    assert (await world.api.get(f"{path}?user_id=u")).status_code == 200
    for answer in (
        await world.api.get(f"{path}?user_id=v"),
        await world.api.patch(f"{path}?user_id=v", json={"name": "x"}),
        await world.api.delete(f"{path}?user_id=v"),
        await world.api.post(f"{path}/disable?user_id=v"),
        await world.api.post(f"{path}/enable?user_id=v"),
        await world.api.post(f"{path}/unarchive?user_id=v"),
        await world.other.get(path),
        await world.api.get("/v1/agents/999999"),
        await world.api.get("/v1/agents/nobody"),
    ):
        refused(answer, 404, "not_found")


async def test_an_archived_agent_can_be_read_and_brought_back(world):
    """It leaves the list, and comes back disabled; archiving again changes nothing."""
    agent = await make(world, name="Old")
    path = f"/v1/agents/{agent['id']}"
    refused(await world.api.post(f"{path}/unarchive"), 400, "agent_not_archived")
    assert (await world.api.delete(path)).status_code == 204
    assert (await world.api.delete(path)).status_code == 204
    assert (await world.api.get(path)).json()["status"] == "archived"
    assert await ids(world) == []
    assert await ids(world, "?include_archived=true") == [agent["id"]]
    refused(await world.api.post(f"{path}/enable"), 409, "conflict")
    back = (await world.api.post(f"{path}/unarchive")).json()
    assert back["status"] == "disabled"
    assert (await world.api.post(f"{path}/enable")).json()["status"] == "enabled"
    assert await ids(world) == [agent["id"]]


async def test_only_an_enabled_agent_starts_runs(world):
    """A disabled one stays listed; an archived one gives its name to a new agent."""
    agent = await make(world, name="Bot")
    path, run = f"/v1/agents/{agent['id']}", {"message": "go", "agent_id": agent["id"]}
    assert (await world.api.post(f"{path}/disable")).json()["status"] == "disabled"
    assert await ids(world) == [agent["id"]]
    refused(await world.api.post("/v1/runs/", json=run), 409, "agent_disabled")
    named = {"message": "go", "name": "Bot"}
    refused(await world.api.post("/v1/runs/", json=named), 409, "agent_disabled")
    await world.api.delete(path)
    refused(await world.api.post("/v1/runs/", json=run), 409, "agent_archived")
    made = await world.api.post("/v1/runs/", json=named)
    assert made.status_code == 201
    assert made.json()["agent_id"] != agent["id"]


async def test_a_repeated_create_finds_its_run_though_the_agent_is_gone(world):
    """An Idempotency-Key means the run that it has made, whatever became of the agent."""
    agent = await make(world)
    body, headers = {"message": "go", "agent_id": agent["id"]}, {"idempotency-key": "k"}
    first = await world.api.post("/v1/runs/", json=body, headers=headers)
    await world.api.delete(f"/v1/agents/{agent['id']}")
    again = await world.api.post("/v1/runs/", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again.headers["idempotent-replay"] == "true"
    other = {**body, "message": "other"}
    answer = await world.api.post("/v1/runs/", json=other, headers=headers)
    refused(answer, 409, "agent_archived")


async def test_a_run_takes_what_its_agent_has(world):
    """Instructions, tools, model, effort and mode; later changes leave the run alone."""
    agent = await make(world, **FULL)
    run_id = await world.run(agent_id=agent["id"])
    await world.api.patch(
        f"/v1/agents/{agent['id']}",
        json={"instructions": "other", "tools": [], "default_permission_mode": "autonomous"},
    )
    run = await world.store.runs.load("1", run_id)
    assert run.config["instructions"] == "Be kind"
    assert run.config["tools"] == ["send_email"]
    assert (run.config["model"], run.config["effort"]) == ("scripted", "high")
    assert (run.mode, run.human_in_the_loop, run.user_id) == ("approval", True, "u")


async def test_what_a_run_says_itself_wins(world):
    """Explicit values stand before the agent's; an empty list is a value."""
    agent = await make(world, **FULL)
    run_id = await world.run(
        agent_id=agent["id"],
        instructions="Mine",
        tools=[],
        model="haiku",
        effort="low",
        permission_mode="autonomous",
    )
    run = await world.store.runs.load("1", run_id)
    assert (run.config["instructions"], run.config["tools"]) == ("Mine", [])
    assert (run.config["effort"], run.mode) == ("low", "autonomous")
    mismatched = {"message": "go", "agent_id": agent["id"], "user_id": "v"}
    refused(await world.api.post("/v1/runs/", json=mismatched), 404, "not_found")


async def test_an_agent_made_by_a_run_is_an_agent(world):
    """It is listed, can be changed, and the next run of its name starts from the change."""
    first = (await world.api.post("/v1/runs/", json={"message": "go", "name": "Ada"})).json()
    assert await ids(world) == [first["agent_id"]]
    path = f"/v1/agents/{first['agent_id']}"
    await world.api.patch(path, json={"instructions": "Be brief"})
    second = (await world.api.post("/v1/runs/", json={"message": "go", "name": "Ada"})).json()
    assert second["agent_id"] == first["agent_id"]
    assert (await world.store.runs.load("1", second["id"])).config["instructions"] == "Be brief"
    made = await make(world, name="Bob")
    third = (await world.api.post("/v1/runs/", json={"message": "go", "name": "Bob"})).json()
    assert third["agent_id"] == made["id"]
