"""The event log, the audit trail and the metrics, as the service tells them."""

import re

import pytest

from tests.integration.service.world import SEND

pytestmark = pytest.mark.anyio


async def _approved(world):
    """A run with one approved call, and its gate."""
    run_id, (gate,) = await world.parked()
    body = {"request_id": gate["request_id"], "decision": "allow"}
    assert (await world.api.post(f"/v1/runs/{run_id}/approve", json=body)).status_code == 200
    return run_id, gate


async def test_the_event_log_has_what_endpoints_get(world):
    """Events come newest first, without any endpoint, and only to their account."""
    run_id, gate = await _approved(world)
    page = (await world.api.get("/v1/events")).json()
    assert [event["type"] for event in page["data"]] == [
        "run.resumed",
        "run.awaiting_input",
        "run.started",
    ]
    assert (page["has_more"], page["next_starting_after"]) == (False, None)
    pause = page["data"][1]["data"]
    assert (pause["run_id"], pause["requests"][0]["request_id"]) == (run_id, gate["request_id"])
    assert (await world.other.get("/v1/events")).json()["data"] == []
    assert (await world.nobody.get("/v1/events")).status_code == 401


async def test_events_come_in_pages(world):
    """A page ends with the id that the next one starts after; another account's id is none."""
    await _approved(world)
    whole = [event["id"] for event in (await world.api.get("/v1/events")).json()["data"]]
    first = (await world.api.get("/v1/events?limit=2")).json()
    assert (first["has_more"], first["next_starting_after"]) == (True, whole[1])
    rest = await world.api.get(f"/v1/events?limit=2&starting_after={whole[1]}")
    assert [event["id"] for event in rest.json()["data"]] == whole[2:]
    foreign = await world.other.get(f"/v1/events?starting_after={whole[1]}")
    assert foreign.json()["error"]["error_code"] == "not_found"


async def test_events_are_filtered_by_type_and_run(world):
    """One type, one run; a type that there is not is refused."""
    run_id, _ = await _approved(world)
    other_id = await world.run()
    one = (await world.api.get(f"/v1/events?run_id={other_id}")).json()["data"]
    assert [event["data"]["run_id"] for event in one] == [other_id]
    started = (await world.api.get("/v1/events?type=run.started")).json()["data"]
    assert [event["data"]["run_id"] for event in started] == [other_id, run_id]
    assert (await world.api.get("/v1/events?type=run.nothing")).status_code == 422


async def test_the_audit_trail_says_who_decided_what(world):
    """A decision stands in the trail with its decider and the digest, for its account only."""
    run_id, gate = await _approved(world)
    await world.api.patch(f"/v1/runs/{run_id}/permission-mode", json={"permission_mode": "plan"})
    await world.api.post(f"/v1/runs/{run_id}/cancel")
    rows = (await world.api.get(f"/v1/audit?run_id={run_id}")).json()["data"]
    assert [row["action"] for row in rows] == ["cancel", "mode", "decision"]
    assert all(row["run_id"] == run_id and row["by"].startswith("key:") for row in rows)
    assert rows[2]["details"] == {
        "request_id": gate["request_id"],
        "state": "allowed",
        "digest": gate["digest"],
    }
    first = (await world.api.get("/v1/audit?limit=1")).json()
    assert first["has_more"] is True
    after = first["next_starting_after"]
    rest = (await world.api.get(f"/v1/audit?starting_after={after}")).json()["data"]
    assert [*first["data"], *rest] == rows
    assert (await world.other.get("/v1/audit")).json()["data"] == []
    odd = await world.api.get("/v1/audit?starting_after=evt_1")
    assert (odd.status_code, odd.json()["error"]["details"]["field"]) == (422, "starting_after")


async def _numbers(world):
    served = await world.nobody.get("/metrics")
    assert served.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in served.text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'signoff_\w+(\{\w+="\w+"\})? [0-9.e+]+', line) for line in lines)
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_metrics_count_over_all_accounts(world):
    """Gates, runs, due work and due deliveries are counted; nobody is named."""
    before = await _numbers(world)
    assert set(before.values()) == {0.0}
    await world.webhook(events=["run.started", "run.awaiting_input"])
    await world.store.presence.beat("relay", "one")
    await world.parked(("send_email", SEND), ("send_email", SEND))
    now = await _numbers(world)
    assert now["signoff_open_gates"] == 2
    assert now['signoff_runs{status="awaiting_approval"}'] == now["signoff_listed_runs"] == 1
    assert now["signoff_due_deliveries"] == 2
    assert 0 <= now["signoff_oldest_due_delivery_seconds"] < 60
    assert 0 <= now['signoff_heartbeat_age_seconds{kind="relay"}'] < 60
    await world.run()
    assert (await _numbers(world))["signoff_ready_runs"] == 1


async def test_deliveries_in_flight_are_not_due(world):
    """What a relay has claimed is in flight; what waits behind it is still due."""
    await world.webhook(events=["run.started"])
    for _ in range(3):
        await world.run()
    await world.store.outbox.claim(0, token="t", limit=10, cap=1, lease_ms=30_000)
    now = await _numbers(world)
    assert now["signoff_deliveries_in_flight"] == 1
    assert now["signoff_due_deliveries"] == 2
