"""Webhook endpoints: made, masked, rotated, scoped, tested, their deliveries listed."""

import pytest

from tests.integration.service.test_runs import refused
from tests.integration.service.world import client, serving, settings

pytestmark = pytest.mark.anyio
URL = "https://example.com/hook"


async def test_the_secret_is_shown_once(world):
    """The whole secret comes with the creation and is masked ever after."""
    made = await world.api.post("/v1/webhooks/", json={"url": URL})
    assert made.status_code == 201
    body = made.json()
    assert len(body["secret"]) >= 32
    assert body["secret"].startswith("whsec_")
    assert body["events"] == ["run.completed", "run.failed", "run.cancelled"]
    assert body["callback_url"] == f"http://signoff.test/v1/callbacks/{body['id']}"
    shown = (await world.api.get(f"/v1/webhooks/{body['id']}")).json()
    assert shown == {**body, "secret": "whse..."}
    assert (await world.api.get("/v1/webhooks/")).json()["data"] == [shown]


async def test_the_surface_chooses_the_signature(world):
    """Endpoints made under /api/v2 sign in hex and under /v1 in the standard form, unless told."""
    kinds = []
    for prefix, extra in (("/v1", {}), ("/api/v2", {}), ("/api/v2", {"signature": "standard"})):
        made = await world.api.post(f"{prefix}/webhooks/", json={"url": URL, **extra})
        kinds.append(made.json()["signature"])
    assert kinds == ["standard", "hex", "standard"]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "validation_error", "url"),
        ({"url": 1}, "validation_error", "url"),
        ({"url": "http://example.com"}, "invalid_url", "url"),
        ({"url": "https://127.0.0.1/"}, "invalid_url", "url"),
        ({"url": "https://localhost/"}, "invalid_url", "url"),
        ({"url": "https://a.internal/"}, "invalid_url", "url"),
        ({"url": "https://user:pw@example.com/"}, "invalid_url", "url"),
        ({"url": URL, "events": ["run.odd"]}, "validation_error", "events[0]"),
        ({"url": URL, "events": "run.failed"}, "validation_error", "events"),
        ({"url": URL, "signature": "none"}, "validation_error", "signature"),
        ({"url": URL, "user_id": 1}, "validation_error", "user_id"),
    ],
)
async def test_wrong_endpoints_are_refused(world, body, code, field):
    """A URL that may not be called, an unknown event or a wrong type is 422."""
    refused_at = await world.api.post("/v1/webhooks/", json=body)
    error = refused_at.json()["error"]
    assert (refused_at.status_code, error["error_code"]) == (422, code)
    assert error["details"]["field"] == field


async def test_changes_apply_and_refused_ones_do_not(world):
    """URL, events and activity change on their own; a refused URL leaves the old one."""
    made = (await world.api.post("/v1/webhooks/", json={"url": URL, "events": []})).json()
    assert made["events"] == []
    path = f"/v1/webhooks/{made['id']}"
    changed = await world.api.patch(path, json={"events": ["run.failed", "run.failed"]})
    assert changed.json()["events"] == ["run.failed"]
    assert changed.json()["secret"] == "whse..."
    wrong = await world.api.patch(path, json={"url": "https://10.0.0.1/"})
    assert wrong.json()["error"]["error_code"] == "invalid_url"
    off = (await world.api.patch(path, json={"active": False})).json()
    assert (off["url"], off["active"]) == (URL, False)
    for seconds in (-1, 604_801, "1"):
        bad = await world.api.patch(path, json={"rotate_secret": True, "overlap_seconds": seconds})
        refused(bad, 422, "validation_error", "overlap_seconds")
    assert (await world.api.delete(path)).status_code == 204
    refused(await world.api.delete(path), 404, "not_found")
    refused(await world.api.get(f"{path}/deliveries"), 404, "not_found")


async def test_endpoints_belong_to_one_scope(world):
    """Lists show one scope; another account, or a wrong user, does not find the endpoint."""
    own = (await world.api.post("/v1/webhooks/", json={"url": URL})).json()
    theirs = (await world.api.post("/v1/webhooks/", json={"url": URL, "user_id": "u"})).json()

    async def ids(query=""):
        return [row["id"] for row in (await world.api.get(f"/v1/webhooks/{query}")).json()["data"]]

    assert await ids() == [own["id"]]
    assert await ids("?user_id=u") == [theirs["id"]]
    path = f"/v1/webhooks/{theirs['id']}"
    assert (await world.api.get(f"{path}?user_id=u")).status_code == 200
    refused(await world.api.get(f"{path}?user_id=v"), 404, "not_found")
    for verb in (world.other.get, world.other.delete):
        refused(await verb(path), 404, "not_found")
    refused(await world.other.post(f"{path}/test"), 404, "not_found")


async def test_a_scope_has_at_most_a_hundred(world):
    """The hundred and first endpoint of a scope is refused; another scope is free."""
    for _ in range(100):
        assert (await world.api.post("/v1/webhooks/", json={"url": URL})).status_code == 201
    refused(await world.api.post("/v1/webhooks/", json={"url": URL}), 422, "too_many_webhooks")
    assert (await world.api.post("/v1/webhooks/", json={"url": URL, "user_id": "u"})).is_success
    pages, cursor = [], ""
    while True:
        page = (await world.api.get(f"/v1/webhooks/?limit=33{cursor}")).json()
        pages.append(len(page["data"]))
        if not page["has_more"]:
            break
        cursor = f"&starting_after={page['next_starting_after']}"
    assert pages == [33, 33, 33, 1]


async def test_a_test_event_goes_to_its_endpoint_only(world):
    """The delivery is listed at the endpoint it was asked for, and nowhere else."""
    hook, beside = await world.webhook(), await world.webhook()
    sent = await world.api.post(f"/v1/webhooks/{hook['id']}/test")
    assert sent.status_code == 202
    page = (await world.api.get(f"/v1/webhooks/{hook['id']}/deliveries")).json()
    (row,) = page["data"]
    assert (row["event_type"], row["status"], row["attempts"]) == ("webhook.test", "pending", 0)
    assert row["event_id"] == sent.json()["event_id"]
    one = await world.api.get(f"/v1/webhooks/{hook['id']}/deliveries/{row['id']}")
    assert one.json() == row
    elsewhere = await world.api.get(f"/v1/webhooks/{beside['id']}/deliveries/{row['id']}")
    refused(elsewhere, 404, "not_found")
    empty = (await world.api.get(f"/v1/webhooks/{beside['id']}/deliveries")).json()
    assert empty == {"data": [], "has_more": False, "next_starting_after": None}
    await world.api.patch(f"/v1/webhooks/{hook['id']}", json={"active": False})
    refused(await world.api.post(f"/v1/webhooks/{hook['id']}/test"), 409, "webhook_inactive")


async def test_runs_reach_the_endpoints_of_their_own_scope(world):
    """A run's events are delivered to endpoints of its user, or to those without one."""
    every = ["run.started", "run.awaiting_input"]
    hook, theirs = await world.webhook(events=every), await world.webhook(events=every, user_id="u")
    await world.parked()
    await world.run(user_id="u")

    async def types(webhook):
        page = await world.api.get(f"/v1/webhooks/{webhook['id']}/deliveries?limit=1")
        found = page.json()["data"]
        while page.json()["has_more"]:
            cursor = page.json()["next_starting_after"]
            page = await world.api.get(
                f"/v1/webhooks/{webhook['id']}/deliveries?limit=1&starting_after={cursor}"
            )
            found += page.json()["data"]
        return [row["event_type"] for row in found]

    assert await types(hook) == ["run.awaiting_input", "run.started"]
    assert await types(theirs) == ["run.started"]


async def test_the_configured_address_is_the_one_shown(world, redis_url):
    """callback_url is built from SIGNOFF_PUBLIC_URL, and never from a malformed Host."""
    made = await world.api.post("/v1/webhooks/", json={"url": URL}, headers={"host": "evil/path?x"})
    assert made.json()["callback_url"].startswith("/v1/callbacks/")
    loaded = settings(redis_url, SIGNOFF_PUBLIC_URL="https://sign.acme.com/base")
    async with serving(loaded) as app, client(app, "key-of-account-one") as api:
        shown = (await api.get(f"/v1/webhooks/{made.json()['id']}")).json()
    assert shown["callback_url"] == f"https://sign.acme.com/base/v1/callbacks/{shown['id']}"


@pytest.mark.parametrize("change", [{"active": True}, {"url": "https://example.com/other"}])
async def test_switching_on_and_a_new_url_end_the_streak_of_failures(world, change):
    """Else the first failure after it would disable the endpoint once more."""
    made = (await world.api.post("/v1/webhooks/", json={"url": URL})).json()
    streak = f"sg:{{s0}}:epf:{made['id']}"
    await world.store.connection.call("HSET", streak, "since", 1)
    path = f"/v1/webhooks/{made['id']}"
    assert (await world.api.patch(path, json={"events": []})).status_code == 200
    assert await world.store.connection.call("EXISTS", streak)
    assert (await world.api.patch(path, json=change)).status_code == 200
    assert not await world.store.connection.call("EXISTS", streak)
