"""Accounts and their API keys; keys are kept as SHA-256 only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from signoff.domain.error import InvalidFieldError, MissingError
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.scripts import pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who makes a request: an account, through one of its keys."""

    account: str
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One key as it is listed; the secret is not kept."""

    id: str
    #: The account's name and its id.
    account: str
    account_id: str
    name: str
    created_at: int
    revoked_at: int | None
    prefix: str


def key_digest(secret: str) -> str:
    """What stands for a key in the store. Keys are random, so a plain hash does not leak them."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Accounts:
    """Access to accounts and keys."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ensure(self, name: str) -> str:
        """The id of the account called ``name``, made if there is none."""
        found = await self._connection.call("HGET", keys.accounts(), name)
        if found is None:
            number = await self._connection.call("INCR", keys.sequence("account"))
            await self._connection.call("HSETNX", keys.accounts(), name, str(number))
            found = await self._connection.call("HGET", keys.accounts(), name)
        return str(found.decode())

    async def find(self, named: str) -> str:
        """The id of the account of that id or name; raises MissingError when there is none.

        What is all digits is an id first: no account made here has such a name.
        """
        names = pairs(await self._connection.call("HGETALL", keys.accounts()))
        found = named if named in names.values() else names.get(named)
        if found is None:
            raise MissingError(f"there is no account {named[:64]!r}", field="account")
        return found

    async def find_or_make(self, named: str) -> str:
        """The same, for which an account is made if a name is given that none has.

        Raises MissingError for digits that are no account's id, and InvalidFieldError for a name
        that cannot be shown on one line.
        """
        if not named or not named.isprintable() or named != named.strip():
            msg = "an account's name is printable text without spaces at its ends"
            raise InvalidFieldError(msg, field="account")
        try:
            return await self.find(named)
        except MissingError as error:
            if named.isdigit():
                msg = f"{error.message}; a name of digits alone would be taken for an id"
                raise MissingError(msg, field="account") from None
        return await self.ensure(named)

    async def name_of(self, account_id: str) -> str:
        """The account's name, for people."""
        names = pairs(await self._connection.call("HGETALL", keys.accounts()))
        return next((name for name, found in names.items() if found == account_id), "")

    async def add_key(self, account: str, *, secret: str, name: str, now_ms: int) -> str:
        """Stores a key of the account; returns its id. The same secret is the same key."""
        digest = key_digest(secret)
        record = keys.api_key(digest)
        added = await self._connection.call("HSETNX", record, "acct", account)
        if added:
            await self._connection.calls(
                ("HSET", record, "name", name, "created", str(now_ms), "prefix", secret[:6]),
                ("SADD", keys.account_keys(account), digest),
            )
        return digest[:16]

    async def authenticate(self, secret: str) -> Principal | None:
        """Who the key belongs to; None when it is unknown or revoked."""
        digest = key_digest(secret)
        account, revoked = await self._connection.call(
            "HMGET", keys.api_key(digest), "acct", "revoked"
        )
        if account is None or revoked is not None:
            return None
        return Principal(account=account.decode(), key_id=digest[:16])

    async def list_keys(self, account: str | None) -> list[KeyRow]:
        """The keys of one account, by its id, or of all."""
        names = pairs(await self._connection.call("HGETALL", keys.accounts()))
        rows: list[KeyRow] = []
        for name, account_id in names.items():
            if account not in (None, account_id):
                continue
            for digest in await self._connection.call("SMEMBERS", keys.account_keys(account_id)):
                raw = pairs(await self._connection.call("HGETALL", keys.api_key(digest.decode())))
                revoked = raw.get("revoked")
                rows.append(
                    KeyRow(
                        id=digest.decode()[:16],
                        account=name,
                        account_id=account_id,
                        name=raw.get("name", ""),
                        created_at=int(raw.get("created", "0")),
                        revoked_at=int(revoked) if revoked else None,
                        prefix=raw.get("prefix", ""),
                    )
                )
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    async def live_keys(self, account: str) -> frozenset[str]:
        """The ids of the account's keys that are not revoked."""
        digests = await self._connection.call("SMEMBERS", keys.account_keys(account))
        found = [digest.decode() for digest in digests]
        revoked = await self._connection.calls(
            *(("HGET", keys.api_key(digest), "revoked") for digest in found)
        )
        return frozenset(d[:16] for d, at in zip(found, revoked, strict=True) if at is None)

    async def revoke_key(self, key_id: str, *, now_ms: int) -> bool:
        """Revokes the key; False when there is none of that id."""
        for account_id in pairs(await self._connection.call("HGETALL", keys.accounts())).values():
            for digest in await self._connection.call("SMEMBERS", keys.account_keys(account_id)):
                if digest.decode()[:16] == key_id:
                    record = keys.api_key(digest.decode())
                    await self._connection.call("HSETNX", record, "revoked", str(now_ms))
                    return True
        return False
