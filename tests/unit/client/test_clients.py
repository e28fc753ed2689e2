"""The two clients over HTTP transports: the same names, callbacks, failures, streams."""

import asyncio
import inspect
import json
import threading
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

import signoff
from signoff.client import AsyncClient, Client, async_client, client
from signoff.client import errors as e
from signoff.testing import FakeService

RESOURCES = (
    *("runs", "permissions", "requests", "webhooks", "agents", "users"),
    *("settings", "usage", "events", "audit"),
)
SEND = {"name": "send_email", "input": {"to": "a@acme.com"}}
SCRIPT = {"script": [{"tool_calls": [SEND]}, {"text": "Done."}]}
PARKED: dict[str, Any] = {
    "human_in_the_loop": True,
    "permission_mode": "approval",
    "metadata": SCRIPT,
}
URL, KEY = "http://signoff.test", "secret-api-key"

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Nothing sleeps."""
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(async_client, "FIRST_PAUSE_S", 0.0)


def sync_over(handler, **options):
    transport = httpx.MockTransport(handler)
    return Client(base_url=URL, api_key=KEY, transport=transport, **options)


def async_over(handler, **options):
    transport = httpx.MockTransport(handler)
    return AsyncClient(base_url=URL, api_key=KEY, transport=transport, **options)


async def test_both_clients_have_the_same_names():
    """Every method of one is a method of the other, with the same parameters."""
    with FakeService().client() as one:
        async with FakeService().async_client() as other:
            for name in RESOURCES:
                ours, theirs = getattr(one, name), getattr(other, name)
                methods = {item for item in dir(ours) if not item.startswith("_")}
                assert methods == {item for item in dir(theirs) if not item.startswith("_")}
                assert methods & {"list", "get", "end_users"}
    assert inspect.signature(client.Runs.stream) is not None
    assert set(inspect.signature(client.Runs.stream).parameters) == set(
        inspect.signature(async_client.AsyncRuns.stream).parameters
    )


async def test_the_async_client_awaits_callbacks_and_takes_plain_ones():
    """Either kind of function decides."""
    fake = FakeService()
    async with fake.async_client() as api:

        async def later(_gate):
            await asyncio.sleep(0)
            return True

        for callback in (later, lambda _: True):
            run = await api.runs.create_and_wait("go", on_approval=callback, **PARKED)
            assert (run.status, run.output) == ("completed", "Done.")
        assert len([run async for run in api.runs.each(limit=1)]) == 2


async def test_the_sync_client_refuses_a_callback_that_must_be_awaited():
    """It could never be."""

    async def later(_gate):
        return True

    with FakeService().client() as api, pytest.raises(e.CallbackResultError, match="AsyncClient"):
        api.runs.create_and_wait("go", on_approval=later, **PARKED)


async def test_a_wait_ends_when_somebody_else_decides():
    """Another thread approves; the long poll of the waiting one ends."""
    fake = FakeService()
    with fake.client() as api, fake.client() as reviewer:
        run = api.runs.create("go", **PARKED)
        done = []
        waiting = threading.Thread(
            target=lambda: done.append(api.runs.wait(run.id, decided_elsewhere=True))
        )
        waiting.start()
        (gate,) = reviewer.requests.list()
        reviewer.runs.approve(run.id, gate.request_id)
        waiting.join(10)
        assert [found.status for found in done] == ["completed"]


async def test_an_async_wait_can_be_cancelled():
    """Nothing is left behind."""
    async with FakeService().async_client() as api:
        run = await api.runs.create("go", **PARKED)
        waiting = asyncio.create_task(api.runs.wait(run.id, decided_elsewhere=True))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (httpx.ConnectError("no route"), e.ConnectionFailedError),
        (httpx.ReadTimeout("slow"), e.RequestTimeoutError),
        (httpx.RemoteProtocolError("junk"), e.ConnectionFailedError),
    ],
)
async def test_failures_of_the_connection_are_errors_of_ours(raised, kind):
    """Of both clients, caught by the one root, and without the key in them."""

    def fail(_request):
        raise raised

    with sync_over(fail, retries=0) as api, pytest.raises(signoff.SignoffError) as caught:
        api.runs.get(1)
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)
    async with async_over(fail, retries=0) as api:
        with pytest.raises(kind):
            await api.runs.get(1)


async def test_the_key_and_the_address_are_sent_and_not_shown():
    """Authorization goes out; repr keeps it."""
    seen = []

    def answer(request):
        seen.append(request)
        return httpx.Response(200, json={"id": 1, "status": "running"})

    with sync_over(answer) as api:
        api.runs.get(1, wait_s=20, known="x")
        assert KEY not in repr(api)
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert str(seen[0].url) == f"{URL}/v1/runs/1?wait_s=20&known=x"
    assert seen[0].extensions["timeout"]["read"] == 50.0


async def test_a_redirect_is_not_followed():
    """The key goes nowhere else."""
    with (
        sync_over(lambda _: httpx.Response(307, headers={"location": "http://evil.test"})) as api,
        pytest.raises(e.UnexpectedAnswerError, match="base_url"),
    ):
        api.runs.get(1)


def frames(*rows):
    return b"".join(
        f"id: {place}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()
        for place, kind, more in rows
    )


class Streaming:
    """Answers with one body after the other, and keeps what was asked."""

    def __init__(self, *bodies):
        self.bodies = list(bodies)
        self.marks = []

    def __call__(self, request):
        assert request.url.path == "/v1/runs/7/stream"
        self.marks.append(request.headers.get("last-event-id"))
        return httpx.Response(200, content=self.bodies.pop(0))


HALF = frames(("1-0", "text-delta", {"delta": "Hel"}))
REST = frames(("2-0", "text-delta", {"delta": "lo"}), ("3-0", "done", {}))


async def test_a_stream_that_breaks_is_taken_up_behind_its_last_frame():
    """Nothing twice, nothing missing, on both clients."""
    service = Streaming(HALF, REST)
    with sync_over(service) as api:
        assert "".join(frame.text for frame in api.runs.stream(7)) == "Hello"
    assert service.marks == [None, "1-0"]
    service = Streaming(HALF, REST)
    async with async_over(service) as api:
        assert "".join([frame.text async for frame in api.runs.stream(7)]) == "Hello"


async def test_a_stream_that_stays_broken_says_where_to_go_on():
    """After its retries; without ids at once, as a new connection would repeat everything."""
    with sync_over(Streaming(HALF, b"", b"")) as api:
        with pytest.raises(e.StreamInterruptedError) as broken:
            list(api.runs.stream(7))
        assert broken.value.last_event_id == "1-0"
    with (
        sync_over(Streaming(b'data: {"type": "text-start"}\n\n')) as api,
        pytest.raises(e.StreamInterruptedError),
    ):
        list(api.runs.stream(7))


async def test_a_refused_stream_is_a_typed_error():
    """A run that has ended has no stream to join."""
    problem = {"error": {"message": "over", "error_code": "run_not_active", "code": 409}}
    with (
        sync_over(lambda _: httpx.Response(409, json=problem)) as api,
        pytest.raises(e.RunNotActiveError),
    ):
        list(api.runs.stream(7))
    async with async_over(lambda _: httpx.Response(409, json=problem)) as api:
        with pytest.raises(e.RunNotActiveError):
            _ = [frame async for frame in api.runs.stream(7)]


EVENT_CALL = {"type": "tool_call", "id": "c", "name": "t", "input": "{}"}
EVENT_PARKED = frames(
    ("1-0-0.0", "REPLY_START", {}),
    ("1-0-0.1", "REQUIRE_USER_CONFIRM", {"tool_calls": [EVENT_CALL]}),
)
EVENT_BROKEN = frames(("1-0-0.0", "REPLY_START", {}), ("1-0-0.1", "MODEL_CALL_START", {}))
EVENT_ENDED = frames(("2-0-0.0", "REPLY_END", {}))


async def test_agentscope_events_end_with_the_reply_or_an_open_call():
    """A stream that breaks before is taken up; the format is asked for each time."""
    queries = []

    def service(*bodies):
        answers = Streaming(*bodies)

        def handle(request):
            queries.append(request.url.query)
            return answers(request)

        return handle

    with sync_over(service(EVENT_PARKED)) as api:
        shown = list(api.runs.agentscope_events(7))
    assert shown[1] == {"type": "REQUIRE_USER_CONFIRM", "tool_calls": [EVENT_CALL]}
    with sync_over(service(EVENT_BROKEN, EVENT_ENDED)) as api:
        assert [event["type"] for event in api.runs.agentscope_events(7)][-1] == "REPLY_END"
    async with async_over(service(EVENT_BROKEN, EVENT_ENDED)) as api:
        assert len([event async for event in api.runs.agentscope_events(7)]) == 3
    assert queries == [b"format=agentscope"] * 5
    settled = frames(("3-0-0.0", "TOOL_RESULT_END", {"tool_call_id": "c"}))
    with (
        sync_over(service(EVENT_PARKED + settled, b"", b"")) as api,
        pytest.raises(e.StreamInterruptedError),
    ):
        list(api.runs.agentscope_events(7))


def test_an_agentscope_event_is_sent_as_it_is():
    """To the run's events."""
    sent = []

    def service(request):
        sent.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={"status": "ok", "resumed": True, "requests": []})

    event = {"type": "USER_CONFIRM_RESULT", "reply_id": "run_7_1", "confirm_results": []}
    with sync_over(service) as api:
        assert api.runs.send_event(7, event).resumed is True
    assert sent == [("POST", "/v1/runs/7/events", event)]


async def test_methods_show_their_own_signature_and_text():
    """Bound ones of both clients: name, each option, and what comes back."""
    with FakeService().client() as one:
        async with FakeService().async_client() as other:
            for found in (one, other):
                signature = inspect.signature(found.runs.create)
                message, user_id = (signature.parameters[n] for n in ("message", "user_id"))
                assert (message.annotation, message.default) == ("str", inspect.Parameter.empty)
                assert (user_id.annotation, user_id.default) == ("str | None", ...)
                assert user_id.kind is inspect.Parameter.KEYWORD_ONLY
                assert signature.return_annotation == "Run"
                assert found.runs.create.__name__ == "create"
                assert "works in the background" in (inspect.getdoc(found.runs.create) or "")
                assert (
                    "cancel_on_timeout" in inspect.signature(found.runs.create_and_wait).parameters
                )
            each = inspect.signature(one.runs.each).return_annotation
            assert each == "Iterator[Run]"
            assert inspect.signature(other.runs.each).return_annotation == "AsyncIterator[Run]"


def test_times_are_sent_with_their_offset():
    """A datetime that knows its offset is taken, one that does not is refused."""
    sent = []

    def answer(request):
        sent.append(json.loads(request.content)["expires_at"])
        return httpx.Response(201, json={"id": 1, "tool_name": "t"})

    east = timezone(timedelta(hours=2))
    with sync_over(answer) as found:
        found.permissions.create("t", expires_at=datetime(2030, 1, 2, 3, 4, tzinfo=east))
        found.permissions.create("t", expires_at="2030-01-02T03:04:00Z")
        with pytest.raises(e.InvalidArgumentError, match="expires_at"):
            found.permissions.create("t", expires_at=datetime(2030, 1, 2))  # noqa: DTZ001
    assert sent == ["2030-01-02T03:04:00+02:00", "2030-01-02T03:04:00Z"]


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1, 2}}, "\ud800"])
def test_what_has_no_json_form_is_refused_by_its_name(value):
    """Before anything is sent, and as an error of ours."""
    with (
        sync_over(lambda _: None) as found,
        pytest.raises(e.InvalidArgumentError, match="metadata"),
    ):
        found.runs.create("go", metadata=value)


def test_a_failed_connection_names_the_place():
    """Host and port as configured, without what else stands in the address."""

    def away(request):
        raise httpx.ConnectError("refused", request=request)

    transport = httpx.MockTransport(away)
    url = "http://me:secret@signoff.test:8123/v1"
    found = Client(base_url=url, api_key=KEY, transport=transport, retries=0)
    with (
        found,
        pytest.raises(e.ConnectionFailedError, match=r"http://signoff\.test:8123") as raised,
    ):
        found.runs.get(1)
    assert "secret" not in str(raised.value)


def test_errors_stand_beside_the_clients():
    """``signoff.client`` has every class that a call may end in."""
    import signoff.client as beside  # noqa: PLC0415 - the names of the module are what is tested

    for name, kind in vars(e).items():
        if isinstance(kind, type) and issubclass(kind, signoff.SignoffError):
            assert getattr(beside, name) is kind
            assert name in beside.__all__ or kind is signoff.SignoffError
