"""What the command line does with the store: keys, accounts."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from signoff.ambient import now_ms  # noqa: TID251 - the command line is a composition root
from signoff.domain.error import UnavailableError
from signoff.store.accounts import Accounts, KeyRow
from signoff.store.connection import Connection
from signoff.store.presence import ALIVE_S, Presence

T = TypeVar("T")
KEY_PREFIX = "sgk_"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key just made; this is the only time its secret is known."""

    id: str
    #: The account's name and its id.
    account: str
    account_id: str
    name: str
    secret: str


def create_key(redis_url: str, *, account: str, name: str) -> NewKey:
    """Makes an API key of the account (id or name), which is made if there is none of that name.

    Raises MissingError for digits that are no account's id: they never become a name.
    """
    secret = KEY_PREFIX + secrets.token_urlsafe(32)

    async def work(connection: Connection) -> NewKey:
        accounts = Accounts(connection)
        account_id = await accounts.find_or_make(account)
        key_id = await accounts.add_key(account_id, secret=secret, name=name, now_ms=now_ms())
        return NewKey(
            id=key_id,
            account=await accounts.name_of(account_id),
            account_id=account_id,
            name=name,
            secret=secret,
        )

    return _run(redis_url, work)


def list_keys(redis_url: str, *, account: str | None) -> list[KeyRow]:
    """The keys of one account (id or name), or of all; MissingError when there is no such one."""

    async def work(connection: Connection) -> list[KeyRow]:
        accounts = Accounts(connection)
        return await accounts.list_keys(None if account is None else await accounts.find(account))

    return _run(redis_url, work)


def revoke_key(redis_url: str, key_id: str) -> bool:
    """Revokes a key; False when there is none of that id."""
    return _run(redis_url, lambda c: Accounts(c).revoke_key(key_id, now_ms=now_ms()))


def ensure_dev_accounts(redis_url: str, dev_keys: Sequence[str]) -> None:
    """One account per key; the same key is the same account at every start."""

    async def work(connection: Connection) -> None:
        accounts = Accounts(connection)
        for key in dev_keys:
            name = "dev-" + hashlib.sha256(key.encode()).hexdigest()[:12]
            account_id = await accounts.ensure(name)
            await accounts.add_key(account_id, secret=key, name="dev", now_ms=now_ms())

    _run(redis_url, work)


def shown_address(redis_url: str) -> str:
    """Where the store is, without a user or a password."""
    parts = urlsplit(redis_url)
    place = parts.netloc.rpartition("@")[2]
    # Options may hold a password as well; of them only the database says where the store is.
    database = parse_qs(parts.query).get("db", [])
    query = f"?db={database[0]}" if database else ""
    return f"{parts.scheme}://{place}{parts.path}{query}"


def alive(redis_url: str, kind: str, *, host: str, within_s: float = ALIVE_S) -> bool:
    """Whether a process of ``kind`` (worker, relay) on ``host`` gave a sign within the time."""
    return _run(redis_url, lambda c: Presence(c).alive_on(kind, host, within_s))


def _run(redis_url: str, work: Callable[[Connection], Awaitable[T]]) -> T:
    async def main() -> T:
        connection = Connection(redis_url)
        try:
            return await work(connection)
        except UnavailableError as error:
            # For the operator at the command line; what clients of the service read names no host.
            raise UnavailableError(f"{error.message} at {shown_address(redis_url)}") from error
        finally:
            await connection.close()

    return asyncio.run(main())
