"""Turns what Redis keeps into the domain's values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from signoff.domain.approval import Approval, Assent
from signoff.domain.call import Call, CallState, Effect
from signoff.domain.gate import Gate, GateKind, GateState
from signoff.domain.mode import Mode
from signoff.domain.rule import Standing
from signoff.domain.run import RunStatus

REMEMBERED = "rem:"
ASSENT = "ok:"
DENIED = "denied:"
USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_creation_tokens",
    "cost_micros",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What people noted on a run, and how it stands to its retries."""

    archived: bool = False
    viewed_ms: int | None = None
    share_token: str | None = None
    #: A call with effects was started; of a run made before this was noted it is assumed.
    acted: bool = True
    retried_by: int | None = None
    retried_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as stored; versions and fences stay text, they are only compared."""

    id: int
    account: str
    agent_id: int
    user_id: str | None
    status: RunStatus
    mode: Mode
    mode_v: str
    human_in_the_loop: bool
    plan_approved: bool
    turn: int
    step: int
    turn_steps: int
    fence: str
    wake: str
    rev: str
    pause_n: int
    open: int
    phase: str
    takeovers: int
    config: dict[str, Any]
    output: str | None
    #: The structured answer of a run that owed one.
    output_data: dict[str, Any] | None
    error: str | None
    error_code: str | None
    usage: dict[str, int]
    created_ms: int
    updated_ms: int
    turn_started_ms: int
    #: How many messages wait for the next turn, and the ids of those that a cancel dropped.
    queued: int = 0
    dropped: tuple[int, ...] = ()
    remembered: dict[str, str] = field(default_factory=dict)
    #: Digest of a call that a person denied to the turn and the gate at which they did.
    denials: dict[str, tuple[int, str]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)

    @property
    def standing(self) -> Standing:
        """What the run brings to the verdict on its calls."""
        return Standing(
            mode=self.mode,
            plan_approved=self.plan_approved,
            human_in_the_loop=self.human_in_the_loop,
            user_id=self.user_id,
            remembered=self.remembered,
            denied={
                digest: gate for digest, (turn, gate) in self.denials.items() if turn == self.turn
            },
        )


def run_record(run_id: int, raw: Mapping[str, str]) -> RunRecord:
    """The run of one hash."""
    return RunRecord(
        id=run_id,
        account=raw["acct"],
        agent_id=int(raw["agent"]),
        user_id=raw.get("user"),
        status=RunStatus(raw["status"]),
        mode=Mode(raw["mode"]),
        mode_v=raw["mode_v"],
        human_in_the_loop=raw["hitl"] == "1",
        plan_approved=raw["plan_ok"] == "1",
        turn=int(raw["turn"]),
        step=int(raw["step"]),
        turn_steps=int(raw["turn_steps"]),
        fence=raw["fence"],
        wake=raw["wake"],
        rev=raw["rev"],
        pause_n=int(raw["pause_n"]),
        open=int(raw["open"]),
        phase=raw["phase"],
        takeovers=int(raw["takeovers"]),
        config=json.loads(raw["config"]),
        output=raw.get("output") if raw["status"] == "completed" else None,
        output_data=_output_data(raw),
        error=raw.get("error") or None,
        error_code=raw.get("error_code") or None,
        usage={name: int(raw.get(name, "0")) for name in USAGE_FIELDS},
        created_ms=int(raw["created"]),
        updated_ms=int(raw["updated"]),
        turn_started_ms=int(raw.get("turn_started") or raw["created"]),
        queued=int(raw.get("queued", "0")),
        dropped=tuple(json.loads(raw.get("dropped", "[]"))),
        remembered={
            name.removeprefix(REMEMBERED): value
            for name, value in raw.items()
            if name.startswith(REMEMBERED)
        },
        denials={
            name.removeprefix(DENIED): _denial(value)
            for name, value in raw.items()
            if name.startswith(DENIED)
        },
        marks=_marks(raw),
    )


def _output_data(raw: Mapping[str, str]) -> dict[str, Any] | None:
    text = raw.get("output_data") if raw["status"] == "completed" else None
    return dict(json.loads(text)) if text else None


def _denial(value: str) -> tuple[int, str]:
    turn, _, gate = value.partition(":")
    return int(turn), gate


def _marks(raw: Mapping[str, str]) -> Marks:
    viewed, retried_by, retried = raw.get("viewed"), raw.get("retried_by"), raw.get("retried")
    return Marks(
        archived="archived" in raw,
        viewed_ms=int(viewed) if viewed else None,
        share_token=raw.get("share"),
        acted=raw.get("acted", "1") == "1",
        retried_by=int(retried_by) if retried_by else None,
        retried_ms=int(retried) if retried else None,
    )


def call_records(raw: Mapping[str, str]) -> list[Call]:
    """The calls of the current step, in the order the model asked for them."""
    return [_call(n, raw) for n in range(int(raw.get("count", "0")))]


def _call(n: int, raw: Mapping[str, str]) -> Call:
    def get(name: str) -> str | None:
        return raw.get(f"{n}.{name}")

    seq, result, rules = get("seq"), get("result"), get("rules")
    return Call(
        n=n,
        id=raw[f"{n}.id"],
        tool=raw[f"{n}.tool"],
        input_json=raw[f"{n}.input"],
        digest=raw[f"{n}.digest"],
        state=CallState(raw[f"{n}.state"]),
        effect=Effect(raw[f"{n}.eff"]),
        grant=get("grant") or "",
        seq=int(seq) if seq else None,
        attempt=int(get("attempt") or "0"),
        run_input_json=get("run_input"),
        run_digest=raw[f"{n}.run_digest"],
        result=json.loads(result) if result else None,
        rules=tuple(json.loads(rules)) if rules else (),
    )


def _assents(raw: Mapping[str, str]) -> tuple[Assent, ...]:
    found: list[Assent] = []
    for name, value in raw.items():
        if name.startswith(ASSENT):
            at, digest, by = value.split(" ")
            who = name.removeprefix(ASSENT)
            found.append(Assent(by=by, who=who, at_ms=int(at), digest=digest))
    return tuple(sorted(found, key=lambda item: (item.at_ms, item.by)))


def gate_record(gate_id: str, raw: Mapping[str, str]) -> Gate:
    """The gate of one hash."""

    def loaded(name: str) -> Any:
        return json.loads(raw[name]) if raw.get(name) else None

    return Gate(
        id=gate_id,
        run_id=int(raw["run"]),
        kind=GateKind(raw["kind"]),
        state=GateState(raw["state"]),
        pause=int(raw["pause"]),
        tool=raw["tool"],
        tool_use_id=raw["tool_use_id"],
        tool_input=json.loads(raw["input"]),
        digest=raw["digest"],
        suggested_rules=tuple(loaded("suggested") or ()),
        created_ms=int(raw["created"]),
        resolved_ms=int(raw["resolved"]) if raw.get("resolved") else None,
        decided_by=raw.get("by") or None,
        reason=raw.get("reason") or None,
        answers=loaded("answers"),
        fingerprint=raw.get("fp") or None,
        edited_input=loaded("eff_input"),
        effective_digest=raw.get("eff_digest") or None,
        remembered=raw.get("remember") == "2",
        approval=Approval.read(loaded("approvers")),
        assents=_assents(raw),
        assent_changes=int(raw.get("oks", "0")),
        remind_ms=int(raw["remind_at"]) if raw.get("remind_at") else None,
        expires_ms=int(raw["expires_at"]) if raw.get("expires_at") else None,
        input_schema=raw.get("schema") or None,
        output_schema=loaded("out_schema"),
    )
