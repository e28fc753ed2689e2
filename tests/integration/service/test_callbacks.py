"""Signed decision callbacks: only the right signature, scope and body decide, and only once."""

import asyncio
import base64
import gzip
import json
import time

import pytest

from service.idempotency import body_digest
from signoff.domain.error import UnavailableError
from signoff.signing import sign_decision, sign_hex
from signoff.store import keys
from tests.integration.service.test_runs import refused
from tests.integration.service.world import QUESTIONS, SEND, other_secret

pytestmark = pytest.mark.anyio


def decision(run_id, gate, verdict="allow", **extra):
    body = {"run_id": run_id, "request_id": gate["request_id"], "decision": verdict, **extra}
    return {"type": "decision", "data": body}


async def parked(world, *calls, **body):
    webhook = await world.webhook(**{name: body[name] for name in ("user_id",) if name in body})
    run_id, gates = await world.parked(*calls, **body)
    return webhook, run_id, gates


async def is_open(world, run_id):
    return (await world.gates(run_id))[0]["status"] == "pending"


async def test_a_signed_decision_applies(world):
    """A valid callback is 200, decides the gate, and is named as its decider."""
    webhook, run_id, (gate,) = await parked(world)
    answer = await world.callback(webhook, decision(run_id, gate))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["resumed"]) == ("ok", True)
    assert body["requests"][0]["decided_by"] == f"webhook:{webhook['id']}"
    assert await world.status(run_id) == "running"


async def test_a_batch_and_answers_and_hex_endpoints_work_as_well(world):
    """A batch decides all gates; a hex endpoint's callback has the standard form."""
    made = await world.api.post(
        "/api/v2/webhooks/",
        json={"url": "https://example.com/x", "events": ["run.awaiting_input"]},
    )
    webhook = made.json()
    assert webhook["signature"] == "hex"
    run_id, gates = await world.parked(("send_email", SEND), ("AskUserQuestion", QUESTIONS))
    items = [
        {"request_id": gates[0]["request_id"], "decision": "deny"},
        {"request_id": gates[1]["request_id"], "answers": {"Which one?": "A"}},
    ]
    body = {"type": "decisions", "data": {"run_id": run_id, "decisions": items}}
    raw = json.dumps(body).encode()
    now = int(time.time())
    in_hex = sign_hex(webhook["secret"], msg_id="m", timestamp=now, body=raw)
    wrong = await world.callback(webhook, raw, headers={"webhook-signature": in_hex})
    refused(wrong, 401, "unauthorized")
    answer = await world.callback(webhook, body)
    assert [gate["status"] for gate in answer.json()["requests"]] == ["denied", "allowed"]
    refused_item = {"type": "decisions", "data": {"run_id": run_id, "decisions": items[:1] * 2}}
    twice = await world.callback(webhook, refused_item, msg_id="m3")
    refused(twice, 422, "validation_error", "data.decisions[1].request_id")


async def test_places_in_a_callback_are_those_of_its_body(world):
    """Also of what is found out only when the decision is applied."""
    webhook = await world.webhook()
    run_id, (gate,) = await world.parked()
    item = {"run_id": run_id, "request_id": gate["request_id"], "decision": "allow"}
    body = {"type": "decision", "data": {**item, "input": {"to": 1}}}
    found = await world.callback(webhook, body)
    assert found.status_code == 422
    assert found.json()["error"]["details"]["field"].startswith("data.input.")


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-id": ""},
        {"webhook-id": "a.b"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "nan"},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-signature": ""},
        {"webhook-signature": "v1," + base64.b64encode(bytes(32)).decode()},
        {"webhook-signature": "v1a,AAAA"},
        {"webhook-signature": "v1,AAAA " * 5000},
    ],
)
async def test_other_headers_are_unauthorized(world, headers):
    """A missing, malformed or wrong header is 401 and nothing is decided."""
    webhook, run_id, (gate,) = await parked(world)
    answer = await world.callback(webhook, decision(run_id, gate), headers=headers)
    refused(answer, 401, "unauthorized")
    assert await is_open(world, run_id)


async def test_a_repeated_header_is_unauthorized(world):
    """Two ids, even equal ones, are refused."""
    webhook, run_id, (gate,) = await parked(world)
    raw = json.dumps(decision(run_id, gate)).encode()
    signed = sign_decision(webhook["secret"], raw, msg_id="m", timestamp=int(time.time()))
    headers = [*signed.items(), ("webhook-id", "m"), ("content-type", "application/json")]
    answer = await world.nobody.post(f"/v1/callbacks/{webhook['id']}", content=raw, headers=headers)
    refused(answer, 401, "unauthorized")


@pytest.mark.parametrize(("offset", "status"), [(-310, 401), (310, 401), (-290, 200), (290, 200)])
async def test_the_window_is_five_minutes_both_ways(world, offset, status):
    """A timestamp within 300 s either way is taken, one outside is not."""
    webhook, run_id, (gate,) = await parked(world)
    at = int(time.time()) + offset
    answer = await world.callback(webhook, decision(run_id, gate), at=at)
    assert answer.status_code == status


async def test_every_way_to_be_nobody_looks_the_same(world):
    """Unknown endpoints and runs, foreign ones, other users' and wrong secrets get one answer."""
    webhook, run_id, (gate,) = await parked(world)
    theirs = await world.webhook(user_id="u")
    user_run, (user_gate,) = await world.parked(user_id="u")
    inactive = await world.webhook()
    await world.api.patch(f"/v1/webhooks/{inactive['id']}", json={"active": False})
    deaf = await world.webhook(events=["run.completed"])
    made = await world.other.post(
        "/v1/webhooks/", json={"url": "https://example.com", "events": ["run.awaiting_input"]}
    )
    foreign = made.json()
    body = decision(run_id, gate)
    answers = [
        await world.callback(webhook, body, secret=other_secret()),
        await world.callback(webhook, body, secret=foreign["secret"]),
        await world.callback({**webhook, "id": 999}, body),
        await world.callback({**webhook, "id": "abc"}, body),
        await world.callback({**webhook, "id": "9" * 5000}, body),
        await world.callback(foreign, body),
        await world.callback(theirs, body),
        await world.callback(webhook, decision(user_run, user_gate)),
        await world.callback(webhook, decision(424242, gate)),
        await world.callback(inactive, body),
        await world.callback(deaf, body),
        await world.callback(webhook, body, headers={"authorization": "Bearer key-of-account-two"}),
        await world.callback(webhook, body, headers={"authorization": "Bearer nonsense"}),
    ]
    shown = {
        json.dumps(a.json()["error"] | {"request_id": ""}, sort_keys=True) for a in answers[:11]
    }
    assert {answer.status_code for answer in answers} == {401}
    assert len(shown) == 1
    assert await is_open(world, run_id)
    assert await is_open(world, user_run)
    assert (await world.callback(theirs, decision(user_run, user_gate))).status_code == 200
    # Nothing of the above claimed an id.
    own = await world.callback(
        webhook, body, headers={"authorization": "Bearer key-of-account-one"}
    )
    assert own.status_code == 200


async def test_a_replay_gets_the_same_bytes_and_decides_once(world):
    """Fifty copies at once, and one later with a new timestamp, get the one answer."""
    webhook, run_id, (gate,) = await parked(world)
    body = decision(run_id, gate)
    answers = await asyncio.gather(*(world.callback(webhook, body) for _ in range(50)))
    later = await world.callback(webhook, body, at=int(time.time()) - 60)
    assert {(a.status_code, a.content) for a in [*answers, later]} == {(200, answers[0].content)}
    assert (await world.call(run_id)).seq == 1


async def test_refusals_are_kept_as_well(world):
    """A 404 is replayed to the byte, also after what it names has changed."""
    webhook, run_id, (gate,) = await parked(world)
    await world.api.post(
        f"/v1/runs/{run_id}/approve", json={"request_id": gate["request_id"], "decision": "deny"}
    )
    first = await world.callback(webhook, decision(run_id, gate))
    refused(first, 404, "gate_resolved_otherwise")
    assert first.json()["error"]["details"]["standing"]["verdict"] == "deny"
    copies = await asyncio.gather(
        *(world.callback(webhook, decision(run_id, gate)) for _ in range(10))
    )
    assert {copy.content for copy in copies} == {first.content}
    other = await world.callback(webhook, decision(run_id, gate, "deny"))
    refused(other, 409, "idempotency_key_reuse")
    assert (await world.callback(webhook, decision(run_id, gate, "deny"), msg_id="m2")).is_success


async def test_ids_are_claimed_per_endpoint(world):
    """The same webhook-id at another endpoint is another request."""
    webhook, run_id, (first, second) = await parked(
        world, ("send_email", SEND), ("send_email", SEND)
    )
    beside = await world.webhook()
    assert (await world.callback(webhook, decision(run_id, first))).status_code == 200
    assert (await world.callback(beside, decision(run_id, second))).status_code == 200


async def test_a_claim_without_an_answer_is_decided_again(world):
    """A crash between claim and answer leaves a claim that the next try fulfils."""
    webhook, run_id, (gate,) = await parked(world)
    raw = json.dumps(decision(run_id, gate)).encode()
    key = keys.callback(webhook["id"], "msg_1")
    await world.store.reservations.reserve(key, digest=body_digest(raw))
    answer = await world.callback(webhook, raw)
    assert answer.json()["requests"][0]["status"] == "allowed"
    assert (await world.callback(webhook, raw)).content == answer.content


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "malformed_body"),
        (b"\xff", 400, "malformed_body"),
        (b'\xef\xbb\xbf{"type":"decision"}', 400, "malformed_body"),
        (b'{"type":"decision","type":"decisions","data":{}}', 400, "malformed_body"),
        (b'{"type":"decision","data":{"run_id":NaN}}', 400, "malformed_body"),
        (b'{"type":"decision","data":{"request_id":"\\ud800"}}', 400, "malformed_body"),
        (b"[]", 422, "validation_error"),
        (b'{"type":"run.awaiting_input","data":{"run_id":1}}', 422, "validation_error"),
        (b'{"type":"decision"}', 422, "validation_error"),
        (b'{"type":"decision","data":{"run_id":"1"}}', 422, "validation_error"),
        (b'{"type":"decision","data":{"run_id":1,"request_id":"r"}}', 422, "validation_error"),
        (
            b'{"type":"decision","data":{"run_id":1,"request_id":"r","decision":"allow","x":1}}',
            422,
            "validation_error",
        ),
    ],
)
async def test_signed_nonsense_is_refused_and_claims_nothing(world, raw, status, code):
    """A verified body that cannot be read is 400 or 422, and its id stays free."""
    webhook, run_id, (gate,) = await parked(world)
    answer = await world.callback(webhook, raw)
    assert (answer.status_code, answer.json()["error"]["error_code"]) == (status, code)
    assert (await world.callback(webhook, decision(run_id, gate))).status_code == 200


async def test_signed_bodies_must_be_plain_json_by_their_headers(world):
    """Another media type or a compressed body is 415, but only once the signature is right."""
    webhook, run_id, (gate,) = await parked(world)
    body = decision(run_id, gate)
    for headers in (
        {"content-type": "text/plain"},
        {"content-type": "application/json-seq"},
        {"content-encoding": "gzip"},
    ):
        answer = await world.callback(webhook, body, headers=headers)
        assert answer.status_code == 415, headers
        unsigned = await world.callback(webhook, body, headers=headers, secret=other_secret())
        assert unsigned.status_code == 401
    packed = gzip.compress(json.dumps(body).encode())
    answer = await world.callback(webhook, packed, headers={"content-encoding": "gzip"})
    assert answer.status_code == 415
    assert await is_open(world, run_id)


async def test_a_tampered_body_is_unauthorized(world):
    """One more space is another body."""
    webhook, run_id, (gate,) = await parked(world)
    raw = json.dumps(decision(run_id, gate)).encode()
    signed = sign_decision(webhook["secret"], raw, msg_id="m", timestamp=int(time.time()))
    answer = await world.nobody.post(
        f"/v1/callbacks/{webhook['id']}",
        content=raw + b" ",
        headers={**signed, "content-type": "application/json"},
    )
    refused(answer, 401, "unauthorized")


async def test_both_secrets_verify_during_a_rotation(world):
    """In the overlap the old and the new secret decide; without an overlap only the new one."""
    webhook, run_id, gates = await parked(world, *[("send_email", SEND)] * 3)
    path = f"/v1/webhooks/{webhook['id']}"
    rotated = (await world.api.patch(path, json={"rotate_secret": True})).json()
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != webhook["secret"]
    old = await world.callback(webhook, decision(run_id, gates[0]), msg_id="a")
    new = await world.callback(rotated, decision(run_id, gates[1]), msg_id="b")
    assert (old.status_code, new.status_code) == (200, 200)
    at_once = await world.api.patch(path, json={"rotate_secret": True, "overlap_seconds": 0})
    late = await world.callback(rotated, decision(run_id, gates[2]), msg_id="c")
    refused(late, 401, "unauthorized")
    last = await world.callback(at_once.json(), decision(run_id, gates[2]), msg_id="c")
    assert last.status_code == 200


async def test_a_deleted_endpoint_decides_nothing(world):
    """After its deletion even a right signature is 401."""
    webhook, run_id, (gate,) = await parked(world)
    await world.api.delete(f"/v1/webhooks/{webhook['id']}")
    refused(await world.callback(webhook, decision(run_id, gate)), 401, "unauthorized")


async def test_failures_of_ours_are_never_kept(world):
    """A decision that the store could not take is 503, and the retry decides."""
    webhook, run_id, (gate,) = await parked(world)
    decide = type(world.store.decisions).decide

    async def away(*args, **kwargs):
        raise UnavailableError("away")

    type(world.store.decisions).decide = away
    try:
        lost = await world.callback(webhook, decision(run_id, gate))
    finally:
        type(world.store.decisions).decide = decide
    refused(lost, 503, "unavailable")
    assert (await world.callback(webhook, decision(run_id, gate))).status_code == 200
