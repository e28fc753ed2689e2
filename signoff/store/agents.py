"""Agents: found or made by name within (account, user)."""

from __future__ import annotations

from dataclasses import dataclass

from signoff.domain.error import MissingError
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.runs import dumps
from signoff.store.scripts import Args, Scripts, pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent: what a run starts from."""

    id: int
    account: str
    user_id: str | None
    name: str
    instructions: str | None
    default_mode: str


class Agents:
    """Access to agents."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts

    async def find_or_create(
        self, *, account: str, user_id: str | None, name: str, instructions: str | None
    ) -> Agent:
        """The agent of that name in that scope; ``instructions`` only matter when it is made."""
        args = Args(acct=account)
        args.control["index"] = args.blob(dumps([user_id, name]))
        fields = {"name": name, "mode": "autonomous"}
        if user_id is not None:
            fields["user"] = user_id
        if instructions is not None:
            fields["instructions"] = instructions
        args.control["fields"] = {key: args.blob(value) for key, value in fields.items()}
        agent_id, raw = await self._scripts.run("put_agent", keys.GLOBAL, args)
        return _agent(int(agent_id), pairs(raw))

    async def get(self, account: str, agent_id: int) -> Agent:
        """The agent, or MissingError; another account's is missing."""
        raw = pairs(await self._connection.call("HGETALL", keys.agent(agent_id)))
        if raw.get("acct") != account:
            raise MissingError(f"no agent {agent_id}")
        return _agent(agent_id, raw)


def _agent(agent_id: int, raw: dict[str, str]) -> Agent:
    return Agent(
        id=agent_id,
        account=raw["acct"],
        user_id=raw.get("user"),
        name=raw["name"],
        instructions=raw.get("instructions"),
        default_mode=raw["mode"],
    )
