"""Every key name that Python builds, in one place; what only scripts touch is named in ``lua/``.

Keys of one run and its outbox carry the hash tag of their shard (``sg:{s0}:``), so a script
touches one cluster slot. What belongs to accounts as such (endpoints, policies, keys, ids)
carries ``sg:{g}:``. Strangers' text is hashed before it becomes part of a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

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


def policy_uses(account: str) -> str:
    """How often and when an account's rules were last used, by id."""
    return f"{GLOBAL}poluse:{account}"


def agent(agent_id: int | str) -> str:
    """One agent."""
    return f"{GLOBAL}agent:{agent_id}"


def agent_names(account: str) -> str:
    """JSON of (user, name) to the id of the agent that is found by it."""
    return f"{GLOBAL}agents:{account}"


def agents(account: str, scope: str | None) -> str:
    """The ids of an account's agents: those of one scope, or all."""
    return f"{GLOBAL}agids:{account}" + ("" if scope is None else f":{scope}")


def agents_listed() -> str:
    """The accounts all of whose agents are in the lists above."""
    return f"{GLOBAL}agents-listed"


def end_user(account: str, scope: str) -> str:
    """The profile of one end user."""
    return f"{GLOBAL}user:{account}:{scope}"


def end_users(account: str) -> str:
    """The scopes of an account's end users, by the id of their profile."""
    return f"{GLOBAL}users:{account}"


def account_settings(account: str) -> str:
    """The settings of an account, each as JSON."""
    return f"{GLOBAL}settings:{account}"


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


def layout() -> str:
    """How many shards the store was laid out with."""
    return f"{GLOBAL}layout"


def run(prefix: str, run_id: int) -> str:
    """One run."""
    return f"{prefix}run:{run_id}"


def calls(prefix: str, run_id: int) -> str:
    """The calls of a run's current step."""
    return f"{prefix}calls:{run_id}"


def messages(prefix: str, run_id: int) -> str:
    """A run's history, oldest first."""
    return f"{prefix}msg:{run_id}"


def saved(prefix: str, run_id: int) -> str:
    """What the run's agent saved with its last step."""
    return f"{prefix}saved:{run_id}"


def counters(prefix: str, run_id: int) -> str:
    """Counters that live with a run."""
    return f"{prefix}counters:{run_id}"


def stream(prefix: str, run_id: int) -> str:
    """The frames of a run, for watchers."""
    return f"{prefix}st:{run_id}"


def gate(prefix: str, gate_id: str) -> str:
    """One gate."""
    return f"{prefix}gate:{gate_id}"


def run_gates(prefix: str, run_id: int) -> str:
    """The ids of a run's gates, oldest first."""
    return f"{prefix}gates:{run_id}"


def open_gates(prefix: str, account: str) -> str:
    """``run:gate`` of each open gate of an account, by the time it was opened."""
    return f"{prefix}open:{account}"


def requesters(prefix: str, run_id: int) -> str:
    """Who asked for work in a run after it had started."""
    return f"{prefix}askers:{run_id}"


def timed(prefix: str) -> str:
    """The pauses of a shard that get a reminder or expire, by when they do."""
    return f"{prefix}timed"


def runs(prefix: str, account: str, scope: str | None) -> str:
    """The ids of an account's runs that are not archived: those of one scope, or all."""
    return f"{prefix}runs:{account}" + ("" if scope is None else f":{scope}")


def used(prefix: str, account: str, scope: str, period: str) -> str:
    """What an end user has used in a period, as far as this shard knows."""
    return f"{prefix}use:{account}:{scope}:{period}"


def starts(prefix: str, account: str, scope: str) -> str:
    """An end user's run starts of the last minute in this shard, while they are bounded."""
    return f"{prefix}starts:{account}:{scope}"


def archived_runs(prefix: str, account: str, scope: str | None) -> str:
    """The ids of an account's archived runs: those of one scope, or all."""
    return f"{prefix}archived:{account}" + ("" if scope is None else f":{scope}")


def blocked_runs(prefix: str, account: str, scope: str | None) -> str:
    """The ids of the runs that wait for a person: those of one scope, or all."""
    return f"{prefix}blocked:{account}" + ("" if scope is None else f":{scope}")


def live_runs(prefix: str, account: str, scope: str) -> str:
    """The ids of a scope's runs that are not over."""
    return f"{prefix}live:{account}:{scope}"


def busy_runs(prefix: str, account: str, agent_id: int) -> str:
    """The ids of an agent's runs that are not over, archived ones too."""
    return f"{prefix}busy:{account}:{agent_id}"


def active_agents(prefix: str, account: str) -> str:
    """Agent id to the time at which the status of one of its runs last changed."""
    return f"{prefix}active:{account}"


def settled_runs(prefix: str, account: str, scope: str) -> str:
    """Agent id to the id of its newest run that is over, in one scope."""
    return f"{prefix}settled:{account}:{scope}"


def changed_scopes(prefix: str, account: str) -> str:
    """Scope to the time at which the status of one of its runs last changed."""
    return f"{prefix}changed:{account}"


def share(token: str) -> str:
    """The run that a share token opens."""
    return f"{GLOBAL}share:{hashlib.sha256(token.encode()).hexdigest()}"


def delivery(prefix: str, delivery_id: int) -> str:
    """One delivery."""
    return f"{prefix}dlv:{delivery_id}"


def attempts(prefix: str, delivery_id: int) -> str:
    """The attempt log of a delivery."""
    return f"{prefix}att:{delivery_id}"


def endpoint_deliveries(prefix: str, endpoint_id: int) -> str:
    """The ids of an endpoint's deliveries in one shard."""
    return f"{prefix}dlvs:{endpoint_id}"


def endpoint_failures(prefix: str, endpoint_id: int) -> str:
    """Since when an endpoint has only failed in one shard."""
    return f"{prefix}epf:{endpoint_id}"


def event(prefix: str, event_id: str) -> str:
    """One event."""
    return f"{prefix}ev:{event_id}"


def events(prefix: str, account: str) -> str:
    """The ids of an account's events in one shard, by their time."""
    return f"{prefix}evs:{account}"


def audit(prefix: str, account: str) -> str:
    """An account's audit trail in one shard."""
    return f"{prefix}audit:{account}"


def due(prefix: str, endpoint_id: str) -> str:
    """The deliveries of an endpoint that are not made yet, by the time at which they are due."""
    return f"{prefix}due:{endpoint_id}"


def queue(prefix: str, name: Literal["ready", "leases", "dlease", "awake", "eps", "epin"]) -> str:
    """One of a shard's queues.

    Runs with due work; runs that are held; deliveries on their way; workers that look for work;
    endpoints with something due; how much each has on its way.
    """
    return f"{prefix}{name}"


def channel(prefix: str, name: Literal["wake", "held", "due", "shown", "timed"]) -> str:
    """Where a shard says that a run is ready, a held run changed, or a delivery is due.

    ``timed``: a pause was opened that gets a reminder or expires.
    ``shown``: what a run shows of itself, its status and its open gates, changed.
    """
    return f"{prefix}{name}"
