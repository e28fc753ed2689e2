"""The edge: keys, paths, methods, bodies, and a store that is away."""

import asyncio

import pytest

from signoff.domain.error import SettingsError
from tests.integration.service.test_runs import refused
from tests.integration.service.world import KEY, client, serving, settings

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}


def bare(response):
    return response.json()["error"] | {"request_id": ""}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer wrong-key-entirely")],
        [("authorization", f"Basic {KEY}")],
        [("authorization", KEY)],
        [("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")],
        [("authorization", f"Bearer {'k' * 600}")],
        [("x-api-key", KEY)],
    ],
)
async def test_every_missing_key_looks_the_same(world, headers):
    """Without one right key in its one place all answers are the same 401."""
    response = await world.nobody.get(f"/v1/runs?api_key={KEY}", headers=headers)
    reference = await world.nobody.get("/v1/runs")
    refused(response, 401, "unauthorized")
    assert bare(response) == bare(reference)
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["request_id"].startswith("req_")


async def test_the_scheme_has_no_case_and_keys_may_be_any_text(world):
    """bearer in any case works, and so does a key beyond ASCII in either encoding."""
    await world.store.accounts.add_key("1", secret="schlüssel-eins", name="t", now_ms=0)
    for value in (
        f"bEaReR {KEY}".encode(),
        "Bearer schlüssel-eins".encode(),
        "Bearer schlüssel-eins".encode("latin-1"),
    ):
        response = await world.nobody.get("/v1/runs", headers=[(b"authorization", value)])
        assert response.status_code == 200


async def test_a_revoked_key_ends_within_a_second(world):
    """The remembered key is asked for again once its second is over."""
    assert (await world.api.get("/v1/runs")).status_code == 200
    key_id = (await world.store.accounts.list_keys("1"))[0].id
    await world.store.accounts.revoke_key(key_id, now_ms=1)
    keys = world.context.keys
    started = keys._clock()
    keys._clock = lambda: started + 1.1
    refused(await world.api.get("/v1/runs"), 401, "unauthorized")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nope",
        "/v1",
        "/v1/",
        "/v1/nope",
        "/v1/runs//",
        "/api/v2/nope/",
        "/v2/runs",
        "/v1/health",
    ],
)
async def test_unknown_paths_are_enveloped(world, path):
    """Every unknown path is the enveloped 404, with a key or without."""
    for who in (world.api, world.nobody):
        refused(await who.get(path), 404, "not_found")


async def test_paths_work_with_and_without_a_slash(world):
    """Both forms of a path answer at once, on both surfaces, without a redirect."""
    run_id = await world.run()
    for prefix in ("/v1", "/api/v2"):
        for path in ("/runs", f"/runs/{run_id}", "/webhooks", "/permissions", "/requests"):
            for tail in ("", "/"):
                assert (await world.api.get(prefix + path + tail)).status_code == 200
    assert (await world.nobody.get("/health/")).status_code == 200


async def test_an_escaped_slash_reaches_no_other_route(world):
    """%2F within a segment is no separator."""
    run_id = await world.run()
    response = await world.api.post(f"/v1/runs/{run_id}%2Fcancel")
    refused(response, 404, "not_found")
    assert await world.status(run_id) == "running"


async def test_other_methods_are_enveloped(world):
    """A wrong method is an enveloped 405 that says which ones there are."""
    response = await world.api.delete("/v1/runs")
    refused(response, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(response.headers["allow"].replace(" ", "").split(","))
    for path in ("/v1/runs/1/approve", "/v1/callbacks/1"):
        refused(await world.api.get(path), 405, "method_not_allowed")
        assert (await world.api.head(path)).status_code == 405
    assert (await world.api.head("/v1/runs")).status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json-seq",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
    ],
)
async def test_bodies_must_be_declared_as_json(world, kind):
    """Anything but application/json in UTF-8 is 415, even when the bytes are JSON."""
    headers = {} if kind is None else {"content-type": kind}
    response = await world.api.post("/v1/runs", content=b'{"message":"m"}', headers=headers)
    refused(response, 415, "unsupported_media_type", "content-type")


async def test_json_may_say_that_it_is_utf_8(world):
    """A charset of UTF-8 and an identity encoding are no obstacle."""
    headers = {"content-type": 'Application/JSON; charset="UTF-8"', "content-encoding": "identity"}
    made = await world.api.post("/v1/runs", content=b'{"message":"m"}', headers=headers)
    assert made.status_code == 201


async def test_compressed_bodies_are_refused(world):
    """A Content-Encoding is 415 before anything is expanded."""
    response = await world.api.post(
        "/v1/runs", content=b"x", headers={**JSON, "content-encoding": "gzip"}
    )
    refused(response, 415, "unsupported_media_type", "content-encoding")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"message":"a","message":"b"}',
        b'{"message":"a","n":1e999}',
        b'{"message":"\\ud800"}',
        b'{"message":"\\u0000"}',
        b"\xff\xfe",
        b'\xef\xbb\xbf{"message":"m"}',
        b"[" * 100_000,
        b'{"n":' + b"1" * 100_000 + b"}",
    ],
)
async def test_malformed_bodies_are_400(world, raw):
    """Bytes that are not strict, bounded JSON are 400 malformed_body."""
    response = await world.api.post("/v1/runs", content=raw, headers=JSON)
    assert response.status_code == 400
    assert response.json()["error"]["error_code"] == "malformed_body"


async def test_long_bodies_are_cut_off(world):
    """Over 1 MiB is 413: by its declared length unread, and while it streams."""
    declared = await world.api.post("/v1/runs", content=b" " * (1 << 21), headers=JSON)
    refused(declared, 413, "body_too_large")
    assert declared.headers["connection"] == "close"
    sent = 0

    async def stream():
        nonlocal sent
        for _ in range(64):
            sent += 1 << 16
            yield b" " * (1 << 16)

    streamed = await world.api.post("/v1/runs", content=stream(), headers=JSON)
    refused(streamed, 413, "body_too_large")
    assert sent < 1 << 21


async def test_a_client_that_leaves_is_no_error(world, caplog):
    """A request whose body never ends is dropped without an answer and without a traceback."""
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/runs",
        "raw_path": b"/v1/runs",
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"authorization", f"Bearer {KEY}".encode()),
            (b"content-type", b"application/json"),
        ],
    }
    await world.app(scope, receive, send)
    assert sent == []


async def test_what_nobody_foresaw_is_enveloped_without_its_text(world, caplog):
    """An unexpected exception is a 500 that tells nothing, and a traceback in the log."""

    async def broken(*_args, **_kwargs):
        raise RuntimeError("a secret detail")

    accounts = world.store.accounts
    type(accounts).authenticate, before = broken, type(accounts).authenticate
    try:
        response = await world.nobody.get(
            "/v1/runs", headers={"authorization": "Bearer some-other-key"}
        )
    finally:
        type(accounts).authenticate = before
    refused(response, 500, "internal_error")
    assert "secret detail" not in response.text
    assert "a secret detail" in caplog.text
    assert response.json()["error"]["request_id"] in caplog.text


async def test_a_store_that_is_away_is_503_at_once(tmp_path):
    """The service starts without its store and answers 503 with Retry-After, also to callbacks."""
    async with serving(settings(f"unix://{tmp_path}/none?db=0")) as app, client(app, KEY) as api:
        async with asyncio.timeout(2):
            for request in (
                api.get("/v1/runs"),
                api.post("/v1/callbacks/1", content=b"{}"),
                api.post("/v1/runs/1/approve", json={}),
            ):
                response = await request
                refused(response, 503, "unavailable")
                assert response.headers["retry-after"] == "1"
            assert (await api.get("/health")).status_code == 200
            unready = await api.get("/ready")
        assert (unready.status_code, unready.json()["reasons"]) == (503, ["store_unavailable"])


async def test_ready_wants_a_worker_and_a_relay(world):
    """Readiness names what is missing, and comes with the first worker and relay."""
    unready = await world.nobody.get("/ready")
    assert unready.status_code == 503
    assert unready.json()["reasons"] == ["no_worker", "no_relay"]
    await world.store.presence.beat("worker", "w")
    await world.store.presence.beat("relay", "r")
    ready = await world.nobody.get("/ready/")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


async def test_a_store_that_may_forget_is_not_ready(world, redis_url):
    """Without an AOF the service is not ready, unless the operator accepts that."""
    await world.store.presence.beat("worker", "w")
    await world.store.presence.beat("relay", "r")
    await world.store.connection.call("CONFIG", "SET", "appendonly", "no")
    try:
        assert (await world.nobody.get("/ready")).json()["reasons"] == ["store_volatile"]
        loaded = settings(redis_url, SIGNOFF_ALLOW_VOLATILE_REDIS="1")
        async with serving(loaded) as app, client(app) as nobody:
            assert (await nobody.get("/ready")).status_code == 200
    finally:
        await world.store.connection.call("CONFIG", "SET", "appendonly", "yes")


async def test_another_layout_is_refused_at_start(world, redis_url):
    """A store laid out with one shard is not served with two."""
    with pytest.raises(SettingsError):
        async with serving(settings(redis_url, SIGNOFF_SHARDS="2")):
            pass
