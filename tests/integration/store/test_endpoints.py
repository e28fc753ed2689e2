"""Webhook endpoints: their secrets are sealed, rotated with an overlap, and gone when deleted."""

from __future__ import annotations

import asyncio

import pytest

from signoff.domain.error import MissingError
from signoff.store.endpoints import Endpoint, EndpointChange
from signoff.store.facade import Store
from tests.integration.store.conftest import ACCOUNT

pytestmark = pytest.mark.anyio
SECRET = "whsec_first"


async def create(store: Store, user: str | None = None) -> Endpoint:
    return await store.endpoints.create(
        account=ACCOUNT,
        user_id=user,
        url="https://a.example/hook",
        events=["run.failed", "run.started"],
        signature="standard",
        secret=SECRET,
        now_ms=5,
    )


async def test_an_endpoint_reads_back_as_it_was_made(store: Store) -> None:
    """Active, with its own integer id, its events in their order."""
    made = await create(store, "ü \u2028")
    assert await store.endpoints.get(ACCOUNT, made.id) == made
    assert (made.user_id, made.secret, made.active, made.rev) == ("ü \u2028", SECRET, True, "1")
    assert made.events == ("run.failed", "run.started")
    assert made.live_secrets(0) == (SECRET,)


async def test_secrets_are_sealed_at_rest(store: Store) -> None:
    """Nothing in the store holds one in the clear, also not the old one of a rotation."""
    made = await create(store)
    await store.endpoints.change(
        made, EndpointChange(new_secret="whsec_second", previous_until_ms=9), now_ms=6
    )
    row = await store.connection.call("HGETALL", f"sg:{{g}}:ep:{made.id}")
    assert not [part for part in row if b"whsec_" in part]


async def test_another_accounts_endpoint_is_missing(store: Store) -> None:
    """The relay finds it whoever owns it."""
    made = await create(store)
    with pytest.raises(MissingError):
        await store.endpoints.get("2", made.id)
    assert await store.endpoints.find(made.id) == made
    assert await store.endpoints.find_all([made.id, 99]) == [made, None]


async def test_a_list_is_of_exactly_one_scope(store: Store) -> None:
    """Newest first."""
    first, second, mine = await create(store), await create(store), await create(store, "u")
    assert await store.endpoints.list(ACCOUNT, None) == [second, first]
    assert await store.endpoints.list(ACCOUNT, "u") == [mine]
    assert await store.endpoints.list("2", None) == []


async def test_during_a_rotation_both_secrets_are_live(store: Store) -> None:
    """Newest first, until the end of the overlap."""
    made = await create(store)
    rotated = await store.endpoints.change(
        made, EndpointChange(new_secret="whsec_second", previous_until_ms=100), now_ms=6
    )
    assert rotated.live_secrets(99) == ("whsec_second", SECRET)
    assert rotated.live_secrets(100) == ("whsec_second",)


async def test_a_change_leaves_the_other_fields_and_moves_the_revision(store: Store) -> None:
    """None is no change; an empty list of events is one."""
    made = await create(store)
    other = await store.endpoints.change(made, EndpointChange(events=[]), now_ms=6)
    assert (other.events, other.url, other.rev, other.updated_ms) == ((), made.url, "2", 6)
    off = await store.endpoints.change(
        other, EndpointChange(active=False, disabled_reason="gone"), now_ms=7
    )
    assert (off.active, off.disabled_reason) == (False, "gone")
    on = await store.endpoints.change(off, EndpointChange(active=True), now_ms=8)
    assert (on.active, on.disabled_reason, on.rev) == (True, None, "4")


async def test_each_change_moves_the_subscriptions(store: Store) -> None:
    """Disabled and deleted endpoints get nothing from then on."""
    made = await create(store)
    catalog = store.catalog

    async def targets() -> tuple[str, ...]:
        return (await catalog.subscriptions(ACCOUNT, 1)).fanout("run.started", None).endpoints

    assert await targets() == (str(made.id),)
    off = await store.endpoints.change(made, EndpointChange(active=False), now_ms=6)
    assert await targets() == ()
    await store.endpoints.change(off, EndpointChange(active=True), now_ms=7)
    assert await targets() == (str(made.id),)
    await store.endpoints.delete(made)
    assert await targets() == ()
    assert await store.endpoints.find(made.id) is None


async def test_a_deleted_endpoint_cannot_be_changed(store: Store) -> None:
    """And a change that comes late does not bring a part of it back."""
    made = await create(store)
    await store.endpoints.delete(made)
    with pytest.raises(MissingError):
        await store.endpoints.change(made, EndpointChange(url="https://b.example"), now_ms=6)
    assert await store.endpoints.find(made.id) is None


async def test_a_change_and_a_delete_at_once_leave_no_ruin(store: Store) -> None:
    """Whoever comes first, the endpoint is whole or gone; readers never break on half of it."""
    for _ in range(30):
        made = await create(store)
        changes = [
            store.endpoints.change(made, EndpointChange(url=f"https://{n}.example"), now_ms=6)
            for n in range(3)
        ]
        await asyncio.gather(*changes, store.endpoints.delete(made), return_exceptions=True)
        assert await store.endpoints.find(made.id) is None
        assert await store.endpoints.list(ACCOUNT, None) == []


async def test_rotations_at_once_follow_each_other(store: Store) -> None:
    """Each answer shows its own secret; the last two made are the live ones."""
    made = await create(store)
    secrets = [f"whsec_{n}" for n in range(8)]
    changed = await asyncio.gather(
        *(
            store.endpoints.change(
                made, EndpointChange(new_secret=secret, previous_until_ms=100), now_ms=6
            )
            for secret in secrets
        )
    )
    assert [endpoint.secret for endpoint in changed] == secrets
    in_order = sorted(changed, key=lambda endpoint: int(endpoint.rev))
    last = await store.endpoints.get(ACCOUNT, made.id)
    assert last.live_secrets(99) == (in_order[-1].secret, in_order[-2].secret)
