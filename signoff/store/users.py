"""End users of an account: their profiles, their caps, and what they have used."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.allowance import Caps
from signoff.domain.error import ConflictError, MissingError
from signoff.domain.money import MICROS_PER_CENT
from signoff.store import keys
from signoff.store.account_settings import AccountSettingsStore
from signoff.store.catalog import Catalog
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.records import USAGE_FIELDS
from signoff.store.runs import Allowance, dumps
from signoff.store.scripts import Args, Scripts, pairs

_LIMIT = 16_384
_MINUTE_MS = 60_000
_CAPS = ("run_limit", "cost_limit_cents", "rate_per_minute")
_PROFILE = ("name", "email", "company", "metadata", *_CAPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndUser:
    """One profile; the first use of a ``user_id`` makes one that says nothing else."""

    id: int
    user_id: str
    name: str | None
    email: str | None
    company: str | None
    metadata: dict[str, Any] | None
    caps: Caps
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What an end user has used in one period; never used: ``last_ms`` is None."""

    runs: int
    tokens: dict[str, int]
    last_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many runs an end user may still start, and when the next one is free again."""

    limit: int
    remaining: int
    reset_ms: int


class Users:
    """Access to profiles; caps are cached by the version that each shard has of them."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        shards: Shards,
        catalog: Catalog,
        settings: AccountSettingsStore,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._shards = shards
        self._catalog = catalog
        self._settings = settings
        self._known: OrderedDict[tuple[str, str, str], tuple[str, Caps]] = OrderedDict()

    async def create(self, account: str, user_id: str, fields: Mapping[str, Any]) -> EndUser:
        """Makes the profile; raises ConflictError ``user_exists`` when there is one."""
        created, user = await self._put(account, user_id, fields)
        if not created:
            msg = f"there is a user {user_id[:64]!a} already; PATCH changes it"
            raise ConflictError(msg, code="user_exists", field="user_id")
        if any(fields.get(name) is not None for name in _CAPS):
            await self._forget(account)
        return user

    async def touch(self, account: str, user_id: str | None) -> None:
        """Makes the profile of a ``user_id`` that is used, if there is none."""
        if user_id is not None:
            await self._put(account, user_id, {})

    async def get(self, account: str, user_id: str) -> EndUser:
        """The profile, or MissingError."""
        key = keys.end_user(account, keys.scope_key(user_id))
        raw = pairs(await self._connection.call("HGETALL", key))
        if not raw:
            raise _missing(user_id)
        return _user(raw)

    async def page(
        self, account: str, *, limit: int, before: int | None
    ) -> tuple[list[EndUser], bool]:
        """Profiles newest first, older than ``before``, and whether there are more."""
        top = "+inf" if before is None else f"({before}"
        scopes = await self._connection.call(
            "ZREVRANGEBYSCORE", keys.end_users(account), top, "-inf", "LIMIT", 0, limit + 1
        )
        rows = await self._connection.calls(
            *(("HGETALL", keys.end_user(account, scope.decode())) for scope in scopes[:limit])
        )
        # A profile may have been deleted between the two reads.
        return [_user(pairs(row)) for row in rows if row], len(scopes) > limit

    async def change(self, account: str, user_id: str, changes: Mapping[str, Any]) -> EndUser:
        """Sets the named fields, where None clears; raises MissingError."""
        args = Args(acct=account, scope=keys.scope_key(user_id))
        args.control["fields"] = _blobs(args, changes)
        args.control["drop"] = [name for name, value in changes.items() if value is None]
        raw = await self._scripts.run("change_user", keys.GLOBAL, args)
        if not raw:
            raise _missing(user_id)
        if any(name in changes for name in _CAPS):
            await self._forget(account)
        return _user(pairs(raw))

    async def delete(self, account: str, user_id: str) -> None:
        """Removes the profile only, not what belongs to the user; raises MissingError."""
        scope = keys.scope_key(user_id)
        _, gone = await self._connection.calls(
            ("ZREM", keys.end_users(account), scope), ("DEL", keys.end_user(account, scope))
        )
        # Also for one that is gone: the call before may have died ahead of the version.
        await self._forget(account)
        if not gone:
            raise _missing(user_id)

    async def allowance(self, account: str, user_id: str, run_id: int, *, period: str) -> Allowance:
        """What a new run of the user is held against; makes the profile at its first use.

        No round trip when the caps are known and there are none.
        """
        version, caps = await self._caps(account, user_id, run_id)
        elsewhere = spent = started = 0
        if caps.counted and self._shards.count > 1:
            elsewhere, spent, started = await self._elsewhere(account, user_id, run_id, period)
        cents = caps.cost_limit_cents
        return Allowance(
            version=version,
            period=period,
            run_limit=caps.run_limit,
            rate_per_minute=caps.rate_per_minute,
            cost_limit_micros=None if cents is None else cents * MICROS_PER_CENT,
            used_elsewhere=elsewhere,
            spent_elsewhere=spent,
            started_elsewhere=started,
        )

    async def rate(self, account: str, user_id: str, run_id: int) -> Rate | None:
        """Where the user stands with its starts a minute; None, at no cost, when unbounded."""
        limit = (await self._caps(account, user_id, run_id))[1].rate_per_minute
        if limit is None:
            return None
        now = await self._connection.call("TIME")
        since = int(now[0]) * 1000 - _MINUTE_MS
        scope = keys.scope_key(user_id)
        places = [keys.starts(prefix, account, scope) for prefix in self._shards.prefixes()]
        rows = await self._connection.calls(
            *(("ZCOUNT", place, since, "+inf") for place in places),
            *(
                ("ZRANGEBYSCORE", place, since, "+inf", "WITHSCORES", "LIMIT", 0, 1)
                for place in places
            ),
        )
        oldest = [int(row[1]) for row in rows[len(places) :] if row]
        return Rate(
            limit=limit,
            remaining=max(0, limit - sum(rows[: len(places)])),
            reset_ms=min(oldest, default=since + _MINUTE_MS) + _MINUTE_MS,
        )

    async def used(self, account: str, user_ids: Sequence[str], period: str) -> list[Use]:
        """What each of the users has used in the period, over all shards."""
        prefixes = self._shards.prefixes()
        rows = await self._connection.calls(
            *(
                ("HGETALL", keys.used(prefix, account, keys.scope_key(user_id), period))
                for user_id in user_ids
                for prefix in prefixes
            )
        )
        found = [pairs(row) for row in rows]
        return [
            _use(found[n * len(prefixes) : (n + 1) * len(prefixes)]) for n in range(len(user_ids))
        ]

    def forget(self, account: str) -> None:
        """Drops what is cached of the account; the next read is fresh."""
        for key in [key for key in self._known if key[1] == account]:
            del self._known[key]

    async def _forget(self, account: str) -> None:
        await self._catalog.bump(account, "limits")
        self.forget(account)

    async def _caps(self, account: str, user_id: str, run_id: int) -> tuple[str, Caps]:
        prefix = self._shards.prefix(run_id)
        known = self._known.get((prefix, account, user_id))
        if known is not None:
            return known
        # In this order over one connection: what is read is never older than its version.
        version, settings, (_, user) = await asyncio.gather(
            self._connection.call("HGET", keys.versions(prefix), f"limits:{account}"),
            self._settings.get(account),
            self._put(account, user_id, {}),
        )
        found = ("0" if version is None else version.decode(), user.caps.over(settings.caps))
        self._known[(prefix, account, user_id)] = found
        while len(self._known) > _LIMIT:
            self._known.popitem(last=False)
        return found

    async def _elsewhere(
        self, account: str, user_id: str, run_id: int, period: str
    ) -> tuple[int, int, int]:
        """Runs and costs of the period, and the last minute's starts, in the other shards."""
        shards, scope = self._shards, keys.scope_key(user_id)
        others = [prefix for prefix in shards.prefixes() if prefix != shards.prefix(run_id)]
        now = await self._connection.call("TIME")
        since = int(now[0]) * 1000 - _MINUTE_MS
        rows = await self._connection.calls(
            *(
                ("HMGET", keys.used(prefix, account, scope, period), "runs", "cost_micros")
                for prefix in others
            ),
            *(("ZCOUNT", keys.starts(prefix, account, scope), since, "+inf") for prefix in others),
        )
        used, started = rows[: len(others)], rows[len(others) :]
        runs, spent = (sum(int(row[n] or 0) for row in used) for n in range(2))
        return runs, spent, sum(started)

    async def _put(
        self, account: str, user_id: str, fields: Mapping[str, Any]
    ) -> tuple[bool, EndUser]:
        args = Args(acct=account, scope=keys.scope_key(user_id))
        args.control["user"] = args.blob(user_id)
        args.control["fields"] = _blobs(args, fields)
        created, raw = await self._scripts.run("put_user", keys.GLOBAL, args)
        return bool(created), _user(pairs(raw))


def _blobs(args: Args, fields: Mapping[str, Any]) -> dict[str, int | None]:
    return {
        name: args.blob(dumps(fields[name])) for name in _PROFILE if fields.get(name) is not None
    }


def _user(raw: Mapping[str, str]) -> EndUser:
    values = {name: json.loads(raw[name]) for name in _PROFILE if name in raw}
    return EndUser(
        id=int(raw["id"]),
        user_id=raw["user"],
        name=values.get("name"),
        email=values.get("email"),
        company=values.get("company"),
        metadata=values.get("metadata"),
        caps=Caps(**{name: values.get(name) for name in _CAPS}),
        created_ms=int(raw["created"]),
        updated_ms=int(raw["updated"]),
    )


def _use(rows: Sequence[Mapping[str, str]]) -> Use:
    return Use(
        runs=sum(int(row.get("runs", "0")) for row in rows),
        tokens={name: sum(int(row.get(name, "0")) for row in rows) for name in USAGE_FIELDS},
        last_ms=max((int(row["at"]) for row in rows if "at" in row), default=None),
    )


def _missing(user_id: str) -> MissingError:
    return MissingError(f"no user {user_id[:64]!a}")
