"""The event log and the audit trail: one order over all shards, pages without gaps."""

from __future__ import annotations

import random

import pytest

from signoff.domain.error import MissingError
from signoff.store import journal
from signoff.store.facade import Store, open_store
from tests.conftest import SECRET_KEY

pytestmark = pytest.mark.anyio
ACCOUNT = "1"


@pytest.fixture
async def sharded(redis_url):
    """A store of three shards."""
    opened = open_store(redis_url, secret_keys=[SECRET_KEY], shards=3)
    await opened.scripts.load()
    yield opened
    await opened.close()


async def _event(store: Store, shard: int, at: int, event_id: str, run_id: int | str = "") -> None:
    prefix = f"sg:{{s{shard}}}:"
    await store.connection.calls(
        ("ZADD", f"{prefix}evs:{ACCOUNT}", at, event_id),
        ("HSET", f"{prefix}ev:{event_id}", "type", "run.started", "body", "{}", "run", str(run_id)),
    )


async def _pages(read, limit):
    """All ids, page by page; each page but the last is full."""
    found, after = [], None
    while True:
        page = await read(limit=limit, after=after)
        found += [row.id for row in page.rows]
        assert len(found) == len(set(found))
        if page.next_id is None:
            return found
        assert len(page.rows) == limit
        after = page.next_id


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
async def test_events_of_one_moment_are_neither_skipped_nor_repeated(sharded, limit):
    """Many events of few milliseconds in several shards come in one order, whatever the page."""
    random.seed(limit)
    placed = [(random.randint(1, 4), f"evt_{n:02}") for n in range(60)]
    for at, event_id in placed:
        await _event(sharded, random.randint(0, 2), at, event_id)

    async def read(limit, after):
        return await sharded.journal.events(ACCOUNT, limit=limit, after=after)

    expected = [event_id for _, event_id in sorted(placed, reverse=True)]
    assert await _pages(read, limit) == expected


async def test_events_are_those_of_one_run(sharded):
    """A run's events are looked for in its shard only."""
    for n, run_id in enumerate((1, 2, 4, 1)):
        await _event(sharded, (run_id - 1) % 3, n, f"evt_{n}", run_id)
    found = await sharded.journal.events(ACCOUNT, limit=10, run_id=1)
    assert [(row.id, row.run_id) for row in found.rows] == [("evt_3", 1), ("evt_0", 1)]


async def test_a_page_starts_after_an_event_that_is_there(sharded):
    """An event of nobody, and one that was dropped, are no place to start after."""
    with pytest.raises(MissingError):
        await sharded.journal.events(ACCOUNT, limit=10, after="evt_none")


async def test_a_filter_that_fits_nothing_ends(sharded, monkeypatch):
    """A page looks at a bounded number of rows, and says where it stopped."""
    monkeypatch.setattr(journal, "WINDOW", 5)
    for n in range(12):
        await _event(sharded, 0, n, f"evt_{n:02}")
    page = await sharded.journal.events(ACCOUNT, limit=10, kind="run.failed")
    assert (page.rows, page.next_id) == ([], "evt_07")
    page = await sharded.journal.events(ACCOUNT, limit=10, kind="run.failed", after="evt_01")
    assert (page.rows, page.next_id) == ([], None)


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_audit_entries_come_in_one_order(sharded, limit, monkeypatch):
    """Entries of the same moment in several shards have an order of their own."""
    monkeypatch.setattr(journal, "_CHUNK", 4)
    placed = {(random.randint(1, 4), random.randint(1, 9), random.randint(0, 2)) for _ in range(50)}
    for ms, n, shard in sorted(placed):
        stream = f"sg:{{s{shard}}}:audit:{ACCOUNT}"
        fields = ("what", "mode", "run", str(shard + 1), "by", "key:a")
        await sharded.connection.call("XADD", stream, f"{ms}-{n}", *fields)

    async def read(limit, after):
        place = None if after is None else tuple(map(int, after.split("-")))
        return await sharded.journal.audit(ACCOUNT, limit=limit, after=place)

    expected = ["-".join(map(str, place)) for place in sorted(placed, reverse=True)]
    assert await _pages(read, limit) == expected
    of_two = await sharded.journal.audit(ACCOUNT, limit=100, run_id=2)
    assert {row.run_id for row in of_two.rows} <= {2}
    assert len(of_two.rows) == sum(shard == 1 for _, _, shard in placed)
