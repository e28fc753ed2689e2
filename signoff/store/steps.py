"""The moves of the process that holds a run's lease; each checks the fence."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from signoff.domain.approval import Approval
from signoff.domain.call import Call, CallState, Effect
from signoff.domain.error import LeaseLostError
from signoff.domain.event import Event
from signoff.domain.expiry import GateTimes
from signoff.domain.gate import GateKind
from signoff.domain.message import Message, encode, pack
from signoff.store.keys import Shards, shard_prefix
from signoff.store.records import RunRecord, call_records, run_record
from signoff.store.runs import Fanout, dumps, event_args
from signoff.store.scripts import Args, Scripts, moved, pairs

logger = logging.getLogger(__name__)
#: A run whose step was cut off this often is kept apart from others like it.
SUSPECT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A run under this process's lease, with the calls of its current step."""

    run: RunRecord
    calls: list[Call]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A call to store with the step that asked for it."""

    id: str
    tool: str
    input_json: str
    digest: str
    state: CallState
    effect: Effect
    grant: str = ""
    result: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGate:
    """A gate to open for call number ``n`` of the step."""

    id: str
    kind: GateKind
    n: int
    suggested_rules: Sequence[dict[str, str]] = ()
    approval: Approval | None = None
    #: The JSON text of what an edited input is checked against, for tools that only the worker
    #: knows; None where the service has the tool itself.
    input_schema: str | None = None
    #: The JSON text of what a result from outside is checked against, if anything was declared.
    output_schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a turn."""

    status: str
    event: Event
    fanout: Fanout
    output: str | None = None
    #: The structured answer, where one was owed.
    output_data: Mapping[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommit:
    """What one model call added: messages, calls, gates (one pause), or the end of the turn."""

    commit_id: str
    messages: Sequence[Message]
    usage: dict[str, int]
    rules_v: str
    calls: Sequence[NewCall] = ()
    gates: Sequence[NewGate] = ()
    pause: Event | None = None
    times: GateTimes | None = None
    fanout: Fanout | None = None
    ending: Ending | None = None
    frames: Sequence[bytes] = field(default_factory=tuple)
    #: What the agent saves with it; None leaves what it saved before.
    saved: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a heartbeat learned of one held run."""

    run_id: int
    held: bool
    wake: str


class Steps:
    """Leases and commits."""

    def __init__(self, scripts: Scripts, shards: Shards, *, lease_s: float) -> None:
        self._scripts = scripts
        self._shards = shards
        self.lease_ms = int(lease_s * 1000)

    async def take(
        self, shard: int, *, drainer: str, room: int, awake_ms: int, alone: bool = True
    ) -> list[Held]:
        """Takes up to ``room`` ready runs under a lease and marks the drainer awake.

        Of runs that were cut off SUSPECT times it takes at most one, and none unless ``alone``.
        """
        args = Args(drainer=drainer, lease_ms=self.lease_ms, awake_ms=awake_ms, max=room)
        args.control.update(suspect=SUSPECT, alone=alone)
        rows = await self._scripts.run("take", shard_prefix(shard), args)
        held: list[Held] = []
        for run_id, run, calls in rows:
            try:
                held.append(_held(int(run_id), run, calls))
            except (LookupError, ValueError):
                # Of another release, or damaged: it must not take those beside it along.
                logger.exception("run_unreadable run=%d", int(run_id))
        return held

    async def sleep(self, shard: int, *, drainer: str, force: bool = False) -> bool:
        """True when the drainer is asleep; False when something is ready."""
        args = Args(drainer=drainer, force=force)
        return bool(await self._scripts.run("sleep", shard_prefix(shard), args))

    async def renew(
        self,
        shard: int,
        held: Sequence[tuple[int, str]],
        *,
        drainer: str | None,
        room: int,
        awake_ms: int,
    ) -> list[Renewal]:
        """Extends the leases of ``held`` (run id, fence); a lost one says so."""
        args = Args(
            lease_ms=self.lease_ms,
            held=[[str(run_id), fence] for run_id, fence in held],
            drainer=drainer,
            room=room,
            awake_ms=awake_ms,
        )
        rows = await self._scripts.run("renew", shard_prefix(shard), args)
        return [
            Renewal(run_id=int(row[0]), held=bool(row[1]), wake=row[2].decode()) for row in rows
        ]

    async def release(self, run: RunRecord, *, force: bool = False) -> tuple[Held | None, bool]:
        """Gives the lease back; returns (None, hint needed), or the run when work is due."""
        args = Args(id=str(run.id), fence=run.fence, wake=run.wake, force=force)
        reply = await self._scripts.run("release", self._shards.prefix(run.id), args)
        if reply[0] == b"released":
            return None, bool(reply[1])
        if reply[0] == b"lost":
            raise LeaseLostError(f"run {run.id} is held by another process")
        return _held(run.id, reply[1], reply[2]), False

    async def commit(self, run: RunRecord, commit: StepCommit) -> tuple[bool, str]:
        """Commits a step; returns (lease released, wake counter). Idempotent by commit id.

        The lease ends with the commit when nothing is due afterwards. Raises LeaseLostError, or
        StaleError when the mode, the rules or the endpoints moved, or the times of its gates were
        reckoned too long ago: decide again.
        """
        args = self._args(run)
        control = args.control
        control.update(
            commit=commit.commit_id,
            wake=run.wake,
            mode_v=run.mode_v,
            rules_v=commit.rules_v,
            usage={name: n for name, n in commit.usage.items() if n},
            release=True,
        )
        control["messages"] = [args.blob(encode(message)) for message in commit.messages]
        control["calls"] = [_call_args(args, call) for call in commit.calls]
        control["gates"] = [_gate_args(args, gate) for gate in commit.gates]
        control["frames"] = [args.blob(frame) for frame in commit.frames]
        if commit.saved is not None:
            control["saved"] = args.blob(pack(commit.saved))
        if commit.pause is not None and commit.fanout is not None:
            control["pause_event"] = event_args(args, commit.pause)
            control["times"] = _times_args(commit.times)
            control["eps"] = list(commit.fanout.endpoints)
            control["subs_v"] = commit.fanout.version
        if commit.ending is not None:
            _ending_args(args, commit.ending)
        reply = await self._run("commit_step", run, args)
        return bool(reply[1]), reply[2].decode()

    async def ask_again(
        self,
        run: RunRecord,
        gates: Sequence[NewGate],
        *,
        pause: Event,
        fanout: Fanout,
        rules_v: str,
        times: GateTimes | None = None,
        frames: Sequence[bytes] = (),
    ) -> None:
        """Opens gates for calls that may not run as they stand, as a new pause.

        Raises StaleError when the mode, the rules, the endpoints or the calls moved, when another
        pause was opened since ``run`` was read, or when ``times`` were reckoned too long ago.
        """
        args = self._args(run)
        args.control["rules_v"] = rules_v
        args.control.update(mode_v=run.mode_v, subs_v=fanout.version, eps=list(fanout.endpoints))
        args.control["pause_n"] = str(run.pause_n)
        args.control["times"] = _times_args(times)
        args.control["gates"] = [_gate_args(args, gate) for gate in gates]
        args.control["pause_event"] = event_args(args, pause)
        args.control["frames"] = [args.blob(frame) for frame in frames]
        await self._run("ask_again", run, args)

    async def start_call(self, run: RunRecord, call: Call, *, rules_v: str, attempt: int) -> None:
        """Marks the call as started; after this its tool may run, with exactly these bytes.

        Raises StaleError when the rules, the mode it rests on or the digest moved.
        """
        args = self._args(run)
        args.control.update(
            n=str(call.n),
            digest=call.run_digest,
            rules_v=rules_v,
            mode_v=run.mode_v,
            rerun=call.state is CallState.STARTED,
            attempt=attempt,
        )
        await self._run("start_call", run, args)

    async def finish_call(
        self,
        run: RunRecord,
        call: Call,
        *,
        attempt: int,
        result: dict[str, str],
        frames: Sequence[bytes] = (),
    ) -> str:
        """Stores the result; ``attempt`` 0 refuses an allowed call unrun. Returns wake.

        After the lease was lost the result is kept in the audit and LeaseLostError is raised.
        """
        args = self._args(run)
        args.control.update(n=str(call.n), attempt=attempt, call=call.id)
        args.control["result"] = args.blob(dumps(result))
        args.control["frames"] = [args.blob(frame) for frame in frames]
        reply = await self._run("finish_call", run, args)
        return str(reply[1].decode())

    async def fail(self, run: RunRecord, ending: Ending, frames: Sequence[bytes] = ()) -> None:
        """Ends the run as failed; its messages and calls stay as they are."""
        args = self._args(run)
        args.control.update(mode_v=run.mode_v, error_code=ending.error_code or "")
        args.control["error"] = args.blob(ending.error or "")
        args.control["event"] = event_args(args, ending.event)
        args.control["eps"] = list(ending.fanout.endpoints)
        args.control["subs_v"] = ending.fanout.version
        args.control["frames"] = [args.blob(frame) for frame in frames]
        await self._run("fail_run", run, args)

    async def sweep(self, shard: int, limit: int = 200) -> tuple[int, int]:
        """Makes runs with a dead lease ready; returns (how many, length of the ready queue)."""
        reply = await self._scripts.run("sweep", shard_prefix(shard), Args(limit=limit))
        return int(reply[0]), int(reply[1])

    def _args(self, run: RunRecord) -> Args:
        return Args(
            id=str(run.id),
            fence=run.fence,
            shard=self._shards.of(run.id),
            shards=self._shards.count,
        )

    async def _run(self, name: str, run: RunRecord, args: Args) -> Any:
        return moved(run.id, await self._scripts.run(name, self._shards.prefix(run.id), args))


def _held(run_id: int, run: list[bytes], calls: list[bytes]) -> Held:
    return Held(run=run_record(run_id, pairs(run)), calls=call_records(pairs(calls)))


def _call_args(args: Args, call: NewCall) -> dict[str, Any]:
    return {
        "id": args.blob(call.id),
        "tool": args.blob(call.tool),
        "input": args.blob(call.input_json),
        "digest": call.digest,
        "state": call.state.value,
        "eff": call.effect.value,
        "grant": call.grant,
        "result": None if call.result is None else args.blob(dumps(call.result)),
    }


def _gate_args(args: Args, gate: NewGate) -> dict[str, Any]:
    return {
        "id": gate.id,
        "kind": gate.kind.value,
        "n": str(gate.n),
        "suggested": args.blob(dumps(list(gate.suggested_rules))),
        "approvers": None if gate.approval is None else args.blob(dumps(gate.approval.fields)),
        "schema": args.blob(gate.input_schema),
        "out_schema": args.blob(gate.output_schema),
    }


def _times_args(times: GateTimes | None) -> dict[str, int | None] | None:
    if times is None:
        return None
    return {"opened": times.opened_ms, "remind": times.remind_ms, "expires": times.expires_ms}


def _ending_args(args: Args, ending: Ending) -> None:
    args.control.update(
        status=ending.status,
        output=args.blob(ending.output or ""),
        error=args.blob(ending.error or ""),
        error_code=ending.error_code or "",
        end_event=event_args(args, ending.event),
        end_eps=list(ending.fanout.endpoints),
        subs_v=ending.fanout.version,
    )
    if ending.output_data is not None:
        args.control["output_data"] = args.blob(dumps(ending.output_data))
