"""Event streams in process: what is sent when, where a body ends, and who is dropped."""

import asyncio
import json

import pytest

from service.hub import Pace
from service.protocol import Line
from signoff.domain.frame import frame
from tests.integration.service.tap import Tap
from tests.integration.service.world import OTHER_KEY

pytestmark = pytest.mark.anyio


def tap(world, run_id, prefix="/v1", **options):
    """A stream of that run."""
    return Tap(world.app, f"{prefix}/runs/{run_id}/stream", **options)


def delta(text):
    return frame("text-delta", id="t", delta=text)


async def write(world, run_id, *frames):
    for item in frames:
        await world.store.runs.append_frame(run_id, item)


@pytest.mark.parametrize("prefix", ["/v1", "/api/v2"])
async def test_a_create_that_asks_for_it_answers_with_the_stream(world, prefix):
    """On both mounts; its head names the run, metadata is first."""
    body = {"message": "m", "stream": True}
    request = Tap(world.app, f"{prefix}/runs/", method="POST", body=body)
    async with request.open() as stream:
        await stream.until(lambda s: s.kinds == ["metadata"])
        run_id = int(stream.headers["x-run-id"])
        await write(world, run_id, delta("a"), frame("done", stop_reason="end_turn"))
        await stream.end()
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["cache-control"] == "no-store"
    assert stream.headers["x-accel-buffering"] == "no"
    assert "content-length" not in stream.headers
    assert stream.kinds == ["metadata", "text-delta", "done", "[DONE]"]
    assert stream.events[0][1]["payload"] == {"run_id": run_id}
    assert stream.ended


async def test_a_replayed_create_answers_json(world):
    """The second request of a key gets the run, also with stream: true."""
    headers = [(b"idempotency-key", b"k")]
    body = {"message": "m", "stream": True}
    async with Tap(
        world.app, "/v1/runs", method="POST", body=body, headers=headers
    ).open() as first:
        await first.until(lambda s: s.kinds)
    again = await world.api.post(
        "/v1/runs",
        content=json.dumps(body).encode(),
        headers={"idempotency-key": "k", "content-type": "application/json"},
    )
    assert again.headers["idempotent-replay"] == "true"
    assert again.headers["content-type"] == "application/json"
    assert again.json()["id"] == int(first.headers["x-run-id"])


async def test_a_join_replays_then_follows(world):
    """Everything so far, replay_complete, what comes, and the end; each id once and rising."""
    run_id = await world.run()
    await write(world, run_id, *(delta(str(n)) for n in range(100)))
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        await write(world, run_id, delta("live"), frame("done"))
        await stream.end()
    kinds = stream.kinds
    assert kinds == [
        "metadata",
        *["text-delta"] * 100,
        "replay_complete",
        "text-delta",
        "done",
        "[DONE]",
    ]
    ids = [tuple(map(int, mark.split("-"))) for mark, _ in stream.events if mark]
    assert len(ids) == 102
    assert ids == sorted(set(ids))


async def test_many_watchers_share_what_is_read(world):
    """Fifty streams of one run all get all of it, whenever they came."""
    run_id = await world.run()
    taps = [tap(world, run_id) for _ in range(50)]
    async with asyncio.TaskGroup() as group:

        async def watch(one, number):
            async with one.open():
                await one.until(lambda s: "replay_complete" in s.kinds)
                await write(world, run_id, delta(str(number)))
                await one.until(lambda s: s.kinds.count("text-delta") == 50)

        for number, one in enumerate(taps):
            group.create_task(watch(one, number))
    texts = {tuple(e["delta"] for _, e in one.events if e["type"] == "text-delta") for one in taps}
    assert len(texts) == 1
    assert sorted(map(int, texts.pop())) == list(range(50))
    assert world.context.streams.watchers == 0


async def test_a_body_ends_with_an_open_gate(world):
    """Frames of the gates, awaiting_approval last, then the body closes; a join ends there too."""
    run_id = await world.run(human_in_the_loop=True)
    ids = {"request_id": "req_a", "tool_use_id": "u"}
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        await write(world, run_id, frame("permission_request", **ids))
        await stream.end()
    assert stream.kinds[-1] == "permission_request"
    async with tap(world, run_id).open() as again:
        await again.end()
    assert again.kinds == ["metadata", "permission_request", "replay_complete"]
    await write(world, run_id, frame("permission_resolved", request_id="req_a"))
    async with tap(world, run_id).open() as after:
        await after.until(lambda s: s.kinds[-1:] == ["replay_complete"])
        await write(world, run_id, frame("done"))
        await after.end()
    assert after.kinds[-2:] == ["done", "[DONE]"]


async def test_an_open_gate_is_shown_again_when_a_later_one_is_settled(world):
    """Clients follow the last opened gate only, so a body that ends shows an open one last."""
    run_id = await world.run(human_in_the_loop=True)
    for name in "ab":
        ids = {"request_id": f"req_{name}", "tool_use_id": name}
        await write(world, run_id, frame("awaiting_approval", **ids))
    await write(world, run_id, frame("permission_resolved", request_id="req_b"))
    async with tap(world, run_id).open() as stream:
        await stream.end()
    assert stream.events[-1] == (
        None,
        {"type": "awaiting_approval", "request_id": "req_a", "tool_use_id": "a"},
    )


async def test_decisions_reach_the_stream_with_their_results(world):
    """A deny shows the gate's end and the call's result; a repeat shows nothing again."""
    run_id, (gate,) = await world.parked()
    body = {"request_id": gate["request_id"], "decision": "deny"}
    for _ in range(2):
        assert (await world.api.post(f"/v1/runs/{run_id}/approve", json=body)).status_code == 200
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
    assert stream.kinds == [
        "metadata",
        "permission_resolved",
        "tool-result-start",
        "tool-result-end",
        "replay_complete",
    ]
    assert "denied" in stream.events[3][1]["result"]


async def test_a_mode_switch_resolves_on_the_stream(world):
    """What a switch to autonomous allows is resolved for watchers too."""
    run_id, (gate,) = await world.parked(permission_mode="approval")
    await world.api.patch(
        f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": "autonomous"}
    )
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
    assert stream.events[1][1] == {"type": "permission_resolved", "request_id": gate["request_id"]}


@pytest.mark.parametrize("cut", ["after", "within"])
async def test_a_resumed_stream_goes_on_behind_its_mark(world, cut):
    """Last-Event-ID skips what was seen, also in the middle of one move's frames."""
    run_id, (gate,) = await world.parked()
    await write(world, run_id, delta("1"), delta("2"))
    body = {"request_id": gate["request_id"], "decision": "deny"}
    await world.api.post(f"/v1/runs/{run_id}/approve", json=body)
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
    seen = [event for event in stream.events if event[0]]
    at = {"after": 1, "within": 2}[cut]
    headers = [(b"last-event-id", seen[at][0].encode())]
    async with tap(world, run_id, headers=headers).open() as again:
        await again.until(lambda s: "replay_complete" in s.kinds)
    assert [event for event in again.events if event[0]] == seen[at + 1 :]


@pytest.mark.parametrize(
    "mark", ["999999999", "-1", "x", "1-", "1-2-3-4", "1 - 2", "\u00e9", "1-2-123456"]
)
async def test_a_mark_that_is_none_is_refused(world, mark):
    """Anything but an id of ours is 422."""
    run_id = await world.run()
    headers = [(b"last-event-id", mark.encode())]
    async with tap(world, run_id, headers=headers).open() as stream:
        await stream.end()
    assert stream.status == 422
    assert json.loads(stream.text)["error"]["details"]["field"] == "last-event-id"


@pytest.mark.parametrize("mark", ["1-1", "99999999999999999999-0", "0-0"])
async def test_a_foreign_mark_gets_this_runs_own_events(world, mark):
    """An id that this run does not have replays the run from its start."""
    run_id = await world.run()
    await write(world, run_id, delta("mine"))
    headers = [(b"last-event-id", mark.encode())]
    async with tap(world, run_id, headers=headers).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
    assert stream.kinds == ["metadata", "text-delta", "replay_complete"]


async def test_who_may_not_see_the_run_gets_no_byte_of_it(world):
    """Another account and an unknown run: 404; no key: 401; another user: 404."""
    run_id = await world.run(user_id="u")
    for options, status in (
        ({"key": OTHER_KEY}, 404),
        ({"key": "no-such-key"}, 401),
    ):
        async with tap(world, run_id, **options).open() as stream:
            await stream.end()
        assert stream.status == status
        assert stream.headers["content-type"] == "application/json"
    assert (await world.api.get("/v1/runs/999/stream")).status_code == 404
    other = await world.api.get(f"/v1/runs/{run_id}/stream", params={"user_id": "v"})
    assert other.status_code == 404


@pytest.mark.parametrize("prefix", ["/v1", "/api/v2"])
async def test_a_finished_run_has_no_stream_but_for_who_missed_its_end(world, prefix):
    """409 for a join; a resume gets what it missed and the end, then 409 as well."""
    run_id = await world.run()
    await write(world, run_id, delta("a"), delta("b"))
    async with tap(world, run_id, prefix).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
    first = stream.events[1][0]
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    refused = await world.api.get(f"{prefix}/runs/{run_id}/stream")
    assert refused.status_code == 409
    assert refused.json()["error"]["error_code"] == "run_not_active"
    headers = [(b"last-event-id", first.encode())]
    async with tap(world, run_id, prefix, headers=headers).open() as rest:
        await rest.end()
    assert rest.kinds == ["metadata", "text-delta", "replay_complete", "cancelled", "[DONE]"]
    last = [mark for mark, _ in rest.events if mark][-1]
    over = await world.api.get(f"{prefix}/runs/{run_id}/stream", headers={"last-event-id": last})
    assert over.status_code == 409


async def test_the_end_of_an_earlier_turn_does_not_end_a_join(world):
    """A run that works on its next turn is replayed without the end of the one before."""
    run_id = await world.run()
    await write(world, run_id, delta("one"), frame("done"))
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        await write(world, run_id, delta("two"), frame("done"))
        await stream.end()
    assert stream.kinds == [
        "metadata",
        "text-delta",
        "replay_complete",
        "text-delta",
        "done",
        "[DONE]",
    ]
    async with tap(world, run_id).open() as later:
        await later.until(lambda s: "replay_complete" in s.kinds)
    assert later.kinds == ["metadata", "text-delta", "text-delta", "replay_complete"]


async def test_text_of_an_agent_stays_one_event(world):
    """Line ends, field names and separators within text cannot start another event."""
    run_id = await world.run()
    text = '\n\ndata: {"type":"done"}\n\r\nid: 1\rretry: 1\x85\u2028\u2029\u0000\U0001f600'
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        await write(world, run_id, delta(text), frame("done"))
        await stream.end()
    assert stream.kinds == ["metadata", "replay_complete", "text-delta", "done", "[DONE]"]
    assert stream.events[2][1]["delta"] == text
    assert stream.text.isascii()
    assert "\r" not in stream.text


async def test_a_quiet_stream_says_that_it_is_alive(world):
    """A comment goes out when there was nothing else for long."""
    world.context.streams.pace = Pace(keep_alive_s=0.05)
    run_id = await world.run()
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: s.text.count(": keep-alive\n\n") == 3)
    assert stream.kinds == ["metadata", "replay_complete"]


async def test_a_client_that_left_costs_nothing(world):
    """Its task has ended within a second, and its run is not watched any more."""
    run_id = await world.run()
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        stream.left.set()
        async with asyncio.timeout(1):
            await stream.task
    assert world.context.streams.watchers == 0
    assert not world.context.streams._topics


async def test_a_client_that_does_not_read_is_dropped_with_a_reason(world):
    """Its last frame says slow_reader; meanwhile others of the run go on, and nothing piles up."""
    world.context.streams.pace = Pace(stall_s=0.2)
    run_id = await world.run()
    words = []

    def last_word():
        words.append(1)
        slow.blocked.set()

    slow, quick = tap(world, run_id, line=Line(last_word)), tap(world, run_id)
    async with slow.open(), quick.open():
        for one in (slow, quick):
            await one.until(lambda s: "replay_complete" in s.kinds)
        slow.blocked.clear()
        await write(world, run_id, *(delta("x" * 10_000) for _ in range(100)))
        await slow.end()
        await quick.until(lambda s: s.kinds.count("text-delta") == 100)
        (topic,) = world.context.streams._topics.values()
        assert topic._size <= 256 * 1024
    assert slow.kinds == ["metadata", "replay_complete", "error"]
    assert slow.events[-1][1]["error_code"] == "slow_reader"
    assert slow.ended
    assert words == [1]


async def test_a_client_that_is_behind_loses_nothing(world):
    """Who reads slowly but reads gets it all, from the store where need be."""
    run_id = await world.run()
    stream = tap(world, run_id)
    async with stream.open():
        await stream.until(lambda s: "replay_complete" in s.kinds)
        stream.blocked.clear()
        await write(world, run_id, *(delta(str(n).zfill(5000)) for n in range(300)))
        await write(world, run_id, frame("done"))
        stream.blocked.set()
        await stream.end()
    deltas = [e["delta"] for _, e in stream.events[:-1] if e["type"] == "text-delta"]
    assert [int(text[-3:]) for text in deltas] == list(range(300))
    assert stream.kinds[-2:] == ["done", "[DONE]"]


async def test_a_revoked_key_ends_its_streams(world):
    """The key is looked at again and again while the stream is open."""
    world.context.streams.pace = Pace(check_s=0.05)
    run_id = await world.run()
    account = await world.store.accounts.ensure("one")
    extra = await world.store.accounts.add_key(account, secret="soon-gone-1", name="x", now_ms=0)
    async with tap(world, run_id, key="soon-gone-1").open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        await world.store.accounts.revoke_key(extra, now_ms=0)
        await stream.end()
    assert stream.ended
    assert stream.kinds == ["metadata", "replay_complete"]


async def test_a_stream_whose_run_ended_unseen_ends(world):
    """A run that is over without a last frame does not keep its watchers."""
    world.context.streams.pace = Pace(check_s=0.1)
    run_id = await world.run()
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        await world.store.connection.call("HSET", f"sg:{{s0}}:run:{run_id}", "status", "failed")
        await stream.end()
    assert stream.kinds[-1] == "[DONE]"


@pytest.mark.parametrize("way", ["line", "lifespan"])
async def test_a_server_that_goes_down_ends_its_streams(world, way):
    """Without a last frame: the run goes on, and the client joins it again elsewhere."""
    run_id = await world.run()
    line = Line(lambda: None)
    async with tap(world, run_id, line=line).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        if way == "line":
            line.close()
        else:
            await world.context.streams.close()
        await stream.end()
    assert stream.ended
    assert stream.kinds == ["metadata", "replay_complete"]


async def test_lost_notes_delay_and_do_not_lose(world):
    """What was written while nobody was told comes with the next look at the stream."""
    run_id = await world.run()
    async with tap(world, run_id).open() as stream:
        await stream.until(lambda s: "replay_complete" in s.kinds)
        key = f"sg:{{s0}}:st:{run_id}"
        await world.store.connection.call("XADD", key, "*", "f", delta("quiet"))
        await stream.until(lambda s: "text-delta" in s.kinds)


async def test_a_head_request_of_a_stream_ends(world):
    """HEAD gets the headers and no body."""
    run_id = await world.run()
    async with tap(world, run_id, method="HEAD").open() as stream:
        await stream.end()
    assert (stream.status, stream.text) == (200, "")
