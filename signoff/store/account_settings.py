"""Settings of an account: set over the API, read by nearly every unscoped request."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.domain.allowance import Caps
from signoff.domain.expiry import Limits
from signoff.store import keys
from signoff.store.catalog import Catalog
from signoff.store.connection import Connection
from signoff.store.runs import dumps
from signoff.store.scripts import pairs

#: A change made by another process is seen within this time; its own at once.
KEEP_S = 1.0
_LIMIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """The settings of one account."""

    per_end_user_run_limit: int | None = None
    per_end_user_cost_limit_cents: int | None = None
    per_end_user_rate_per_minute: int | None = None
    remind_after: float | None = None
    expires_in: float | None = None
    on_expiry: str | None = None
    retention_mode: str = "standard"
    require_end_user_id: bool = False
    approval_email_enabled: bool = True
    approval_slack_enabled: bool = True
    result_email_enabled: bool = True
    result_slack_enabled: bool = True

    @property
    def limits(self) -> Limits:
        """The time that gates have in runs that do not say otherwise."""
        return Limits.read(dataclasses.asdict(self))

    @property
    def caps(self) -> Caps:
        """What holds for end users without caps of their own."""
        return Caps(
            run_limit=self.per_end_user_run_limit,
            cost_limit_cents=self.per_end_user_cost_limit_cents,
            rate_per_minute=self.per_end_user_rate_per_minute,
        )


_NAMES = frozenset(field.name for field in dataclasses.fields(AccountSettings))


class AccountSettingsStore:
    """Access to settings; a change moves the account's version of limits."""

    def __init__(self, connection: Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._catalog = catalog
        self._known: OrderedDict[str, tuple[AccountSettings, float]] = OrderedDict()

    async def get(self, account: str) -> AccountSettings:
        """The settings as they stand; what was never set has its default."""
        raw = pairs(await self._connection.call("HGETALL", keys.account_settings(account)))
        return AccountSettings(
            **{name: json.loads(text) for name, text in raw.items() if name in _NAMES}
        )

    async def recent(self, account: str) -> AccountSettings:
        """The settings as they stood at most a second ago."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(account)
        if known is not None and now < known[1]:
            return known[0]
        found = await self.get(account)
        self._known[account] = (found, now + KEEP_S)
        while len(self._known) > _LIMIT:
            self._known.popitem(last=False)
        return found

    async def change(self, account: str, changes: Mapping[str, Any]) -> AccountSettings:
        """Sets the named settings and leaves the others as they are."""
        if changes:
            flat = [part for name, value in changes.items() for part in (name, dumps(value))]
            await self._connection.call("HSET", keys.account_settings(account), *flat)
            await self._catalog.bump(account, "limits")
        self._known.pop(account, None)
        return await self.get(account)
