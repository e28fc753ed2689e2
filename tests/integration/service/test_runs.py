"""Runs through the API: made once, read, listed, ended, switched."""

import asyncio

import pytest

from service.create import ROUTE
from service.idempotency import body_digest
from signoff.store import keys
from tests.integration.service.world import QUESTIONS, SEND

pytestmark = pytest.mark.anyio


def refused(response, status, code, field=None):
    error = response.json()["error"]
    assert (response.status_code, error["error_code"]) == (status, code), response.text
    assert error["details"]["error_code"] == code
    assert error["details"].get("field") == field, response.text


async def test_a_new_run_is_running_and_names_itself_first(world):
    """The answer is 201, opens with the id, and has every field that clients read."""
    made = await world.api.post("/v1/runs/", json={"message": "hello", "stream": False})
    assert made.status_code == 201
    body = made.json()
    assert made.text.startswith(f'{{"id":{body["id"]},')
    assert body["status"] == "running"
    assert body["permission_mode"] == "autonomous"
    assert body["teammate_id"] == body["agent_id"]
    assert body["usage"]["total_tokens"] == 0
    assert body["model"] == "scripted"
    assert made.headers["cache-control"] == "no-store"
    assert (await world.api.get(f"/v1/runs/{body['id']}")).json() == body


async def test_a_create_that_asks_for_no_stream_is_answered_as_a_plain_run(world):
    """An omitted stream, and stream false, get the JSON run on both surfaces."""
    for prefix in ("/v1", "/api/v2"):
        for extra in ({}, {"stream": False}):
            made = await world.api.post(f"{prefix}/runs/", json={"message": "m", **extra})
            assert made.status_code == 201
            assert made.json()["status"] == "running"


async def test_the_worker_finds_what_was_asked_for(world):
    """The stored configuration holds model, instructions, tools, metadata and turns."""
    run_id = await world.run(
        instructions="be brief",
        tools=["send_email", "search_docs", "send_email"],
        metadata={"n": 1.5, "deep": {"list": [1, None, "é"]}},
        max_turns=7,
        human_in_the_loop=True,
        permission_mode="approval",
        name="Mailer",
        unknown_field="is ignored",
    )
    run = await world.store.runs.load("1", run_id)
    assert run.config["tools"] == ["send_email", "search_docs"]
    assert run.config["instructions"] == "be brief"
    assert run.config["metadata"] == {"n": 1.5, "deep": {"list": [1, None, "é"]}}
    assert (run.config["max_turns"], run.config["model"]) == (7, "scripted")
    assert (run.mode, run.human_in_the_loop) == ("approval", True)
    shown = (await world.api.get(f"/v1/runs/{run_id}")).json()
    assert shown["metadata"] == run.config["metadata"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": ""}, "message"),
        ({"message": 1}, "message"),
        ({"message": None}, "message"),
        ({"message": "m", "stream": "no"}, "stream"),
        ({"message": "m", "max_turns": 0}, "max_turns"),
        ({"message": "m", "max_turns": 2001}, "max_turns"),
        ({"message": "m", "max_turns": True}, "max_turns"),
        ({"message": "m", "max_turns": 2.0}, "max_turns"),
        ({"message": "m", "tools": "send_email"}, "tools"),
        ({"message": "m", "tools": [1]}, "tools[0]"),
        ({"message": "m", "tools": ["search_docs", "nope"]}, "tools[1]"),
        ({"message": "m", "metadata": []}, "metadata"),
        ({"message": "m", "metadata": {"script": [{"text": 1}]}}, "metadata.script[0].text"),
        ({"message": "m", "model": "gpt-5"}, "model"),
        ({"message": "m", "permission_mode": "Approval"}, "permission_mode"),
        ({"message": "m", "permission_mode": "approval"}, "permission_mode"),
        (
            {"message": "m", "permission_mode": "plan", "human_in_the_loop": False},
            "permission_mode",
        ),
        ({"message": "m", "human_in_the_loop": 1}, "human_in_the_loop"),
        ({"message": "m", "teammate_id": "1"}, "teammate_id"),
        ({"message": "m", "teammate_id": 1, "agent_id": 2}, "agent_id"),
        ({"message": "m", "user_id": ""}, "user_id"),
        ({"message": "m", "user_id": "u" * 256}, "user_id"),
        ({"message": "m", "output_schema": {"type": "array"}}, "output_schema.type"),
        (
            {
                "message": "m",
                "output_schema": {"type": "object", "properties": {"a": {"$ref": "#"}}},
            },
            "output_schema.$ref",
        ),
        (
            {"message": "m", "output_schema": {"type": "object", "required": "a"}},
            "output_schema.required",
        ),
        (
            {
                "message": "m",
                "output_schema": {"type": "object", "properties": {"a": {"pattern": "(?=x)"}}},
            },
            "output_schema.properties.a.pattern",
        ),
        ([], None),
        ("text", None),
    ],
)
async def test_wrong_bodies_name_the_field(world, body, field):
    """A wrong type or value is 422 with the field's path in message and details."""
    response = await world.api.post("/v1/runs/", json=body)
    error = response.json()["error"]
    assert response.status_code == 422, response.text
    assert error["details"].get("field") == field
    assert field is None or field.split(".")[0] in error["message"]


async def test_agents_are_found_by_name_within_their_user(world):
    """The same name is the same agent for one user and another for the next."""
    made = [
        (await world.api.post("/v1/runs/", json={"message": "m", **extra})).json()["agent_id"]
        for extra in (
            {"name": "A"},
            {"name": "A"},
            {"name": "A", "user_id": "u1"},
            {"name": "B"},
            {},
            {"name": "Assistant"},
        )
    ]
    assert made[0] == made[1]
    assert made[4] == made[5]
    assert len(set(made)) == 4


async def test_an_agent_lends_its_user_and_refuses_another(world):
    """A run of a user's agent is the user's; another user's or account's agent is missing."""
    first = (
        await world.api.post("/v1/runs/", json={"message": "m", "name": "A", "user_id": "u"})
    ).json()
    same = await world.api.post(
        "/v1/runs/", json={"message": "m", "teammate_id": first["agent_id"]}
    )
    assert same.json()["user_id"] == "u"
    for asked in (
        world.api.post(
            "/v1/runs/", json={"message": "m", "agent_id": first["agent_id"], "user_id": "v"}
        ),
        world.other.post("/v1/runs/", json={"message": "m", "agent_id": first["agent_id"]}),
        world.api.post("/v1/runs/", json={"message": "m", "agent_id": 10**300}),
    ):
        refused(await asked, 404, "not_found")


async def test_a_key_makes_one_run(world):
    """The same key and body is the same run, also at once; another body is refused."""
    headers = {"idempotency-key": "k 1"}
    body = {"message": "once"}
    made = await asyncio.gather(
        *(world.api.post("/v1/runs/", json=body, headers=headers) for _ in range(20))
    )
    assert {response.status_code for response in made} == {201}
    assert len({response.json()["id"] for response in made}) == 1
    assert sum("idempotent-replay" not in response.headers for response in made) == 1
    listed = (await world.api.get("/v1/runs/")).json()["data"]
    assert len(listed) == 1
    other = await world.api.post("/v1/runs", json={"message": "two"}, headers=headers)
    refused(other, 409, "idempotency_key_reuse")
    foreign = await world.other.post("/v1/runs", json={"message": "two"}, headers=headers)
    assert foreign.status_code == 201


async def test_a_claim_whose_run_was_never_made_is_fulfilled(world):
    """A crash between claim and run leaves a key that makes its run at the next try."""
    raw = b'{"message":"m"}'
    place = keys.idempotency("1", ROUTE, "k")
    await world.store.reservations.reserve(place, digest=body_digest(raw), value="41")
    made = await world.api.post(
        "/v1/runs/",
        content=raw,
        headers={"idempotency-key": "k", "content-type": "application/json"},
    )
    assert made.json()["id"] == 41


async def test_a_refused_request_frees_its_key(world):
    """A key whose request was refused for its agent may be used with a corrected body."""
    headers = {"idempotency-key": "k"}
    wrong = await world.api.post("/v1/runs", json={"message": "m", "agent_id": 99}, headers=headers)
    refused(wrong, 404, "not_found")
    right = await world.api.post("/v1/runs", json={"message": "m"}, headers=headers)
    assert right.status_code == 201
    assert "idempotent-replay" not in right.headers


@pytest.mark.parametrize("key", ["", "k" * 256, "tab\tinside", "é"])
async def test_odd_keys_are_refused(world, key):
    """A key is 1 to 255 printable ASCII characters."""
    response = await world.api.post(
        "/v1/runs", json={"message": "m"}, headers=[(b"idempotency-key", key.encode())]
    )
    refused(response, 422, "invalid_idempotency_key", "idempotency-key")


async def test_lists_are_scoped_and_paged_exactly(world):
    """Without a user only runs without one are listed; pages are exact to the last item."""
    ids = [await world.run() for _ in range(5)]
    theirs = await world.run(user_id="u")
    seen: list[int] = []
    cursor: dict[str, int] = {}
    while True:
        page = (await world.api.get("/v1/runs/", params={"limit": 2, **cursor})).json()
        seen += [run["id"] for run in page["data"]]
        if not page["has_more"]:
            assert page["next_starting_after"] is None
            break
        cursor = {"starting_after": page["next_starting_after"]}
    assert seen == ids[::-1]

    async def listed(**params):
        found = await world.api.get("/v1/runs/", params=params)
        return [run["id"] for run in found.json()["data"]]

    assert await listed(user_id="u") == [theirs]
    assert await listed(include_end_user_runs="true") == [theirs, *ids[::-1]]
    assert await listed(task_id=ids[2]) == [ids[2]]
    assert await listed(status="closed") == []
    assert await listed(status="completed") == []
    assert (await world.other.get("/v1/runs/")).json()["data"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=1e3", "limit"),
        ("limit=-1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("starting_after=x", "starting_after"),
        ("status=odd", "status"),
        ("sort=odd", "sort"),
        ("user_id=", "user_id"),
        ("user_id=%ff", "query"),
        ("include_end_user_runs=maybe", "include_end_user_runs"),
    ],
)
async def test_wrong_queries_name_the_parameter(world, query, field):
    """A query parameter of the wrong form is 422, never ignored."""
    refused(await world.api.get(f"/v1/runs/?{query}"), 422, "validation_error", field)


async def test_runs_of_others_are_missing(world):
    """Another account, another user and an impossible id all get the same 404."""
    run_id = await world.run(user_id="u")
    assert (await world.api.get(f"/v1/runs/{run_id}?user_id=u")).status_code == 200
    for client, path in (
        (world.other, f"/v1/runs/{run_id}"),
        (world.api, f"/v1/runs/{run_id}?user_id=v"),
        (world.api, "/v1/runs/999"),
        (world.api, "/v1/runs/0"),
        (world.api, "/v1/runs/-1"),
        (world.api, "/v1/runs/abc"),
        (world.api, f"/v1/runs/{'9' * 5000}"),
    ):
        refused(await client.get(path), 404, "not_found")
    one: dict[str, object] = {"request_id": "req_x", "decision": "allow"}
    bodies: dict[str, dict[str, object]] = {
        "cancel": {},
        "approve": one,
        "answer": {"request_id": "req_x", "answers": {"q": "a"}},
        "decisions": {"decisions": [one]},
    }
    for action, body in bodies.items():
        refused(await world.other.post(f"/v1/runs/{run_id}/{action}", json=body), 404, "not_found")
    for path in ("permissions", "messages"):
        refused(await world.other.get(f"/v1/runs/{run_id}/{path}"), 404, "not_found")
    mode = {"permission_mode": "approval"}
    refused(
        await world.other.patch(f"/v1/runs/{run_id}/permission-mode", json=mode), 404, "not_found"
    )


async def test_a_cancel_closes_everything_once(world):
    """Open gates close, unfinished calls are interrupted in the history, and it ends only once."""
    run_id, gates = await world.parked(("send_email", SEND), ("AskUserQuestion", QUESTIONS))
    ended = await world.api.post(f"/v1/runs/{run_id}/cancel")
    assert ended.status_code == 200
    assert ended.json()["status"] == "cancelled"
    assert [gate["status"] for gate in await world.gates(run_id)] == ["cancelled"] * 2
    history = (await world.api.get(f"/v1/runs/{run_id}/messages")).json()
    assert [message["role"] for message in history] == ["user", "assistant", "tool"]
    blocks = history[-1]["content_blocks"]
    assert [block["state"] for block in blocks] == ["interrupted"] * 2
    refused(await world.api.post(f"/v1/runs/{run_id}/cancel"), 409, "run_not_active")
    late = {"request_id": gates[0]["request_id"], "decision": "allow"}
    refused(await world.api.post(f"/v1/runs/{run_id}/approve", json=late), 404, "gate_cancelled")
    fake = {"request_id": "req_fake", "decision": "allow"}
    refused(await world.api.post(f"/v1/runs/{run_id}/approve", json=fake), 404, "gate_not_found")
    answers = {"answers": {"Which one?": "A"}}
    refused(
        await world.api.post(f"/v1/runs/{run_id}/answer", json=answers), 409, "run_not_awaiting"
    )
    switched = await world.api.patch(
        f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": "autonomous"}
    )
    refused(switched, 409, "run_not_active")


async def test_autonomous_settles_approvals_only(world):
    """A switch to autonomous allows tool approvals that no rule denies, and nothing else."""
    rule = {"tool": "set_flag", "effect": "deny"}
    assert (await world.api.post("/v1/permissions/", json=rule)).status_code == 201
    run_id, _ = await world.parked(
        ("send_email", SEND),
        ("AskUserQuestion", QUESTIONS),
        ("set_flag", {"key": "k", "value": "v"}),
    )
    path = f"/v1/runs/{run_id}/permission-mode"
    switched = await world.api.patch(path, json={"permission_mode": "autonomous"})
    assert switched.json() == {"permission_mode": "autonomous"}
    gates = await world.gates(run_id)
    assert [gate["status"] for gate in gates] == ["allowed", "pending", "pending"]
    assert gates[0]["decided_by"] == "mode"
    again = {"request_id": gates[0]["request_id"], "decision": "allow"}
    repeated = await world.api.post(f"/v1/runs/{run_id}/approve", json=again)
    assert repeated.json()["resumed"] is False
    assert await world.status(run_id) == "awaiting_approval"


async def test_approval_turns_people_on(world):
    """A run without a human in the loop may be switched to approval, which turns it on."""
    run_id = await world.run()
    path = f"/api/v2/runs/{run_id}/permission-mode/"
    assert (await world.api.patch(path, json={"permission_mode": "approval"})).status_code == 200
    shown = (await world.api.get(f"/v1/runs/{run_id}")).json()
    assert (shown["permission_mode"], shown["human_in_the_loop"]) == ("approval", True)
    wrong = await world.api.patch(path, json={"permission_mode": "yolo"})
    refused(wrong, 422, "validation_error", "permission_mode")


async def test_history_is_read_in_pages(world):
    """Pages after and before a sequence number, and the newest page, cut the same history."""
    run_id, _ = await world.parked()
    await world.api.post(f"/v1/runs/{run_id}/cancel")

    async def sequences(query):
        found = await world.api.get(f"/v1/runs/{run_id}/messages?{query}")
        assert found.status_code == 200, found.text
        return [message["sequence"] for message in found.json()]

    assert await sequences("") == [1, 2, 3]
    assert await sequences("limit=2") == [1, 2]
    assert await sequences("after_sequence=1") == [2, 3]
    assert await sequences("after_sequence=1&limit=1") == [2]
    assert await sequences("after_sequence=9") == []
    assert await sequences("before_sequence=3") == [1, 2]
    assert await sequences("before_sequence=3&limit=1") == [2]
    assert await sequences("before_sequence=1") == []
    assert await sequences("before_sequence=99&limit=1") == [3]
    assert await sequences("tail=true&limit=2") == [2, 3]
    for query in ("after_sequence=1&before_sequence=2", "tail=true&after_sequence=1"):
        found = await world.api.get(f"/v1/runs/{run_id}/messages?{query}")
        assert found.status_code == 422


async def test_the_inbox_lists_open_gates_across_runs(world):
    """Open gates come oldest first, only the account's own, filtered, in exact pages."""
    first, _ = await world.parked(user_id="u")
    second, _ = await world.parked(("send_email", SEND), ("AskUserQuestion", QUESTIONS), name="B")

    async def listed(client=world.api, **params):
        page = (await client.get("/v1/requests", params=params)).json()
        return [(row["run_id"], row["tool_name"]) for row in page["data"]], page

    assert (await listed())[0] == [
        (first, "send_email"),
        (second, "send_email"),
        (second, "AskUserQuestion"),
    ]
    assert (await listed(user_id="u"))[0] == [(first, "send_email")]
    assert (await listed(tool="AskUserQuestion"))[0] == [(second, "AskUserQuestion")]
    agent = (await world.api.get(f"/v1/runs/{second}")).json()["agent_id"]
    assert len((await listed(agent_id=agent))[0]) == 2
    assert (await listed(min_age=3600))[0] == []
    rows, page = await listed(limit=2)
    assert page["has_more"]
    rest, page = await listed(limit=2, starting_after=page["next_starting_after"])
    assert (len(rows), len(rest), page["has_more"]) == (2, 1, False)
    assert (await listed(world.other))[0] == []
    await world.api.post(f"/v1/runs/{first}/cancel")
    assert len((await listed())[0]) == 2


async def test_the_inbox_lists_more_than_it_reads_at_a_time(world, monkeypatch):
    """Every open gate is on one page, also when those between are decided while pages are read."""
    monkeypatch.setattr("service.api.gates.WINDOW", 2)
    runs = [(await world.parked())[0] for _ in range(7)]
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await world.api.get("/v1/requests", params={"limit": 3, **cursor})).json()
        seen += [row["run_id"] for row in page["data"]]
        if not page["has_more"]:
            break
        cursor = {"starting_after": page["next_starting_after"]}
        await world.api.post(f"/v1/runs/{page['data'][-1]['run_id']}/cancel")
    assert seen == runs
    strange = await world.api.get("/v1/requests?starting_after=req_nothing")
    assert strange.status_code == 404
