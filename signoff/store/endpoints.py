"""Webhook endpoints: where an account's events go, and the secrets they are signed with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from signoff.domain.error import MissingError
from signoff.store import keys
from signoff.store.catalog import Catalog
from signoff.store.connection import Connection
from signoff.store.scripts import Args, Scripts, pairs
from signoff.store.sealing import Seal, SealError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint with its secrets opened; times are Unix milliseconds."""

    id: int
    account: str
    user_id: str | None
    url: str
    events: tuple[str, ...]
    signature: str
    active: bool
    secret: str
    previous_secret: str | None
    previous_until_ms: int
    rev: str
    created_ms: int
    updated_ms: int
    disabled_reason: str | None = None

    def live_secrets(self, now_ms: int) -> tuple[str, ...]:
        """The secrets that sign and verify now, newest first."""
        if self.previous_secret is not None and now_ms < self.previous_until_ms:
            return (self.secret, self.previous_secret)
        return (self.secret,)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChange:
    """Fields to change; None leaves a field as it is."""

    url: str | None = None
    events: Sequence[str] | None = None
    active: bool | None = None
    new_secret: str | None = None
    previous_until_ms: int = 0
    disabled_reason: str | None = None


class Endpoints:
    """Access to endpoints; every change moves the account's subscription version."""

    def __init__(
        self, connection: Connection, scripts: Scripts, catalog: Catalog, seal: Seal
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._catalog = catalog
        self._seal = seal

    async def create(
        self,
        *,
        account: str,
        user_id: str | None,
        url: str,
        events: Sequence[str],
        signature: str,
        secret: str,
        now_ms: int,
    ) -> Endpoint:
        """Stores a new active endpoint."""
        endpoint_id = int(await self._connection.call("INCR", keys.sequence("endpoint")))
        fields: dict[str, str] = {
            "acct": account,
            "url": url,
            "events": json.dumps(list(events)),
            "sig": signature,
            "active": "1",
            "secret": self._seal.close(secret, _purpose(account, endpoint_id)),
            "rev": "1",
            "created": str(now_ms),
            "updated": str(now_ms),
        }
        if user_id is not None:
            fields["user"] = user_id
        flat = [part for item in fields.items() for part in item]
        await self._connection.call("HSET", keys.endpoint(endpoint_id), *flat)
        await self._connection.call("SADD", keys.account_endpoints(account), endpoint_id)
        await self._catalog.bump(account, "subs")
        return await self.get(account, endpoint_id)

    async def get(self, account: str, endpoint_id: int) -> Endpoint:
        """The endpoint, or MissingError; another account's is missing."""
        found = await self.find(endpoint_id)
        if found is None or found.account != account:
            raise MissingError(f"no webhook {endpoint_id}")
        return found

    async def find(self, endpoint_id: int) -> Endpoint | None:
        """The endpoint whoever owns it, for the relay and for callbacks; None when deleted."""
        return (await self.find_all([endpoint_id]))[0]

    async def find_all(self, ids: Sequence[int]) -> list[Endpoint | None]:
        """Several endpoints in one round trip."""
        rows = await self._connection.calls(*(("HGETALL", keys.endpoint(n)) for n in ids))
        return [
            self._record(n, pairs(row)) if row else None for n, row in zip(ids, rows, strict=True)
        ]

    async def owned(self, account: str, ids: Sequence[int]) -> frozenset[int]:
        """Those of the ids that are endpoints of the account."""
        owners = await self._connection.calls(*(("HGET", keys.endpoint(n), "acct") for n in ids))
        own = account.encode()
        return frozenset(n for n, owner in zip(ids, owners, strict=True) if owner == own)

    async def count(self, account: str, user_id: str | None) -> tuple[int, int]:
        """How many endpoints the account has, and how many of them in exactly this scope."""
        ids = await self._connection.call("SMEMBERS", keys.account_endpoints(account))
        users = await self._connection.calls(
            *(("HGET", keys.endpoint(n.decode()), "user") for n in ids)
        )
        wanted = None if user_id is None else user_id.encode()
        return len(ids), sum(user == wanted for user in users)

    async def list(self, account: str, user_id: str | None) -> list[Endpoint]:
        """The endpoints of exactly one scope, newest first."""
        ids = await self._connection.call("SMEMBERS", keys.account_endpoints(account))
        found = await self.find_all(sorted((int(n) for n in ids), reverse=True))
        return [item for item in found if item is not None and item.user_id == user_id]

    async def change(self, endpoint: Endpoint, change: EndpointChange, *, now_ms: int) -> Endpoint:
        """Applies ``change``; a new secret keeps the old one valid until its end."""
        fields: dict[str, str] = {"updated": str(now_ms)}
        if change.url is not None:
            fields["url"] = change.url
        if change.events is not None:
            fields["events"] = json.dumps(list(change.events))
        if change.active is not None:
            fields["active"] = "1" if change.active else "0"
            fields["disabled"] = change.disabled_reason or ""
        if change.new_secret is not None:
            purpose = _purpose(endpoint.account, endpoint.id)
            fields["secret"] = self._seal.close(change.new_secret, purpose)
            fields["until2"] = str(change.previous_until_ms)
        args = Args(id=str(endpoint.id), rotate=change.new_secret is not None)
        args.control["fields"] = {name: args.blob(value) for name, value in fields.items()}
        changed = await self._scripts.run("change_endpoint", keys.GLOBAL, args)
        if not changed:
            raise MissingError(f"no webhook {endpoint.id}")
        await self._catalog.bump(endpoint.account, "subs")
        return self._record(endpoint.id, pairs(changed))

    async def delete(self, endpoint: Endpoint) -> None:
        """Removes the endpoint; its deliveries end as cancelled."""
        await self._connection.call("SREM", keys.account_endpoints(endpoint.account), endpoint.id)
        await self._connection.call("DEL", keys.endpoint(endpoint.id))
        await self._catalog.bump(endpoint.account, "subs")

    def _record(self, endpoint_id: int, raw: dict[str, str]) -> Endpoint:
        purpose = _purpose(raw["acct"], endpoint_id)
        old = raw.get("secret2")
        return Endpoint(
            id=endpoint_id,
            account=raw["acct"],
            user_id=raw.get("user"),
            url=raw["url"],
            events=tuple(json.loads(raw["events"])),
            signature=raw["sig"],
            active=raw["active"] == "1",
            secret=self._seal.open(raw["secret"], purpose),
            previous_secret=self._previous(old, purpose) if old else None,
            previous_until_ms=int(raw.get("until2", "0")),
            rev=raw["rev"],
            created_ms=int(raw["created"]),
            updated_ms=int(raw["updated"]),
            disabled_reason=raw.get("disabled") or None,
        )

    def _previous(self, sealed: str, purpose: str) -> str | None:
        """The old secret; None when its key is gone, for it is not needed any more by then."""
        try:
            return self._seal.open(sealed, purpose)
        except SealError:
            return None


def _purpose(account: str, endpoint_id: int) -> str:
    return f"endpoint-secret:{account}:{endpoint_id}"
