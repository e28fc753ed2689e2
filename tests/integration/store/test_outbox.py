"""The outbox: claimed fairly under a lease, settled once, quiet when a pause is over."""

from __future__ import annotations

from typing import Any

import pytest

from signoff.domain.error import MissingError
from signoff.store.outbox import Claim, DeliveryRecord, Settled
from signoff.store.records import RunRecord
from tests.integration.store.conftest import ACCOUNT, SHARD, Desk, verdict

pytestmark = pytest.mark.anyio


async def emit(desk: Desk, *endpoints: str, count: int = 1) -> None:
    for _ in range(count):
        await desk.store.outbox.emit(
            0, ACCOUNT, desk.event("webhook.test"), await desk.fanout(*endpoints)
        )


async def claim(desk: Desk, *, token: str = "t", limit: int = 100, cap: int = 10) -> Claim:
    return await desk.store.outbox.claim(0, token=token, limit=limit, cap=cap, lease_ms=30_000)


def settled(delivery: int, outcome: Any, attempt: int = 1, **fields: Any) -> Settled:
    given: dict[str, Any] = {
        "status": 500,
        "error": None,
        "body": "answer",
        "log": {"outcome": outcome},
        "delay_ms": 60_000 if outcome == "retry" else None,
    }
    return Settled(id=delivery, attempt=attempt, outcome=outcome, **{**given, **fields})


async def settle(desk: Desk, *items: Settled, token: str = "t") -> dict[int, int | None]:
    return await desk.store.outbox.settle(0, token=token, items=items)


async def end_lease(desk: Desk, delivery: int) -> None:
    await desk.store.connection.call("ZADD", f"{SHARD}dlease", 1, str(delivery))


async def make_due(desk: Desk, delivery: int, endpoint: str) -> None:
    await desk.store.connection.calls(
        ("ZADD", f"{SHARD}due:{endpoint}", 1, str(delivery)), ("ZADD", f"{SHARD}eps", 1, endpoint)
    )


async def get(desk: Desk, delivery: int) -> DeliveryRecord:
    return await desk.store.outbox.get(delivery)


async def test_a_due_delivery_is_claimed_once_with_its_bytes(desk: Desk) -> None:
    """The event's body travels as it was written; nothing else is due then."""
    event = desk.event("webhook.test", text="\u2028 ü")
    await desk.store.outbox.emit(0, ACCOUNT, event, await desk.fanout("7"))
    found = await claim(desk)
    (row,) = found.rows
    assert (row.attempt, row.endpoint_id, row.event_id, row.type, row.run_id) == (
        1,
        7,
        event.id,
        "webhook.test",
        None,
    )
    assert row.body == event.body
    assert found.next_ms is not None
    assert found.next_ms > 25_000
    assert (await claim(desk, token="other")).rows == []
    assert (await get(desk, row.id)).state == "leased"


async def test_an_event_is_emitted_once(desk: Desk) -> None:
    """The same event again makes no second delivery."""
    event, fanout = desk.event("webhook.test"), await desk.fanout("7", "8")
    for _ in range(2):
        await desk.store.outbox.emit(0, ACCOUNT, event, fanout)
    assert sorted(row.endpoint_id for row in (await claim(desk)).rows) == [7, 8]


async def test_an_empty_outbox_has_no_next_time(desk: Desk) -> None:
    """The relay then waits for a wake-up alone."""
    assert await claim(desk) == Claim(rows=[], next_ms=None)


async def test_a_full_endpoint_leaves_room_for_the_others(desk: Desk) -> None:
    """At most ``cap`` in flight for one; a backlog of one does not delay another's first."""
    await emit(desk, "7", count=50)
    await emit(desk, "8")
    first = await claim(desk, limit=10, cap=4)
    by_endpoint = [row.endpoint_id for row in first.rows]
    assert (by_endpoint.count(7), by_endpoint.count(8)) == (4, 1)
    assert (await claim(desk, cap=4)).rows == []
    mine = [row for row in first.rows if row.endpoint_id == 7]
    await settle(desk, settled(mine[0].id, "success"), settled(mine[1].id, "success"))
    assert len((await claim(desk, cap=4)).rows) == 2


async def test_a_claim_is_shared_between_endpoints(desk: Desk) -> None:
    """With more due than room, each endpoint gets its part; within one, oldest first."""
    for endpoint in ("7", "8", "9"):
        await emit(desk, endpoint, count=20)
    rows = (await claim(desk, limit=9)).rows
    counts = {n: sum(row.endpoint_id == n for row in rows) for n in (7, 8, 9)}
    assert counts == {7: 3, 8: 3, 9: 3}
    mine = [row.id for row in rows if row.endpoint_id == 8]
    assert mine == sorted(mine)


async def test_a_success_is_final(desk: Desk) -> None:
    """Listed with its status, its answer and its attempt; never claimed again."""
    await emit(desk, "7")
    (row,) = (await claim(desk)).rows
    assert await settle(desk, settled(row.id, "success", status=200)) == {row.id: None}
    found = await get(desk, row.id)
    assert (found.state, found.status_code, found.attempts) == ("success", 200, 1)
    assert (found.response_body, found.next_ms) == ("answer", None)
    assert found.log == [{"outcome": "success"}]
    assert (await claim(desk)).rows == []


async def test_a_first_attempt_may_have_to_wait(desk: Desk) -> None:
    """A schedule that does not begin with 0: nothing before its time, listed as pending."""
    await emit(desk, "7")
    early = await desk.store.outbox.claim(
        0, token="t", limit=10, cap=10, lease_ms=30_000, first_ms=60_000
    )
    assert early.rows == []
    assert early.next_ms is not None
    assert 50_000 < early.next_ms <= 60_000
    assert (await claim(desk)).rows == []


async def test_a_retry_comes_at_its_time(desk: Desk) -> None:
    """Not before; with the next number."""
    await emit(desk, "7")
    (row,) = (await claim(desk)).rows
    await settle(desk, settled(row.id, "retry"))
    later = await claim(desk)
    assert later.rows == []
    assert later.next_ms is not None
    assert 50_000 < later.next_ms <= 60_000
    found = await get(desk, row.id)
    assert (found.state, found.attempts) == ("pending", 1)
    await make_due(desk, row.id, "7")
    (again,) = (await claim(desk)).rows
    assert (again.id, again.attempt, again.body) == (row.id, 2, row.body)
    await settle(desk, settled(row.id, "failed", 2, error="gone"))
    found = await get(desk, row.id)
    assert (found.state, found.error, len(found.log)) == ("failed", "gone", 2)


async def test_a_lost_lease_is_claimed_again_exactly_once(desk: Desk) -> None:
    """The relay that comes late is refused; what it did is known as lost."""
    await emit(desk, "7")
    (row,) = (await claim(desk, token="old")).rows
    await end_lease(desk, row.id)
    (again,) = (await claim(desk, token="new")).rows
    assert (again.id, again.attempt) == (row.id, 2)
    assert (await claim(desk, token="third")).rows == []
    assert await settle(desk, settled(row.id, "success"), token="old") == {}
    # Also when it was the relay itself that took the row again: the attempt is another one.
    assert await settle(desk, settled(row.id, "success"), token="new") == {}
    assert (await get(desk, row.id)).state == "leased"
    assert await settle(desk, settled(row.id, "success", 2), token="new") == {row.id: None}
    assert await settle(desk, settled(row.id, "retry", 2), token="new") == {}
    found = await get(desk, row.id)
    assert (found.state, [item["outcome"] for item in found.log]) == (
        "success",
        ["lost", "success"],
    )
    assert await desk.store.connection.call("HGET", f"{SHARD}epin", "7") is None


async def test_an_extended_lease_holds(desk: Desk) -> None:
    """Only the relay that has the delivery can extend it."""
    await emit(desk, "7")
    (row,) = (await claim(desk, token="mine")).rows
    await end_lease(desk, row.id)
    await desk.store.outbox.extend(0, token="mine", ids=[row.id], lease_ms=30_000)
    assert (await claim(desk, token="other")).rows == []
    await end_lease(desk, row.id)
    await desk.store.outbox.extend(0, token="foreign", ids=[row.id], lease_ms=30_000)
    assert len((await claim(desk, token="other")).rows) == 1


async def test_retry_after_holds_the_whole_endpoint(desk: Desk) -> None:
    """Its other deliveries wait as well; what was on its way neither ends nor shortens it."""
    await emit(desk, "7", count=3)
    rows = (await claim(desk, limit=3)).rows
    await settle(desk, settled(rows[0].id, "retry", status=429, hold_ms=50_000))
    await emit(desk, "7")
    await emit(desk, "8")
    held = await claim(desk)
    assert [row.endpoint_id for row in held.rows] == [8]
    await settle(desk, settled(held.rows[0].id, "success"))
    waits = await claim(desk)
    assert waits.rows == []
    assert waits.next_ms is not None
    await settle(desk, settled(rows[1].id, "success"))
    await settle(desk, settled(rows[2].id, "retry", status=503, hold_ms=1_000))
    still = await claim(desk)
    assert still.rows == []
    assert still.next_ms is not None
    assert 40_000 < still.next_ms <= 50_000


async def test_a_hold_does_not_look_due(desk: Desk) -> None:
    """Else the relay would claim in a tight loop."""
    await emit(desk, "7", count=2)
    rows = (await claim(desk, limit=1)).rows
    await settle(desk, settled(rows[0].id, "retry", delay_ms=60_000, hold_ms=50_000))
    first = await claim(desk)
    assert first.rows == []
    assert first.next_ms is not None
    assert 40_000 < first.next_ms <= 50_000


async def test_failing_since_counts_from_the_first_failure_and_a_success_clears_it(
    desk: Desk,
) -> None:
    """The relay disables an endpoint by it; what was cancelled says nothing."""
    await emit(desk, "7", count=4)
    rows = (await claim(desk)).rows
    (since,) = (await settle(desk, settled(rows[0].id, "retry"))).values()
    assert since == 0
    await desk.store.connection.call("HINCRBY", f"{SHARD}epf:7", "since", -5000)
    (since,) = (await settle(desk, settled(rows[1].id, "failed"))).values()
    assert since is not None
    assert 5000 <= since < 10_000
    assert await settle(desk, settled(rows[2].id, "cancelled")) == {rows[2].id: None}
    assert (await get(desk, rows[2].id)).state == "cancelled"
    assert await settle(desk, settled(rows[3].id, "success")) == {rows[3].id: None}
    assert not await desk.store.connection.call("EXISTS", f"{SHARD}epf:7")


async def announced(desk: Desk, *endpoints: str) -> tuple[RunRecord, str]:
    run = await desk.parked(*endpoints)
    return run, (await desk.gates(run.id))["a"].id


async def test_a_pause_is_announced_once_to_each_endpoint(desk: Desk) -> None:
    """One event, the same bytes, a delivery each."""
    await announced(desk, "7", "8")
    rows = (await claim(desk)).rows
    assert sorted(row.endpoint_id for row in rows) == [7, 8]
    assert len({row.event_id for row in rows}) == 1
    assert len({row.body for row in rows}) == 1


async def test_the_first_attempt_is_made_also_for_a_pause_that_is_over(desk: Desk) -> None:
    """Settled before the first attempt: one attempt, no retry."""
    run, gate = await announced(desk, "7")
    await desk.decide(run, verdict(gate, "deny"))
    (row,) = (await claim(desk)).rows
    assert row.type == "run.awaiting_input"
    await settle(desk, settled(row.id, "retry"))
    found = await get(desk, row.id)
    assert (found.state, found.next_ms) == ("superseded", None)
    assert row.id not in [item.id for item in (await claim(desk)).rows]


async def test_a_pause_that_is_over_is_not_retried(desk: Desk) -> None:
    """Settled after the first attempt failed: the retry that waits is taken back."""
    run, gate = await announced(desk, "7", "8")
    rows = {row.endpoint_id: row for row in (await claim(desk)).rows}
    await settle(desk, settled(rows[7].id, "retry"), settled(rows[8].id, "success"))
    await desk.decide(run, verdict(gate, "deny"))
    assert (await get(desk, rows[7].id)).state == "superseded"
    assert (await get(desk, rows[8].id)).state == "success"
    assert await desk.store.connection.call("ZCARD", f"{SHARD}due:7") == 0


async def test_settled_while_the_first_attempt_runs(desk: Desk) -> None:
    """It may still succeed; when it fails it is not tried again."""
    run, gate = await announced(desk, "7", "8")
    rows = {row.endpoint_id: row for row in (await claim(desk)).rows}
    await desk.decide(run, verdict(gate, "deny"))
    assert (await get(desk, rows[7].id)).state == "leased"
    await settle(desk, settled(rows[7].id, "retry"), settled(rows[8].id, "success"))
    assert (await get(desk, rows[7].id)).state == "superseded"
    assert (await get(desk, rows[8].id)).state == "success"


async def test_a_first_attempt_that_was_lost_is_made_again(desk: Desk) -> None:
    """Nobody knows whether it went out, so it does, also when the pause is over by then."""
    await emit(desk, "7")
    run, gate = await announced(desk, "7")
    other, row = (await claim(desk)).rows
    await end_lease(desk, row.id)
    assert (await claim(desk, cap=1)).rows == []
    assert (await get(desk, row.id)).state == "pending"
    await desk.decide(run, verdict(gate, "deny"))
    assert (await get(desk, row.id)).state == "pending"
    await settle(desk, settled(other.id, "success"))
    (again,) = (await claim(desk)).rows
    assert again.id == row.id
    await settle(desk, settled(row.id, "retry", 2))
    assert (await get(desk, row.id)).state == "superseded"


async def test_a_pause_settled_during_a_first_attempt_that_is_lost_is_announced(
    desk: Desk,
) -> None:
    """The relay died with it; the next one makes it, and only once."""
    run, gate = await announced(desk, "7")
    (row,) = (await claim(desk)).rows
    await desk.decide(run, verdict(gate, "deny"))
    await end_lease(desk, row.id)
    (again,) = (await claim(desk)).rows
    assert (again.id, again.attempt) == (row.id, 2)
    await settle(desk, settled(row.id, "retry", 2))
    assert (await get(desk, row.id)).state == "superseded"


async def test_a_lost_retry_of_a_pause_that_is_over_ends(desk: Desk) -> None:
    """Its first attempt is known to have been made."""
    run, gate = await announced(desk, "7")
    (row,) = (await claim(desk)).rows
    await settle(desk, settled(row.id, "retry"))
    await make_due(desk, row.id, "7")
    await claim(desk)
    await desk.decide(run, verdict(gate, "deny"))
    await end_lease(desk, row.id)
    assert row.id not in [item.id for item in (await claim(desk)).rows]
    assert (await get(desk, row.id)).state == "superseded"


async def test_superseding_is_by_pause(desk: Desk) -> None:
    """Partial decisions supersede nothing; the last of the pause does."""
    run = await desk.parked("7", calls=("a", "b"))
    gates = {name: gate.id for name, gate in (await desk.gates(run.id)).items()}
    (row,) = (await claim(desk)).rows
    await settle(desk, settled(row.id, "retry"))
    await desk.decide(run, verdict(gates["a"], "deny"))
    assert (await get(desk, row.id)).state == "pending"
    await desk.decide(await desk.load(run.id), verdict(gates["b"], "deny"))
    assert (await get(desk, row.id)).state == "superseded"


async def test_other_events_are_retried_to_the_end(desk: Desk) -> None:
    """Only the announcement of a pause loses its point."""
    run = await desk.held()
    await desk.store.steps.commit(run, await desk.step(run, [], ending=await desk.ending("7")))
    (row,) = (await claim(desk)).rows
    assert (row.type, row.run_id) == ("run.completed", run.id)
    await settle(desk, settled(row.id, "retry"))
    assert (await get(desk, row.id)).state == "pending"


async def test_deliveries_are_listed_newest_first(desk: Desk) -> None:
    """By endpoint; ``more`` is exact at the edge; an unknown one is missing."""
    await emit(desk, "7", count=5)
    await emit(desk, "8")
    page, more = await desk.store.outbox.page(7, limit=5, before=None)
    ids = [item.id for item in page]
    assert (ids, more) == (sorted(ids, reverse=True), False)
    page, more = await desk.store.outbox.page(7, limit=2, before=ids[1])
    assert ([item.id for item in page], more) == (ids[2:4], True)
    with pytest.raises(MissingError):
        await get(desk, 999)


async def test_no_account_takes_the_last_slots(desk: Desk) -> None:
    """What one account has in flight never exceeds what is left free for the others."""
    for endpoint in range(20, 60):
        await emit(desk, str(endpoint))
    claimed = await desk.store.outbox.claim(
        0, token="t", limit=16, cap=10, lease_ms=30_000, busy={}
    )
    assert {row.account for row in claimed.rows} == {ACCOUNT}
    assert len(claimed.rows) == 8
    more = await desk.store.outbox.claim(
        0, token="t", limit=8, cap=10, lease_ms=30_000, busy={ACCOUNT: 8}
    )
    assert more.rows == []
    assert more.next_ms is not None
    event = desk.event("webhook.test")
    await desk.store.outbox.emit(0, "other", event, await desk.fanout("70"))
    others = await desk.store.outbox.claim(
        0, token="t", limit=8, cap=10, lease_ms=30_000, busy={ACCOUNT: 8}
    )
    assert [row.endpoint_id for row in others.rows] == [70]


async def test_an_endpoint_that_only_fails_is_probed(desk: Desk) -> None:
    """After a few failures in a row two at a time are tried; a success ends that."""
    await emit(desk, "7", count=30)
    first = (await claim(desk, limit=5)).rows
    await settle(desk, *(settled(row.id, "retry") for row in first))
    probes = (await claim(desk)).rows
    assert len(probes) == 2
    assert (await claim(desk)).rows == []
    await settle(desk, settled(probes[0].id, "success"))
    assert len((await claim(desk)).rows) == 9


async def test_a_forgiven_endpoint_starts_a_new_streak(desk: Desk) -> None:
    """Failures from before somebody switched it on again do not count any more."""
    await emit(desk, "7", count=2)
    first, second = (await claim(desk)).rows
    await desk.store.connection.call("HSET", f"{SHARD}epf:7", "since", 1)
    before = (await settle(desk, settled(first.id, "retry")))[first.id]
    await desk.store.outbox.forgive(7)
    after = (await settle(desk, settled(second.id, "retry")))[second.id]
    assert before is not None
    assert after is not None
    assert before > 10**11
    assert after < 10_000


async def _forget_the_oldest(desk: Desk, gone: str) -> None:
    """Fills the account's event log above what it keeps, and emits until that was noticed."""
    fill = "for n = 1, 100001 do redis.call('ZADD', KEYS[1], 10 + n, 'evt_fill_' .. n) end return 1"
    await desk.store.connection.call("EVAL", fill, 1, f"{SHARD}evs:{ACCOUNT}")
    for _ in range(5000):
        if not await desk.store.connection.call("EXISTS", f"{SHARD}ev:{gone}"):
            return
        await emit(desk)
    raise AssertionError("nothing is forgotten")


async def test_an_event_is_kept_while_it_has_to_be_delivered(desk: Desk) -> None:
    """A log that is full forgets what everybody got; what is due keeps its bytes."""
    due, sent = (desk.event("webhook.test", text=text) for text in ("due", "sent"))
    for event, endpoints in ((due, ("7", "8")), (sent, ("7",))):
        await desk.store.outbox.emit(0, ACCOUNT, event, await desk.fanout(*endpoints))
    first = {(row.event_id, row.endpoint_id): row for row in (await claim(desk)).rows}
    await settle(
        desk,
        settled(first[due.id, 8].id, "success"),
        settled(first[due.id, 7].id, "retry"),
        settled(first[sent.id, 7].id, "success"),
    )
    for place, event in enumerate((due, sent)):
        await desk.store.connection.call("ZADD", f"{SHARD}evs:{ACCOUNT}", place, event.id)
    await _forget_the_oldest(desk, sent.id)
    listed = await desk.store.connection.call("ZSCORE", f"{SHARD}evs:{ACCOUNT}", due.id)
    assert listed is None
    # What everybody got is forgotten with its deliveries; of what is due all is kept.
    gone = first[sent.id, 7].id
    for key in (f"dlv:{gone}", f"att:{gone}"):
        assert not await desk.store.connection.call("EXISTS", SHARD + key)
    kept, _ = await desk.store.outbox.page(7, limit=100, before=None)
    assert gone not in [row.id for row in kept]
    assert first[due.id, 7].id in [row.id for row in kept]
    await make_due(desk, first[due.id, 7].id, "7")
    (row,) = (await claim(desk)).rows
    assert (row.event_id, row.attempt, row.body) == (due.id, 2, due.body)


async def test_a_pause_may_outlive_its_deliveries(desk: Desk) -> None:
    """Settling a pause whose deliveries are forgotten leaves nothing half of them behind."""
    run, gate = await announced(desk, "7")
    (row,) = [row for row in (await claim(desk)).rows if row.type == "run.awaiting_input"]
    await settle(desk, settled(row.id, "success"))
    await desk.store.connection.call("DEL", f"{SHARD}dlv:{row.id}", f"{SHARD}att:{row.id}")
    await desk.decide(run, verdict(gate, "deny"))
    assert not await desk.store.connection.call("EXISTS", f"{SHARD}dlv:{row.id}")


async def test_nothing_is_sent_without_its_bytes(desk: Desk) -> None:
    """A delivery whose event is gone ends as failed, and those behind it are made."""
    lost, next_one = (desk.event("webhook.test", text=text) for text in ("lost", "next"))
    for event in (lost, next_one):
        await desk.store.outbox.emit(0, ACCOUNT, event, await desk.fanout("7"))
    await desk.store.connection.call("DEL", f"{SHARD}ev:{lost.id}")
    (row,) = (await claim(desk)).rows
    assert row.event_id == next_one.id
    ended = await get(desk, row.id - 1)
    assert (ended.state, ended.next_ms) == ("failed", None)
    await settle(desk, settled(row.id, "success"))
    assert await desk.store.connection.call("HGETALL", f"{SHARD}epin") == []
