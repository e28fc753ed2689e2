"""One idempotency key, one body, one answer."""

from __future__ import annotations

import asyncio

import pytest

from signoff.store import keys
from signoff.store.facade import Store
from signoff.store.reservations import KEEP_MS, Reservation

pytestmark = pytest.mark.anyio
KEY = keys.idempotency("1", "POST /runs", "k")


async def test_the_first_claim_is_new_and_repeats_find_it(store: Store) -> None:
    """With what it noted, and its answer once there is one."""
    reserve = store.reservations.reserve
    assert await reserve(KEY, digest="d", value="17") == Reservation(kind="new")
    assert await reserve(KEY, digest="d", value="18") == Reservation(kind="same", value="17")
    await store.reservations.answer(KEY, "answer ü")
    assert await reserve(KEY, digest="d") == Reservation(kind="same", value="17", answer="answer ü")


async def test_the_first_answer_is_the_one_kept(store: Store) -> None:
    """Two that answer at once both learn it."""
    await store.reservations.reserve(KEY, digest="d")
    assert await store.reservations.answer(KEY, "first") == "first"
    assert await store.reservations.answer(KEY, "second") == "first"
    assert (await store.reservations.reserve(KEY, digest="d")).answer == "first"


async def test_another_body_under_the_same_key_is_told_apart(store: Store) -> None:
    """Whether or not the first has its answer."""
    await store.reservations.reserve(KEY, digest="d")
    for _ in range(2):
        assert (await store.reservations.reserve(KEY, digest="e")).kind == "other"
        await store.reservations.answer(KEY, "answer")


async def test_a_hundred_claims_at_once_are_one_new(store: Store) -> None:
    """All others find its note."""
    found = await asyncio.gather(
        *(store.reservations.reserve(KEY, digest="d", value=str(n)) for n in range(100))
    )
    assert [item.kind for item in found].count("new") == 1
    assert len({item.value for item in found if item.kind == "same"}) == 1


async def test_a_claim_is_kept_for_a_day_and_can_be_taken_back(store: Store) -> None:
    """With and without an answer; also an answer that comes after the claim ran out."""
    await store.reservations.reserve(KEY, digest="d")
    assert KEEP_MS - 60_000 < await store.connection.call("PTTL", KEY) <= KEEP_MS
    for _ in range(2):
        await store.reservations.answer(KEY, "answer")
        assert KEEP_MS - 60_000 < await store.connection.call("PTTL", KEY) <= KEEP_MS
        await store.connection.call("DEL", KEY)
    await store.reservations.release(KEY)
    assert (await store.reservations.reserve(KEY, digest="e")).kind == "new"


async def test_a_guarded_claim_needs_the_endpoint_as_it_was_read(store: Store) -> None:
    """Rotated, changed or deleted meanwhile: nothing is claimed."""
    made = await store.endpoints.create(
        account="1",
        user_id=None,
        url="https://a.example",
        events=[],
        signature="standard",
        secret="s",
        now_ms=0,
    )
    guard = (keys.endpoint(made.id), made.rev)
    key = keys.callback(made.id, "msg_1")
    assert (await store.reservations.reserve(key, digest="d", guard=guard)).kind == "new"
    assert (await store.reservations.reserve(key, digest="d", guard=guard)).kind == "same"
    await store.connection.call("HINCRBY", guard[0], "rev", 1)
    second = keys.callback(made.id, "msg_2")
    assert (await store.reservations.reserve(second, digest="d", guard=guard)).kind == "stale"
    await store.endpoints.delete(made)
    assert (await store.reservations.reserve(second, digest="d", guard=guard)).kind == "stale"
    assert await store.connection.call("EXISTS", second) == 0


def test_keys_of_different_routes_accounts_and_texts_never_meet() -> None:
    """Also when parts are moved from one to the next."""
    made = {
        keys.idempotency(account, route, key)
        for account, route, key in [
            ("1", "a", "bc"),
            ("1", "ab", "c"),
            ("1", "abc", ""),
            ("1", "", "abc"),
            ("2", "a", "bc"),
            ("1", "a", "b:c"),
            ("1", "a:b", "c"),
        ]
    }
    assert len(made) == 7
