"""What a process checks of the store it has reached."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from signoff.domain.error import SettingsError
from signoff.store.facade import open_store
from tests.conftest import SECRET_KEY

pytestmark = pytest.mark.anyio


async def check(url: str, *secret_keys: str, shards: int = 1) -> None:
    store = open_store(url, secret_keys=secret_keys, shards=shards)
    try:
        await store.layout.check()
    finally:
        await store.close()


async def test_another_count_of_shards_is_refused(redis_url: str) -> None:
    """The first use fixes it."""
    await check(redis_url, SECRET_KEY, shards=2)
    await check(redis_url, SECRET_KEY, shards=2)
    with pytest.raises(SettingsError) as caught:
        await check(redis_url, SECRET_KEY)
    assert caught.value.field == "SIGNOFF_SHARDS"


async def test_keys_that_open_nothing_here_are_refused(redis_url: str) -> None:
    """And a rotation is followed: new in front of old, then new alone."""
    old, new = SECRET_KEY, Fernet.generate_key().decode()
    await check(redis_url, old)
    with pytest.raises(SettingsError) as caught:
        await check(redis_url, new)
    assert caught.value.field == "SIGNOFF_SECRET_KEYS"
    await check(redis_url, new, old)
    await check(redis_url, new)


async def test_each_store_has_a_name_of_its_own(redis_url: str) -> None:
    """It stays, and a new store has another one."""
    names = []
    for _ in range(2):
        store = open_store(redis_url, secret_keys=[SECRET_KEY])
        names.append(await store.layout.installation())
        await store.close()
    assert names[0] == names[1]
    store = open_store(redis_url, secret_keys=[SECRET_KEY])
    await store.connection.call("FLUSHALL", "SYNC")
    assert await store.layout.installation() != names[0]
    await store.close()
