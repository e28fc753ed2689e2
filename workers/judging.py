"""Turns the calls a model asked for into calls and gates to store: checked, judged, digested."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from signoff.agents import AgentCall, Says
from signoff.canonical import canonical, digest
from signoff.domain.approval import Approval
from signoff.domain.call import Call, CallState, Effect
from signoff.domain.error import InvalidToolInputError, NotCanonicalError, SignoffError
from signoff.domain.gate import ASK_TOOL, PLAN_TOOL, GateKind, listed_call
from signoff.domain.jsontext import compact
from signoff.domain.message import ToolUse
from signoff.domain.mode import Mode
from signoff.domain.question import (
    ASK_USER_TOOL,
    ask_user_questions,
    check_plan,
    check_questions,
)
from signoff.domain.rule import Judgement, Rule, Standing, Verdict, asked_by, denied_by, judge
from signoff.domain.subject import Subject
from signoff.domain.suggestion import suggested_rules
from signoff.store.records import RunRecord
from signoff.store.steps import NewCall, NewGate
from signoff.strictjson import well_formed
from signoff.subject import subject
from signoff.tooldef import Tool

#: More calls than this in one step get an error result: nobody can review them.
MAX_CALLS = 64
PLAN_NEEDED = (
    "A plan is needed first: the run is in plan mode. Present it with ExitPlanMode; this call was "
    "not executed."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedGate:
    """A gate with what people are shown of it."""

    gate: NewGate
    tool: str
    tool_input: Mapping[str, Any]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """The calls of one step and the gates that they open together."""

    calls: list[NewCall] = field(default_factory=list)
    gates: list[OpenedGate] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What calls are judged by besides their run: the account's rules and the run's tools."""

    rules: Sequence[Rule]
    tools: Mapping[str, Tool]
    now_ms: int
    #: Calls that are refused whatever they are, by id, with what the model is told.
    refusals: Mapping[str, str] = field(default_factory=dict)


class Judging:
    """Judges calls by a run's standing, an account's rules and the tools that the run may use."""

    def __init__(self, new_gate_id: Callable[[], str]) -> None:
        self._new_gate_id = new_gate_id

    def step(self, run: RunRecord, uses: Sequence[AgentCall], basis: Basis) -> JudgedStep:
        """What becomes of each call; the order is the model's."""
        judged = JudgedStep()
        for n, use in enumerate(uses):
            if n >= MAX_CALLS:
                text = f"At most {MAX_CALLS} tool calls are taken in one step."
                judged.calls.append(_refused(use, "{}", "", "error", text))
                continue
            self._one(judged, n, run, use, basis)
        return judged

    def again(self, run: RunRecord, call: Call, basis: Basis) -> Judgement:
        """The verdict on a call right before it starts.

        A settled gate stands unless a deny rule covers the call by now; one that a switch to
        autonomous settled stands as long as that mode does.
        """
        shown = _shown(call, basis.tools)
        by_switch = call.grant.startswith("mode:") and run.mode is Mode.AUTONOMOUS
        if by_switch or call.grant.startswith("gate:"):
            deny = _denied_by(shown, run, basis)
            if deny is not None:
                return _forbidden(deny)
            if not by_switch or _denied_by(shown, run, basis, maybe=True) is None:
                return Judgement(verdict=Verdict.ALLOW, grant=call.grant, why="approved")
        # A tool that does more than it did when the call was judged is judged by what it does now.
        found = basis.tools.get(call.tool)
        read_only = call.effect is Effect.READ and (found is None or found.read_only)
        verdict = _judge(shown, run, basis, read_only=read_only)
        return heard(_said(call.grant), verdict, run.standing)

    def entrusted(self, run: RunRecord, opened: OpenedGate, call: Call, basis: Basis) -> OpenedGate:
        """The gate for those who may decide it by now: whom its rule names, or the run."""
        approval = _approval(_shown(call, basis.tools), run, basis)
        return replace(opened, gate=replace(opened.gate, approval=approval))

    def reopened(self, call: Call, kind: GateKind, tools: Mapping[str, Tool]) -> OpenedGate:
        """A gate for a call that was judged before, on what it would run by now."""
        shown = json.loads(call.effective_json)
        tool = tools.get(call.tool)
        suggested: list[dict[str, str]] = []
        schema = None
        if kind is GateKind.TOOL_APPROVAL and tool is not None:
            suggested = suggested_rules(_shown(call, tools))
            schema = kept_schema(tool)
        gate = NewGate(
            id=self._new_gate_id(),
            kind=kind,
            n=call.n,
            suggested_rules=suggested,
            input_schema=schema,
        )
        name, tool_input = listed_call(kind, call.tool, shown)
        return OpenedGate(gate=gate, tool=name, tool_input=tool_input, digest=call.run_digest)

    def _one(
        self, judged: JudgedStep, n: int, run: RunRecord, use: AgentCall, basis: Basis
    ) -> None:
        try:
            text = canonical(use.input).decode()
        except NotCanonicalError as error:
            content = f"The input cannot be processed: {error.message}"
            judged.calls.append(_refused(use, "{}", "", "error", content))
            return
        if use.id in basis.refusals:
            judged.calls.append(_refused(use, text, "", "error", basis.refusals[use.id]))
            return
        if use.settled is not None:
            bound, content = digest(use.name, use.input), well_formed(use.settled.content)
            judged.calls.append(_refused(use, text, bound, use.settled.state, content))
            return
        try:
            kind = self._kind(run, use, basis.tools)
        except SignoffError as error:
            judged.calls.append(_refused(use, text, "", "error", error.message))
            return
        listed = (use.name, use.input) if kind is None else listed_call(kind, use.name, use.input)
        asked = _Asked(
            n=n,
            use=use,
            text=text,
            listed=listed,
            digest=digest(*listed),
        )
        if kind is None:
            self._judged_tool(judged, asked, run, basis)
            return
        call = subject(use.name, basis.tools.get(use.name), use.input, digest=asked.digest)
        reserved = use.name in (ASK_TOOL, PLAN_TOOL)
        deny = None if reserved else _denied_by(call, run, basis)
        if deny is not None:
            state, content = refusal(_forbidden(deny))
            judged.calls.append(_refused(use, text, asked.digest, state, content))
        else:
            asked = replace(asked, approval=_approval(call, run, basis))
            self._open(judged, asked, kind, effect=Effect.ONCE, tool=basis.tools.get(use.name))

    def _kind(self, run: RunRecord, use: AgentCall, tools: Mapping[str, Tool]) -> GateKind | None:
        """The gate a call opens by its nature; None for tools that are judged."""
        if use.name == ASK_TOOL:
            if not run.human_in_the_loop:
                raise _error("AskUserQuestion is not available: nobody answers in this run.")
            check_questions(use.input)
            return GateKind.QUESTION
        if use.name == PLAN_TOOL:
            if run.mode is not Mode.PLAN or run.plan_approved:
                raise _error("ExitPlanMode is not available: no plan is awaited.")
            check_plan(use.input)
            return GateKind.PLAN
        tool = tools.get(use.name)
        if tool is None:
            raise _error(f"There is no tool called {use.name!r}.")
        try:
            tool.check(use.input)
        except InvalidToolInputError as error:
            raise _error(f"Invalid input: {error.message}") from error
        if not tool.external:
            return None
        asks = use.name == ASK_USER_TOOL and run.human_in_the_loop and _asks_a_person(use.input)
        return GateKind.QUESTION if asks else GateKind.EXTERNAL

    def _judged_tool(self, judged: JudgedStep, asked: _Asked, run: RunRecord, basis: Basis) -> None:
        use = asked.use
        tool = basis.tools[use.name]
        effect = effect_of(tool)
        call = subject(use.name, tool, use.input, digest=asked.digest)
        verdict = _judge(call, run, basis, read_only=tool.read_only)
        verdict = heard(use.says, verdict, run.standing)
        if verdict.verdict is Verdict.ALLOW:
            judged.calls.append(
                asked.call(state=CallState.ALLOWED, effect=effect, grant=verdict.grant)
            )
        elif verdict.verdict is Verdict.ASK:
            suggested = suggested_rules(call)
            if use.says is not Says.NOTHING:
                suggested = [*use.suggested_rules]
            kind = GateKind.TOOL_APPROVAL
            asked = replace(asked, approval=_named(verdict.rule, run))
            self._open(judged, asked, kind, effect=effect, tool=tool, suggested=suggested)
        else:
            state, content = refusal(verdict)
            judged.calls.append(_refused(use, asked.text, asked.digest, state, content))

    def _open(
        self,
        judged: JudgedStep,
        asked: _Asked,
        kind: GateKind,
        *,
        effect: Effect,
        tool: Tool | None,
        suggested: Sequence[dict[str, Any]] = (),
    ) -> None:
        gate = NewGate(
            id=self._new_gate_id(),
            kind=kind,
            n=asked.n,
            suggested_rules=suggested,
            approval=asked.approval,
            input_schema=kept_schema(tool) if kind is GateKind.TOOL_APPROVAL else None,
            output_schema=_result_schema(tool) if kind is GateKind.EXTERNAL else None,
        )
        name, tool_input = asked.listed
        judged.calls.append(asked.call(state=CallState.ASKED, effect=effect))
        judged.gates.append(
            OpenedGate(gate=gate, tool=name, tool_input=tool_input, digest=asked.digest)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One well-formed call with its canonical text, as people see it, and its digest."""

    n: int
    use: AgentCall
    text: str
    listed: tuple[str, Mapping[str, Any]]
    digest: str
    approval: Approval | None = None

    def call(self, *, state: CallState, effect: Effect, grant: str = "") -> NewCall:
        return NewCall(
            id=self.use.id,
            tool=self.use.name,
            input_json=self.text,
            digest=self.digest,
            state=state,
            effect=effect,
            grant=grant,
        )


def kept_schema(tool: Tool | None) -> str | None:
    """What a gate keeps of a tool that the service does not know: the schema of its input."""
    return None if tool is None or tool.loaded else compact(tool.input_schema)


_AGENT = "agent:"


def heard(says: Says, verdict: Judgement, standing: Standing) -> Judgement:
    """The verdict once the agent's own word is heard; a refusal stands whatever it says."""
    if says is Says.NOTHING:
        return verdict
    found = verdict
    # A grant is empty where no rule spoke and the mode fell back on asking.
    if says is Says.ALLOW:
        if verdict.grant == "":
            found = Judgement(verdict=Verdict.ALLOW, grant="own", why="the agent allows it")
    elif verdict.verdict is Verdict.ALLOW and (says is Says.INSIST or verdict.grant == "read_only"):
        found = _asked(standing, insists=says is Says.INSIST)
    return replace(found, grant=f"{_AGENT}{says}:{found.grant}")


def _asked(standing: Standing, *, insists: bool) -> Judgement:
    """What an agent's wish to ask comes to, where no rule may answer for a person."""
    if standing.mode is Mode.AUTONOMOUS and not insists:
        return Judgement(verdict=Verdict.ALLOW, grant="mode", why="autonomous mode")
    if standing.human_in_the_loop:
        return Judgement(verdict=Verdict.ASK, grant="", why="the agent asks")
    why = "the agent asks and nobody can be asked"
    return Judgement(verdict=Verdict.DENY, grant="", why=why)


def _said(grant: str) -> Says:
    """What the agent said of a call, as its grant keeps it."""
    if not grant.startswith(_AGENT):
        return Says.NOTHING
    return Says(grant.split(":")[1])


def fresh_calls(calls: Sequence[NewCall]) -> list[Call]:
    """The calls as the store has them right after the commit of their step."""
    return [
        Call(
            n=n,
            id=call.id,
            tool=call.tool,
            input_json=call.input_json,
            digest=call.digest,
            state=call.state,
            effect=call.effect,
            grant=call.grant,
            run_digest=call.digest,
            result=call.result,
        )
        for n, call in enumerate(calls)
    ]


def effect_of(tool: Tool) -> Effect:
    """What running the tool twice would mean, as its declaration says."""
    if tool.read_only:
        return Effect.READ
    return Effect.IDEMPOTENT if tool.idempotent else Effect.ONCE


def as_declared(calls: Sequence[Call], tools: Mapping[str, Tool]) -> list[Call]:
    """The calls by what their tools promise now, where that is less than when they were judged.

    A run may wait for months, and its tools change: a call is neither free nor repeated because
    an earlier release said that it may be.
    """
    return [
        replace(call, effect=call.effect.or_worse(effect_of(tools[call.tool])))
        if call.tool in tools
        else call
        for call in calls
    ]


def refusal(judgement: Judgement) -> tuple[str, str]:
    """The result state and text of a call that a rule or the plan guard refuses."""
    if judgement.verdict is Verdict.PLAN_FIRST:
        return "error", PLAN_NEEDED
    return "denied", f"This tool call is not permitted ({judgement.why}); it was not executed."


def storable(use: AgentCall) -> ToolUse:
    """The call as the history can keep it: an input that JSON in UTF-8 cannot carry is left out.

    Such an input has no canonical form either, so the call is refused with an error result.
    """
    try:
        compact(use.input).encode()
    except (ValueError, TypeError, RecursionError):
        return ToolUse(use.id, use.name, {})
    return ToolUse(use.id, use.name, use.input)


def _approval(call: Subject, run: RunRecord, basis: Basis) -> Approval | None:
    """Who may decide the gate of a call: as the rule that asks for it says, else as the run says.

    Also of gates that no rule opens: a rule that names approvers means every gate of its calls.
    """
    rule = asked_by(call, user_id=run.user_id, rules=basis.rules, now_ms=basis.now_ms)
    return _named(rule, run)


def _named(rule: Rule | None, run: RunRecord) -> Approval | None:
    own = None if rule is None else rule.approval
    return own or Approval.read(run.config.get("approvers"))


def _result_schema(tool: Tool | None) -> str | None:
    if tool is None or tool.output_schema is None:
        return None
    return compact(tool.output_schema)


def _asks_a_person(tool_input: Mapping[str, Any]) -> bool:
    try:
        ask_user_questions(tool_input)
    except InvalidToolInputError:
        return False
    return True


def _shown(call: Call, tools: Mapping[str, Tool]) -> Subject:
    """The call as it would run."""
    tool_input = json.loads(call.effective_json)
    return subject(call.tool, tools.get(call.tool), tool_input, digest=call.run_digest)


def _judge(call: Subject, run: RunRecord, basis: Basis, *, read_only: bool) -> Judgement:
    return judge(
        call,
        read_only=read_only,
        standing=run.standing,
        rules=basis.rules,
        now_ms=basis.now_ms,
    )


def _denied_by(call: Subject, run: RunRecord, basis: Basis, *, maybe: bool = False) -> Rule | None:
    return denied_by(call, user_id=run.user_id, rules=basis.rules, now_ms=basis.now_ms, maybe=maybe)


def _forbidden(rule: Rule) -> Judgement:
    return Judgement(verdict=Verdict.DENY, grant=f"rule:{rule.id}", why=f"deny rule {rule.id}")


def _error(message: str) -> SignoffError:
    return SignoffError(message, code="refused_call")


def _refused(use: AgentCall, text: str, bound: str, state: str, content: str) -> NewCall:
    return NewCall(
        id=use.id,
        tool=use.name,
        input_json=text,
        digest=bound,
        state=CallState.DONE,
        effect=Effect.ONCE,
        result={"state": state, "content": content},
    )
