"""Tool calls of one step: their states, and what may be done with them next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from signoff.domain.error import IllegalMoveError
from signoff.domain.message import Message, ToolResult

#: No result is longer, whoever gives it: that of a tool is cut, with a note, one from outside is
#: refused. The model's window is not a dump.
MAX_RESULT_CHARS = 400_000


class CallState(StrEnum):
    """Where one call of the current step stands."""

    #: Its gate is open.
    ASKED = "asked"
    #: It may start.
    ALLOWED = "allowed"
    #: It was started; no result is known yet.
    STARTED = "started"
    #: It has its result, from running or from a refusal.
    DONE = "done"

    def to(self, target: CallState) -> CallState:
        """``target``, or IllegalMoveError when the table has no such move."""
        if target not in CALL_MOVES[self]:
            raise IllegalMoveError(self, target)
        return target


CALL_MOVES: Mapping[CallState, frozenset[CallState]] = {
    CallState.ASKED: frozenset({CallState.ALLOWED, CallState.DONE}),
    # Back to asked: a rule or the mode moved before it started.
    CallState.ALLOWED: frozenset({CallState.STARTED, CallState.ASKED, CallState.DONE}),
    # Started again: only read-only or idempotent tools, after a takeover. Asked: outcome unknown.
    CallState.STARTED: frozenset({CallState.STARTED, CallState.ASKED, CallState.DONE}),
    CallState.DONE: frozenset(),
}


class Effect(StrEnum):
    """What running a tool twice would mean."""

    READ = "read"
    IDEMPOTENT = "idempotent"
    ONCE = "once"

    @property
    def repeatable(self) -> bool:
        """True when an attempt whose outcome is unknown may be repeated."""
        return self is not Effect.ONCE

    def or_worse(self, other: Effect) -> Effect:
        """The one of both that promises less."""
        return max(self, other, key=tuple(Effect).index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the current step as the store keeps it."""

    n: int
    id: str
    tool: str
    input_json: str
    digest: str
    state: CallState
    effect: Effect
    grant: str = ""
    seq: int | None = None
    attempt: int = 0
    run_input_json: str | None = None
    run_digest: str = ""
    result: dict[str, Any] | None = None
    #: The suggested rules that were accepted with its approval.
    rules: tuple[dict[str, Any], ...] = ()

    @property
    def effective_json(self) -> str:
        """The input that runs: the edited one if there is one."""
        return self.input_json if self.run_input_json is None else self.run_input_json


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMoves:
    """What a holder does next with a step's calls."""

    #: Calls to start now, in order.
    start: tuple[Call, ...] = ()
    #: Calls whose outcome nobody knows and that must not run again by themselves.
    unknown: tuple[Call, ...] = ()
    #: Every call has its result: the model is next.
    finished: bool = False


def next_moves(calls: Sequence[Call], *, running: frozenset[int]) -> NextMoves:
    """What to do while the calls numbered ``running`` run in this process.

    Read-only calls start at once and side by side; of calls with effects one runs at a time, in
    the order they were decided. A started call that does not run here was interrupted by a
    crash: it repeats if its tool is repeatable, otherwise its outcome is unknown.
    """
    if all(call.state is CallState.DONE for call in calls):
        return NextMoves(finished=True)
    lost = [c for c in calls if c.state is CallState.STARTED and c.n not in running]
    unknown = tuple(c for c in lost if not c.effect.repeatable)
    ready = [c for c in lost if c.effect.repeatable]
    ready += [c for c in calls if c.state is CallState.ALLOWED and c.n not in running]
    start = [c for c in ready if c.effect is Effect.READ]
    busy = any(c.n in running and c.effect is not Effect.READ for c in calls)
    if not busy:
        effects = [c for c in ready if c.effect is not Effect.READ]
        start += sorted(effects, key=_order)[:1]
    return NextMoves(start=tuple(start), unknown=unknown)


#: The result of a call that its turn ended before.
TURN_ENDED = "The run ended before this call finished."
#: The same of one that was cancelled.
CANCELLED = "The run was cancelled before this call finished."


def cut_off(calls: Sequence[Call], content: str) -> list[Call]:
    """The calls with an interrupted result for each that has none."""
    return [
        call
        if call.state is CallState.DONE
        else replace(
            call, state=CallState.DONE, result={"state": "interrupted", "content": content}
        )
        for call in calls
    ]


def results_message(calls: Sequence[Call], *, turn: int, step: int, at_ms: int) -> Message:
    """The results of one step as the message the model sees next; every call must have one."""
    blocks = tuple(
        ToolResult(call.id, call.tool, call.result["state"], call.result["content"])
        for call in calls
        if call.state is CallState.DONE and call.result is not None
    )
    return Message(role="tool", blocks=blocks, turn=turn, step=step, at_ms=at_ms)


def _order(call: Call) -> tuple[bool, int, int]:
    interrupted = call.state is CallState.STARTED
    return (not interrupted, call.seq if call.seq is not None else 0, call.n)
