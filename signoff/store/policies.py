"""Stored rules of an account: create once, list by scope, revoke."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.approval import Approval
from signoff.domain.error import MissingError
from signoff.domain.rule import Rule, Verdict
from signoff.store import keys
from signoff.store.catalog import Catalog, rule_of, used
from signoff.store.connection import Connection
from signoff.store.runs import dumps
from signoff.store.scripts import Args, Scripts, pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRule:
    """A rule and whether this call made it."""

    rule: Rule
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Whether a rule lets one more call start, and whether it was the last one."""

    granted: bool
    last: bool


class Policies:
    """Access to rules; every change moves the account's rule version."""

    def __init__(self, connection: Connection, scripts: Scripts, catalog: Catalog) -> None:
        self._connection = connection
        self._scripts = scripts
        self._catalog = catalog

    async def put(
        self,
        *,
        account: str,
        user_id: str | None,
        tool: str,
        effect: Verdict,
        source: str,
        now_ms: int,
        author: str | None = None,
        expires_ms: int | None = None,
        max_uses: int | None = None,
        approval: Approval | None = None,
    ) -> StoredRule:
        """The one rule of (user, tool, effect), made if there is none that still covers calls."""
        args = Args(acct=account)
        args.control["index"] = args.blob(_index(user_id, tool, effect))
        body: dict[str, Any] = {
            "tool": tool,
            "effect": effect.value,
            "user_id": user_id,
            "source": source,
            "created": now_ms,
        }
        limits: dict[str, Any] = {
            "author": author,
            "expires": expires_ms,
            "max_uses": max_uses,
            "approvers": None if approval is None else approval.fields,
        }
        body |= {name: value for name, value in limits.items() if value is not None}
        args.control["policy"] = args.blob(dumps(body))
        reply = await self._scripts.run("put_policy", keys.GLOBAL, args)
        created = bool(reply[1])
        # Also for one that stood: the call before may have died ahead of the version.
        await self._catalog.bump(account, "rules")
        return StoredRule(rule=rule_of(int(reply[0]), json.loads(reply[2])), created=created)

    async def list(self, account: str, user_id: str | None) -> list[Rule]:
        """The rules of exactly one scope, newest first."""
        raw, uses = await self._connection.calls(
            ("HGETALL", keys.policies(account)), ("HGETALL", keys.policy_uses(account))
        )
        rules = used(
            (rule_of(int(n), json.loads(text)) for n, text in pairs(raw).items()), pairs(uses)
        )
        return sorted(
            (rule for rule in rules if rule.user_id == user_id), key=lambda r: r.id, reverse=True
        )

    async def use(self, account: str, rule_id: int, call: str) -> Use:
        """Counts ``call`` as one that the rule lets start; the same call is counted once."""
        reply = await self._used(account, rule_id, call, release=False)
        return Use(granted=bool(reply[0]), last=bool(reply[1]))

    async def unuse(self, account: str, rule_id: int, call: str) -> None:
        """Takes that back for a call that did not start after all."""
        await self._used(account, rule_id, call, release=True)

    async def _used(self, account: str, rule_id: int, call: str, *, release: bool) -> Sequence[int]:
        args = Args(acct=account, id=str(rule_id), token=call, release=release)
        reply: Sequence[int] = await self._scripts.run("use_policy", keys.GLOBAL, args)
        return reply

    async def delete(self, account: str, user_id: str | None, rule_id: int) -> None:
        """Revokes a rule of that scope, or raises MissingError."""
        text = await self._connection.call("HGET", keys.policies(account), str(rule_id))
        rule = None if text is None else rule_of(rule_id, json.loads(text))
        if rule is not None and rule.user_id == user_id:
            args = Args(acct=account, id=str(rule_id))
            args.control["index"] = args.blob(_index(rule.user_id, rule.tool, rule.effect))
            await self._scripts.run("drop_policy", keys.GLOBAL, args)
        # Also for one that is gone: the call before may have died ahead of the version.
        await self._catalog.bump(account, "rules")
        if rule is None or rule.user_id != user_id:
            raise MissingError(f"no permission {rule_id}")


def _index(user_id: str | None, tool: str, effect: Verdict) -> str:
    return dumps([user_id, tool, effect.value])
