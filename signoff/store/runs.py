"""Runs as everybody may see them: create, read, list, history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.call import Call
from signoff.domain.error import LimitedError, MissingError
from signoff.domain.event import Event
from signoff.domain.gate import Gate, GateState
from signoff.domain.jsontext import compact
from signoff.domain.message import Message, decode, encode, unpack
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.records import RunRecord, call_records, gate_record, run_record
from signoff.store.scripts import Args, Scripts, pairs, stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Fanout:
    """The endpoints an event goes to, with the version of the set they were taken from."""

    version: str
    endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a run of an end user is held against, with the version that it was read at."""

    version: str
    period: str
    run_limit: int | None = None
    rate_per_minute: int | None = None
    cost_limit_micros: int | None = None
    used_elsewhere: int = 0
    spent_elsewhere: int = 0
    started_elsewhere: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to create; ``message`` is its first user message."""

    id: int
    account: str
    agent_id: int
    user_id: str | None
    mode: str
    human_in_the_loop: bool
    config: dict[str, Any]
    message: Message
    started: Event
    fanout: Fanout
    frames: tuple[bytes, ...] = ()
    #: Of runs of end users.
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRun:
    """What a create did: the run as it was made, None if it was there; whether to send a hint."""

    run: RunRecord | None
    hint: bool


def event_args(args: Args, event: Event) -> dict[str, Any]:
    """An event as the scripts take it."""
    return {"id": event.id, "type": event.type, "body": args.blob(event.body)}


def dumps(value: Any) -> str:
    """Compact JSON text for blobs of our own making."""
    return compact(value)


def _limits(allowance: Allowance) -> dict[str, Any]:
    return {
        "v": allowance.version,
        "period": allowance.period,
        "runs": allowance.run_limit,
        "rate": allowance.rate_per_minute,
        "cost": allowance.cost_limit_micros,
        "used": allowance.used_elsewhere,
        "spent": allowance.spent_elsewhere,
        "started": allowance.started_elsewhere,
    }


def _limited(reply: list[Any]) -> LimitedError:
    if reply[1] == b"runs":
        msg = "this end user has used the runs of the month"
        return LimitedError(msg, code="END_USER_RUN_LIMIT_REACHED")
    if reply[1] == b"cost":
        msg = "this end user's runs have cost what they may in a month"
        return LimitedError(msg, code="END_USER_COST_LIMIT_REACHED")
    msg = "this end user has started as many runs as a minute may have"
    wait_s = -(-int(reply[2]) // 1000)
    return LimitedError(
        msg, code="END_USER_RATE_LIMIT_REACHED", details={"retry_after": max(1, wait_s)}
    )


Place = tuple[int, str]


def place_of(gate: Gate) -> Place:
    """By what open gates are ordered: as in the index, by time and then by its members."""
    return gate.created_ms, f"{gate.run_id}:{gate.id}"


class Runs:
    """Access to runs in all shards."""

    def __init__(self, connection: Connection, scripts: Scripts, shards: Shards) -> None:
        self._connection = connection
        self._scripts = scripts
        self.shards = shards

    async def next_id(self) -> int:
        """A new run id; ids of runs that were never created leave gaps."""
        return int(await self._connection.call("INCR", keys.sequence("run")))

    async def create(self, run: NewRun) -> WrittenRun:
        """Creates the run. Idempotent by run id.

        Raises StaleError when the endpoints or the caps moved since they were read, LimitedError
        when a cap is reached.
        """
        args = Args(
            id=str(run.id),
            acct=run.account,
            scope=keys.scope_key(run.user_id),
            agent=str(run.agent_id),
            mode=run.mode,
            hitl="1" if run.human_in_the_loop else "0",
            subs_v=run.fanout.version,
            eps=list(run.fanout.endpoints),
            shard=self.shards.of(run.id),
            shards=self.shards.count,
        )
        control = args.control
        if run.user_id is not None:
            control["user"] = args.blob(run.user_id)
        if run.allowance is not None:
            control["limits"] = _limits(run.allowance)
        control["config"] = args.blob(dumps(run.config))
        control["message"] = args.blob(encode(run.message))
        control["event"] = event_args(args, run.started)
        control["frames"] = [args.blob(frame) for frame in run.frames]
        reply = await self._scripts.run("create_run", self.shards.prefix(run.id), args)
        if reply[0] == b"stale":
            raise stale(reply)
        if reply[0] == b"exists":
            return WrittenRun(run=None, hint=False)
        if reply[0] == b"limited":
            raise _limited(reply)
        return WrittenRun(run=run_record(run.id, pairs(reply[2])), hint=bool(reply[1]))

    async def load(self, account: str, run_id: int) -> RunRecord:
        """The run, or MissingError; another account's run is missing."""
        raw = await self._connection.call("HGETALL", keys.run(self.shards.prefix(run_id), run_id))
        if not raw or (fields := pairs(raw))["acct"] != account:
            raise MissingError(f"no run {run_id}")
        return run_record(run_id, fields)

    async def load_with_gates(self, account: str, run_id: int) -> tuple[RunRecord, list[Gate]]:
        """The run and all its gates, oldest first."""
        run = await self.load(account, run_id)
        return run, await self.gates(run_id)

    async def calls(self, run_id: int) -> list[Call]:
        """The calls of the run's current step."""
        raw = await self._connection.call("HGETALL", keys.calls(self.shards.prefix(run_id), run_id))
        return call_records(pairs(raw))

    async def gates(self, run_id: int) -> list[Gate]:
        """All gates of the run, oldest first."""
        prefix = self.shards.prefix(run_id)
        ids = await self._connection.call("LRANGE", keys.run_gates(prefix, run_id), 0, -1)
        return await self.gates_by_id(run_id, [item.decode() for item in ids])

    async def gates_by_id(self, run_id: int, ids: Sequence[str]) -> list[Gate]:
        """Those of the named gates that belong to the run."""
        if not ids:
            return []
        prefix = self.shards.prefix(run_id)
        rows = await self._connection.calls(*(("HGETALL", keys.gate(prefix, item)) for item in ids))
        found = [(item, pairs(row)) for item, row in zip(ids, rows, strict=True) if row]
        return [gate_record(item, raw) for item, raw in found if raw["run"] == str(run_id)]

    async def history(self, run_id: int, start: int = 0, stop: int = -1) -> list[Message]:
        """The run's messages from position ``start`` to ``stop``, both included; -1 is the last."""
        prefix = self.shards.prefix(run_id)
        rows = await self._connection.call("LRANGE", keys.messages(prefix, run_id), start, stop)
        return [decode(row) for row in rows]

    async def history_length(self, run_id: int) -> int:
        """How many messages the run has."""
        prefix = self.shards.prefix(run_id)
        return int(await self._connection.call("LLEN", keys.messages(prefix, run_id)))

    async def saved(self, run_id: int) -> bytes | None:
        """What the run's agent saved with its last step, if it saves anything."""
        key = keys.saved(self.shards.prefix(run_id), run_id)
        raw = await self._connection.call("GET", key)
        return None if raw is None else unpack(raw)

    async def count(self, run_id: int, name: str) -> int:
        """A counter that lives with the run; returns the new value."""
        key = keys.counters(self.shards.prefix(run_id), run_id)
        return int(await self._connection.call("HINCRBY", key, name, 1))

    async def append_frame(self, run_id: int, frame: bytes) -> None:
        """Adds a frame to the run's event stream; streams are a view, never the truth."""
        key = keys.stream(self.shards.prefix(run_id), run_id)
        await self._connection.calls(
            ("XADD", key, "MAXLEN", "~", 5000, "*", "f", frame), ("PUBLISH", key, "")
        )

    async def open_gates(
        self, account: str, limit: int, *, after: Place | None = None
    ) -> list[Gate]:
        """Open gates of the account across runs, oldest first, from behind ``after`` on."""
        prefixes = self.shards.prefixes()
        window = ("-inf" if after is None else after[0], "+inf", "LIMIT", 0, limit)
        rows = await self._connection.calls(
            *(("ZRANGEBYSCORE", keys.open_gates(prefix, account), *window) for prefix in prefixes)
        )
        places = [
            (prefix, item.decode().partition(":")[2])
            for prefix, items in zip(prefixes, rows, strict=True)
            for item in items
        ]
        hashes = await self._connection.calls(
            *(("HGETALL", keys.gate(prefix, gate_id)) for prefix, gate_id in places)
        )
        found = [
            gate_record(gate_id, pairs(raw))
            for (_, gate_id), raw in zip(places, hashes, strict=True)
            if raw
        ]
        # A gate may have been settled between the two reads.
        still_open = [gate for gate in found if gate.state is GateState.PENDING]
        behind = [gate for gate in still_open if after is None or place_of(gate) > after]
        return sorted(behind, key=place_of)[:limit]

    async def gate_place(self, account: str, gate_id: str) -> Place | None:
        """Where a gate of the account stands among the open ones, also when it is settled."""
        rows = await self._connection.calls(
            *(("HGETALL", keys.gate(prefix, gate_id)) for prefix in self.shards.prefixes())
        )
        found = [raw for row in rows if row and (raw := pairs(row))["acct"] == account]
        return place_of(gate_record(gate_id, found[0])) if found else None

    async def load_all(self, account: str, ids: Sequence[int]) -> dict[int, RunRecord]:
        """Those of the named runs that the account has."""
        rows = await self._connection.calls(
            *(("HGETALL", keys.run(self.shards.prefix(item), item)) for item in ids)
        )
        found = ((item, pairs(row)) for item, row in zip(ids, rows, strict=True) if row)
        return {item: run_record(item, raw) for item, raw in found if raw["acct"] == account}
