"""One object that holds all access to the store for one event loop."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from signoff.store.account_settings import AccountSettingsStore
from signoff.store.accounts import Accounts
from signoff.store.agents import Agents
from signoff.store.catalog import Catalog
from signoff.store.connection import Connection
from signoff.store.decisions import Decisions
from signoff.store.endpoints import Endpoints
from signoff.store.frames import Frames
from signoff.store.gauges import Gauges
from signoff.store.journal import Journal
from signoff.store.keys import Shards
from signoff.store.layout import Layout
from signoff.store.listing import Listing
from signoff.store.marks import Marking
from signoff.store.outbox import Outbox
from signoff.store.policies import Policies
from signoff.store.presence import Presence
from signoff.store.reservations import Reservations
from signoff.store.runs import Runs
from signoff.store.scripts import Scripts
from signoff.store.sealing import Seal
from signoff.store.server_headers import ServerHeaders
from signoff.store.steps import Steps
from signoff.store.timing import Timing
from signoff.store.turns import Turns
from signoff.store.users import Users


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """All of the store; build it with ``open_store`` inside a running event loop."""

    connection: Connection
    shards: Shards
    scripts: Scripts
    catalog: Catalog
    accounts: Accounts
    account_settings: AccountSettingsStore
    agents: Agents
    users: Users
    runs: Runs
    frames: Frames
    listing: Listing
    journal: Journal
    gauges: Gauges
    marks: Marking
    steps: Steps
    decisions: Decisions
    policies: Policies
    endpoints: Endpoints
    server_headers: ServerHeaders
    reservations: Reservations
    outbox: Outbox
    presence: Presence
    layout: Layout
    turns: Turns
    timing: Timing

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
    account_settings = AccountSettingsStore(connection, catalog)
    seal = Seal(secret_keys)
    return Store(
        connection=connection,
        shards=layout,
        scripts=scripts,
        catalog=catalog,
        accounts=Accounts(connection),
        account_settings=account_settings,
        agents=Agents(connection, scripts),
        users=Users(connection, scripts, layout, catalog, account_settings),
        runs=Runs(connection, scripts, layout),
        frames=Frames(connection, layout),
        listing=Listing(connection, layout),
        journal=Journal(connection, layout),
        gauges=Gauges(connection, layout),
        marks=Marking(connection, scripts, layout),
        steps=Steps(scripts, layout, lease_s=lease_s),
        decisions=Decisions(connection, scripts, layout),
        policies=Policies(connection, scripts, catalog),
        endpoints=Endpoints(connection, scripts, catalog, Seal(secret_keys)),
        server_headers=ServerHeaders(seal),
        reservations=Reservations(connection, scripts),
        outbox=Outbox(connection, scripts, layout),
        presence=Presence(connection),
        turns=Turns(connection, scripts, layout),
        timing=Timing(connection, scripts, layout),
        layout=Layout(connection, layout, seal, lambda: secrets.token_hex(4)),
    )
