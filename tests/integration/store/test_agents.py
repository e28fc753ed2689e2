"""Agents in the store: names, lists, changes."""

import asyncio

import pytest

from signoff.domain.error import ConflictError, MissingError
from signoff.store.facade import Store
from tests.integration.store.conftest import ACCOUNT

pytestmark = pytest.mark.anyio


async def make(store: Store, name: str, user: str | None = None, **fields: object):
    return await store.agents.create(account=ACCOUNT, user_id=user, fields={"name": name, **fields})


async def found(store: Store, name: str, user: str | None = None):
    return await store.agents.find_or_create(
        account=ACCOUNT, user_id=user, name=name, instructions=None
    )


async def listed(store: Store, user: str | None = None, *, archived: bool = False) -> list[int]:
    agents, _ = await store.agents.page(
        ACCOUNT, user_id=user, archived=archived, limit=100, before=None
    )
    return [agent.id for agent in agents]


async def test_an_agent_is_found_by_the_name_it_was_made_with(store: Store) -> None:
    """Within its user; the first of a name is the one, and one made by name is listed."""
    first = await make(store, "Bot", tools=["t"])
    second = await make(store, "Bot")
    assert first.id != second.id
    assert await found(store, "Bot") == first
    other = await found(store, "Bot", "u")
    assert other.id not in (first.id, second.id)
    assert await listed(store) == [other.id, second.id, first.id]
    assert await listed(store, "u") == [other.id]


async def test_two_at_once_find_one_agent(store: Store) -> None:
    """Finding or making is one move."""
    made = await asyncio.gather(*(found(store, "Bot") for _ in range(10)))
    assert len({agent.id for agent in made}) == 1


async def test_a_new_name_is_found_and_the_old_one_is_free(store: Store) -> None:
    """A rename takes the name along, unless another agent has it already."""
    first, second = await make(store, "A"), await make(store, "B")
    renamed = await store.agents.change(first, {"name": "C"})
    assert renamed.name == "C"
    assert (await found(store, "C")).id == first.id
    assert (await found(store, "A")).id not in (first.id, second.id)
    await store.agents.change(second, {"name": "C"})
    assert (await found(store, "C")).id == first.id


async def test_changes_of_different_fields_all_stay(store: Store) -> None:
    """Each field is set for itself; None clears."""
    agent = await make(store, "A", metadata={"a": 1}, effort="high")
    await asyncio.gather(
        store.agents.change(agent, {"role": "r"}),
        store.agents.change(agent, {"goals": "g"}),
        store.agents.change(agent, {"effort": None, "instructions": "do"}),
        store.agents.switch(agent, "disabled", of=("enabled",)),
    )
    changed = await store.agents.get(ACCOUNT, agent.id)
    assert (changed.profile["role"], changed.profile["goals"]) == ("r", "g")
    assert (changed.effort, changed.instructions, changed.state) == (None, "do", "disabled")
    assert changed.profile["metadata"] == {"a": 1}


async def test_an_archived_agent_gives_its_name_free(store: Store) -> None:
    """It leaves the list; brought back it has its name again, if nobody took it."""
    agent = await make(store, "A")
    await store.agents.archive(agent)
    await store.agents.archive(agent)
    assert await listed(store) == []
    assert await listed(store, archived=True) == [agent.id]
    await store.agents.switch(agent, "disabled", of=("archived",))
    assert (await found(store, "A")).id == agent.id
    with pytest.raises(ConflictError):
        await store.agents.switch(agent, "disabled", of=("archived",))
    await store.agents.archive(agent)
    assert (await found(store, "A")).id != agent.id


async def test_lists_come_in_exact_pages(store: Store) -> None:
    """Newest first, archived ones skipped without a hole, more only when there is more."""
    made = [await make(store, f"A{n}") for n in range(5)]
    await store.agents.archive(made[3])

    async def page(before: int | None):
        agents, more = await store.agents.page(
            ACCOUNT, user_id=None, archived=False, limit=2, before=before
        )
        return [agent.id for agent in agents], more

    assert await page(None) == ([made[4].id, made[2].id], True)
    assert await page(made[2].id) == ([made[1].id, made[0].id], False)


async def test_agents_from_before_there_were_lists_are_listed(store: Store) -> None:
    """What an older version has written appears, of each user in its own list too."""
    account, user = await found(store, "A"), await found(store, "A", "u")
    for key in await store.connection.call("KEYS", "sg:{g}:agids:*"):
        await store.connection.call("DEL", key)
    assert await listed(store) == [user.id, account.id]
    assert await listed(store, "u") == [user.id]


async def test_other_accounts_have_other_agents(store: Store) -> None:
    """An agent is missing, and unchangeable, from another account."""
    agent = await make(store, "A")
    with pytest.raises(MissingError):
        await store.agents.get("2", agent.id)
    agents, more = await store.agents.page("2", user_id=None, archived=True, limit=9, before=None)
    assert (agents, more) == ([], False)
