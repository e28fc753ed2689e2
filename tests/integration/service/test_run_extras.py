"""Runs beside their decisions: tried again, filed away, shared, looked at, counted."""

import asyncio
import json

import pytest

from service.retry import _make
from signoff.domain.call import CallState, Effect
from signoff.domain.message import Message, Text, encode
from signoff.store import keys
from signoff.store.steps import Held, NewCall, StepCommit
from tests.integration.service.world import (
    KEY,
    QUESTIONS,
    SEND,
    World,
    client,
    serving,
    settings,
)

pytestmark = pytest.mark.anyio


def refused(response, status, code):
    error = response.json()["error"]
    assert (response.status_code, error["error_code"]) == (status, code), response.text
    assert error["details"]["error_code"] == code


async def act(world, path, **options):
    response = await world.api.post(f"/v1/runs/{path}", **options)
    assert response.status_code < 300, response.text
    return response.json()


async def cancelled(world, **body):
    run_id = await world.run(**body)
    await act(world, f"{run_id}/cancel")
    return run_id


async def started_call(world, run_id, effect):
    """Gives the run a call of that effect, and starts it."""
    for taken in await world.store.steps.take(0, drainer="t", room=100, awake_ms=1):
        world.held[taken.run.id] = taken
    held: Held = world.held.pop(run_id)
    rules = await world.store.catalog.rules(held.run.account, run_id)
    call = NewCall(
        id="call_0",
        tool="send_email",
        input_json="{}",
        digest="0" * 64,
        state=CallState.ALLOWED,
        effect=effect,
    )
    await world.store.steps.commit(
        held.run,
        StepCommit(
            commit_id="c", messages=[], usage={}, rules_v=rules.version, calls=[call], gates=[]
        ),
    )
    run = await world.store.runs.load(held.run.account, run_id)
    (call,) = await world.store.runs.calls(run_id)
    await world.store.steps.start_call(run, call, attempt=1, rules_v=rules.version)


async def listed(world, query=""):
    page = (await world.api.get(f"/v1/runs/?{query}")).json()
    return [run["id"] for run in page["data"]], page["has_more"]


async def test_a_retry_is_a_new_run_of_the_same_work(world):
    """It has the configuration and the words of the first, and each names the other."""
    run_id = await cancelled(
        world,
        message="write to Ada",
        user_id="u1",
        metadata={"n": 1},
        tools=["send_email"],
        human_in_the_loop=True,
        permission_mode="approval",
        name="Mailer",
    )
    assert (await act(world, f"{run_id}/view"))["retryable"] is True
    made = await world.api.post(f"/v1/runs/{run_id}/retry")
    child = made.json()
    assert made.status_code == 201
    assert (child["status"], child["retry_of_run_id"], child["retry_count"]) == (
        "running",
        run_id,
        1,
    )
    first = (await world.api.get(f"/v1/runs/{run_id}")).json()
    assert (first["status"], first["retried_by_run_id"]) == ("cancelled", child["id"])
    for name in ("agent_id", "user_id", "metadata", "tools", "permission_mode", "model"):
        assert child[name] == first[name]
    said = (await world.api.get(f"/v1/runs/{child['id']}/messages")).json()
    assert [(item["role"], item["content"]) for item in said] == [("user", "write to Ada")]


async def test_a_retry_in_flight_is_the_answer_to_the_next(world):
    """Repeats and races make one run; when it is over, the next retry makes another."""
    run_id = await cancelled(world)
    answers = await asyncio.gather(
        *(world.api.post(f"/v1/runs/{run_id}/retry?confirm=true") for _ in range(5))
    )
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 201]
    child_id = answers[0].json()["id"]
    await act(world, f"{child_id}/cancel")
    again = await act(world, f"{run_id}/retry")
    assert again["id"] != child_id
    # A retry of the retry counts on.
    assert (await act(world, f"{child_id}/retry"))["retry_count"] == 2


async def test_a_retry_that_was_cut_off_is_made_up_for(world):
    """A process that dies between the claim and the run leaves a claim that the next fulfils."""
    run_id = await cancelled(world)
    run = await world.store.runs.load("1", run_id)
    promised = await world.store.runs.next_id()
    await world.store.marks.claim_retry(run, promised)
    made = await world.api.post(f"/v1/runs/{run_id}/retry")
    assert (made.status_code, made.json()["id"]) == (200, promised)
    await _make(world.context, run, promised)
    assert (await listed(world))[0] == [promised, run_id]


@pytest.mark.parametrize("effect", [Effect.ONCE, Effect.IDEMPOTENT, Effect.READ])
async def test_what_has_acted_is_not_repeated_unasked(world, effect):
    """A started call with effects needs confirm=true; one that only reads does not."""
    run_id = await world.run()
    await started_call(world, run_id, effect)
    await act(world, f"{run_id}/cancel")
    acted = effect is not Effect.READ
    assert (await world.api.get(f"/v1/runs/{run_id}")).json()["repeats_actions"] is acted
    response = await world.api.post(f"/v1/runs/{run_id}/retry")
    if acted:
        refused(response, 409, "retry_needs_confirmation")
        assert (await act(world, f"{run_id}/retry?confirm=true&use_credits=true"))["id"] != run_id
        # It is in flight now, so nothing would be repeated.
        assert (await world.api.post(f"/v1/runs/{run_id}/retry")).status_code == 200
    else:
        assert response.status_code == 201


async def test_only_what_ended_early_is_retried(world):
    """A run under way is a conflict, somebody else's and an unknown one are missing."""
    run_id = await world.run()
    refused(await world.api.post(f"/v1/runs/{run_id}/retry"), 409, "run_not_retryable")
    refused(await world.other.post(f"/v1/runs/{run_id}/retry"), 404, "not_found")
    refused(await world.api.post("/v1/runs/999/retry"), 404, "not_found")
    assert (await world.api.get(f"/v1/runs/{run_id}")).json()["retryable"] is False


async def test_an_agent_that_takes_no_runs_takes_no_retries(world):
    """A disabled agent refuses a retry as it refuses a run, and the retry works afterwards."""
    run_id = await cancelled(world)
    agent_id = (await world.api.get(f"/v1/runs/{run_id}")).json()["agent_id"]
    await world.api.post(f"/v1/agents/{agent_id}/disable")
    refused(await world.api.post(f"/v1/runs/{run_id}/retry"), 409, "agent_disabled")
    await world.api.post(f"/v1/agents/{agent_id}/enable")
    assert (await world.api.post(f"/v1/runs/{run_id}/retry")).status_code == 201


async def test_a_strict_account_names_the_user(world):
    """Counts and lists of the account as such are refused where every request needs a user."""
    await world.api.patch("/v1/settings", json={"require_end_user_id": True})
    for path in ("", "check", "needs-you", "activity"):
        refused(await world.api.get(f"/v1/runs/{path}"), 422, "end_user_required")
        assert (await world.api.get(f"/v1/runs/{path}?user_id=u1")).status_code == 200


async def test_an_archived_run_leaves_the_lists_until_it_is_taken_back(world):
    """Archiving and taking back are idempotent; the run stays readable and counted with itself."""
    kept, filed = await world.run(), await world.run()
    for _ in range(2):
        assert (await act(world, f"{filed}/archive"))["archived"] is True
    assert await listed(world) == ([kept], False)
    assert await listed(world, "archived=only") == ([filed], False)
    assert await listed(world, "status=archived") == ([filed], False)
    assert await listed(world, "archived=include") == ([filed, kept], False)
    assert await listed(world, "archived=include&limit=1") == ([filed], True)
    assert await listed(world, f"archived=include&limit=1&starting_after={filed}") == (
        [kept],
        False,
    )
    assert await listed(world, f"task_id={filed}") == ([], False)
    assert await listed(world, f"task_id={filed}&archived=only") == ([filed], False)
    assert (await world.api.get("/v1/runs/check")).json()["total_count"] == 1
    for _ in range(2):
        assert (await act(world, f"{filed}/unarchive"))["archived"] is False
    assert await listed(world) == ([filed, kept], False)
    assert await listed(world, "archived=only") == ([], False)
    refused(await world.other.post(f"/v1/runs/{kept}/archive"), 404, "not_found")


async def test_an_archived_run_asks_for_nothing(world):
    """It does not count as waiting while it is archived, and does again afterwards."""
    run_id, _ = await world.parked()
    for archived in (True, False):
        await act(world, f"{run_id}/{'archive' if archived else 'unarchive'}")
        body = (await world.api.get("/v1/runs/needs-you")).json()
        assert (body["count"], len(body["items"])) == ((0, 0) if archived else (1, 1))


async def test_a_share_link_is_one_until_it_is_revoked(world):
    """Repeats and races give the same link; revoking ends it at once; the next one is another."""
    run_id = await world.run(message="a secret plan", metadata={"token": "hidden"})
    answers = await asyncio.gather(
        *(world.api.post(f"/api/v2/runs/{run_id}/share") for _ in range(4))
    )
    (url,) = {answer.json()["share_url"] for answer in answers}
    token = answers[0].json()["share_token"]
    assert url == f"http://signoff.test/api/v2/shared/{token}"
    assert (await world.api.get(f"/v1/runs/{run_id}")).json()["share_token"] == token
    seen = await world.nobody.get(url)
    assert seen.status_code == 200
    assert [item["content"] for item in seen.json()["messages"]] == ["a secret plan"]
    assert "hidden" not in seen.text
    for _ in range(2):
        gone = await world.api.delete(f"/v1/runs/{run_id}/share")
        assert (gone.status_code, gone.content) == (204, b"")
    refused(await world.nobody.get(url), 404, "not_found")
    fresh = await act(world, f"{run_id}/share")
    assert fresh["share_token"] != token
    refused(await world.nobody.get(url), 404, "not_found")
    assert (await world.nobody.get(fresh["share_url"])).status_code == 200
    refused(await world.other.post(f"/v1/runs/{run_id}/share"), 404, "not_found")
    refused(await world.other.delete(f"/v1/runs/{run_id}/share"), 404, "not_found")


@pytest.mark.parametrize("token", ["x", "0" * 22, "a%20b" + "c" * 20, "é" * 20])
async def test_a_made_up_link_opens_nothing(world, token):
    """Guesses and garbage are missing, without a key as with one."""
    for caller in (world.nobody, world.api):
        refused(await caller.get(f"/v1/shared/{token}"), 404, "not_found")


async def test_a_token_that_its_run_does_not_have_opens_nothing(world):
    """What a dying process left behind of a link is no link."""
    run_id = await world.run()
    await world.store.connection.call("SET", keys.share("t" * 22), str(run_id))
    refused(await world.nobody.get(f"/v1/shared/{'t' * 22}"), 404, "not_found")


async def test_shared_words_leave_the_tools_out(world):
    """A link shows what was said, not what tools were given and answered."""
    run_id, _ = await world.parked(("send_email", {**SEND, "body": "for Ada's eyes only"}))
    link = await act(world, f"{run_id}/share")
    seen = (await world.nobody.get(link["share_url"])).json()
    assert [(item["role"], item["content"]) for item in seen["messages"]] == [
        ("user", "go"),
        ("assistant", "hm"),
    ]
    assert "Ada" not in json.dumps(seen)


async def test_looking_at_a_run_is_noted(world):
    """Each view moves last_viewed_at and nothing else."""
    run_id = await world.run()
    before = (await world.api.get(f"/v1/runs/{run_id}")).json()
    assert before["last_viewed_at"] is None
    after = await act(world, f"{run_id}/view")
    assert after["last_viewed_at"] is not None
    assert {**after, "last_viewed_at": None} == before
    refused(await world.api.post(f"/v1/runs/{run_id}/view?user_id=someone"), 404, "not_found")


async def test_a_check_counts_one_scope(world):
    """Each scope has its own counts; everything that happens in it moves them."""
    empty = (await world.api.get("/v1/runs/check?user_id=u9")).json()
    assert (empty["total_count"], empty["latest_run_id"], empty["latest_change_at"]) == (
        0,
        None,
        None,
    )
    mine, theirs = await world.run(user_id="u1"), await world.run()
    seen = (await world.api.get("/v1/runs/check?user_id=u1")).json()
    assert (seen["total_count"], seen["latest_run_id"], seen["awaiting_count"]) == (1, mine, 0)
    await world.park(mine, ("send_email", SEND))
    asked = (await world.api.get("/v1/runs/check?user_id=u1")).json()
    assert asked["awaiting_count"] == 1
    assert asked["latest_change_at"] > seen["latest_change_at"]
    assert (asked["roster_count"], asked["roster_change_at"] is None) == (1, False)
    other = (await world.api.get("/v1/runs/check")).json()
    assert other["roster_count"] == 2
    assert (other["latest_run_id"], other["awaiting_count"]) == (theirs, 0)
    await act(world, f"{mine}/cancel")
    assert (await world.api.get("/v1/runs/check?user_id=u1")).json()["awaiting_count"] == 0


async def test_who_is_waited_for_is_told_without_the_prompt(world):
    """Titles name the kind of request and the tool; the count is of all, the items are capped."""
    secret = "the merger with Acme"
    question = {"questions": [{**QUESTIONS["questions"][0], "question": secret}]}
    await world.parked(("AskUserQuestion", question), message=secret, name="Mailer")
    await world.parked(("ExitPlanMode", {"plan": secret}), message=secret)
    two = [("send_email", {**SEND, "body": secret}), ("set_flag", {"key": secret, "value": "1"})]
    newest, _ = await world.parked(*two, message=secret)
    await world.parked(user_id="u1")
    told = await world.api.get("/v1/runs/needs-you")
    assert secret not in told.text
    body = told.json()
    assert body["count"] == 3
    assert [item["title"] for item in body["items"]] == [
        "Approval of send_email and 1 more",
        "A plan to approve",
        "A question for you",
    ]
    assert body["items"][0]["run_id"] == newest
    assert body["items"][2]["mate_name"] == "Mailer"
    for _ in range(8):
        await world.parked()
    body = (await world.api.get("/v1/runs/needs-you")).json()
    assert (body["count"], len(body["items"])) == (11, 10)


async def test_activity_is_what_goes_on_and_what_came_last(world):
    """Per agent: every run that is not over, and the newest that is."""
    old, last = await cancelled(world, name="A"), await cancelled(world, name="A")
    live = await world.run(name="A")
    asking, _ = await world.parked(name="B")
    await cancelled(world, user_id="u1", name="A")
    body = (await world.api.get("/v1/runs/activity")).json()
    assert [[run["id"] for run in group["runs"]] for group in body["data"]] == [
        [asking],
        [live, last],
    ]
    assert body["data"][0]["runs"][0]["needs_reply"] is True
    assert body["data"][1]["runs"][1]["cancelled_at"] is not None
    await act(world, f"{last}/archive")
    body = (await world.api.get("/v1/runs/activity")).json()
    assert old not in [run["id"] for run in body["data"][1]["runs"]]
    await act(world, f"{old}/archive")
    await act(world, f"{old}/unarchive")
    body = (await world.api.get("/v1/runs/activity")).json()
    assert [run["id"] for run in body["data"][1]["runs"]] == [live, old]


async def test_an_outcome_is_the_run_without_its_history(world):
    """Summary and headline are null until it says something; counts are there."""
    run_id, _ = await world.parked()
    body = (await world.api.get(f"/v1/runs/{run_id}/outcome")).json()
    assert body == {
        "run_id": run_id,
        "status": "awaiting_approval",
        "summary": None,
        "headline": None,
        "needs_reply": True,
        "needs_reply_count": 1,
        "delivery_channel": "none",
        "output_data": None,
        "message_count": 2,
        "input_tokens": 3,
        "output_tokens": 0,
        "total_tokens": 3,
        "cost_usd": None,
    }
    refused(await world.api.get("/v1/runs/999/outcome"), 404, "not_found")


async def test_there_are_no_files(world):
    """The list is empty, every file is missing, and sending some is refused in so many words."""
    run_id = await world.run()
    assert (await world.api.get(f"/v1/runs/{run_id}/files")).json() == []
    refused(await world.api.get(f"/v1/runs/{run_id}/files/a.txt/download"), 404, "not_found")
    refused(await world.api.get("/v1/runs/999/files"), 404, "not_found")
    sent = {"data": {"payload": "{}"}, "files": {"files": ("a.txt", b"x" * 2_000_000)}}
    for path in ("with-files", f"{run_id}/reply/with-files"):
        response = await world.api.post(f"/v1/runs/{path}", **sent)
        refused(response, 400, "files_not_supported")
        assert "sandbox" in response.json()["error"]["message"]
    refused(await world.api.post("/v1/runs/999/reply/with-files", **sent), 404, "not_found")


async def test_those_who_wait_come_first(world):
    """sort=priority lists parked runs before the others, page by page, each once."""
    runs = [await world.run() for _ in range(6)]
    for run_id in (runs[1], runs[3]):
        await world.park(run_id, ("send_email", SEND))
    expected = [runs[3], runs[1], runs[5], runs[4], runs[2], runs[0]]
    for limit in (1, 2, 3, 6):
        found, query, more = [], f"sort=priority&limit={limit}", True
        while more:
            ids, more = await listed(world, query)
            found += ids
            query = f"sort=priority&limit={limit}&starting_after={ids[-1]}"
        assert found == expected
    assert (await listed(world, "sort=created"))[0] == runs[::-1]
    assert (await listed(world, "sort=priority&status=awaiting_approval"))[0] == expected[:2]
    assert (await listed(world, "sort=priority&include_end_user_runs=true"))[0] == expected


async def test_a_filter_takes_what_it_says(world):
    """By agent, by status, by both; filters that never match give an empty page."""
    mine = await world.run(name="A")
    other = await cancelled(world, name="B")
    agent_id = (await world.api.get(f"/v1/runs/{mine}")).json()["teammate_id"]
    assert (await listed(world, f"teammate_id={agent_id}"))[0] == [mine]
    assert (await listed(world, "status=cancelled&exclude_platform_runs=true"))[0] == [other]
    assert (await listed(world, f"status=cancelled&teammate_id={agent_id}"))[0] == []
    for status in ("paused", "closed"):
        assert await listed(world, f"status={status}") == ([], False)


async def test_a_summary_is_slim(world):
    """fields=summary leaves out what can be long."""
    await world.run(metadata={"long": "x" * 1000})
    (run,) = (await world.api.get("/v1/runs/?fields=summary")).json()["data"]
    assert {"output", "metadata", "tools"}.isdisjoint(run)
    assert {"id", "status", "closing_preview", "teammate_id"} <= set(run)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("archived=yes", "archived"),
        ("fields=all", "fields"),
        ("exclude_platform_runs=perhaps", "exclude_platform_runs"),
        ("task_id=x", "task_id"),
        ("agent_id=1&teammate_id=2", "agent_id"),
    ],
)
async def test_odd_filters_are_refused(world, query, field):
    """What is not understood is 422, never ignored."""
    response = await world.api.get(f"/v1/runs/?{query}")
    assert response.status_code == 422
    assert response.json()["error"]["details"]["field"] == field


async def test_a_first_session_lets_the_agent_speak_first(world):
    """The agent is named, the words are the server's, and the key makes it once."""
    agent_id = (await world.api.get(f"/v1/runs/{await world.run()}")).json()["agent_id"]
    wanted = {"teammate_id": agent_id, "stream": False, "human_in_the_loop": True}
    headers = {"idempotency-key": "one"}
    first = await world.api.post("/v1/runs/first-session", json=wanted, headers=headers)
    again = await world.api.post("/v1/runs/first-session", json=wanted, headers=headers)
    assert (first.status_code, first.json()["teammate_id"]) == (201, agent_id)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replay"] == "true"
    said = (await world.api.get(f"/v1/runs/{first.json()['id']}/messages")).json()
    assert said[0]["role"] == "user"
    # The same key is another one on another route.
    await world.api.post("/v1/runs", json={"message": "m", "stream": False}, headers=headers)
    for body, status in (({"stream": False}, 422), ({"teammate_id": 999, "stream": False}, 404)):
        assert (await world.api.post("/v1/runs/first-session", json=body)).status_code == status


async def test_an_address_is_given_to_who_insists(world):
    """email_inbox=true gets an address under a reserved domain; nobody else gets one."""
    for wanted in (True, False, None):
        body = {} if wanted is None else {"email_inbox": wanted}
        run = (await world.api.get(f"/v1/runs/{await world.run(**body)}")).json()
        if wanted:
            assert run["email_address"].endswith(".invalid")
            assert "@" in run["email_address"]
        else:
            assert run["email_address"] is None


async def test_words_are_no_ids(world):
    """Fixed words under /runs are routes of their own, and only for their method."""
    for word in ("check", "needs-you", "activity"):
        assert (await world.api.get(f"/v1/runs/{word}/")).status_code == 200
        assert (await world.nobody.get(f"/v1/runs/{word}")).status_code == 401
    for word in ("with-files", "first-session"):
        refused = await world.api.get(f"/v1/runs/{word}")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_a_retry_asks_for_all_that_was_asked(world):
    """What the user said in later turns is not lost, and what the model said is not taken over."""
    run_id = await cancelled(world, message="one")
    connection, prefix = world.store.connection, world.store.shards.prefix(run_id)
    later = [
        Message(role="assistant", blocks=(Text("done"),), turn=1, step=1),
        Message(role="user", blocks=(Text("two"),), turn=2, step=1),
        Message(role="user", blocks=(Text("three"),), turn=2, step=1),
    ]
    for message in later:
        await connection.call("RPUSH", keys.messages(prefix, run_id), encode(message))
    await connection.call("HSET", keys.run(prefix, run_id), "turn", "2")
    child = await act(world, f"{run_id}/retry")
    said = (await world.api.get(f"/v1/runs/{child['id']}/messages")).json()
    assert [item["content"] for item in said] == ["one\n\ntwo\n\nthree"]


async def test_lists_are_the_same_over_several_shards(redis_url):
    """Order, pages, counts and activity do not depend on where a run is kept."""
    async with serving(settings(redis_url, SIGNOFF_SHARDS="3")) as app:
        accounts = app.state.context.store.accounts
        account = await accounts.ensure("one")
        await accounts.add_key(account, secret=KEY, name="test", now_ms=0)
        async with client(app, KEY) as api:
            world = World(app, (api, api, api))
            ids = [await world.run() for _ in range(7)]
            for run_id in ids[:4]:
                await act(world, f"{run_id}/cancel")
            await act(world, f"{ids[5]}/archive")
            shown = [run_id for run_id in reversed(ids) if run_id != ids[5]]
            first, more = await listed(world, "limit=4")
            rest, last = await listed(world, f"limit=4&starting_after={first[-1]}")
            assert (first + rest, more, last) == (shown, True, False)
            assert (await listed(world, "archived=include"))[0] == ids[::-1]
            assert (await listed(world, "status=cancelled&limit=4")) == (ids[3::-1], False)
            checked = (await api.get("/v1/runs/check")).json()
            assert (checked["total_count"], checked["latest_run_id"]) == (6, ids[6])
            (group,) = (await api.get("/v1/runs/activity")).json()["data"]
            assert [run["id"] for run in group["runs"]] == [ids[6], ids[4], ids[3]]
            link = await act(world, f"{ids[1]}/share")
            assert (await api.get(link["share_url"])).status_code == 200
            assert (await act(world, f"{ids[1]}/retry"))["retry_of_run_id"] == ids[1]
