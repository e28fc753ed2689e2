"""Who may decide: approvers, quorums, and people who asked for the work themselves."""

import asyncio
import json

import pytest

from signoff.store.accounts import key_digest
from tests.integration.service.world import KEY, OTHER_KEY, QUESTIONS, SEND, client
from tests.time_travel import pass_time

NAMES = ("ann", "ben", "cid")
HOOK = {"url": "https://example.com/hook"}
ME = f"key:{key_digest(KEY)[:16]}"


@pytest.fixture
async def people(world):
    """Three more keys of the account: (principal, client) by name."""
    account = await world.store.accounts.ensure("one")
    found, clients = {}, []
    for name in NAMES:
        secret = f"key-of-{name}"
        key_id = await world.store.accounts.add_key(account, secret=secret, name=name, now_ms=0)
        clients.append(client(world.app, secret))
        found[name] = (f"key:{key_id}", clients[-1])
    yield found
    for item in clients:
        await item.aclose()


def quorum(people, n, *names, **more):
    return {"any_of": [people[name][0] for name in names], "quorum": n, **more}


async def say(api, run_id, gate, decision="allow", **more):
    body = {"request_id": gate["request_id"], "decision": decision, **more}
    return await api.post(f"/v1/runs/{run_id}/approve", json=body)


def code(answer):
    return answer.status_code, answer.json()["error"]["error_code"]


async def audit(world):
    rows = await world.store.connection.call("XRANGE", "sg:{s0}:audit:1", "-", "+")
    return [dict(zip(row[1][::2], row[1][1::2], strict=True)) for row in rows]


async def kinds(world, hook):
    rows = (await world.api.get(f"/v1/webhooks/{hook['id']}/deliveries?limit=100")).json()["data"]
    return [row["event_type"] for row in reversed(rows)]


@pytest.mark.anyio
async def test_only_approvers_decide(world, people):
    """Anybody else is refused, the audit has it, and the gate stays open as it was."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 1, "ann"))
    assert gate["approvers"]["any_of"] == [people["ann"][0]]
    for body in ({"decision": "allow"}, {"decision": "deny"}):
        assert code(await say(world.api, run_id, gate, **body)) == (403, "not_an_approver")
    assert code(await say(people["ben"][1], run_id, gate)) == (403, "not_an_approver")
    (still,) = await world.gates(run_id)
    assert still == gate
    refused = [row for row in await audit(world) if row[b"what"] == b"refused"]
    assert [row[b"by"].decode() for row in refused] == [ME, ME, people["ben"][0]]
    assert {row[b"code"] for row in refused} == {b"not_an_approver"}
    allowed = (await say(people["ann"][1], run_id, gate)).json()
    assert (allowed["status"], allowed["decided_by"]) == ("allowed", people["ann"][0])


@pytest.mark.anyio
async def test_the_decider_is_who_the_request_proves(world, people):
    """Fields of a body that name somebody else are refused or mean nothing."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 1, "ann"))
    names = ("by", "decided_by", "who", "approver", "principal", "user_id", "key_id")
    for name in names:
        answer = await say(world.api, run_id, gate, **{name: people["ann"][0]})
        assert answer.status_code in (403, 422)
        item = {"request_id": gate["request_id"], "decision": "allow", name: people["ann"][0]}
        for body in ({"decisions": [item]}, {"decisions": [{**item}], name: people["ann"][0]}):
            answer = await world.api.post(f"/v1/runs/{run_id}/decisions", json=body)
            assert answer.status_code in (403, 422)
        hook = await world.webhook()
        envelope = {"type": "decision", "data": {"run_id": run_id, **item}}
        answer = await world.callback(hook, envelope, msg_id=f"m_{name}")
        assert answer.status_code in (403, 422)
    assert (await world.gates(run_id))[0]["status"] == "pending"


@pytest.mark.anyio
async def test_a_quorum_settles_with_its_last_approver(world, people):
    """Each allow is kept and shown; once more is no second one; events only at the end."""
    hook = await world.webhook(events=["run.awaiting_input", "run.resumed"])
    run_id, (gate,) = await world.parked(approvers=quorum(people, 2, *NAMES))
    ann, ben, cid = (people[name][1] for name in NAMES)
    first = await say(ann, run_id, gate)
    assert first.status_code == 200
    assert (first.json()["status"], first.json()["resumed"]) == ("pending", False)
    again = await say(ann, run_id, gate)
    assert again.status_code == 200
    assert again.json()["approvals"] == first.json()["approvals"]
    (approval,) = again.json()["approvals"]
    assert (approval["by"], approval["digest"]) == (people["ann"][0], gate["digest"])
    assert await world.status(run_id) == "awaiting_approval"
    assert "run.resumed" not in await kinds(world, hook)
    last = (await say(ben, run_id, gate)).json()
    assert (last["status"], last["resumed"]) == ("allowed", True)
    assert last["decided_by"] == people["ben"][0]
    assert [item["by"] for item in last["approvals"]] == [people[n][0] for n in ("ann", "ben")]
    assert (await world.call(run_id)).state == "allowed"
    assert (await kinds(world, hook)).count("run.resumed") == 1
    late = await say(cid, run_id, gate)
    assert late.status_code == 200
    assert late.json()["decided_by"] == people["ben"][0]
    whats = [row[b"what"] for row in await audit(world)]
    assert (whats.count(b"assent"), whats.count(b"decision")) == (2, 1)


@pytest.mark.anyio
async def test_the_first_deny_settles(world, people):
    """Whoever has allowed before."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 3, *NAMES))
    for name in ("ann", "ben"):
        await say(people[name][1], run_id, gate)
    denied = (await say(people["cid"][1], run_id, gate, "deny", reason="no")).json()
    assert (denied["status"], denied["resumed"]) == ("denied", True)
    assert (await world.call(run_id)).result["state"] == "denied"
    assert code(await say(people["ann"][1], run_id, gate)) == (404, "gate_resolved_otherwise")


@pytest.mark.anyio
async def test_an_edit_is_another_thing_to_allow(world, people):
    """Allows count for the input that they were given for; who edits moves their own."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 2, *NAMES))
    ann, ben, cid = (people[name][1] for name in NAMES)
    edited = {"input": {**SEND, "subject": "Hello"}}
    await say(ann, run_id, gate)
    assert (await say(ben, run_id, gate, **edited)).json()["status"] == "pending"
    moved = (await say(ann, run_id, gate, **edited)).json()
    assert moved["status"] == "allowed"
    assert moved["edited_input"] == edited["input"]
    assert {item["digest"] for item in moved["approvals"]} == {moved["effective_digest"]}
    assert code(await say(cid, run_id, gate)) == (404, "gate_resolved_otherwise")


@pytest.mark.anyio
async def test_two_approvers_at_once(world, people):
    """Each time exactly one of them is the last, and the run resumes once."""
    hook = await world.webhook(events=["run.resumed"])
    for n in range(1, 21):
        run_id, (gate,) = await world.parked(approvers=quorum(people, 2, *NAMES))
        answers = await asyncio.gather(
            *(say(people[name][1], run_id, gate) for name in ("ann", "ben", "ann", "ben"))
        )
        assert {answer.status_code for answer in answers} == {200}
        (found,) = await world.gates(run_id)
        assert (found["status"], len(found["approvals"])) == ("allowed", 2)
        assert len(await kinds(world, hook)) == n


@pytest.mark.anyio
async def test_an_allow_that_moves_is_not_counted_where_it_was(world, people, monkeypatch):
    """One allows the edited input while another, who saw the first allow, is on their way."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 2, *NAMES))
    ann, ben = people["ann"][1], people["ben"][1]
    await say(ann, run_id, gate)
    original = world.store.decisions.decide
    moved: list[bool] = []

    async def overtaken(*args, **kwargs):
        if not moved:
            moved.append(True)
            edited = {"input": {**SEND, "subject": "Hello"}}
            assert (await say(ann, run_id, gate, **edited)).json()["status"] == "pending"
        return await original(*args, **kwargs)

    monkeypatch.setattr(
        type(world.store.decisions), "decide", lambda _, *a, **k: overtaken(*a, **k)
    )
    late = (await say(ben, run_id, gate)).json()
    assert late["status"] == "pending"
    assert len({item["digest"] for item in late["approvals"]}) == 2


@pytest.mark.anyio
async def test_a_batch_of_partial_allows_is_all_or_none(world, people):
    """With a stranger's gate in it nothing is noted; without it each is."""
    calls = [("send_email", SEND), ("send_email", {**SEND, "to": "b@acme.com"})]
    run_id, gates = await world.parked(*calls, approvers=quorum(people, 2, *NAMES))
    items = [{"request_id": gate["request_id"], "decision": "allow"} for gate in gates]
    stranger = {"request_id": "req_none", "decision": "allow"}
    ann, ben = people["ann"][1], people["ben"][1]
    bad = await ann.post(f"/v1/runs/{run_id}/decisions", json={"decisions": [*items, stranger]})
    assert bad.status_code == 404
    assert [gate["approvals"] for gate in await world.gates(run_id)] == [[], []]
    body = {"decisions": [items[0], {"request_id": gates[1]["request_id"], "decision": "deny"}]}
    mixed = (await ann.post(f"/v1/runs/{run_id}/decisions", json=body)).json()
    assert [item["status"] for item in mixed["requests"]] == ["pending", "denied"]
    assert mixed["resumed"] is False
    done = (await ben.post(f"/v1/runs/{run_id}/decisions", json={"decisions": items[:1]})).json()
    assert done["resumed"] is True


@pytest.mark.anyio
async def test_questions_take_the_first_answer_of_an_approver(world, people):
    """A quorum is for allows."""
    run_id, (gate,) = await world.parked(
        ("AskUserQuestion", QUESTIONS), approvers=quorum(people, 2, "ann", "ben")
    )
    body = {"answers": {"Which one?": "A"}, "request_id": gate["request_id"]}
    path = f"/v1/runs/{run_id}/answer"
    assert code(await world.api.post(path, json=body)) == (403, "not_an_approver")
    assert (await people["ben"][1].post(path, json=body)).json()["resumed"] is True


@pytest.mark.anyio
async def test_whoever_asked_does_not_decide(world, people):
    """Who started the run, replied to it or retried it; everybody else may."""
    run_id, (gate,) = await world.parked(approvers={"exclude_requester": True})
    assert code(await say(world.api, run_id, gate)) == (403, "requester_may_not_decide")
    assert code(await say(world.api, run_id, gate, "deny")) == (403, "requester_may_not_decide")
    await people["ann"][1].post(f"/v1/runs/{run_id}/reply", json={"message": "more"})
    assert code(await say(people["ann"][1], run_id, gate)) == (403, "requester_may_not_decide")
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    made = (await people["ben"][1].post(f"/v1/runs/{run_id}/retry")).json()
    assert set(made["requested_by"]) == {ME, people["ann"][0], people["ben"][0]}
    (again,) = await world.park(made["id"], ("send_email", SEND))
    for api in (world.api, people["ann"][1], people["ben"][1]):
        assert code(await say(api, made["id"], again)) == (403, "requester_may_not_decide")
    assert (await say(people["cid"][1], made["id"], again)).json()["resumed"] is True


@pytest.mark.anyio
async def test_signed_callbacks_are_approvers_by_endpoint_or_user(world, people):
    """The endpoint's own name, or the end user that it belongs to; two of a user count once."""
    mine = await world.webhook(user_id="bob")
    other = await world.webhook(user_id="bob")
    approvers = {"any_of": ["user:bob", people["ann"][0]], "quorum": 2}
    run_id, (gate,) = await world.parked(user_id="bob", approvers=approvers)
    item = {"run_id": run_id, "request_id": gate["request_id"], "decision": "allow"}
    for n, hook in enumerate((mine, other)):
        answer = await world.callback(hook, {"type": "decision", "data": item}, msg_id=f"m{n}")
        assert answer.status_code == 200
        assert answer.json()["requests"][0]["status"] == "pending"
    (found,) = await world.gates(run_id)
    assert [row["by"] for row in found["approvals"]] == [f"webhook:{mine['id']}"]
    assert (await say(people["ann"][1], run_id, gate)).json()["status"] == "allowed"
    run_id, (gate,) = await world.parked(
        user_id="bob", approvers={"any_of": [f"webhook:{mine['id']}"]}
    )
    item = {"run_id": run_id, "request_id": gate["request_id"], "decision": "allow"}
    refused = await world.callback(other, {"type": "decision", "data": item}, msg_id="m2")
    assert code(refused) == (403, "not_an_approver")
    taken = await world.callback(mine, {"type": "decision", "data": item}, msg_id="m3")
    assert taken.json()["requests"][0]["decided_by"] == f"webhook:{mine['id']}"


@pytest.mark.anyio
async def test_autonomous_does_not_stand_in_for_approvers(world, people):
    """What named people have to allow is not allowed by a switch of the mode."""
    run_id, _ = await world.parked(approvers=quorum(people, 1, "ann"))
    body = {"permission_mode": "autonomous"}
    await world.api.patch(f"/v1/runs/{run_id}/permission-mode", json=body)
    assert [gate["status"] for gate in await world.gates(run_id)] == ["pending"]


@pytest.mark.anyio
async def test_remember_is_the_settling_approvers(world, people):
    """An allow that only counts stores no policy."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 2, "ann", "ben"))
    await say(people["ann"][1], run_id, gate, remember=True)
    assert (await world.api.get("/v1/permissions/")).json()["data"] == []
    assert (await world.store.runs.load("1", run_id)).remembered == {}
    done = (await say(people["ben"][1], run_id, gate)).json()
    assert (done["status"], done["remembered"]) == ("allowed", False)
    assert (await world.store.runs.load("1", run_id)).remembered == {}


@pytest.mark.anyio
async def test_the_run_s_approvers_before_the_agent_s(world, people):
    """As a whole; a run that says nothing has its agent's, and keeps them."""
    made = (
        await world.api.post("/v1/agents/", json={"approvers": quorum(people, 1, "ann")})
    ).json()
    assert made["approvers"]["quorum"] == 1
    first = await world.run(agent_id=made["id"])
    second = await world.run(agent_id=made["id"], approvers=quorum(people, 2, "ben", "cid"))
    await world.api.patch(f"/v1/agents/{made['id']}", json={"approvers": None})
    shown = [(await world.api.get(f"/v1/runs/{n}")).json() for n in (first, second)]
    assert [run["approvers"]["quorum"] for run in shown] == [1, 2]
    assert [run["requested_by"] for run in shown] == [[ME], [ME]]
    third = (await world.api.get(f"/v1/runs/{await world.run(agent_id=made['id'])}")).json()
    assert third["approvers"] is None


@pytest.mark.anyio
async def test_approvers_that_make_no_sense_are_refused(world):
    """On runs and agents alike; an empty list is nobody, and refused."""
    agent = (await world.api.post("/v1/agents/", json={})).json()
    bad = [{}, {"any_of": []}, {"any_of": ["bob"]}, {"any_of": [ME], "quorum": 2}]
    bad += [{"quorum": 0}, {"any_of": [ME], "who": 1}, {"any_of": ME}, {"exclude_requester": 1}]
    for approvers in bad:
        body = {"approvers": approvers}
        run = {"message": "go", "stream": False, **body}
        answers = [
            await world.api.post("/v1/runs/", json=run),
            await world.api.post("/v1/agents/", json=body),
            await world.api.patch(f"/v1/agents/{agent['id']}", json=body),
        ]
        assert {answer.status_code for answer in answers} == {422}, approvers
        for answer in answers:
            assert answer.json()["error"]["details"]["field"].startswith("approvers")


@pytest.mark.anyio
async def test_approvers_that_could_never_decide_are_refused(world, people):
    """Keys and endpoints of nobody, of another account, revoked or removed; users are any text."""
    agent = (await world.api.post("/v1/agents/", json={})).json()
    theirs = (await world.other.post("/v1/webhooks/", json=HOOK)).json()
    gone = await world.webhook()
    await world.api.delete(f"/v1/webhooks/{gone['id']}")
    ben = people["ben"][0]
    await world.store.accounts.revoke_key(ben.removeprefix("key:"), now_ms=1)
    foreign = f"key:{key_digest(OTHER_KEY)[:16]}"
    bad = ["webhook:999", f"webhook:{theirs['id']}", f"webhook:{gone['id']}", ben, foreign]
    for name in bad:
        body = {"approvers": {"any_of": ["user:any body", ME, name]}}
        answers = [
            await world.api.post("/v1/runs/", json={"message": "go", "stream": False, **body}),
            await world.api.post("/v1/agents/", json=body),
            await world.api.patch(f"/v1/agents/{agent['id']}", json=body),
        ]
        for answer in answers:
            assert code(answer) == (422, "unknown_approver"), name
            assert answer.json()["error"]["details"]["field"] == "approvers.any_of[2]"


@pytest.mark.anyio
async def test_a_run_of_a_key_that_was_revoked_since_is_still_found(world, people):
    """A repeated request answers with its run, whatever became of its approvers."""
    hook = await world.webhook()
    body = {"message": "go", "approvers": {"any_of": [f"webhook:{hook['id']}"]}}
    path, headers = "/v1/runs/", {"idempotency-key": "once"}
    first = await world.api.post(path, json=body, headers=headers)
    await world.api.delete(f"/v1/webhooks/{hook['id']}")
    again = await world.api.post(path, json=body, headers=headers)
    assert (first.status_code, again.json()["id"]) == (201, first.json()["id"])


@pytest.mark.anyio
async def test_receivers_are_told_who_may_decide(world, people):
    """The event of the pause names the approvers."""
    hook = await world.webhook()
    await world.parked(approvers=quorum(people, 2, "ann", "ben", exclude_requester=True))
    rows = (await world.api.get(f"/v1/webhooks/{hook['id']}/deliveries")).json()["data"]
    key = f"sg:{{s0}}:ev:{rows[0]['event_id']}"
    body = json.loads(await world.store.connection.call("HGET", key, "body"))
    assert body["data"]["requests"][0]["approvers"] == {
        "any_of": [people["ann"][0], people["ben"][0]],
        "quorum": 2,
        "exclude_requester": True,
    }


@pytest.mark.anyio
async def test_half_a_quorum_is_none_when_the_time_is_over(world, people):
    """One of two allowed: nobody decided, and the second is too late."""
    run_id, (gate,) = await world.parked(approvers=quorum(people, 2, "ann", "ben"), expires_in=60)
    await say(people["ann"][1], run_id, gate)
    await pass_time(world.store, 61)
    late = await say(people["ben"][1], run_id, gate)
    assert code(late) == (404, "gate_resolved_otherwise")
    (found,) = await world.gates(run_id)
    assert (found["status"], found["decided_by"]) == ("denied", "expiry")
    assert [row["by"] for row in found["approvals"]] == [people["ann"][0]]
