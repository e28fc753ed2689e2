"""Stored rules: made once, listed by scope, revoked."""

import json
from typing import Any

import pytest

from service.api import permissions
from tests.integration.service.conftest import opened
from tests.integration.service.test_runs import refused
from tests.integration.service.world import settings

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
        ({"tool": "send email"}, "lookalike_name", "tool"),
        ({"tool": "sеnd"}, "lookalike_name", "tool"),  # noqa: RUF001 - a Cyrillic e
        ({"tool": "send\u200b_email"}, "lookalike_name", "tool"),
        ({"tool": "bash"}, "lookalike_name", "tool"),
        ({"tool": "SEND-EMAIL"}, "lookalike_name", "tool"),
        ({"tool": "askUserQuestion", "effect": "deny"}, "lookalike_name", "tool"),
        ({"tool": "t" * 129}, "validation_error", "tool"),
        ({"tool": "t\n"}, "lookalike_name", "tool"),
        ({"tool": "Bash(touch:*"}, "invalid_pattern", "tool"),
        ({"tool": "Bash()"}, "invalid_pattern", "tool"),
        ({"tool": "Bash(:*)"}, "invalid_pattern", "tool"),
        ({"tool": "Bash(git status; rm:*)"}, "invalid_pattern", "tool"),
        ({"tool": "Bash(sudo apt:*)"}, "pattern_never_matches", "tool"),
        ({"tool": "Bash(bash -c:*)"}, "pattern_never_matches", "tool"),
        ({"tool": "Bash(*status:*)"}, "pattern_never_matches", "tool"),
        ({"tool": "Write(/srv/../etc/**)"}, "invalid_pattern", "tool"),
        ({"tool": "send_email(to)"}, "invalid_pattern", "tool"),
        ({"tool": "send_email(whom=a)"}, "pattern_never_matches", "tool"),
        ({"tool": "mcp__*"}, "pattern_never_matches", "tool"),
        ({"tool": "mcp__shop"}, "pattern_never_matches", "tool"),
        ({"tool": "mcp__shop__"}, "pattern_never_matches", "tool"),
        ({"tool": "mcp____get"}, "pattern_never_matches", "tool"),
        ({"tool": "Bash(git status*)"}, "invalid_pattern", "tool"),
        ({"tool": "Bash(ls*)"}, "invalid_pattern", "tool"),
        ({"tool": "*"}, "pattern_never_matches", "tool"),
        ({"tool": "send*"}, "invalid_pattern", "tool"),
        ({"tool": "t", "expires_at": "2020-01-01T00:00:00Z"}, "validation_error", "expires_at"),
        ({"tool": "t", "expires_at": "2999-01-01"}, "validation_error", "expires_at"),
        ({"tool": "t", "max_uses": 0}, "validation_error", "max_uses"),
        ({"tool": "t", "max_uses": 1, "effect": "deny"}, "validation_error", "max_uses"),
        ({"tool": "t", "effect": "maybe"}, "validation_error", "effect"),
        ({"tool": "t", "approvers": {"any_of": ["user:a"]}}, "validation_error", "approvers"),
        (
            {"tool": "t", "effect": "deny", "approvers": {"any_of": ["user:a"]}},
            "validation_error",
            "approvers",
        ),
        (
            {"tool": "t", "effect": "ask", "approvers": {"any_of": []}},
            "validation_error",
            "approvers.any_of",
        ),
        (
            {"tool": "t", "effect": "ask", "approvers": {"quorum": 2}},
            "validation_error",
            "approvers.quorum",
        ),
        ({"tool": "t", "user_id": ""}, "validation_error", "user_id"),
        ({"tool": "AskUserQuestion"}, "reserved_tool", "tool"),
        ({"tool": "ExitPlanMode", "effect": "allow"}, "reserved_tool", "tool"),
    ],
)
async def test_wrong_rules_are_refused(world, body, code, field):
    """Each with a code of its own and the field; nothing may allow what asks a person."""
    refused(await world.api.post("/v1/permissions/", json=body), 422, code, field)


async def test_a_refusal_says_what_to_state_instead(world):
    """A hint at the form that covers further words, at a server's tools, and at the space."""
    for tool, hint in (
        ("Bash(git status*)", "Bash(git status:*)"),
        ("mcp__shop", "mcp__shop__*"),
        ("git status", "none holds spaces or"),
    ):
        answer = await world.api.post("/v1/permissions/", json={"tool": tool})
        assert hint in answer.json()["error"]["message"]


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


async def test_patterns_are_stored_as_they_were_stated(world):
    """Commands, paths, arguments and servers; a deny may be broader than any allow."""
    for tool in (
        "Bash(git status:*)",
        "Write(/srv/data/**)",
        "mcp__server__*",
        "send_email(to=*@acme.com)",
    ):
        made = await world.api.post("/v1/permissions", json={"tool": tool})
        assert (made.status_code, made.json()["tool_name"]) == (201, tool)
    for tool in ("Bash(cat docs/*)", "Bash(npm run test-*)"):
        assert (await world.api.post("/v1/permissions", json={"tool": tool})).status_code == 201
    for tool in ("mcp__*", "*", "Bash(sudo:*)", "mcp__shop", "mcp__shop__", "Bash(rm*)"):
        made = await world.api.post("/v1/permissions", json={"tool": tool, "effect": "deny"})
        assert made.status_code == 201


async def test_a_rule_has_limits_and_an_author(world):
    """They are shown; the same limits find the rule, others are a conflict that names it."""
    body = {"tool": "send_email", "expires_at": "2999-01-01T00:00:00+01:00", "max_uses": 3}
    first = await world.api.post("/v1/permissions", json=body)
    shown = first.json()
    assert (shown["expires_at"], shown["max_uses"]) == ("2998-12-31T23:00:00.000Z", 3)
    assert (shown["uses"], shown["last_used_at"]) == (0, None)
    assert shown["author"].startswith("key:")
    assert (await world.api.post("/v1/permissions", json=body)).json() == shown
    assert (await world.api.post("/v1/permissions", json={"tool": "send_email"})).json() == shown
    other = await world.api.post("/v1/permissions", json={**body, "max_uses": 4})
    refused(other, 409, "permission_differs")
    assert other.json()["error"]["details"]["id"] == shown["id"]


async def test_an_ask_has_approvers(world):
    """Shown wherever the rule is; the same find it, none too, others are a conflict."""
    approvers = {"any_of": ["user:a", "user:b"], "quorum": 2, "exclude_requester": False}
    body = {"tool": "send_email", "effect": "ask", "approvers": approvers}
    first = await world.api.post("/v1/permissions", json=body)
    assert (first.status_code, first.json()["approvers"]) == (201, approvers)
    (listed,) = (await world.api.get("/v1/permissions")).json()["data"]
    assert listed == first.json()
    turned = {"any_of": ["user:b", "user:a"], "quorum": 2}
    for same in (body, {**body, "approvers": turned}, {"tool": "send_email", "effect": "ask"}):
        again = await world.api.post("/v1/permissions", json=same)
        assert (again.status_code, again.json()) == (200, first.json())
    for more in ({"approvers": {**turned, "quorum": 1}}, {"expires_at": "2999-01-01T00:00:00Z"}):
        other = await world.api.post("/v1/permissions", json={**body, **more})
        refused(other, 409, "permission_differs")
    email = {"to": "a@x.com", "subject": "s", "body": "b"}
    assert (await evaluate(world, "send_email", email))["rule"]["approvers"] == approvers
    bare = {"tool": "send_email", "effect": "ask"}
    given = {"call": {"tool": "send_email", "input": email}, "rules": [bare, body]}
    shown = (await world.api.post("/v1/permissions/evaluate", json=given)).json()
    assert shown["rule"]["approvers"] == approvers
    given["rules"] = [{**body, "effect": "allow"}]
    wrong = await world.api.post("/v1/permissions/evaluate", json=given)
    refused(wrong, 422, "validation_error", "rules[0].approvers")


async def evaluate(world, tool, tool_input, *rules, **more):
    """The verdict of a dry run by these (text, effect)."""
    body = {"call": {"tool": tool, "input": tool_input}, **more}
    if rules:
        body["rules"] = [{"tool": text, "effect": effect} for text, effect in rules]
    answer = await world.api.post("/v1/permissions/evaluate", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git status", "allow"),
        ("git status --short 'a; b'", "allow"),
        ("git statusx", "ask"),
        ("git status; ls", "ask"),
        ("git status\nls", "ask"),
        ("git status > x", "ask"),
        ("git status $(ls)", "ask"),
        ("X=1 git status", "ask"),
        ("git status && rm -rf x", "deny"),
        ("nice rm x", "deny"),
        ("echo $(/bin/rm x)", "deny"),
        ("if", "deny"),
        ("$x", "ask"),
    ],
)
async def test_a_dry_run_says_what_would_become_of_a_command(world, command, verdict):
    """By given rules, which replace the stored ones; nothing is stored."""
    rules = [("Bash(git status:*)", "allow"), ("Bash(rm:*)", "deny")]
    found = await evaluate(world, "Bash", {"command": command}, *rules)
    assert found["verdict"] == verdict
    assert found["why"]
    if verdict == "deny":
        assert found["rule"]["tool"] == "Bash(rm:*)"
    assert (await world.api.get("/v1/permissions")).json()["data"] == []


async def test_a_dry_run_takes_the_stored_rules_of_the_user(world):
    """The order is that of real calls: deny, plan, ask, allow, read-only, mode."""
    email = {"to": "a@acme.com", "subject": "s", "body": "b"}
    assert (await evaluate(world, "send_email", email))["verdict"] == "ask"
    assert (await evaluate(world, "send_email", email, mode="autonomous"))["verdict"] == "allow"
    assert (await evaluate(world, "search_docs", {"query": "q"}))["verdict"] == "allow"
    made = {"tool": "send_email(to=*@acme.com)", "user_id": "u"}
    stored = (await world.api.post("/v1/permissions", json=made)).json()
    found = await evaluate(world, "send_email", email, user_id="u")
    assert (found["verdict"], found["rule"]["id"]) == ("allow", stored["id"])
    assert (await evaluate(world, "send_email", email, user_id="v"))["verdict"] == "ask"
    other = {**email, "to": "b@other.com,a@acme.com"}
    assert (await evaluate(world, "send_email", other, user_id="u"))["verdict"] == "ask"
    assert (await evaluate(world, "send_email", email, user_id="u", mode="plan"))[
        "verdict"
    ] == "deny"


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"call": {"tool": "gone", "input": {}}}, "unknown_tool", "call.tool"),
        (
            {"call": {"tool": "Bash", "input": {"command": 1}}},
            "invalid_tool_input",
            "call.input.command",
        ),
        ({"call": {"tool": "Bash"}}, "validation_error", "call.input"),
        (
            {
                "call": {"tool": "Bash", "input": {"command": "ls"}},
                "rules": [{"tool": "Bash(", "effect": "deny"}],
            },
            "invalid_pattern",
            "rules[0].tool",
        ),
    ],
)
async def test_a_dry_run_checks_what_it_is_given(world, body, code, field):
    """Like a real call and like a rule to be stored."""
    refused(await world.api.post("/v1/permissions/evaluate", json=body), 422, code, field)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git status; ls", "not one literal simple command"),
        ("git status > x", "not one literal simple command"),
        ("if", "cannot be read"),
        ("git log", "it states another call"),
        ("git status --output=x", "run or write something else"),
    ],
)
async def test_a_dry_run_says_why_an_allow_does_not_cover(world, command, why):
    """Of the rules about that tool, the ones that come nearest first; given ones are counted."""
    rules = [
        ("send_email", "allow"),
        ("Bash(git diff:*)", "allow"),
        ("Bash(git status:*)", "allow"),
    ]
    found = await evaluate(world, "Bash", {"command": command}, *rules)
    assert found["verdict"] == "ask"
    assert why in found["why"]
    assert "given rule 3 (Bash(git status:*))" in found["why"]
    assert "send_email" not in found["why"]


async def test_a_dry_run_says_of_whom_and_until_when_a_rule_was(world):
    """An allow without a user is for runs without one; expired and used up ones say so."""
    email = {"to": "a@acme.com", "subject": "s", "body": "b"}
    made = (await world.api.post("/v1/permissions", json={"tool": "send_email"})).json()
    found = await evaluate(world, "send_email", email)
    assert found["why"] == f"allow rule {made['id']} for runs without a user"
    found = await evaluate(world, "send_email", email, user_id="u")
    assert "it is for runs without a user" in found["why"]
    await world.api.delete(f"/v1/permissions/{made['id']}")
    body = {"tool": "send_email", "expires_at": "2999-01-01T00:00:00Z"}
    made = (await world.api.post("/v1/permissions", json=body)).json()
    raw = json.loads(await world.store.connection.call("HGET", "sg:{g}:pol:1", str(made["id"])))
    raw["expires"] = 1
    await world.store.connection.call("HSET", "sg:{g}:pol:1", str(made["id"]), json.dumps(raw))
    found = await evaluate(world, "send_email", email)
    assert (found["verdict"], "it has expired" in found["why"]) == ("ask", True)


async def test_a_dry_run_takes_tools_of_configured_mcp_servers(redis_url):
    """As tools with effects, whatever their input; other servers' tools are unknown."""
    servers = json.dumps({"shop": {"command": "true"}})
    async with opened(settings(redis_url, SIGNOFF_MCP_SERVERS=servers)) as world:
        for rules, mode, verdict in (
            ([], "approval", "ask"),
            ([], "autonomous", "allow"),
            ([], "plan", "deny"),
            ([("mcp__shop__*", "allow")], "approval", "allow"),
            ([("mcp__shop", "deny")], "autonomous", "deny"),
        ):
            found = await evaluate(world, "mcp__shop__order", {"id": 1}, *rules, mode=mode)
            assert found["verdict"] == verdict
        for name in ("mcp__other__order", "mcp__shop", "mcp__shop__", "mcp__shop__a__b c"):
            body: dict[str, Any] = {"call": {"tool": name, "input": {}}}
            answer = await world.api.post("/v1/permissions/evaluate", json=body)
            refused(answer, 422, "unknown_tool", "call.tool")
