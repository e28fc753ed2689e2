"""Accounts' rule and endpoint sets as the hot paths see them: cached, with their version.

Writers change the set first and then the version in every shard; a script that is given an
older version refuses, the caller forgets the cached set and reads again. So a cache is never
believed longer than the set stands.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from signoff.domain.approval import Approval
from signoff.domain.rule import Rule, Verdict
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.runs import Fanout
from signoff.store.scripts import pairs

_LIMIT = 4096
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What decides whether an endpoint gets an event."""

    endpoint_id: str
    user_id: str | None
    events: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """An account's rules with their version."""

    version: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriptions:
    """An account's active endpoints with their version."""

    version: str
    rows: tuple[Subscription, ...]

    def fanout(self, event_type: str, user_id: str | None) -> Fanout:
        """The endpoints that get ``event_type`` of a run of ``user_id``: scope for scope."""
        return Fanout(
            version=self.version,
            endpoints=tuple(
                row.endpoint_id
                for row in self.rows
                if event_type in row.events and row.user_id == user_id
            ),
        )


def rule_of(rule_id: int, raw: dict[str, Any]) -> Rule:
    """The rule of its stored JSON."""
    return Rule(
        id=rule_id,
        tool=raw["tool"],
        effect=Verdict(raw["effect"]),
        user_id=raw["user_id"],
        source=raw["source"],
        created_ms=raw["created"],
        author=raw.get("author"),
        expires_ms=raw.get("expires"),
        max_uses=raw.get("max_uses"),
        approval=Approval.read(raw.get("approvers")),
    )


def used(rules: Iterable[Rule], uses: Mapping[str, str]) -> list[Rule]:
    """The rules with what is known of their use."""
    return [
        replace(
            rule,
            uses=int(uses.get(f"{rule.id}:n", "0")),
            last_used_ms=int(uses[f"{rule.id}:at"]) if f"{rule.id}:at" in uses else None,
        )
        for rule in rules
    ]


class Catalog:
    """Cached sets by (shard, account)."""

    def __init__(self, connection: Connection, shards: Shards) -> None:
        self._connection = connection
        self._shards = shards
        self._rules: OrderedDict[tuple[str, str], Ruleset] = OrderedDict()
        self._subs: OrderedDict[tuple[str, str], Subscriptions] = OrderedDict()

    async def rules(self, account: str, run_id: int) -> Ruleset:
        """The account's rules, by the version that the run's shard has."""
        prefix = self._shards.prefix(run_id)
        cached = self._rules.get((prefix, account))
        if cached is None:
            version = await self._version(prefix, f"rules:{account}")
            raw = pairs(await self._connection.call("HGETALL", keys.policies(account)))
            rows = [rule_of(int(n), json.loads(text)) for n, text in raw.items()]
            if any(rule.max_uses is not None for rule in rows):
                key = keys.policy_uses(account)
                rows = used(rows, pairs(await self._connection.call("HGETALL", key)))
            cached = Ruleset(version=version, rules=tuple(sorted(rows, key=lambda rule: rule.id)))
            _keep(self._rules, (prefix, account), cached)
        return cached

    async def subscriptions(self, account: str, run_id: int) -> Subscriptions:
        """The account's active endpoints, by the version that the run's shard has."""
        prefix = self._shards.prefix(run_id)
        cached = self._subs.get((prefix, account))
        if cached is None:
            version = await self._version(prefix, f"subs:{account}")
            ids = await self._connection.call("SMEMBERS", keys.account_endpoints(account))
            rows = await self._connection.calls(
                *(("HMGET", keys.endpoint(n.decode()), "user", "events", "active") for n in ids)
            )
            cached = Subscriptions(
                version=version,
                rows=tuple(
                    Subscription(
                        endpoint_id=n.decode(),
                        user_id=None if row[0] is None else row[0].decode(),
                        events=frozenset(json.loads(row[1])),
                    )
                    for n, row in zip(ids, rows, strict=True)
                    if row[2] == b"1"
                ),
            )
            _keep(self._subs, (prefix, account), cached)
        return cached

    def forget(self, account: str) -> None:
        """Drops what is cached of the account; the next read is fresh."""
        for prefix in self._shards.prefixes():
            self._rules.pop((prefix, account), None)
            self._subs.pop((prefix, account), None)

    async def bump(self, account: str, what: str) -> None:
        """Moves the version of the account's ``rules``, ``subs`` or ``limits`` in every shard."""
        await asyncio.gather(
            *(
                self._connection.call("HINCRBY", keys.versions(prefix), f"{what}:{account}", 1)
                for prefix in self._shards.prefixes()
            )
        )
        self.forget(account)

    async def _version(self, prefix: str, field: str) -> str:
        version = await self._connection.call("HGET", keys.versions(prefix), field)
        return "0" if version is None else str(version.decode())


def _keep(cache: OrderedDict[tuple[str, str], T], key: tuple[str, str], value: T) -> None:
    cache[key] = value
    while len(cache) > _LIMIT:
        cache.popitem(last=False)
