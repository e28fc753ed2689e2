"""Who holds a run, who is next, and what a holder that lost its run can still do."""

from __future__ import annotations

import pytest

from signoff.domain.error import LeaseLostError, StaleError, UnavailableError
from signoff.domain.gate import GateKind
from signoff.store.steps import SUSPECT, NewGate
from tests.integration.store.conftest import ACCOUNT, SHARD, Desk, new_call, verdict

pytestmark = pytest.mark.anyio
RESULT = {"state": "success", "content": "done"}


async def test_a_run_has_one_holder(desk: Desk) -> None:
    """Taking twice gives it once; each holder has a fence of its own."""
    await desk.create()
    (first,) = await desk.take()
    assert await desk.take() == []
    await desk.expire(first.run.id)
    (second,) = await desk.take()
    assert int(second.run.fence) == int(first.run.fence) + 1


async def test_a_held_or_finished_run_in_the_queue_is_dropped(desk: Desk) -> None:
    """Queued once too often, it is neither taken twice nor woken from the dead."""
    held, parked = await desk.held(), await desk.parked()
    for run_id in (held.id, parked.id, 999):
        await desk.store.connection.call("ZADD", f"{SHARD}ready", 0, str(run_id))
    assert await desk.take() == []
    assert await desk.store.connection.call("ZCARD", f"{SHARD}ready") == 0
    assert (await desk.load(held.id)).fence == held.fence


async def test_take_takes_no_more_than_there_is_room_for(desk: Desk) -> None:
    """The rest stays ready; nothing is taken with no room."""
    for _ in range(5):
        await desk.create()
    assert await desk.take(room=0) == []
    assert len(await desk.take(room=2)) == 2
    assert len(await desk.take(room=9)) == 3


async def test_starts_are_fair_between_accounts(desk: Desk) -> None:
    """A has 200 ready, then B comes with one: B is among the next few."""
    for _ in range(200):
        await desk.create(account="A")
    for _ in range(50):
        await desk.take(room=1)
    await desk.create(account="B")
    assert "B" in [item.run.account for item in await desk.take(room=3)]


async def test_two_busy_accounts_take_turns(desk: Desk) -> None:
    """Who queued more does not get more."""
    for _ in range(20):
        await desk.create(account="A")
    for _ in range(10):
        await desk.create(account="B")
    first = [item.run.account for item in await desk.take(room=10)]
    assert abs(first.count("A") - first.count("B")) <= 1


async def test_an_account_that_was_idle_saves_nothing_up(desk: Desk) -> None:
    """A was served fifty times while B slept; from now on they take turns."""
    for _ in range(70):
        await desk.create(account="A")
    await desk.take(room=50)
    for _ in range(20):
        await desk.create(account="B")
    first = [item.run.account for item in await desk.take(room=10)]
    assert abs(first.count("A") - first.count("B")) <= 1


async def test_resumes_stand_before_starts(desk: Desk) -> None:
    """A decided run does not queue behind new ones, also not behind those of other accounts."""
    early = [await desk.store.runs.next_id() for _ in range(3)]
    parked = await desk.parked()
    for run_id, account in zip(early, ("A", "B", ACCOUNT), strict=True):
        await desk.create(id=run_id, account=account)
    gate = (await desk.gates(parked.id))["a"]
    await desk.decide(parked, verdict(gate.id))
    (first, *_) = await desk.take()
    assert first.run.id == parked.id


async def test_a_parked_run_is_not_taken(desk: Desk) -> None:
    """The lease went back with the commit, and nothing is due."""
    parked = await desk.parked()
    raw = await desk.raw(parked.id)
    assert (raw["lease_until"], raw["open"], raw["status"]) == ("0", "1", "awaiting_approval")
    assert await desk.take() == []


async def test_a_hint_is_needed_only_when_no_awake_drainer_has_room(desk: Desk) -> None:
    """None awake, awake without room, awake with room, asleep again."""
    create = desk.store.runs.create
    assert (await create(await desk.new_run())).hint
    await desk.take(room=1, awake_ms=60_000)
    assert (await create(await desk.new_run())).hint
    await desk.take(room=2, awake_ms=60_000)
    assert not (await create(await desk.new_run())).hint
    assert not await desk.store.steps.sleep(0, drainer="d")
    await desk.take(room=2, awake_ms=60_000)
    assert await desk.store.steps.sleep(0, drainer="d")
    assert (await create(await desk.new_run())).hint
    assert await desk.store.steps.sleep(0, drainer="d", force=True)


async def test_an_awake_mark_ends_by_itself(desk: Desk) -> None:
    """A drainer that died counts no longer than its mark."""
    await desk.store.steps.take(0, drainer="d", room=5, awake_ms=0)
    assert (await desk.store.runs.create(await desk.new_run())).hint


async def test_a_dead_lease_is_swept_and_counted(desk: Desk) -> None:
    """Lease over, sweep, taken again: one takeover; a commit sets the count back."""
    run_id = (await desk.held()).id
    assert await desk.store.steps.sweep(0) == (0, 0)
    assert await desk.expire(run_id) == (1, 1)
    assert (await desk.raw(run_id))["crashed"] == "1"
    assert await desk.store.steps.sweep(0) == (0, 1)
    (held,) = await desk.take()
    assert held.run.takeovers == 1
    assert (await desk.raw(run_id))["crashed"] == "0"
    commit = await desk.step(held.run, [new_call("a", "allowed")])
    await desk.store.steps.commit(held.run, commit)
    assert (await desk.load(run_id)).takeovers == 0


async def cut_off(desk: Desk, times: int) -> int:
    """A run whose step was cut off so often; it waits to be taken over."""
    run_id = await desk.create()
    count = ("takeovers", times - 1, "crashed", "1")  # the sweeper has just found it
    await desk.store.connection.call("HSET", f"{SHARD}run:{run_id}", *count)
    return run_id


async def test_runs_that_were_cut_off_often_are_kept_apart(desk: Desk) -> None:
    """One that kills its process takes no neighbour along more than a few times."""
    suspects = [await cut_off(desk, SUSPECT) for _ in range(3)]
    fresh = [await cut_off(desk, SUSPECT - 1), await desk.create()]
    take = desk.store.steps.take
    held = [h.run.id for h in await take(0, drainer="d", room=10, awake_ms=0, alone=False)]
    assert held == fresh
    for _ in suspects:
        (only,) = await desk.take()
        assert (only.run.id in suspects, only.run.takeovers) == (True, SUSPECT)
    assert await desk.take() == []


async def test_a_full_server_hands_no_run_out_and_counts_no_crash(desk: Desk) -> None:
    """Nothing could be committed for it, and five such takeovers would fail it."""
    ready, held = await desk.create(), await desk.store.runs.next_id()
    call, key = desk.store.connection.call, f"{SHARD}run:{ready}"
    (run,) = await desk.take()
    await call("HSET", key, "lease_until", "1")
    await call("ZADD", f"{SHARD}leases", 1, str(ready))
    await call("ZADD", f"{SHARD}ready", 0, str(held))
    await call("CONFIG", "SET", "maxmemory", "1mb")
    try:
        with pytest.raises(UnavailableError):
            await desk.store.steps.sweep(0)
        with pytest.raises(UnavailableError):
            await desk.take()
    finally:
        await call("CONFIG", "SET", "maxmemory", "0")
    assert await call("ZRANGE", f"{SHARD}ready", 0, -1) == [str(held).encode()]
    assert "crashed" not in await desk.raw(ready)
    # Its holder is there again before the next sweep: nothing has happened.
    (row,) = await desk.store.steps.renew(
        0, [(ready, run.run.fence)], drainer=None, room=0, awake_ms=0
    )
    assert row.held


async def test_the_sweeper_leaves_live_and_parked_runs_alone(desk: Desk) -> None:
    """Only a dead lease with work left makes a run ready."""
    live = await desk.held()
    parked = await desk.parked()
    assert await desk.expire(parked.id) == (1, 0)
    assert await desk.take() == []
    assert "crashed" not in await desk.raw(parked.id)
    assert int((await desk.raw(live.id))["lease_until"]) > 1


async def test_renewal_keeps_a_lease_and_says_when_it_is_lost(desk: Desk) -> None:
    """The fence decides; the wake counter travels with the answer."""
    run = await desk.held()
    lost = await desk.held()
    await desk.expire(lost.id)
    await desk.take()
    key = f"{SHARD}run:{run.id}"
    await desk.store.connection.call("HSET", key, "lease_until", "5")
    rows = await desk.store.steps.renew(
        0, [(run.id, run.fence), (lost.id, lost.fence)], drainer="d", room=1, awake_ms=1000
    )
    assert [(row.run_id, row.held) for row in rows] == [(run.id, True), (lost.id, False)]
    assert rows[0].wake == run.wake
    assert int((await desk.raw(run.id))["lease_until"]) > 5


async def test_a_late_heartbeat_does_not_hold_a_run_that_was_given_back(desk: Desk) -> None:
    """Otherwise a decision would wait for a holder that is not there until the lease ends."""
    parked = await desk.parked()
    (row,) = await desk.store.steps.renew(
        0, [(parked.id, parked.fence)], drainer=None, room=0, awake_ms=0
    )
    assert not row.held
    gate = (await desk.gates(parked.id))["a"]
    await desk.decide(parked, verdict(gate.id))
    assert [item.run.id for item in await desk.take()] == [parked.id]


async def test_release_is_refused_while_work_is_due_or_a_wake_was_missed(desk: Desk) -> None:
    """The holder gets the run as it is now and looks again."""
    run = await desk.held()
    held, _ = await desk.store.steps.release(run)
    assert held is not None
    calls = [new_call("a", "asked"), new_call("f", "allowed", "read"), new_call("b", "asked")]
    commit = await desk.step(run, calls)
    assert await desk.store.steps.commit(run, commit) == (False, "0")
    call = await desk.call(run.id, 1)
    await desk.store.steps.start_call(run, call, rules_v="0", attempt=1)
    await desk.store.steps.finish_call(run, call, attempt=1, result=RESULT)
    gate = (await desk.gates(run.id))["b"]
    await desk.decide(await desk.load(run.id), verdict(gate.id, "deny"))
    held, _ = await desk.store.steps.release(run)
    assert held is not None
    assert held.run.wake == "1"
    assert [c.state for c in held.calls] == ["asked", "done", "done"]
    assert await desk.store.steps.release(held.run) == (None, False)


async def test_a_forced_release_queues_what_is_due(desk: Desk) -> None:
    """A deploy hands the run over and asks for a hint, as nobody is awake."""
    run = await desk.held()
    assert await desk.store.steps.release(run, force=True) == (None, True)
    assert [item.run.id for item in await desk.take()] == [run.id]


async def test_a_holder_after_a_takeover_can_commit_nothing(desk: Desk) -> None:
    """Every move of a stale holder is refused and leaves the run byte for byte as it is."""
    run = await desk.held()
    calls = [new_call("a", "allowed"), new_call("b", "allowed")]
    await desk.store.steps.commit(run, await desk.step(run, calls))
    first, second = await desk.store.runs.calls(run.id)
    await desk.store.steps.start_call(run, first, rules_v="0", attempt=1)
    await desk.expire(run.id)
    (held,) = await desk.take()
    before = await desk.raw(run.id), await desk.store.runs.calls(run.id)
    steps, gate = desk.store.steps, NewGate(id="req_x", kind=GateKind.OUTCOME_UNKNOWN, n=0)
    fanout, ending = await desk.fanout("7"), await desk.ending("7", status="failed")
    commit = await desk.step(run, [new_call("z", "allowed")])
    for stale_move in (
        lambda: steps.commit(run, commit),
        lambda: steps.ask_again(run, [gate], pause=desk.event("e"), fanout=fanout, rules_v="0"),
        lambda: steps.start_call(run, second, rules_v="0", attempt=1),
        lambda: steps.finish_call(run, first, attempt=1, result=RESULT),
        lambda: steps.fail(run, ending),
        lambda: steps.release(run),
        lambda: steps.release(run, force=True),
    ):
        with pytest.raises(LeaseLostError):
            await stale_move()
    assert (await desk.raw(run.id), await desk.store.runs.calls(run.id)) == before
    assert await desk.store.runs.gates(run.id) == []
    late = [row for row in await desk.audit() if row["what"] == "late_result"]
    assert [(row["call"], row["run"]) for row in late] == [("a", str(run.id))]
    assert '"content":"done"' in late[0]["result"]
    await desk.store.steps.start_call(held.run, second, rules_v="0", attempt=1)


async def test_a_cancelled_run_moves_the_fence(desk: Desk) -> None:
    """The result of what was in flight is kept in the audit and used nowhere."""
    run = await desk.held()
    await desk.store.steps.commit(run, await desk.step(run, [new_call("a", "allowed")]))
    call = await desk.call(run.id)
    await desk.store.steps.start_call(run, call, rules_v="0", attempt=1)
    await desk.store.decisions.cancel(
        await desk.load(run.id),
        by="tester",
        results={0: {"state": "interrupted", "content": "cancelled"}},
        message=None,
        cancelled=desk.event("run.cancelled"),
        fanout=await desk.fanout(),
    )
    with pytest.raises(LeaseLostError):
        await desk.store.steps.finish_call(run, call, attempt=1, result=RESULT)
    assert (await desk.call(run.id)).result == {"state": "interrupted", "content": "cancelled"}
    assert [row["what"] for row in await desk.audit()] == ["tool_start", "cancel", "late_result"]
    assert await desk.take() == []
    with pytest.raises(StaleError) as caught:
        await desk.store.decisions.cancel(
            await desk.load(run.id),
            by="tester",
            results={},
            message=None,
            cancelled=desk.event("run.cancelled"),
            fanout=await desk.fanout(),
        )
    assert caught.value.details == {"what": "terminal", "status": "cancelled"}
