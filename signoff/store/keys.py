"""Every key name, in one place.

Keys of one run and its outbox carry the hash tag of their shard (``sg:{s0}:``), so a script
touches one cluster slot. What belongs to accounts as such (endpoints, policies, keys, ids)
carries ``sg:{g}:``. Strangers' text is hashed before it becomes part of a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

GLOBAL = "sg:{g}:"


def shard_prefix(shard: int) -> str:
    """The prefix of all keys of ``shard``."""
    return f"sg:{{s{shard}}}:"


def scope_key(user_id: str | None) -> str:
    """A key part for one end user's scope; ``-`` is the scope of runs without a user."""
    if user_id is None:
        return "-"
    return hashlib.sha256(user_id.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Shards:
    """Which shard an id lives in; the count is fixed at deployment."""

    count: int = 1

    def of(self, run_id: int) -> int:
        """The shard of a run, or of a delivery: their ids are dealt out round robin."""
        return (run_id - 1) % self.count

    def prefix(self, run_id: int) -> str:
        """The key prefix of the run's shard."""
        return shard_prefix(self.of(run_id))

    def prefixes(self) -> list[str]:
        """The prefixes of all shards."""
        return [shard_prefix(n) for n in range(self.count)]


def sequence(name: str) -> str:
    """The counter that gives out integer ids of one kind."""
    return f"{GLOBAL}seq:{name}"


def api_key(digest: str) -> str:
    """The record of one API key, by the SHA-256 of its secret."""
    return f"{GLOBAL}key:{digest}"


def account_keys(account: str) -> str:
    """The ids (digests) of an account's API keys."""
    return f"{GLOBAL}keys:{account}"


def accounts() -> str:
    """Account name to account id."""
    return f"{GLOBAL}accounts"


def endpoint(endpoint_id: int | str) -> str:
    """One webhook endpoint."""
    return f"{GLOBAL}ep:{endpoint_id}"


def account_endpoints(account: str) -> str:
    """The ids of an account's webhook endpoints."""
    return f"{GLOBAL}eps:{account}"


def policies(account: str) -> str:
    """An account's stored rules, id to JSON."""
    return f"{GLOBAL}pol:{account}"


def policy_index(account: str) -> str:
    """(user, tool, effect) to rule id."""
    return f"{GLOBAL}polidx:{account}"


def agent(agent_id: int | str) -> str:
    """One agent."""
    return f"{GLOBAL}agent:{agent_id}"


def agent_names(account: str) -> str:
    """(user, name) to agent id."""
    return f"{GLOBAL}agents:{account}"


def idempotency(account: str, route: str, key: str) -> str:
    """The reservation of one Idempotency-Key within (account, route)."""
    digest = hashlib.sha256(f"{len(route)}:{route}{key}".encode()).hexdigest()
    return f"{GLOBAL}idem:{account}:{digest}"


def callback(endpoint_id: int | str, webhook_id: str) -> str:
    """The reservation of one inbound ``webhook-id`` at one endpoint."""
    return f"{GLOBAL}cb:{endpoint_id}:{webhook_id}"


def heartbeat(kind: str) -> str:
    """Process name to the time of its last sign of life, by kind (worker, relay)."""
    return f"{GLOBAL}hb:{kind}"


def versions(prefix: str) -> str:
    """The versions of each account's rule and subscription sets, kept in every shard."""
    return f"{prefix}ver"
