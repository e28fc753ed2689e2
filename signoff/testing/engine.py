"""Runs of the fake: a script played turn by turn, with the domain's gates, rules and decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from signoff.domain import event as events
from signoff.domain import output as structured
from signoff.domain.decision import Decision, Settlement, mode_fingerprint
from signoff.domain.error import GateRefusedError, InvalidToolInputError, SignoffError
from signoff.domain.event import run_payload, usage_payload
from signoff.domain.expiry import NOBODY, Limits, OnExpiry, settle_expired
from signoff.domain.gate import ASK_TOOL, EXPIRY, PLAN_TOOL, Gate, GateKind, GateState, listed_call
from signoff.domain.jsontext import compact
from signoff.domain.message import Message, ResultState, Text, ToolResult, ToolUse
from signoff.domain.mode import Mode
from signoff.domain.question import (
    ASK_USER_TOOL,
    ask_user_questions,
    check_plan,
    check_questions,
)
from signoff.domain.rule import Standing, Verdict, asked_by, denied_by, judge
from signoff.domain.run import RunStatus
from signoff.domain.suggestion import suggested_rules
from signoff.script import ScriptedTurn, script_length, script_turn
from signoff.testing.gate import gate_digest, results_text, settlement_of, shown_call
from signoff.testing.owed import closed, owed
from signoff.testing.refusal import BatchRefusedError
from signoff.testing.world import NO_USAGE, World

_PLACEHOLDER = re.compile(r"\{\{(last_results|message)\}\}")


class FakeRun:
    """One run; everything that happens to it happens at once."""

    def __init__(
        self,
        world: World,
        *,
        run_id: int,
        agent_id: int,
        user_id: str | None,
        mode: Mode,
        human: bool,
        metadata: Mapping[str, Any] | None,
        message: str,
        external_tools: Sequence[Mapping[str, Any]] = (),
        retry_of: int | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        output_schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._world, self.limits = world, limits
        self.external_tools = list(external_tools)
        self._reminded: set[int] = set()
        self.id, self.agent_id, self.user_id = run_id, agent_id, user_id
        self.mode, self.human, self.metadata = mode, human, metadata
        self.status = RunStatus.RUNNING
        self.plan_approved = False
        #: True once a tool that is not read-only was run.
        self.acted = self.archived = False
        self.retry_of, self.retried_by = retry_of, cast("int | None", None)
        self.turn, self.pauses = 1, 0
        self.output_schema, self._asked_again = output_schema, 0
        self.output: str | None = None
        self.output_data: dict[str, Any] | None = None
        self.error: str | None = None
        self.error_code: str | None = None
        self.created_ms = self.updated_ms = world.now_ms()
        self.history: list[Message] = []
        self.gates: dict[str, Gate] = {}
        self.remembered: dict[str, str] = {}
        self._turns: dict[str, int] = {}
        self._step: list[ToolUse] = []
        self._results: dict[str, ToolResult] = {}
        self._say("user", Text(message))

    @property
    def open(self) -> list[Gate]:
        """Its open gates, oldest first."""
        return [gate for gate in self.gates.values() if gate.state is GateState.PENDING]

    @property
    def version(self) -> str:
        """What differs whenever its turn, its status or its open gates changed."""
        return f"{self.turn}.{self.status.value}.{self.pauses}.{len(self.open)}"

    def payload(self) -> dict[str, Any]:
        """What every event of it has."""
        return run_payload(
            run_id=self.id,
            agent_id=self.agent_id,
            user_id=self.user_id,
            status=self.status.value,
            mode=self.mode.value,
        )

    def advance(self) -> None:
        """Plays on until the turn ends or a gate opens."""
        while self.status is RunStatus.RUNNING:
            turn = self._next_turn()
            if turn.error is not None and turn.error.times > 0:
                self.error = f"scripted error: {turn.error.kind}"
                self.error_code = f"model_{turn.error.kind}"
                self._end(RunStatus.FAILED)
                return
            text = _PLACEHOLDER.sub(self._fill, turn.text)
            self._say("assistant", *([Text(text)] if text else []), *turn.tool_calls)
            if self._owed(turn.tool_calls, text):
                continue
            if not turn.tool_calls:
                self.output = text
                self._end(RunStatus.COMPLETED)
                return
            self._step, self._results = list(turn.tool_calls), {}
            self._open_gates([gate for use in turn.tool_calls if (gate := self._judge(use))])
            self._go_on()

    def _owed(self, calls: Sequence[ToolUse], text: str) -> bool:
        """True for a reply that ends the turn by its answer, or is asked for again in words."""
        if self.output_schema is None:
            return False
        found, wrong = owed(calls, text)
        if found is None and not wrong:
            return False
        failed = bool(wrong) and self._asked_again >= structured.REPEATS
        if found is not None or failed:
            if calls:
                self._say("tool", *closed(calls, wrong))
            if failed:
                self.error, self.error_code = (
                    structured.failure_text(wrong),
                    structured.OUTPUT_INVALID,
                )
                self._end(RunStatus.FAILED)
                return True
            self.output, self.output_data = text or compact(found), found
            self._end(RunStatus.COMPLETED)
            return True
        self._asked_again += 1
        if not calls:
            self._say("user", Text(structured.correction(wrong)), extra={"by": structured.ASKED_BY})
        return not calls

    def decide(self, decisions: Sequence[Decision], *, by: str) -> list[Gate]:
        """The gates as they stand after these decisions, of which all are applied or none.

        Raises BatchRefusedError with the position and reason of each that is in the way.
        """
        settlements: list[Settlement] = []
        refusals: list[tuple[int, SignoffError]] = []
        for n, decision in enumerate(decisions):
            try:
                settlements.append(settlement_of(self.gates, decision))
            except SignoffError as error:
                refusals.append((n, error))
        if refusals:
            raise BatchRefusedError(refusals)
        fresh = False
        for decision, settlement in zip(decisions, settlements, strict=True):
            if self.gates[decision.request_id].state is GateState.PENDING:
                self._settle(decision, settlement, by=by)
                fresh = True
            for tool in settlement.remember_tools:
                self.remembered.setdefault(tool, "")
        standing = [self.gates[decision.request_id] for decision in decisions]
        if fresh:
            self._resume_if_free()
        return standing

    def cancel(self, *, by: str) -> None:
        """Ends it; open gates close."""
        self._check_active()
        for gate in self.open:
            self.gates[gate.id] = replace(
                gate, state=GateState.CANCELLED, decided_by=by, resolved_ms=self._world.now_ms()
            )
        self._end(RunStatus.CANCELLED)

    def switch(self, mode: Mode) -> None:
        """Changes the mode; autonomous allows what waits for approval and no rule forbids."""
        self._check_active()
        self.mode, self.human = mode, self.human or mode.needs_person
        if mode is not Mode.AUTONOMOUS:
            return
        fresh = False
        for gate in self.open:
            forbidden = denied_by(
                shown_call(gate.tool, gate.tool_input),
                user_id=self.user_id,
                rules=self._world.rules(),
                now_ms=self._world.now_ms(),
                maybe=True,
            )
            if gate.kind is not GateKind.TOOL_APPROVAL or gate.approval or forbidden:
                continue
            allowed = Settlement(
                state=GateState.ALLOWED, fingerprint=mode_fingerprint(gate), allows=True
            )
            self._settle(Decision(request_id=gate.id, verdict="allow"), allowed, by="mode")
            fresh = True
        if fresh:
            self._resume_if_free()

    def announce(self) -> None:
        """Says that it has started."""
        self._world.emit(self, "run.started", {})

    def again(self, run_id: int, message: str) -> FakeRun:
        """Another run that is asked for the same."""
        return FakeRun(
            self._world,
            run_id=run_id,
            agent_id=self.agent_id,
            user_id=self.user_id,
            mode=self.mode,
            human=self.human,
            metadata=self.metadata,
            message=message,
            retry_of=self.id,
            limits=self.limits,
            output_schema=self.output_schema,
        )

    def do_due(self) -> None:
        """Reminds of what waits, and settles what nobody settled in time."""
        now_ms = self._world.now_ms()
        while late := [g for g in self.open if g.expires_ms is not None and g.expires_ms <= now_ms]:
            self._expire([gate for gate in late if gate.pause == late[0].pause])
        waiting = [g for g in self.open if g.remind_ms is not None and g.remind_ms <= now_ms]
        for pause in sorted({gate.pause for gate in waiting} - self._reminded):
            self._reminded.add(pause)
            asked = [gate for gate in waiting if gate.pause == pause]
            self._world.emit(self, events.RUN_INPUT_REMINDER, {"gates": asked, "pause": pause})

    def _expire(self, gates: Sequence[Gate]) -> None:
        policy = self.limits.on_expiry or OnExpiry.DENY
        ends = policy is OnExpiry.CANCEL
        settled = [] if ends else [settle_expired(gate, policy) for gate in gates]
        rows = [{"status": item.state.value, "answers": item.answers} for item in settled]
        if ends:
            rows = [{"status": GateState.CANCELLED.value, "answers": None} for _ in gates]
        extra = {
            "gates": gates,
            "settled": rows,
            "pause": gates[0].pause,
            "on_expiry": policy.value,
            "status": "cancelled" if ends else "running",
        }
        self._world.emit(self, events.RUN_INPUT_EXPIRED, extra)
        if ends:
            self.cancel(by=EXPIRY)
            return
        for gate, settlement in zip(gates, settled, strict=True):
            self._settle(Decision(request_id=gate.id, reason=NOBODY), settlement, by=EXPIRY)
        self._resume_if_free()

    def reply(self, message: str) -> None:
        """Begins another turn."""
        self.turn += 1
        self.output = self.output_data = self.error = self.error_code = None
        self._asked_again = 0
        self.status = RunStatus.RUNNING
        self._say("user", Text(message))

    def _next_turn(self) -> ScriptedTurn:
        index = sum(message.role == "assistant" for message in self.history)
        length = script_length(self.metadata)
        if length is not None and index < length:
            return script_turn(self.metadata, index)
        text = "You said: {{message}}" if length is None else "(end of script)"
        return ScriptedTurn(text=text, tool_calls=(), delay_ms=0, error=None)

    def _judge(self, use: ToolUse) -> Gate | None:
        """The gate that the call waits at; without one its result is there."""
        if use.name == structured.OUTPUT_TOOL and self.output_schema is not None:
            self._result(use, "error", structured.ALONE)
            return None
        try:
            kind = self._asking(use)
        except InvalidToolInputError as error:
            self._result(use, "error", error.message)
            return None
        if kind is not None:
            rules = self._world.rules()
            own = use.name in (ASK_TOOL, PLAN_TOOL)
            deny = None
            if not own:
                deny = denied_by(
                    shown_call(use.name, use.input),
                    user_id=self.user_id,
                    rules=rules,
                    now_ms=self._world.now_ms(),
                )
            if deny is None:
                return self._gate(use, kind)
            self._result(use, "denied", f"This tool call is not permitted (deny rule {deny.id}).")
            return None
        judgement = judge(
            shown_call(use.name, use.input),
            read_only=use.name in self._world.read_only,
            standing=Standing(
                mode=self.mode,
                plan_approved=self.plan_approved,
                human_in_the_loop=self.human,
                user_id=self.user_id,
                remembered=self.remembered,
                denied=self._denied(),
            ),
            rules=self._world.rules(),
            now_ms=self._world.now_ms(),
        )
        if judgement.verdict is Verdict.ASK:
            return self._gate(use, GateKind.TOOL_APPROVAL)
        if judgement.verdict is Verdict.ALLOW:
            if judgement.rule is not None:
                self._world.used(judgement.rule)
            self._execute(use, use.input)
            return None
        state: ResultState = "denied" if judgement.verdict is Verdict.DENY else "error"
        self._result(use, state, f"This tool call is not permitted ({judgement.why}).")
        return None

    def _denied(self) -> dict[str, str]:
        """What was denied since the last message, by digest."""
        return {
            gate.digest: gate.id
            for gate in self.gates.values()
            if gate.state is GateState.DENIED
            and gate.decided_by != EXPIRY
            and self._turns[gate.id] == self.turn
        }

    def _asking(self, use: ToolUse) -> GateKind | None:
        if use.name in self._world.external or self._declaration(use) is not None:
            return self._outside(use)
        if use.name == ASK_TOOL and self.human:
            check_questions(use.input)
            return GateKind.QUESTION
        if use.name == PLAN_TOOL and self.mode is Mode.PLAN and not self.plan_approved:
            check_plan(use.input)
            return GateKind.PLAN
        if use.name in (ASK_TOOL, PLAN_TOOL):
            raise InvalidToolInputError(f"{use.name} is not available now")
        return None

    def _declaration(self, use: ToolUse) -> Mapping[str, Any] | None:
        return next((item for item in self.external_tools if item["name"] == use.name), None)

    def _outside(self, use: ToolUse) -> GateKind:
        if use.name == ASK_USER_TOOL and self.human:
            try:
                ask_user_questions(use.input)
            except InvalidToolInputError:
                return GateKind.EXTERNAL
            return GateKind.QUESTION
        return GateKind.EXTERNAL

    def _gate(self, use: ToolUse, kind: GateKind) -> Gate:
        declared = self._declaration(use) if kind is GateKind.EXTERNAL else None
        call = shown_call(use.name, use.input)
        suggested = suggested_rules(call) if kind is GateKind.TOOL_APPROVAL else ()
        now_ms, rules = self._world.now_ms(), self._world.rules()
        asks = asked_by(call, user_id=self.user_id, rules=rules, now_ms=now_ms)
        times = self.limits.times(now_ms)
        return Gate(
            id=self._world.new_id("req"),
            run_id=self.id,
            kind=kind,
            state=GateState.PENDING,
            pause=self.pauses + 1,
            tool=use.name,
            tool_use_id=use.id,
            tool_input=use.input,
            digest=gate_digest(*listed_call(kind, use.name, use.input)),
            suggested_rules=tuple(suggested),
            created_ms=now_ms,
            approval=None if asks is None else asks.approval,
            remind_ms=None if times is None else times.remind_ms,
            expires_ms=None if times is None else times.expires_ms,
            output_schema=None if declared is None else declared.get("output_schema"),
        )

    def _open_gates(self, gates: Sequence[Gate]) -> None:
        if not gates:
            return
        self.pauses += 1
        self.gates |= {gate.id: gate for gate in gates}
        self._turns |= {gate.id: self.turn for gate in gates}
        self.status = RunStatus.AWAITING_APPROVAL
        self._touch()
        self._world.emit(self, events.RUN_AWAITING_INPUT, {"gates": gates, "pause": self.pauses})

    def _settle(self, decision: Decision, settlement: Settlement, *, by: str) -> None:
        gate = self.gates[decision.request_id]
        edited = decision.input if settlement.input_json is not None else None
        self.gates[gate.id] = replace(
            gate,
            state=settlement.state,
            fingerprint=settlement.fingerprint,
            decided_by=by,
            reason=decision.reason,
            answers=settlement.answers,
            resolved_ms=self._world.now_ms(),
            edited_input=None if edited is None else dict(edited),
            effective_digest=settlement.digest,
            remembered=bool(settlement.remember_tools),
        )
        use = next(item for item in self._step if item.id == gate.tool_use_id)
        if settlement.plan_approved:
            self.plan_approved = True
        if settlement.result is not None:
            self._result(
                use, cast("ResultState", settlement.result["state"]), settlement.result["content"]
            )
        else:
            self._execute(use, use.input if edited is None else edited)

    def _resume_if_free(self) -> None:
        self._touch()
        if self.open:
            return
        self.status = RunStatus.RUNNING
        self._world.emit(self, events.RUN_RESUMED, {})
        self._go_on()
        self.advance()

    def _go_on(self) -> None:
        """Ends the step when every call has its result."""
        if self.status is RunStatus.RUNNING and len(self._results) == len(self._step):
            self._say("tool", *(self._results[use.id] for use in self._step))

    def _execute(self, use: ToolUse, tool_input: Mapping[str, Any]) -> None:
        self.acted = self.acted or use.name not in self._world.read_only
        tool = self._world.tools.get(use.name)
        try:
            output = "ok" if tool is None else tool(tool_input)
        except Exception as error:  # noqa: BLE001 - what a tool raises is its result
            self._result(use, "error", f"{type(error).__name__}: {error}")
        else:
            self._result(use, "success", output if isinstance(output, str) else compact(output))

    def _result(self, use: ToolUse, state: ResultState, content: str) -> None:
        self._results[use.id] = ToolResult(
            tool_use_id=use.id,
            name=use.name,
            state=state,
            content=content,
        )

    def _say(self, role: str, *blocks: Any, extra: dict[str, Any] | None = None) -> None:
        steps = sum(message.role == "assistant" for message in self.history)
        self.history.append(
            Message(
                role=role,  # type: ignore[arg-type]
                blocks=blocks,
                turn=self.turn,
                step=steps,
                at_ms=self._world.now_ms(),
                extra=extra or {},
            )
        )
        self._touch()

    def _end(self, status: RunStatus) -> None:
        self.status = self.status.to(status)
        self._touch()
        self._world.emit(
            self,
            f"run.{status.value}",
            {
                "output": self.output,
                "error": self.error,
                "error_code": self.error_code,
                "usage": usage_payload(NO_USAGE),
                **({} if self.output_data is None else {"output_data": self.output_data}),
            },
        )

    def _touch(self) -> None:
        self.updated_ms = self._world.now_ms()

    def _check_active(self) -> None:
        if self.status.terminal:
            raise GateRefusedError(f"the run is {self.status.value}", code="run_not_active")

    def _fill(self, found: re.Match[str]) -> str:
        if found[1] == "message":
            users = (item for item in reversed(self.history) if item.role == "user")
            return next((item.text for item in users if "by" not in item.extra), "")
        return results_text(self._results.values())
