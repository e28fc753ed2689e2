"""The service in process on a real store."""

import pytest

from tests.integration.service.contract import Reading
from tests.integration.service.world import KEY, OTHER_KEY, World, client, serving, settings


@pytest.fixture(autouse=True)
def reading(monkeypatch):
    """Handlers read nothing that /openapi.json does not tell of."""
    found = Reading(monkeypatch)
    yield found
    assert found.problems == []


@pytest.fixture
async def world(redis_url):
    """A running service with two accounts."""
    async with serving(settings(redis_url)) as app:
        store = app.state.context.store
        for name, key in (("one", KEY), ("two", OTHER_KEY)):
            account = await store.accounts.ensure(name)
            await store.accounts.add_key(account, secret=key, name="test", now_ms=0)
        async with client(app, KEY) as api, client(app, OTHER_KEY) as other, client(app) as none:
            yield World(app, (api, other, none))
