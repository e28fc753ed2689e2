"""Stored rules: one for each (user, tool, effect), seen by every reader at once when revoked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from signoff.domain.error import MissingError
from signoff.domain.rule import Verdict
from signoff.store.facade import Store
from signoff.store.policies import StoredRule
from tests.integration.store.conftest import ACCOUNT

pytestmark = pytest.mark.anyio


async def put(
    store: Store, tool: str = "t", effect: Verdict = Verdict.ALLOW, user: str | None = None
) -> StoredRule:
    return await store.policies.put(
        account=ACCOUNT, user_id=user, tool=tool, effect=effect, source="api", now_ms=5
    )


async def test_a_rule_is_stored_once(store: Store) -> None:
    """The same again is the same rule; user, tool and effect make it another."""
    first = await put(store)
    again = await put(store)
    assert (first.created, again.created) == (True, False)
    assert again.rule == first.rule
    others = [
        await put(store, "u"),
        await put(store, effect=Verdict.DENY),
        await put(store, user="x"),
        await put(store, user=""),
        await put(store, user="null"),
    ]
    assert all(item.created for item in others)
    assert len({item.rule.id for item in [first, *others]}) == 6


async def test_fifty_at_once_make_one(store: Store) -> None:
    """Exactly one of them created it."""
    found = await asyncio.gather(*(put(store) for _ in range(50)))
    assert sum(item.created for item in found) == 1
    assert len({item.rule.id for item in found}) == 1


async def test_a_list_is_of_exactly_one_scope(store: Store) -> None:
    """Newest first; accounts do not see each other's."""
    first, second = await put(store), await put(store, "u")
    await put(store, user="x")
    assert await store.policies.list(ACCOUNT, None) == [second.rule, first.rule]
    assert [rule.user_id for rule in await store.policies.list(ACCOUNT, "x")] == ["x"]
    assert await store.policies.list("2", None) == []


async def test_a_revoked_rule_is_gone_and_may_be_made_again(store: Store) -> None:
    """Under a new id; only within its own scope."""
    stored = (await put(store, user="x")).rule
    for account, user in (("2", "x"), (ACCOUNT, None), (ACCOUNT, "y")):
        with pytest.raises(MissingError):
            await store.policies.delete(account, user, stored.id)
    await store.policies.delete(ACCOUNT, "x", stored.id)
    assert await store.policies.list(ACCOUNT, "x") == []
    with pytest.raises(MissingError):
        await store.policies.delete(ACCOUNT, "x", stored.id)
    again = await put(store, user="x")
    assert again.created
    assert again.rule.id != stored.id


async def test_an_identity_without_its_rule_is_repaired(store: Store) -> None:
    """What a crash between two writes of an older release may have left."""
    stored = (await put(store)).rule
    await store.connection.call("HDEL", f"sg:{{g}}:pol:{ACCOUNT}", str(stored.id))
    again = await put(store)
    assert again.created
    assert await store.policies.list(ACCOUNT, None) == [again.rule]


async def test_every_change_moves_the_version(store: Store) -> None:
    """Also a repeat: the call before may have died ahead of the version."""
    seen = [(await store.catalog.rules(ACCOUNT, 1)).version]
    stored = (await put(store)).rule
    for change in (
        put(store),
        store.policies.delete(ACCOUNT, None, stored.id),
    ):
        seen.append((await store.catalog.rules(ACCOUNT, 1)).version)
        await change
    seen.append((await store.catalog.rules(ACCOUNT, 1)).version)
    with pytest.raises(MissingError):
        await store.policies.delete(ACCOUNT, None, stored.id)
    seen.append((await store.catalog.rules(ACCOUNT, 1)).version)
    assert len(set(seen)) == len(seen)


async def test_uses_are_bounded_exactly_and_counted_once_a_call(store: Store) -> None:
    """Fifty calls at once for three uses: three start; a repeat is no further use."""
    made = await store.policies.put(
        account=ACCOUNT,
        user_id=None,
        tool="t",
        effect=Verdict.ALLOW,
        source="api",
        now_ms=5,
        max_uses=3,
    )
    number = made.rule.id
    found = await asyncio.gather(
        *(store.policies.use(ACCOUNT, number, f"1:1:{n}") for n in range(50))
    )
    granted = [n for n, use in enumerate(found) if use.granted]
    assert len(granted) == 3
    assert sum(use.last for use in found) == 1
    assert (await store.policies.use(ACCOUNT, number, f"1:1:{granted[0]}")).granted
    (listed,) = await store.policies.list(ACCOUNT, None)
    assert listed.uses == 3
    assert listed.last_used_ms is not None
    await store.policies.unuse(ACCOUNT, number, f"1:1:{granted[0]}")
    await store.policies.unuse(ACCOUNT, number, f"1:1:{granted[0]}")
    assert (await store.policies.use(ACCOUNT, number, "2:1:0")).granted
    assert not (await store.policies.use(ACCOUNT, number, "2:1:1")).granted


async def test_a_rule_that_is_over_makes_room_for_another(store: Store) -> None:
    """Expired by the server's clock, or used up: the same identity is a new rule."""
    limits: list[dict[str, Any]] = [{"expires_ms": 6}, {"max_uses": 1}]
    for n, limit in enumerate(limits):
        first = await store.policies.put(
            account=ACCOUNT,
            user_id=f"u{n}",
            tool="t",
            effect=Verdict.ALLOW,
            source="api",
            now_ms=5,
            author="key:a",
            **limit,
        )
        assert (first.created, first.rule.author) == (True, "key:a")
        if "max_uses" in limit:
            await store.policies.use(ACCOUNT, first.rule.id, "1:1:0")
        again = await put(store, user=f"u{n}")
        assert again.created
        (listed,) = await store.policies.list(ACCOUNT, f"u{n}")
        assert (listed, listed.uses) == (again.rule, 0)
