"""One object that holds all access to the store for one event loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from signoff.domain.error import SettingsError
from signoff.store import keys
from signoff.store.accounts import Accounts
from signoff.store.agents import Agents
from signoff.store.catalog import Catalog
from signoff.store.connection import Connection
from signoff.store.decisions import Decisions
from signoff.store.endpoints import Endpoints
from signoff.store.keys import Shards
from signoff.store.outbox import Outbox
from signoff.store.policies import Policies
from signoff.store.presence import Presence
from signoff.store.reservations import Reservations
from signoff.store.runs import Runs
from signoff.store.scripts import Scripts
from signoff.store.sealing import Seal
from signoff.store.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """All of the store; build it with ``open_store`` inside a running event loop."""

    connection: Connection
    shards: Shards
    scripts: Scripts
    catalog: Catalog
    accounts: Accounts
    agents: Agents
    runs: Runs
    steps: Steps
    decisions: Decisions
    policies: Policies
    endpoints: Endpoints
    reservations: Reservations
    outbox: Outbox
    presence: Presence

    async def close(self) -> None:
        """Ends the connections."""
        await self.connection.close()


def open_store(
    url: str, *, secret_keys: Sequence[str], shards: int = 1, lease_s: float = 30.0
) -> Store:
    """The store behind ``url``; connects on first use."""
    connection = Connection(url)
    scripts = Scripts(connection)
    layout = Shards(shards)
    catalog = Catalog(connection, layout)
    return Store(
        connection=connection,
        shards=layout,
        scripts=scripts,
        catalog=catalog,
        accounts=Accounts(connection),
        agents=Agents(connection, scripts),
        runs=Runs(connection, scripts, layout),
        steps=Steps(scripts, layout, lease_s=lease_s),
        decisions=Decisions(connection, scripts, layout),
        policies=Policies(connection, scripts, catalog),
        endpoints=Endpoints(connection, scripts, catalog, Seal(secret_keys)),
        reservations=Reservations(connection, scripts),
        outbox=Outbox(connection, scripts, layout),
        presence=Presence(connection),
    )


async def check_layout(store: Store) -> None:
    """Fixes the shard count at first use; another count later is refused."""
    key = keys.layout()
    count = str(store.shards.count)
    await store.connection.call("HSETNX", key, "shards", count)
    stored = (await store.connection.call("HGET", key, "shards")).decode()
    if stored != count:
        msg = f"the store was laid out with {stored} shards; it cannot be opened with {count}"
        raise SettingsError(msg, field="SIGNOFF_SHARDS")
