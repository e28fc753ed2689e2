"""End users in the store: profiles, caps, counters."""

import asyncio
import dataclasses

import pytest

from signoff.domain.allowance import Caps
from signoff.domain.error import ConflictError, LimitedError, MissingError, StaleError
from signoff.store import keys
from signoff.store.facade import Store, open_store
from signoff.store.runs import Allowance
from tests.conftest import SECRET_KEY
from tests.integration.store.conftest import ACCOUNT, Desk

pytestmark = pytest.mark.anyio
MONTH = "202601"


async def allowance(store: Store, user: str = "u", run_id: int = 1) -> Allowance:
    return await store.users.allowance(ACCOUNT, user, run_id, period=MONTH)


async def start(desk: Desk, user: str = "u"):
    run = await desk.new_run(user_id=user)
    allowed = await allowance(desk.store, user, run.id)
    return await desk.store.runs.create(dataclasses.replace(run, allowance=allowed))


async def left(store: Store) -> int:
    rate = await store.users.rate(ACCOUNT, "u", 1)
    assert rate is not None
    return rate.remaining


async def test_the_first_use_makes_a_profile(store: Store) -> None:
    """It says nothing but who; making it again is a conflict; deleted, the next use makes one."""
    await allowance(store)
    user = await store.users.get(ACCOUNT, "u")
    assert (user.user_id, user.name, user.caps) == ("u", None, Caps())
    with pytest.raises(ConflictError, match="already"):
        await store.users.create(ACCOUNT, "u", {"name": "U"})
    await store.users.delete(ACCOUNT, "u")
    with pytest.raises(MissingError):
        await store.users.get(ACCOUNT, "u")
    await allowance(store)
    assert (await store.users.get(ACCOUNT, "u")).id != user.id


async def test_known_caps_cost_no_round_trip(store: Store, monkeypatch) -> None:
    """The second run of a user without caps asks the store for nothing."""
    first = await allowance(store)

    async def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(store.connection, "call", refuse)
    monkeypatch.setattr(store.connection, "calls", refuse)
    assert await allowance(store) == first


async def test_a_run_with_old_caps_is_refused_as_stale(store: Store, redis_url, desk) -> None:
    """Whoever changes caps or settings elsewhere, no process creates by what it knew before."""
    other = open_store(redis_url, secret_keys=[SECRET_KEY])
    try:
        for change in (
            other.account_settings.change(ACCOUNT, {"per_end_user_run_limit": 0}),
            other.users.change(ACCOUNT, "u", {"run_limit": 0}),
            other.users.delete(ACCOUNT, "u"),
        ):
            known = await allowance(store)
            await change
            run = dataclasses.replace(await desk.new_run(user_id="u"), allowance=known)
            with pytest.raises(StaleError, match="limits"):
                await store.runs.create(run)
            store.users.forget(ACCOUNT)
    finally:
        await other.close()


async def test_a_run_limit_holds_exactly(store: Store, desk: Desk) -> None:
    """Of many at once as many start as may; what is refused counts nothing."""
    for _ in range(2):
        await start(desk)  # counted before there was a limit
    await store.users.change(ACCOUNT, "u", {"run_limit": 5})
    done = await asyncio.gather(*(start(desk) for _ in range(10)), return_exceptions=True)
    refused = [item for item in done if isinstance(item, LimitedError)]
    assert len(refused) == 7
    assert {error.code for error in refused} == {"END_USER_RUN_LIMIT_REACHED"}
    (use,) = await store.users.used(ACCOUNT, ["u"], MONTH)
    assert use.runs == 5
    await start(desk, "v")


async def test_a_cost_limit_holds_back_the_next_run(store: Store, desk: Desk) -> None:
    """By what the month's runs are known to have cost, to the millionth; 0 blocks."""
    await start(desk)
    key = keys.used("sg:{s0}:", ACCOUNT, keys.scope_key("u"), MONTH)
    await store.connection.call("HINCRBY", key, "cost_micros", 19_999)
    await store.users.change(ACCOUNT, "u", {"cost_limit_cents": 2})
    await start(desk)
    await store.connection.call("HINCRBY", key, "cost_micros", 1)
    with pytest.raises(LimitedError) as caught:
        await start(desk)
    assert caught.value.code == "END_USER_COST_LIMIT_REACHED"
    (use,) = await store.users.used(ACCOUNT, ["u"], MONTH)
    assert (use.runs, use.tokens["cost_micros"]) == (2, 20_000)
    await store.users.create(ACCOUNT, "v", {"cost_limit_cents": 0})
    with pytest.raises(LimitedError):
        await start(desk, "v")


async def test_a_rate_holds_and_says_when_it_is_free(store: Store, desk: Desk) -> None:
    """Starts within a minute are counted; the refusal says how long to wait."""
    await store.account_settings.change(ACCOUNT, {"per_end_user_rate_per_minute": 2})
    assert await left(store) == 2
    await start(desk)
    assert await left(store) == 1
    await start(desk)
    assert await left(store) == 0
    with pytest.raises(LimitedError) as caught:
        await start(desk)
    assert caught.value.code == "END_USER_RATE_LIMIT_REACHED"
    assert 1 <= caught.value.details["retry_after"] <= 60
    key = keys.starts("sg:{s0}:", ACCOUNT, keys.scope_key("u"))
    for member in await store.connection.call("ZRANGE", key, 0, -1):
        await store.connection.call("ZINCRBY", key, -61_000, member)
    await start(desk)
    assert await left(store) == 1


async def test_a_repeated_create_counts_once(store: Store, desk: Desk) -> None:
    """The same run id is the same start."""
    await store.users.touch(ACCOUNT, "u")
    await store.users.change(ACCOUNT, "u", {"run_limit": 1})
    run = await desk.new_run(user_id="u")
    run = dataclasses.replace(run, allowance=await allowance(store, "u", run.id))
    assert (await store.runs.create(run)).run is not None
    assert (await store.runs.create(run)).run is None
    (use,) = await store.users.used(ACCOUNT, ["u"], MONTH)
    assert use.runs == 1


async def test_tokens_count_for_the_user(store: Store, desk: Desk) -> None:
    """What a step used is counted with its run's user, and nobody else."""
    await start(desk)
    (held,) = await desk.take()
    commit = await desk.step(held.run, [], usage={"input_tokens": 3, "output_tokens": 4})
    await store.steps.commit(held.run, commit)
    mine, others = await store.users.used(ACCOUNT, ["u", "v"], MONTH)
    assert (mine.tokens["input_tokens"], mine.tokens["output_tokens"]) == (3, 4)
    assert mine.last_ms is not None
    assert (others.runs, others.last_ms) == (0, None)


async def test_limits_hold_over_shards(redis_url: str) -> None:
    """Runs of other shards count."""
    store = open_store(redis_url, secret_keys=[SECRET_KEY], shards=3)
    desk = Desk(store=store)
    try:
        await store.users.create(ACCOUNT, "u", {"run_limit": 4, "rate_per_minute": 3})
        for _ in range(3):
            await start(desk)
        with pytest.raises(LimitedError, match="minute"):
            await start(desk)
        await store.users.change(ACCOUNT, "u", {"rate_per_minute": None})
        await start(desk)
        with pytest.raises(LimitedError, match="month"):
            await start(desk)
    finally:
        await store.close()


async def test_profiles_come_in_pages(store: Store) -> None:
    """Newest first, with an exact end."""
    made = [await store.users.create(ACCOUNT, f"u{n}", {}) for n in range(3)]
    users, more = await store.users.page(ACCOUNT, limit=2, before=None)
    assert ([user.id for user in users], more) == ([made[2].id, made[1].id], True)
    users, more = await store.users.page(ACCOUNT, limit=2, before=made[1].id)
    assert ([user.id for user in users], more) == ([made[0].id], False)
