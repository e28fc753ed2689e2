"""Settings of an account, the strict mode, and the route that makes accounts for test suites."""

import pytest

from tests.integration.service.test_runs import refused
from tests.integration.service.world import client, serving, settings

pytestmark = pytest.mark.anyio
DEFAULTS = {
    "per_end_user_run_limit": None,
    "per_end_user_cost_limit_cents": None,
    "per_end_user_rate_per_minute": None,
    "remind_after": None,
    "expires_in": None,
    "on_expiry": None,
    "retention_mode": "standard",
    "require_end_user_id": False,
    "approval_email_enabled": True,
    "approval_slack_enabled": True,
    "result_email_enabled": True,
    "result_slack_enabled": True,
}


async def test_settings_are_an_accounts_own(world):
    """Defaults at first; a change leaves the rest, null clears a cap and nothing else."""
    assert (await world.api.get("/v1/settings/")).json() == DEFAULTS
    change = {"per_end_user_run_limit": 25, "retention_mode": "metadata_only"}
    assert (await world.api.patch("/v1/settings/", json=change)).json() == {**DEFAULTS, **change}
    nulls = dict.fromkeys(DEFAULTS)
    assert (await world.api.patch("/api/v2/settings/", json=nulls)).json() == {
        **DEFAULTS,
        "retention_mode": "metadata_only",
    }
    assert (await world.other.get("/v1/settings/")).json() == DEFAULTS


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"per_end_user_run_limit": -1}, "per_end_user_run_limit"),
        ({"retention_mode": "none"}, "retention_mode"),
        ({"require_end_user_id": 1}, "require_end_user_id"),
    ],
)
async def test_wrong_settings_are_refused(world, body, field):
    """Nothing changes, and the field is named."""
    refused(await world.api.patch("/v1/settings/", json=body), 422, "validation_error", field)
    assert (await world.api.get("/v1/settings/")).json() == DEFAULTS


async def test_strict_mode_refuses_what_names_no_user(world):
    """Wherever a user can be named it has to be; a run of an agent with a user has one."""
    run_id, (gate,) = await world.parked(user_id="u")
    hook = await world.webhook(user_id="u")
    made = await world.api.post("/v1/agents/", json={"user_id": "u"})
    agent = made.json()
    await world.api.patch("/v1/settings/", json={"require_end_user_id": True})
    api = world.api
    unscoped = [
        await api.post("/v1/runs/", json={"message": "go"}),
        await api.post("/v1/runs/", json={"message": "go", "name": "Bot"}),
        await api.get("/v1/runs/"),
        await api.get(f"/v1/runs/{run_id}"),
        await api.post(f"/v1/runs/{run_id}/cancel"),
        await api.post("/v1/agents/", json={}),
        await api.get("/v1/agents/"),
        await api.get(f"/v1/agents/{agent['id']}"),
        await api.patch(f"/v1/agents/{agent['id']}", json={}),
        await api.post("/v1/permissions/", json={"tool": "t"}),
        await api.get("/v1/permissions/"),
        await api.delete("/v1/permissions/1"),
        await api.post("/v1/webhooks/", json={"url": "https://example.com"}),
        await api.get("/v1/webhooks/"),
        await api.get(f"/v1/webhooks/{hook['id']}"),
        await api.delete(f"/v1/webhooks/{hook['id']}"),
    ]
    for answer in unscoped:
        refused(answer, 422, "end_user_required", "user_id")
    assert "require_end_user_id=False" in unscoped[0].json()["error"]["message"]
    scoped = [
        await api.get("/v1/runs/?user_id=u"),
        await api.get("/v1/runs/?include_end_user_runs=true"),
        await api.get(f"/v1/runs/{run_id}?user_id=u"),
        await api.get(f"/v1/agents/{agent['id']}?user_id=u"),
        await api.get(f"/v1/webhooks/{hook['id']}?user_id=u"),
        await api.post("/v1/runs/", json={"message": "go", "agent_id": agent["id"]}),
        await api.get("/v1/users/"),
        await api.get("/v1/settings/"),
        # Nothing about a gate ever asks for a user.
        await api.get(f"/v1/runs/{run_id}/permissions"),
        await api.get(f"/v1/runs/{run_id}/messages"),
        await api.get("/v1/requests"),
        await api.post(
            f"/v1/runs/{run_id}/approve",
            json={"request_id": gate["request_id"], "decision": "allow"},
        ),
    ]
    assert [answer.status_code for answer in scoped if answer.is_error] == []
    await api.patch("/v1/settings/", json={"require_end_user_id": False})
    assert (await api.get("/v1/runs/")).status_code == 200


async def test_accounts_are_registered_in_development_only(redis_url):
    """Each call makes another account; elsewhere the path does not exist."""
    body = {"email": "a@x.com", "password": "secret", "first_name": "A"}
    path = "/api/v1/auth/register"
    for environ in ({}, {"SIGNOFF_DEV": "1", "SIGNOFF_SCRIPTED_MODEL": "0"}):
        async with serving(settings(redis_url, **environ)) as app, client(app) as nobody:
            refused(await nobody.post(path, json=body), 404, "not_found")
    async with serving(settings(redis_url, SIGNOFF_DEV="1")) as app, client(app) as nobody:
        made = [await nobody.post(path, json=body) for _ in range(2)]
        assert [answer.status_code for answer in made] == [201, 201]
        keys = [answer.json()["api_key"] for answer in made]
        async with client(app, keys[0]) as one, client(app, keys[1]) as two:
            agent = (await one.post("/v1/agents/", json={})).json()
            refused(await two.get(f"/v1/agents/{agent['id']}"), 404, "not_found")
        refused(await nobody.post(path, json={"email": "a"}), 422, "validation_error", "password")
