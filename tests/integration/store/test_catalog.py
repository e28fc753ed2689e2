"""Cached rule and endpoint sets are never believed longer than they stand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from signoff.domain.error import StaleError
from signoff.domain.rule import Verdict
from signoff.store import catalog
from signoff.store.facade import Store, open_store
from tests.conftest import SECRET_KEY
from tests.integration.store.conftest import ACCOUNT, Desk, new_call

pytestmark = pytest.mark.anyio


@pytest.fixture
async def other(redis_url: str) -> AsyncIterator[Store]:
    """The store as another process sees it: with caches of its own."""
    opened = open_store(redis_url, secret_keys=[SECRET_KEY])
    yield opened
    await opened.close()


async def put(store: Store, tool: str, effect: Verdict = Verdict.DENY) -> None:
    await store.policies.put(
        account=ACCOUNT, user_id=None, tool=tool, effect=effect, source="api", now_ms=0
    )


async def endpoint(store: Store, *events: str, user: str | None = None) -> int:
    made = await store.endpoints.create(
        account=ACCOUNT,
        user_id=user,
        url="https://a.example",
        events=events,
        signature="hex",
        secret="s",
        now_ms=0,
    )
    return made.id


async def test_an_account_without_rules_has_version_zero(store: Store) -> None:
    """And an empty set."""
    found = await store.catalog.rules(ACCOUNT, 1)
    assert (found.version, found.rules) == ("0", ())


async def test_rules_come_in_the_order_they_were_made(store: Store) -> None:
    """So that the first of several decides for every reader."""
    for tool in ("c", "a", "b"):
        await put(store, tool)
    found = await store.catalog.rules(ACCOUNT, 1)
    assert [rule.tool for rule in found.rules] == ["c", "a", "b"]
    assert await store.catalog.rules("2", 1) != found


async def test_a_change_by_another_process_is_seen_by_the_next_commit(
    desk: Desk, other: Store
) -> None:
    """The cache may be old; what was decided on it is refused, and a fresh read knows."""
    run = await desk.held()
    cached = await desk.store.catalog.rules(ACCOUNT, run.id)
    await put(other, "send")
    assert await desk.store.catalog.rules(ACCOUNT, run.id) is cached
    commit = await desk.step(run, [new_call("a", "allowed")], rules_v=cached.version)
    with pytest.raises(StaleError):
        await desk.store.steps.commit(run, commit)
    desk.store.catalog.forget(ACCOUNT)
    fresh = await desk.store.catalog.rules(ACCOUNT, run.id)
    assert [rule.tool for rule in fresh.rules] == ["send"]
    commit = await desk.step(run, [new_call("a", "allowed")], rules_v=fresh.version)
    await desk.store.steps.commit(run, commit)


async def test_a_set_is_never_older_than_its_version(store: Store, other: Store) -> None:
    """A writer dies between the set and the version: the old version with the new set is fine,
    and the writer's repeat moves it.
    """
    before = await store.catalog.rules(ACCOUNT, 1)
    bump = other.catalog.bump

    async def died(account: str, what: str) -> None:
        raise ConnectionError

    other.catalog.bump = died  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await put(other, "send")
    store.catalog.forget(ACCOUNT)
    between = await store.catalog.rules(ACCOUNT, 1)
    assert (between.version, len(between.rules)) == (before.version, 1)
    other.catalog.bump = bump  # type: ignore[method-assign]
    await put(other, "send")
    store.catalog.forget(ACCOUNT)
    assert (await store.catalog.rules(ACCOUNT, 1)).version != before.version


async def test_events_go_scope_for_scope(store: Store) -> None:
    """A user's runs to that user's endpoints, account runs to account endpoints."""
    account = await endpoint(store, "run.started", "run.failed")
    user = await endpoint(store, "run.started", user="u")
    await endpoint(store)
    found = await store.catalog.subscriptions(ACCOUNT, 1)
    assert found.fanout("run.started", None).endpoints == (str(account),)
    assert found.fanout("run.started", "u").endpoints == (str(user),)
    assert found.fanout("run.started", "v").endpoints == ()
    assert found.fanout("run.failed", "u").endpoints == ()
    assert found.fanout("run.failed", None).version == found.version


async def test_each_shard_has_the_version(redis_url: str) -> None:
    """A change reaches runs in every shard."""
    store = open_store(redis_url, secret_keys=[SECRET_KEY], shards=3)
    try:
        before = [(await store.catalog.rules(ACCOUNT, n)).version for n in (1, 2, 3)]
        await put(store, "t")
        after = [(await store.catalog.rules(ACCOUNT, n)).version for n in (1, 2, 3)]
        assert (before, after) == (["0"] * 3, ["1"] * 3)
    finally:
        await store.close()


async def test_the_cache_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account read first goes first, and is read anew when it is asked for again."""
    monkeypatch.setattr(catalog, "_LIMIT", 2)
    found = [await store.catalog.rules(account, 1) for account in ("A", "B", "C")]
    assert await store.catalog.rules("C", 1) is found[2]
    assert await store.catalog.rules("A", 1) is not found[0]
    assert len(store.catalog._rules) == 2
