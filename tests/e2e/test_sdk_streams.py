"""The SDK's streams and replies against a real service."""

import pytest

from signoff import AsyncClient, Client
from signoff.client import errors as e
from tests.e2e.harness import KEY

pytestmark = pytest.mark.anyio

MAIL = {"name": "send_email", "input": {"to": "a@acme.com", "subject": "", "body": ""}}
PARKING = {"script": [{"text": "Let me", "tool_calls": [MAIL]}, {"text": "Done.", "delay_ms": 300}]}


@pytest.fixture
def sdk(dev):
    with Client(base_url=dev.url, api_key=KEY) as made:
        yield made


def _start(sdk):
    return sdk.runs.create(
        "go", human_in_the_loop=True, permission_mode="approval", metadata=PARKING
    )


def test_a_stream_ends_at_a_gate_and_is_joined_again_after_the_decision(sdk):
    """The text of the whole turn, once, and no stream of a run that has ended."""
    run = _start(sdk)
    assert "awaiting_approval" in [frame.type for frame in sdk.runs.stream(run.id)]
    (gate,) = sdk.runs.permissions(run.id)
    sdk.runs.approve(run.id, gate.request_id)
    frames = list(sdk.runs.stream(run.id))
    assert "".join(frame.text for frame in frames) == "Let meDone."
    assert frames[-1].type == "done"
    assert sdk.runs.wait(run.id).output == "Done."
    with pytest.raises(e.RunNotActiveError):
        list(sdk.runs.stream(run.id))


async def test_an_async_stream_is_the_same(dev, sdk):
    """Frame by frame."""
    run = _start(sdk)
    async with AsyncClient(base_url=dev.url, api_key=KEY) as api:
        types = [frame.type async for frame in api.runs.stream(run.id)]
    assert "awaiting_approval" in types
    sdk.runs.cancel(run.id)


def test_replies_begin_a_turn_or_wait_for_one(sdk):
    """After the end: resumed; during a turn: queued, and waited for beyond that turn."""
    script = {"script": [{"text": "A", "delay_ms": 1000}, {"text": "B"}, {"text": "C"}]}
    run = sdk.runs.create("go", metadata=script)
    queued = sdk.runs.reply(run.id, "and?")
    assert (queued.delivery, queued.queued_message_id is not None) == ("queued", True)
    ended = sdk.runs.wait(run.id)
    assert (ended.output, ended.turn) == ("B", 2)
    assert sdk.runs.reply_and_wait(run.id, "more?").output == "C"


def test_a_client_of_agentscope_answers_what_it_is_shown(sdk):
    """The call comes as an event, goes back as it came, and the reply ends."""
    run = _start(sdk)
    *_, pause = sdk.runs.agentscope_events(run.id)
    assert pause["type"] == "REQUIRE_USER_CONFIRM"
    answer = {
        "type": "USER_CONFIRM_RESULT",
        "reply_id": pause["reply_id"],
        "confirm_results": [{"confirmed": True, "tool_call": pause["tool_calls"][0]}],
    }
    assert sdk.runs.send_event(run.id, answer).resumed is True
    events = list(sdk.runs.agentscope_events(run.id))
    assert (events[-1]["type"], events[-1]["finished_reason"]) == ("REPLY_END", "completed")
    assert len({event["id"] for event in events}) == len(events)
    assert sdk.runs.send_event(run.id, answer).resumed is True
    with pytest.raises(e.ReplyNotFoundError):
        sdk.runs.send_event(run.id, {**answer, "reply_id": "run_0_1"})
