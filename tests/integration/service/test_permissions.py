"""Stored rules: made once, listed by scope, revoked."""

import pytest

from service.api import permissions
from tests.integration.service.test_runs import refused

pytestmark = pytest.mark.anyio


async def test_a_rule_is_made_once(world):
    """The same user, tool and effect is the same rule; another effect is another one."""
    body = {"user_id": "u", "tool": "send_email"}
    first = await world.api.post("/api/v2/permissions/", json=body)
    again = await world.api.post("/api/v2/permissions/", json={**body, "effect": "allow"})
    deny = await world.api.post("/api/v2/permissions/", json={**body, "effect": "deny"})
    assert [first.status_code, again.status_code, deny.status_code] == [201, 200, 201]
    assert first.json() == again.json()
    assert deny.json()["id"] != first.json()["id"]
    shown = first.json()
    assert (shown["tool_name"], shown["effect"], shown["source"]) == ("send_email", "allow", "api")


async def test_lists_and_deletions_have_exactly_one_scope(world):
    """A rule is listed and deleted within its scope only; afterwards it can be made again."""
    made = [
        (await world.api.post("/v1/permissions/", json={"tool": "t", "user_id": user})).json()["id"]
        for user in (None, "u", "v")
    ]

    async def ids(query=""):
        found = (await world.api.get(f"/v1/permissions/{query}")).json()["data"]
        return [row["id"] for row in found]

    assert await ids() == [made[0]]
    assert await ids("?user_id=u") == [made[1]]
    path = f"/v1/permissions/{made[1]}"
    refused(await world.api.delete(path), 404, "not_found")
    refused(await world.api.delete(f"{path}?user_id=v"), 404, "not_found")
    refused(await world.other.delete(f"{path}?user_id=u"), 404, "not_found")
    assert (await world.api.delete(f"{path}?user_id=u")).status_code == 204
    refused(await world.api.delete(f"{path}?user_id=u"), 404, "not_found")
    again = await world.api.post("/v1/permissions/", json={"tool": "t", "user_id": "u"})
    assert again.status_code == 201


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "validation_error", "tool"),
        ({"tool": ""}, "validation_error", "tool"),
        ({"tool": "send email"}, "validation_error", "tool"),
        ({"tool": "sеnd"}, "validation_error", "tool"),  # noqa: RUF001 - a Cyrillic e
        ({"tool": "t" * 129}, "validation_error", "tool"),
        ({"tool": "t\n"}, "validation_error", "tool"),
        ({"tool": "Bash(git status:*)"}, "pattern_not_supported", "tool"),
        ({"tool": "mcp__server__*"}, "pattern_not_supported", "tool"),
        ({"tool": "Bash(touch:*"}, "pattern_not_supported", "tool"),
        ({"tool": "t", "effect": "maybe"}, "validation_error", "effect"),
        ({"tool": "t", "user_id": ""}, "validation_error", "user_id"),
        ({"tool": "AskUserQuestion"}, "reserved_tool", "tool"),
        ({"tool": "ExitPlanMode", "effect": "allow"}, "reserved_tool", "tool"),
    ],
)
async def test_wrong_rules_are_refused(world, body, code, field):
    """Names only, known effects only, and nothing may allow what asks a person."""
    refused(await world.api.post("/v1/permissions/", json=body), 422, code, field)


async def test_names_of_tools_that_are_not_loaded_are_taken(world):
    """A rule may stand before its tool does."""
    for tool in ("not_loaded", "mcp__github__create_issue", "a.b-c"):
        assert (await world.api.post("/v1/permissions/", json={"tool": tool})).status_code == 201


async def test_an_account_has_a_bounded_number_of_rules(world, monkeypatch):
    """Beyond the bound none is made; one that stands is found, and a revoked one gives room."""
    monkeypatch.setattr(permissions, "MAX_PER_ACCOUNT", 2)
    path = "/v1/permissions"
    first = await world.api.post(path, json={"tool": "a"})
    second = await world.api.post(path, json={"tool": "b", "user_id": "u"})
    assert (first.status_code, second.status_code) == (201, 201)
    refused(await world.api.post(path, json={"tool": "c"}), 422, "too_many_permissions")
    assert (await world.api.post(path, json={"tool": "a"})).status_code == 200
    assert (await world.api.delete(f"{path}/{first.json()['id']}")).status_code == 204
    assert (await world.api.post(path, json={"tool": "c"})).status_code == 201
