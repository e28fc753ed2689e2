"""What is fixed about a store at its first use: its shards, its secret keys, its name."""

from __future__ import annotations

from collections.abc import Callable

from signoff.domain.error import SettingsError
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.sealing import Seal, SealError

_CANARY = "canary"


class Layout:
    """Checks that this process is configured for the store that it has reached."""

    def __init__(
        self, connection: Connection, shards: Shards, seal: Seal, token: Callable[[], str]
    ) -> None:
        self._connection = connection
        self._shards = shards
        self._seal = seal
        self._token = token
        self._installation: str | None = None

    async def check(self) -> None:
        """Fixes the layout at first use; raises SettingsError for another one later.

        A canary that does not open says that the secret keys are not those of this store. It is
        sealed anew each time, so that it follows a rotation of the keys.
        """
        count = str(self._shards.count)
        stored = await self._once("shards", count)
        if stored != count:
            msg = f"the store was laid out with {stored} shards; it cannot be opened with {count}"
            raise SettingsError(msg, field="SIGNOFF_SHARDS")
        canary = self._seal.close(_CANARY, _CANARY)
        try:
            self._seal.open(await self._once("canary", canary), _CANARY)
        except SealError as error:
            msg = "SIGNOFF_SECRET_KEYS holds no key that opens this store's secrets"
            raise SettingsError(msg, field="SIGNOFF_SECRET_KEYS") from error
        await self._connection.call("HSET", keys.layout(), "canary", canary)

    async def installation(self) -> str:
        """A name that no other store has, so that keys made of run ids are unique outside."""
        if self._installation is None:
            self._installation = await self._once("installation", self._token())
        return self._installation

    async def _once(self, field: str, value: str) -> str:
        await self._connection.call("HSETNX", keys.layout(), field, value)
        return str((await self._connection.call("HGET", keys.layout(), field)).decode())
