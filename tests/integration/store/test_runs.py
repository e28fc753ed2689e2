"""Runs and their steps: each move once, whatever is sent again; old versions are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signoff.domain.error import LeaseLostError, MissingError, StaleError
from signoff.domain.gate import GateKind
from signoff.domain.message import Message, Text
from signoff.domain.mode import Mode
from signoff.domain.rule import Verdict as Effect
from signoff.store.listing import Filter
from signoff.store.records import RunRecord
from signoff.store.steps import NewGate
from tests.integration.store.conftest import ACCOUNT, SHARD, Desk, new_call, verdict

pytestmark = pytest.mark.anyio
RESULT = {"state": "success", "content": "done"}


async def snapshot(desk: Desk, run_id: int) -> Any:
    """All that a move may change of a run, beside times."""
    raw = await desk.raw(run_id)
    raw.pop("updated")
    connection = desk.store.connection
    return (
        raw,
        await desk.store.runs.calls(run_id),
        await desk.store.runs.gates(run_id),
        await desk.store.runs.history(run_id),
        await desk.audit(),
        await connection.call("ZRANGE", f"{SHARD}evs:{ACCOUNT}", 0, -1),
        await connection.call("GET", f"{SHARD}dseq"),
        await connection.call("LRANGE", f"{SHARD}gates:{run_id}", 0, -1),
        await connection.call("XLEN", f"{SHARD}st:{run_id}"),
        await connection.call("ZRANGE", f"{SHARD}ready", 0, -1),
    )


async def bump(desk: Desk, what: str, run: RunRecord) -> None:
    if what == "rules":
        await desk.store.policies.put(
            account=run.account,
            user_id=None,
            tool="send",
            effect=Effect.DENY,
            source="api",
            now_ms=0,
        )
    elif what == "subs":
        await desk.store.catalog.bump(run.account, "subs")
    else:
        await desk.store.decisions.switch_mode(
            await desk.load(run.id),
            Mode.PLAN,
            by="t",
            allow=[],
            rules_v=await desk.version("rules"),
            resumed=desk.event("run.resumed"),
            fanout=await desk.fanout(),
        )


async def test_a_run_is_created_once(desk: Desk) -> None:
    """The very same arguments again: one run, one event, one delivery, one message."""
    fanout = await desk.fanout("7")
    run = await desk.new_run(fanout=fanout, user_id="u", frames=(b"{}",))
    assert (await desk.store.runs.create(run)).hint
    before = await snapshot(desk, run.id)
    again = await desk.store.runs.create(run)
    assert (again.run, again.hint) == (None, False)
    assert await snapshot(desk, run.id) == before
    loaded = await desk.load(run.id)
    assert (loaded.status, loaded.user_id, loaded.turn, loaded.step) == ("running", "u", 1, 0)
    assert len(await desk.events("run.started")) == 1
    assert len(await desk.store.runs.history(run.id)) == 1


async def test_a_create_on_old_endpoints_is_refused_and_retried(desk: Desk) -> None:
    """Nothing of the refused create is left."""
    run = await desk.new_run()
    await desk.store.catalog.bump(ACCOUNT, "subs")
    with pytest.raises(StaleError) as caught:
        await desk.store.runs.create(run)
    assert caught.value.details == {"what": "subs"}
    with pytest.raises(MissingError):
        await desk.load(run.id)
    await desk.store.runs.create(replace(run, fanout=await desk.fanout()))
    assert (await desk.load(run.id)).id == run.id


async def test_strangers_text_is_kept_byte_for_byte(desk: Desk) -> None:
    """Users, configurations and messages of any characters."""
    text = "\x00\u2028 \U0001f600 \"'\\ \r\n%s {{x}}"
    run_id = await desk.create(
        user_id=text,
        config={"model": text, "metadata": {text: [text]}},
        message=Message(role="user", blocks=(Text(text),), turn=1, step=0),
    )
    run = await desk.load(run_id)
    assert run.user_id == text
    assert run.config == {"model": text, "metadata": {text: [text]}}
    assert (await desk.store.runs.history(run_id))[0].text == text


async def test_another_accounts_run_is_missing(desk: Desk) -> None:
    """Also for decisions, switches and cancels."""
    parked = await desk.parked()
    with pytest.raises(MissingError):
        await desk.load(parked.id, account="2")
    foreign = replace(parked, account="2")
    gate = (await desk.gates(parked.id))["a"]
    with pytest.raises(MissingError):
        await desk.decide(foreign, verdict(gate.id))
    with pytest.raises(MissingError):
        await desk.store.decisions.cancel(
            foreign,
            by="x",
            results={},
            message=None,
            cancelled=desk.event("e"),
            fanout=await desk.fanout(),
        )
    with pytest.raises(MissingError):
        await bump(desk, "mode", replace(parked, id=999))


async def test_a_step_is_committed_once(desk: Desk) -> None:
    """A lost reply: the same commit again says the same and changes nothing."""
    run = await desk.held()
    calls = [new_call("a", "asked"), new_call("b", "allowed"), new_call("c", "done")]
    commit = await desk.step(run, calls, "7", "8", frames=[b"{}"])
    first = await desk.store.steps.commit(run, commit)
    before = await snapshot(desk, run.id)
    assert await desk.store.steps.commit(run, commit) == first == (False, "0")
    assert await snapshot(desk, run.id) == before
    loaded = await desk.load(run.id)
    assert (loaded.step, loaded.open, loaded.pause_n, loaded.status) == (
        1,
        1,
        1,
        "awaiting_approval",
    )
    assert loaded.usage["input_tokens"] == 3
    raw = await desk.raw(run.id)
    assert (raw["left"], raw["todo"], raw["inflight"]) == ("2", "1", "0")


@pytest.mark.parametrize("kind", ["parked", "ended"])
async def test_a_commit_that_gave_the_lease_back_says_so_again(desk: Desk, kind: str) -> None:
    """Also when the run is over by then."""
    run = await desk.held()
    if kind == "parked":
        commit = await desk.step(run, [new_call("a", "asked")])
    else:
        commit = await desk.step(run, [], ending=await desk.ending("7"))
    assert await desk.store.steps.commit(run, commit) == (True, "0")
    before = await snapshot(desk, run.id)
    assert await desk.store.steps.commit(run, commit) == (True, "0")
    assert await snapshot(desk, run.id) == before
    other = await desk.step(run, [], ending=await desk.ending())
    with pytest.raises(LeaseLostError):
        await desk.store.steps.commit(replace(run, fence="99"), other)


@pytest.mark.parametrize("what", ["mode", "rules", "subs"])
async def test_a_commit_decided_on_old_versions_is_refused_and_retried(
    desk: Desk, what: str
) -> None:
    """Nothing of the refused commit is left; decided again, it goes through."""
    run = await desk.held()
    commit = await desk.step(run, [new_call("a", "asked")], "7")
    await bump(desk, what, run)
    before = await snapshot(desk, run.id)
    with pytest.raises(StaleError) as caught:
        await desk.store.steps.commit(run, commit)
    assert caught.value.details == {"what": what}
    assert await snapshot(desk, run.id) == before
    fresh = await desk.load(run.id)
    again = await desk.step(fresh, [new_call("a", "asked")], "7")
    await desk.store.steps.commit(fresh, again)
    assert (await desk.load(run.id)).open == 1


async def test_a_wake_that_the_holder_has_not_seen_keeps_the_lease(desk: Desk) -> None:
    """Then the commit does not give it back, and the holder looks again."""
    run = await desk.held()
    await bump(desk, "mode", run)
    stale_wake = replace(await desk.load(run.id), wake=run.wake)
    commit = await desk.step(stale_wake, [new_call("a", "asked")])
    assert await desk.store.steps.commit(stale_wake, commit) == (False, "1")


async def started(desk: Desk, effect: str = "once") -> RunRecord:
    run = await desk.held()
    calls = [new_call("a", "allowed", effect), new_call("b", "asked")]
    await desk.store.steps.commit(run, await desk.step(run, calls))
    call = await desk.call(run.id)
    await desk.store.steps.start_call(run, call, rules_v="0", attempt=1)
    return run


async def test_a_call_starts_once(desk: Desk) -> None:
    """The same start again is the same start; another attempt is refused while it runs."""
    run = await desk.held()
    await desk.store.steps.commit(run, await desk.step(run, [new_call("a", "allowed")]))
    call = await desk.call(run.id)
    await desk.store.steps.start_call(run, call, rules_v="0", attempt=1)
    before = await snapshot(desk, run.id)
    await desk.store.steps.start_call(run, call, rules_v="0", attempt=1)
    assert await snapshot(desk, run.id) == before
    with pytest.raises(StaleError):
        await desk.store.steps.start_call(run, call, rules_v="0", attempt=2)
    rows = [row for row in await desk.audit() if row["what"] == "tool_start"]
    assert [(row["call"], row["digest"]) for row in rows] == [("a", "digest-a")]
    raw = await desk.raw(run.id)
    assert (raw["todo"], raw["inflight"], raw["left"]) == ("0", "1", "1")


async def test_a_cut_off_call_is_started_again_under_a_new_number(desk: Desk) -> None:
    """Only when the holder says that it repeats it."""
    run = await started(desk, "idempotent")
    await desk.expire(run.id)
    (held,) = await desk.take()
    call = held.calls[0]
    assert (call.state, call.attempt) == ("started", 1)
    await desk.store.steps.start_call(held.run, call, rules_v="0", attempt=2)
    raw = await desk.raw(run.id)
    assert (raw["todo"], raw["inflight"]) == ("0", "1")
    await desk.store.steps.finish_call(held.run, call, attempt=2, result=RESULT)
    assert (await desk.call(run.id)).attempt == 2


@pytest.mark.parametrize("what", ["rules", "mode", "digest", "calls"])
async def test_a_start_on_old_ground_is_refused(desk: Desk, what: str) -> None:
    """Rules, the mode it rests on, the digest that was allowed, the call's state."""
    run = await desk.held()
    calls = [new_call("a", "allowed"), new_call("b", "asked")]
    await desk.store.steps.commit(run, await desk.step(run, calls))
    call = await desk.call(run.id, 1 if what == "calls" else 0)
    if what == "digest":
        call = replace(call, run_digest="other")
    elif what != "calls":
        await bump(desk, what, run)
    before = await snapshot(desk, run.id)
    with pytest.raises(StaleError) as caught:
        await desk.store.steps.start_call(run, call, rules_v="0", attempt=1)
    assert caught.value.details == {"what": what}
    assert await snapshot(desk, run.id) == before


@pytest.mark.parametrize(
    ("grant", "stale"), [("mode", True), ("rule:1", True), ("gate:req_1", False)]
)
async def test_a_mode_switch_counts_for_all_that_no_person_allowed(
    desk: Desk, grant: str, *, stale: bool
) -> None:
    """A switch to plan guards calls that a rule allows as well; approved calls stand."""
    run = await desk.held()
    calls = [new_call("a", "allowed", grant=grant)]
    await desk.store.steps.commit(run, await desk.step(run, calls))
    await bump(desk, "mode", run)
    start = desk.store.steps.start_call(run, await desk.call(run.id), rules_v="0", attempt=1)
    if stale:
        with pytest.raises(StaleError):
            await start
    else:
        await start


async def test_a_result_is_stored_once_and_is_final(desk: Desk) -> None:
    """The first one counts, also against another result."""
    run = await started(desk)
    call = await desk.call(run.id)
    wake = await desk.store.steps.finish_call(run, call, attempt=1, result=RESULT, frames=[b"{}"])
    before = await snapshot(desk, run.id)
    assert wake == "0"
    again = await desk.store.steps.finish_call(run, call, attempt=1, result=RESULT, frames=[b"{}"])
    other = {"state": "error", "content": "other"}
    await desk.store.steps.finish_call(run, call, attempt=1, result=other)
    assert again == wake
    assert await snapshot(desk, run.id) == before
    assert (await desk.call(run.id)).result == RESULT


async def test_only_the_attempt_that_runs_may_report(desk: Desk) -> None:
    """A number that is not the running one is refused; 0 refuses an allowed call unrun."""
    run = await started(desk)
    call = await desk.call(run.id)
    for attempt in (0, 2):
        with pytest.raises(LeaseLostError):
            await desk.store.steps.finish_call(run, call, attempt=attempt, result=RESULT)
    asked = await desk.call(run.id, 1)
    for attempt in (0, 1):
        with pytest.raises(LeaseLostError):
            await desk.store.steps.finish_call(run, asked, attempt=attempt, result=RESULT)
    fresh = await desk.held()
    await desk.store.steps.commit(fresh, await desk.step(fresh, [new_call("a", "allowed")]))
    refused = {"state": "denied", "content": "no"}
    call = await desk.call(fresh.id)
    await desk.store.steps.finish_call(fresh, call, attempt=0, result=refused)
    raw = await desk.raw(fresh.id)
    assert (raw["todo"], raw["inflight"], raw["left"]) == ("0", "0", "0")


async def ask(desk: Desk, run: RunRecord, *calls: int, name: str = "again") -> Any:
    gates = [NewGate(id=f"req_{name}{n}", kind=GateKind.OUTCOME_UNKNOWN, n=n) for n in calls]
    event, fanout = desk.event("run.awaiting_input"), await desk.fanout("7")
    return lambda: desk.store.steps.ask_again(run, gates, pause=event, fanout=fanout, rules_v="0")


async def test_gates_of_a_later_commit_form_one_new_pause(desk: Desk) -> None:
    """Sent again, nothing is opened twice."""
    run = await started(desk)
    again = await ask(desk, await desk.load(run.id), 0)
    await again()
    before = await snapshot(desk, run.id)
    await again()
    assert await snapshot(desk, run.id) == before
    loaded = await desk.load(run.id)
    assert (loaded.open, loaded.pause_n) == (2, 2)
    assert {g.pause: g.kind for g in (await desk.gates(run.id)).values()} == {
        1: "tool_approval",
        2: "outcome_unknown",
    }
    assert len(await desk.events("run.awaiting_input")) == 2
    assert (await desk.raw(run.id))["inflight"] == "0"


@pytest.mark.parametrize("what", ["mode", "subs", "pause", "calls"])
async def test_asking_again_on_old_ground_changes_nothing(desk: Desk, what: str) -> None:
    """Also when only one of several calls has moved on."""
    run = await started(desk)
    fresh = await desk.load(run.id)
    if what == "pause":
        fresh = replace(fresh, pause_n=0)
    again = await ask(desk, fresh, *((0, 1) if what == "calls" else (0,)))
    if what in ("mode", "subs"):
        await bump(desk, what, run)
    before = await snapshot(desk, run.id)
    with pytest.raises(StaleError) as caught:
        await again()
    assert caught.value.details == {"what": what}
    assert await snapshot(desk, run.id) == before


async def test_a_failed_run_is_final_and_keeps_its_history(desk: Desk) -> None:
    """One event; the lease is gone; nothing is due."""
    run = await desk.held()
    await desk.store.steps.fail(run, await desk.ending("7", status="failed"))
    loaded = await desk.load(run.id)
    assert (loaded.status, loaded.output) == ("failed", None)
    assert len(await desk.events("run.failed")) == 1
    assert await desk.expire(run.id) == (1, 0)
    assert await desk.take() == []


@pytest.mark.parametrize("what", ["mode", "subs"])
async def test_failing_on_old_versions_is_refused(desk: Desk, what: str) -> None:
    """The event would name an old mode or miss an endpoint."""
    run = await desk.held()
    ending = await desk.ending(status="failed")
    await bump(desk, what, run)
    with pytest.raises(StaleError):
        await desk.store.steps.fail(run, ending)
    assert (await desk.load(run.id)).status == "running"


async def test_pages_are_newest_first_and_exact(desk: Desk) -> None:
    """Filters by user, agent and status; ``more`` tells the truth at the edges."""
    ids = [await desk.create(user_id="u" if n % 2 else None, agent_id=n % 3) for n in range(7)]
    page = desk.store.listing.page
    everybody, nobody = Filter(every_user=True), Filter()
    every = await page(ACCOUNT, everybody, limit=7)
    assert ([run.id for run in every.runs], every.more) == (ids[::-1], False)
    first = await page(ACCOUNT, everybody, limit=3)
    assert ([run.id for run in first.runs], first.more) == (ids[:3:-1], True)
    rest = await page(ACCOUNT, everybody, limit=9, after=ids[4])
    assert [run.id for run in rest.runs] == ids[3::-1]
    mine = await page(ACCOUNT, Filter(user_id="u"), limit=9)
    assert [run.user_id for run in mine.runs] == ["u", "u", "u"]
    assert len((await page(ACCOUNT, nobody, limit=9)).runs) == 4
    assert (await page(ACCOUNT, Filter(every_user=True, status="completed"), limit=9)).runs == []
    agent = await page(ACCOUNT, Filter(every_user=True, agent_id=0), limit=2)
    assert ([run.id for run in agent.runs], agent.more) == ([ids[6], ids[3]], True)
    assert (await page("2", everybody, limit=9)).runs == []
