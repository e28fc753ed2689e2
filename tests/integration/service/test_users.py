"""End users over the API: profiles, caps, use."""

import time

import pytest

from tests.integration.service.test_runs import refused

pytestmark = pytest.mark.anyio


async def make(world, user_id="u", **body):
    made = await world.api.post("/v1/users/", json={"user_id": user_id, **body})
    assert made.status_code == 201, made.text
    return made.json()


async def start(world, user_id="u", **body):
    return await world.api.post("/v1/runs/", json={"message": "go", "user_id": user_id, **body})


async def test_a_profile_is_made_read_changed_and_removed(world):
    """What a change does not name stays; metadata is replaced as a whole; null clears."""
    user = await make(world, name="Ada", email="a@x.com", metadata={"a": 1}, run_limit=3)
    assert (user["user_id"], user["name"], user["run_limit"]) == ("u", "Ada", 3)
    assert user["cost_limit_cents"] is None
    assert (await world.api.get("/v1/users/u")).json() == user
    changes = {"metadata": {"b": 2}, "run_limit": None, "rate_per_minute": 4}
    changed = (await world.api.patch("/v1/users/u", json=changes)).json()
    assert (changed["metadata"], changed["run_limit"]) == ({"b": 2}, None)
    assert (changed["rate_per_minute"], changed["email"]) == (4, "a@x.com")
    refused(
        await world.api.post("/v1/users/", json={"user_id": "u"}), 409, "user_exists", "user_id"
    )
    assert (await world.api.delete("/v1/users/u")).status_code == 204
    for answer in (
        await world.api.get("/v1/users/u"),
        await world.api.delete("/v1/users/u"),
        await world.api.patch("/v1/users/u", json={"name": "x"}),
    ):
        refused(answer, 404, "not_found")


async def test_profiles_belong_to_their_account(world):
    """Another account neither sees nor meets them; ids of any text are found again."""
    odd = "zoë @ acme 🦊"
    await make(world, odd)
    assert (await world.api.get(f"/v1/users/{odd}")).json()["user_id"] == odd
    refused(await world.other.get(f"/v1/users/{odd}"), 404, "not_found")
    assert (await world.other.post("/v1/users/", json={"user_id": odd})).status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "user_id"),
        ({"user_id": ""}, "user_id"),
        ({"user_id": "u" * 256}, "user_id"),
        ({"user_id": "u", "run_limit": -1}, "run_limit"),
        ({"user_id": "u", "rate_per_minute": "5"}, "rate_per_minute"),
        ({"user_id": "u", "metadata": []}, "metadata"),
    ],
)
async def test_wrong_profiles_are_refused(world, body, field):
    """The field is named, and nothing is made."""
    answer = await world.api.post("/v1/users/", json=body)
    refused(answer, 422, "validation_error", field)
    assert (await world.api.get("/v1/users/")).json()["data"] == []


async def test_lists_come_in_pages(world):
    """Newest first, exact, and the cursor leads on."""
    made = [(await make(world, f"u{n}"))["id"] for n in range(3)]
    page = (await world.api.get("/v1/users/?limit=2")).json()
    assert [row["id"] for row in page["data"]] == [made[2], made[1]]
    assert (page["has_more"], page["next_starting_after"]) == (True, made[1])
    rest = (await world.api.get(f"/v1/users/?limit=2&starting_after={made[1]}")).json()
    assert ([row["id"] for row in rest["data"]], rest["has_more"]) == ([made[0]], False)


async def test_the_first_use_anywhere_makes_a_profile(world):
    """Runs, agents, policies and webhooks; an agent's user counts for its runs."""
    await start(world, "run")
    agent = await world.api.post("/v1/agents/", json={"user_id": "agent"})
    await world.api.post("/v1/permissions/", json={"user_id": "policy", "tool": "t"})
    await world.webhook(user_id="webhook")
    for name in ("run", "agent", "policy", "webhook"):
        user = (await world.api.get(f"/v1/users/{name}")).json()
        assert (user["user_id"], user["name"], user["run_limit"]) == (name, None, None)
        refused(
            await world.api.post("/v1/users/", json={"user_id": name}),
            409,
            "user_exists",
            "user_id",
        )
    await world.api.delete("/v1/users/agent")
    await world.run(agent_id=agent.json()["id"])
    assert (await world.api.get("/v1/users/agent")).status_code == 200


async def test_a_run_limit_of_zero_blocks(world):
    """At once, with the platform's code; without a wait, for waiting does not help."""
    await make(world, run_limit=0)
    answer = await start(world)
    refused(answer, 402, "END_USER_RUN_LIMIT_REACHED")
    assert "retry-after" not in answer.headers
    assert (await start(world, "v")).status_code == 201
    await world.api.patch("/v1/users/u", json={"run_limit": 1})
    assert (await start(world)).status_code == 201
    refused(await start(world), 402, "END_USER_RUN_LIMIT_REACHED")
    await world.api.patch("/v1/users/u", json={"run_limit": None})
    assert (await start(world)).status_code == 201


async def test_own_caps_win_over_the_accounts(world):
    """The account's caps hold for users without their own, also for users that come later."""
    await world.api.patch("/v1/settings/", json={"per_end_user_run_limit": 1})
    await make(world, run_limit=2)
    assert [(await start(world)).status_code for _ in range(3)] == [201, 201, 402]
    assert [(await start(world, "v")).status_code for _ in range(2)] == [201, 402]
    assert [(await start(world, None)).status_code for _ in range(3)] == [201] * 3


async def test_a_rate_says_what_is_left_and_when_to_come_back(world):
    """Headers with each run; 429 with Retry-After when the minute is used up."""
    await make(world, rate_per_minute=2)
    first, second, third = [await start(world) for _ in range(3)]
    left = [answer.headers["x-ratelimit-remaining"] for answer in (first, second)]
    assert (left, first.headers["x-ratelimit-limit"]) == (["1", "0"], "2")
    assert 0 < int(first.headers["x-ratelimit-reset"]) - time.time() <= 62
    refused(third, 429, "END_USER_RATE_LIMIT_REACHED")
    assert 1 <= int(third.headers["retry-after"]) <= 60
    unbounded = await start(world, "v")
    assert "x-ratelimit-remaining" not in unbounded.headers


async def test_a_refused_create_may_be_repeated_under_its_key(world):
    """A cap refuses a request, not its Idempotency-Key for ever."""
    await make(world, run_limit=0)
    headers = {"idempotency-key": "k"}
    body = {"message": "go", "user_id": "u"}
    answer = await world.api.post("/v1/runs/", json=body, headers=headers)
    refused(answer, 402, "END_USER_RUN_LIMIT_REACHED")
    await world.api.patch("/v1/users/u", json={"run_limit": 1})
    made = await world.api.post("/v1/runs/", json=body, headers=headers)
    again = await world.api.post("/v1/runs/", json=body, headers=headers)
    assert (made.status_code, again.status_code) == (201, 201)
    assert made.json()["id"] == again.json()["id"]


async def test_use_is_told_with_the_caps_that_hold(world):
    """Of one user or of all; a fresh one has used nothing; of a stranger there is no row."""
    await world.api.patch("/v1/settings/", json={"per_end_user_run_limit": 9})
    await make(world, "fresh", rate_per_minute=5)
    for _ in range(2):
        assert (await start(world)).status_code == 201
    rows = (await world.api.get("/v1/usage/end-users")).json()["data"]
    assert [row["user_id"] for row in rows] == ["u", "fresh"]
    assert rows[0]["runs_used"] == 2
    assert rows[0]["last_active_at"] is not None
    (fresh,) = (await world.api.get("/v1/usage/end-users?user_id=fresh")).json()["data"]
    assert (fresh["runs_used"], fresh["cost_used"], fresh["total_tokens"]) == (0, "0", 0)
    assert (fresh["runs_limit"], fresh["rate_per_minute"]) == (9, 5)
    assert fresh["last_active_at"] is None
    assert fresh["period_end"].endswith("-01T00:00:00.000Z")
    assert (await world.api.get("/v1/usage/end-users?user_id=x")).json()["data"] == []
