"""Agents: made, found by name within (account, user), listed, changed, archived."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.domain.error import ConflictError, MissingError
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.runs import dumps
from signoff.store.scripts import Args, Scripts, pairs

State = Literal["enabled", "disabled", "archived"]
_CHUNK = 100
#: Fields that are kept as JSON, each under its own name.
_JSON = (
    "tools",
    "external_tools",
    "mcp_servers",
    "role",
    "goals",
    "metadata",
    "allowed_senders",
    "model",
    "effort",
    "enable_memory",
    "enable_history",
    "enable_task_setup_tools",
    "enable_feedback",
    "enable_self_improvement",
    "prompt_profile",
    "disabled_builtin_tools",
    "display_order",
    "group_id",
    "remind_after",
    "expires_in",
    "on_expiry",
    "approvers",
)
#: Fields that are kept as text, by the name that the store has for them.
_TEXT = {"name": "name", "instructions": "instructions", "default_permission_mode": "mode"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent: what a run starts from. ``profile`` holds what only its readers understand."""

    id: int
    account: str
    user_id: str | None
    name: str
    instructions: str | None
    default_mode: str
    state: State
    tools: list[str] | None
    model: str | None
    effort: str | None
    created_ms: int
    updated_ms: int
    profile: Mapping[str, Any] = field(default_factory=dict)


class Agents:
    """Access to agents."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts
        self._indexed: set[str] = set()

    async def find_or_create(
        self, *, account: str, user_id: str | None, name: str, instructions: str | None
    ) -> Agent:
        """The agent of that name in that scope; ``instructions`` only matter when it is made."""
        args = Args(acct=account, scope=keys.scope_key(user_id))
        return await self._put(args, user_id, {"name": name, "instructions": instructions})

    async def create(
        self, *, account: str, user_id: str | None, fields: Mapping[str, Any]
    ) -> Agent:
        """Makes an agent; without a name it gets one. Names need not be unique.

        The first agent of a name is the one that is found by it.
        """
        agent_id = int(await self._connection.call("INCR", keys.sequence("agent")))
        args = Args(acct=account, scope=keys.scope_key(user_id), id=str(agent_id))
        return await self._put(args, user_id, {"name": f"Agent {agent_id}", **fields})

    async def get(self, account: str, agent_id: int) -> Agent:
        """The agent, archived ones too, or MissingError; another account's is missing."""
        raw = pairs(await self._connection.call("HGETALL", keys.agent(agent_id)))
        if raw.get("acct") != account:
            raise _missing(agent_id)
        return _agent(agent_id, raw)

    async def page(
        self,
        account: str,
        *,
        user_id: str | None,
        archived: bool,
        limit: int,
        before: int | None,
    ) -> tuple[list[Agent], bool]:
        """Agents newest first, older than ``before``, and whether there are more.

        Without ``user_id`` those of every user.
        """
        await self._index_old(account)
        place = keys.agents(account, None if user_id is None else keys.scope_key(user_id))
        found: list[Agent] = []
        cursor = before
        while len(found) <= limit:
            top = "+inf" if cursor is None else f"({cursor}"
            ids = await self._connection.call(
                "ZREVRANGEBYSCORE", place, top, "-inf", "LIMIT", 0, _CHUNK
            )
            if not ids:
                break
            cursor = int(ids[-1])
            rows = await self._connection.calls(*(("HGETALL", keys.agent(int(n))) for n in ids))
            agents = (_agent(int(n), pairs(row)) for n, row in zip(ids, rows, strict=True) if row)
            found.extend(agent for agent in agents if archived or agent.state != "archived")
            if len(ids) < _CHUNK:
                break
        return found[:limit], len(found) > limit

    async def roster(self, account: str, user_id: str | None) -> tuple[int, int | None]:
        """How many agents the list has, and when one last changed, archived ones included."""
        await self._index_old(account)
        place = keys.agents(account, None if user_id is None else keys.scope_key(user_id))
        ids = await self._connection.call("ZRANGE", place, 0, -1)
        rows = await self._connection.calls(
            *(("HMGET", keys.agent(int(n)), "state", "updated") for n in ids)
        )
        changed = max((int(updated) for _, updated in rows), default=None)
        return sum(state != b"archived" for state, _ in rows), changed

    async def change(self, agent: Agent, changes: Mapping[str, Any]) -> Agent:
        """Sets the named fields, where None clears."""
        return await self._change(agent, changes, name=changes.get("name"))

    async def archive(self, agent: Agent) -> None:
        """Takes the agent out of the list and gives its name free; its runs stay."""
        await self._change(agent, {}, state="archived")

    async def switch(self, agent: Agent, state: State, *, of: Sequence[State]) -> Agent:
        """Moves the agent from one of the states ``of``; raises ConflictError naming its state."""
        return await self._change(agent, {}, state=state, of=of)

    async def _put(self, args: Args, user_id: str | None, fields: Mapping[str, Any]) -> Agent:
        args.control["index"] = args.blob(dumps([user_id, fields["name"]]))
        stored = {"mode": "autonomous", **_stored(fields)}
        if user_id is not None:
            stored["user"] = user_id
        args.control["fields"] = {name: args.blob(value) for name, value in stored.items()}
        agent_id, raw = await self._scripts.run("put_agent", keys.GLOBAL, args)
        return _agent(int(agent_id), pairs(raw))

    async def _change(
        self,
        agent: Agent,
        changes: Mapping[str, Any],
        *,
        name: str | None = None,
        state: State | None = None,
        of: Sequence[State] | None = None,
    ) -> Agent:
        args = Args(acct=agent.account, id=str(agent.id), free=state == "archived")
        args.control["renamed"] = name is not None
        if of is not None:
            args.control["from"] = list(of)
        args.control["index"] = args.blob(dumps([agent.user_id, name or agent.name]))
        stored = _stored(changes) if state is None else {"state": state}
        args.control["fields"] = {field: args.blob(value) for field, value in stored.items()}
        args.control["drop"] = [_TEXT.get(n, n) for n, value in changes.items() if value is None]
        reply = await self._scripts.run("change_agent", keys.GLOBAL, args)
        if reply[0] == b"missing":
            raise _missing(agent.id)
        if reply[0] == b"state":
            found = reply[1].decode()
            raise ConflictError(f"the agent is {found}", details={"agent_status": found})
        return _agent(agent.id, pairs(reply[1]))

    async def _index_old(self, account: str) -> None:
        """Puts agents into the lists that were made before there were lists."""
        if account in self._indexed:
            return
        if not await self._connection.call("SISMEMBER", keys.agents_listed(), account):
            raw = pairs(await self._connection.call("HGETALL", keys.agent_names(account)))
            scopes = {number: keys.scope_key(json.loads(text)[0]) for text, number in raw.items()}
            await self._connection.calls(
                *(("ZADD", keys.agents(account, None), n, n) for n in scopes),
                *(("ZADD", keys.agents(account, scope), n, n) for n, scope in scopes.items()),
                ("SADD", keys.agents_listed(), account),
            )
        self._indexed.add(account)


def _stored(fields: Mapping[str, Any]) -> dict[str, str]:
    found = {_TEXT[name]: fields[name] for name in _TEXT if fields.get(name) is not None}
    found.update({name: dumps(fields[name]) for name in _JSON if fields.get(name) is not None})
    return found


def _agent(agent_id: int, raw: Mapping[str, str]) -> Agent:
    profile = {name: json.loads(raw[name]) if name in raw else None for name in _JSON}
    state: State = raw.get("state", "enabled")  # type: ignore[assignment]
    return Agent(
        id=agent_id,
        account=raw["acct"],
        user_id=raw.get("user"),
        name=raw["name"],
        instructions=raw.get("instructions"),
        default_mode=raw["mode"],
        state=state,
        tools=profile.pop("tools"),
        model=profile.pop("model"),
        effort=profile.pop("effort"),
        created_ms=int(raw["created"]),
        updated_ms=int(raw["updated"]),
        profile=profile,
    )


def _missing(agent_id: int) -> MissingError:
    return MissingError(f"no agent {agent_id}")
