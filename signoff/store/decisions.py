"""The moves that need no lease: decide, switch the mode, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.domain.decision import Settlement
from signoff.domain.error import MissingError, StaleError
from signoff.domain.event import Event
from signoff.domain.gate import Gate
from signoff.domain.message import Message, encode
from signoff.domain.mode import Mode
from signoff.store import keys
from signoff.store.connection import Connection
from signoff.store.keys import Shards
from signoff.store.records import REMEMBERED, RunRecord, gate_record
from signoff.store.runs import Fanout, dumps, event_args
from signoff.store.scripts import Args, Scripts, pairs, stale
from signoff.store.turns import Announcement


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """An allow as one of several: whose, of what, after how many changes, and if it settles."""

    who: str
    digest: str
    seen: int
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """One settled decision on its way to the store."""

    gate_id: str
    settlement: Settlement
    by: str
    reason: str | None
    expected_digest: str | None
    grant: str
    #: Of a gate that needs several approvers.
    tally: Tally | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lapse:
    """A pause that nobody settled in time, with the event that says so."""

    pause: int
    event: Event
    fanout: Fanout


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the store says of one decision: '' or a refusal code, and the gate as it stands."""

    code: str
    gate: Gate | None
    applied: bool
    #: An allow that was kept, and that alone settles nothing.
    noted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The reply to a batch; ``accepted`` False means that nothing changed."""

    accepted: bool
    resumed: bool
    hint: bool
    outcomes: list[Outcome]


class Decisions:
    """Compare-and-set moves on gates and runs, durable when they return."""

    def __init__(self, connection: Connection, scripts: Scripts, shards: Shards) -> None:
        self._connection = connection
        self._scripts = scripts
        self._shards = shards

    async def decide(
        self,
        run: RunRecord,
        resolutions: Sequence[Resolution],
        *,
        resumed: Event,
        fanout: Fanout,
        frames: Sequence[bytes] = (),
    ) -> Decided:
        """Applies all resolutions or none; repeats of a standing resolution change nothing."""
        args = self._args(run, fanout, resumed, frames)
        args.control["mode_v"] = run.mode_v
        args.control["items"] = [resolution_args(args, resolution) for resolution in resolutions]
        reply = await self._run("decide", run, args)
        rows = reply[3:]
        return Decided(
            accepted=reply[0] == b"ok",
            resumed=bool(reply[1]),
            hint=bool(reply[2]),
            outcomes=[
                _outcome(resolution.gate_id, row)
                for resolution, row in zip(resolutions, rows, strict=True)
            ],
        )

    async def refused(self, run: RunRecord, gate_id: str, *, by: str, code: str) -> None:
        """Notes in the audit that somebody decided who may not."""
        key = keys.audit(self._shards.prefix(run.id), run.account)
        fields = ("what", "refused", "run", run.id, "request", gate_id, "by", by, "code", code)
        await self._connection.call("XADD", key, "MAXLEN", "~", 100_000, "*", *fields)

    async def note_requester(self, run: RunRecord, by: str) -> None:
        """Notes that ``by`` asked for work in the run after it had started."""
        key = keys.requesters(self._shards.prefix(run.id), run.id)
        await self._connection.call("SADD", key, by)

    async def requesters(self, run: RunRecord) -> frozenset[str]:
        """All who asked for work in the run."""
        key = keys.requesters(self._shards.prefix(run.id), run.id)
        later = await self._connection.call("SMEMBERS", key)
        return frozenset([*run.config.get("requested_by", ()), *(item.decode() for item in later)])

    async def remembered(self, run: RunRecord, gate_id: str, tools: dict[str, int]) -> None:
        """Notes the policies that a remembered decision stored (tool name to policy id)."""
        prefix = self._shards.prefix(run.id)
        fields = [part for tool, n in tools.items() for part in (REMEMBERED + tool, str(n))]
        await self._connection.calls(
            ("HSET", keys.run(prefix, run.id), *fields),
            ("HSET", keys.gate(prefix, gate_id), "remember", "2"),
        )

    async def switch_mode(
        self,
        run: RunRecord,
        mode: Mode,
        *,
        by: str,
        allow: Sequence[tuple[str, str]],
        rules_v: str,
        resumed: Event,
        fanout: Fanout,
        frames: Sequence[bytes] = (),
    ) -> bool:
        """Changes the mode; ``allow`` names (gate, fingerprint) it settles. Returns hint.

        Raises StaleError when the run, the rules or the endpoints moved; details['status'] of
        a StaleError 'terminal' says how the run ended.
        """
        args = self._args(run, fanout, resumed, frames)
        args.control.update(
            rev=run.rev,
            rules_v=rules_v,
            mode=mode.value,
            hitl=mode.needs_person,
            by=by,
            allow=[{"req": gate_id, "fp": fingerprint} for gate_id, fingerprint in allow],
        )
        reply = await self._run("switch_mode", run, args)
        return bool(reply[2])

    async def cancel(
        self,
        run: RunRecord,
        *,
        by: str,
        results: dict[int, dict[str, str]],
        message: Message | None,
        cancelled: Event,
        fanout: Fanout,
        frames: Sequence[bytes] = (),
        dropped: Mapping[int, Announcement] | None = None,
        lapse: Lapse | None = None,
    ) -> None:
        """Ends the run; ``results`` are those of its unfinished calls, ``message`` all of them.

        ``dropped`` are the queued messages that end with it, each with its event. With
        ``lapse`` it ends because of that, or StaleError is raised.
        """
        args = self._args(run, fanout, cancelled, frames)
        args.control.update(rev=run.rev, by=by)
        args.control["calls"] = [
            {"n": str(n), "result": args.blob(dumps(result))} for n, result in results.items()
        ]
        if message is not None:
            args.control["message"] = args.blob(encode(message))
        if lapse is not None:
            args.control["expiry"] = {
                "pause": str(lapse.pause),
                "event": event_args(args, lapse.event),
                "eps": list(lapse.fanout.endpoints),
            }
        if dropped:
            args.control["dropped"] = dumps([*run.dropped, *dropped])
            args.control["dropped_events"] = [
                {"event": event_args(args, item.event), "eps": list(item.fanout.endpoints)}
                for item in dropped.values()
            ]
        await self._run("cancel", run, args)

    def _args(self, run: RunRecord, fanout: Fanout, event: Event, frames: Sequence[bytes]) -> Args:
        args = Args(
            id=str(run.id),
            acct=run.account,
            eps=list(fanout.endpoints),
            subs_v=fanout.version,
            shard=self._shards.of(run.id),
            shards=self._shards.count,
        )
        args.control["event"] = event_args(args, event)
        args.control["frames"] = [args.blob(frame) for frame in frames]
        return args

    async def _run(self, name: str, run: RunRecord, args: Args) -> Any:
        reply = await self._scripts.run(name, self._shards.prefix(run.id), args)
        if reply[0] == b"missing":
            raise MissingError(f"no run {run.id}")
        if reply[0] == b"stale":
            raise stale(reply)
        if reply[0] == b"terminal":
            status = reply[1].decode()
            raise StaleError(f"the run is {status}", details={"what": "terminal", "status": status})
        return reply


def resolution_args(args: Args, resolution: Resolution) -> dict[str, Any]:
    """A settled decision as the scripts take it."""
    s = resolution.settlement
    item: dict[str, Any] = {
        "req": resolution.gate_id,
        "state": s.state.value,
        "fp": s.fingerprint,
        "by": resolution.by,
        "call": "allowed" if s.allows else "done",
        "grant": resolution.grant,
        "expected": resolution.expected_digest,
        "digest": s.digest,
        "reason": args.blob(resolution.reason),
        "answers": None if s.answers is None else args.blob(dumps(s.answers)),
        "result": None if s.result is None else args.blob(dumps(s.result)),
        "input": args.blob(s.input_json),
        "plan_ok": s.plan_approved,
        "rules": args.blob(dumps(list(s.rules))) if s.rules else None,
    }
    if resolution.tally is not None:
        tally = resolution.tally
        item["assents"] = {
            "who": args.blob(tally.who),
            "digest": tally.digest,
            "seen": tally.seen,
            "last": tally.last,
        }
    if s.remember_tools:
        item["remember"] = [args.blob(tool) for tool in s.remember_tools]
    return {name: value for name, value in item.items() if value is not None}


def _outcome(gate_id: str, row: list[Any]) -> Outcome:
    code = row[0].decode()
    raw = pairs(row[1])
    return Outcome(
        code="" if code in ("applied", "noted", "replay") else code,
        gate=gate_record(gate_id, raw) if raw else None,
        applied=code == "applied",
        noted=code == "noted",
    )
