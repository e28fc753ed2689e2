"""The service in process on a real store."""

from contextlib import asynccontextmanager

import pytest

from tests.integration.service.contract import Reading
from tests.integration.service.office import TOOLS, Office
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
    async with opened(settings(redis_url)) as world:
        yield world


@pytest.fixture
async def office(redis_url):
    """One with a worker in process and a tool that outside systems execute."""
    async with opened(settings(redis_url, SIGNOFF_TOOLS=TOOLS)) as world:
        yield Office(world)


@asynccontextmanager
async def opened(loaded):
    """A running service of these settings."""
    async with serving(loaded) as app:
        store = app.state.context.store
        for name, key in (("one", KEY), ("two", OTHER_KEY)):
            account = await store.accounts.ensure(name)
            await store.accounts.add_key(account, secret=key, name="test", now_ms=0)
        async with client(app, KEY) as api, client(app, OTHER_KEY) as other, client(app) as none:
            yield World(app, (api, other, none))
