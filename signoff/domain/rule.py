"""Who decides about a tool call without a person: rules, then the mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from signoff.domain.approval import Approval
from signoff.domain.glob import Match
from signoff.domain.mode import Mode
from signoff.domain.pattern import pattern_of
from signoff.domain.subject import Subject


class Verdict(StrEnum):
    """What happens to a call before any person is involved."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    #: Plan mode before approval: an error result says that a plan is needed.
    PLAN_FIRST = "plan_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A stored allow, ask or deny for tool calls: by exact name, or by a name and a pattern.

    ``user_id`` None: an allow covers runs without a user only; ask and deny cover every run.
    """

    #: Not positive for a rule that is only assumed: the n-th of those has -n.
    id: int
    tool: str
    effect: Verdict
    user_id: str | None
    source: str
    created_ms: int
    author: str | None = None
    #: From then on it covers nothing.
    expires_ms: int | None = None
    #: An allow that covers no further call once that many were started by it.
    max_uses: int | None = None
    uses: int = 0
    last_used_ms: int | None = None
    #: Who may decide the gates that an ask opens, instead of those whom the run names.
    approval: Approval | None = None

    @property
    def named(self) -> str:
        """The rule as messages name it."""
        return f"{self.effect} rule {self.id}" if self.id > 0 else f"given rule {-self.id}"

    def spent(self, now_ms: int) -> bool:
        """True when the rule covers nothing any more."""
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            return True
        return self.max_uses is not None and self.uses >= self.max_uses

    def has_limits(
        self, expires_ms: int | None, max_uses: int | None, approval: Approval | None
    ) -> bool:
        """True when it stands with the limits that are asked for; who asks for none takes any."""
        if expires_ms is None and max_uses is None and approval is None:
            return True
        if (expires_ms, max_uses) != (self.expires_ms, self.max_uses):
            return False
        if approval is None or self.approval is None:
            return approval is self.approval
        return approval.same_as(self.approval)

    def covers(self, call: Subject, user_id: str | None) -> Match:
        """Whether the rule speaks about ``call`` in a run of ``user_id``; an allow never may be.

        A stored text that states no pattern covers no call as an allow, and every one otherwise.
        """
        allow = self.effect is Verdict.ALLOW
        if self.user_id != user_id and (allow or self.user_id is not None):
            return Match.NO
        if self.tool == call.tool:
            return Match.YES
        if not self.tool.startswith((f"{call.tool}(", "mcp__", "*")):
            return Match.NO
        pattern = pattern_of(self.tool)
        if pattern is None:
            return Match.NO if allow else Match.MAYBE
        if allow:
            return Match.YES if call.allowed_by(pattern) else Match.NO
        return call.touched_by(pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a run brings to the verdict on its calls."""

    mode: Mode
    plan_approved: bool
    human_in_the_loop: bool
    user_id: str | None
    #: Text of a rule to the id of the policy that "remember" stored ("" while it is being stored).
    remembered: Mapping[str, str]
    #: Digest of a call that a person denied in this turn to the gate at which they did.
    denied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with what it rests on (``grant``) and why, for people."""

    verdict: Verdict
    grant: str
    why: str
    rule: Rule | None = None


def judge(
    call: Subject, *, read_only: bool, standing: Standing, rules: Iterable[Rule], now_ms: int
) -> Judgement:
    """The verdict on one call: deny, plan guard, ask, allow, read-only, mode; first hit wins.

    A call that a person denied in this turn stays denied, whatever would allow or ask it. What a
    deny or ask rule may cover, as far as the call can be read, is asked. Of several rules that ask
    the oldest one with approvers is named, so that no other opens the gate to everybody.
    """
    found = _covering(call, standing.user_id, rules, now_ms)
    if deny := found.get((Verdict.DENY, Match.YES)):
        return _by_rule(Verdict.DENY, deny)
    planning = standing.mode is Mode.PLAN and not standing.plan_approved
    if planning and not read_only:
        return Judgement(
            verdict=Verdict.PLAN_FIRST,
            grant="plan_guard",
            why="plan mode: a plan must be approved before calls with effects",
        )
    if call.digest in standing.denied:
        gate = standing.denied[call.digest]
        return Judgement(
            verdict=Verdict.DENY,
            grant=f"denied:{gate}",
            # The model reads this, and ids of ours are nothing to it.
            why="the user denied this very call earlier and has sent no message since",
        )
    if ask := _asking(found):
        return _asked(ask, standing, sure=ask is found.get((Verdict.ASK, Match.YES)))
    if allow := found.get((Verdict.ALLOW, Match.YES)):
        return _by_rule(Verdict.ALLOW, allow)
    if any(policy == "" and _states(text, call) for text, policy in standing.remembered.items()):
        return Judgement(
            verdict=Verdict.ALLOW, grant="remembered", why="remembered earlier in this run"
        )
    if read_only:
        return Judgement(verdict=Verdict.ALLOW, grant="read_only", why="the tool only reads")
    if standing.mode is Mode.AUTONOMOUS:
        return Judgement(verdict=Verdict.ALLOW, grant="mode", why="autonomous mode")
    asked = standing.human_in_the_loop
    return Judgement(
        verdict=Verdict.ASK if asked else Verdict.DENY,
        grant="",
        why=f"{standing.mode} mode asks{'' if asked else ' and nobody can be asked'}",
    )


def denied_by(
    call: Subject, *, user_id: str | None, rules: Iterable[Rule], now_ms: int, maybe: bool = False
) -> Rule | None:
    """The deny rule that covers the call, if any; deny wins over every grant.

    With ``maybe`` also one that may cover it: for grants that no person gave.
    """
    for rule in rules:
        if rule.effect is Verdict.DENY and not rule.spent(now_ms):
            match = _firm(rule.covers(call, user_id), call)
            if match is Match.YES or (maybe and match is Match.MAYBE):
                return rule
    return None


def asked_by(
    call: Subject, *, user_id: str | None, rules: Iterable[Rule], now_ms: int
) -> Rule | None:
    """The rule for which the call is asked, if any: the one that ``judge`` names."""
    return _asking(_covering(call, user_id, rules, now_ms))


def _covering(
    call: Subject, user_id: str | None, rules: Iterable[Rule], now_ms: int
) -> dict[tuple[Verdict, Match], Rule]:
    """The first rule of each effect that covers the call, and the first that may.

    Rules with approvers come before those without.
    """
    found: dict[tuple[Verdict, Match], Rule] = {}
    for rule in rules:
        match = rule.covers(call, user_id)
        if match is Match.NO or rule.spent(now_ms):
            continue
        if rule.effect is Verdict.DENY:
            match = _firm(match, call)
        held = found.get((rule.effect, match))
        if held is None or (held.approval is None and rule.approval is not None):
            found[rule.effect, match] = rule
    return found


def _asking(found: Mapping[tuple[Verdict, Match], Rule]) -> Rule | None:
    sure, maybe = found.get((Verdict.ASK, Match.YES)), found.get((Verdict.ASK, Match.MAYBE))
    if sure is not None and maybe is not None and sure.approval is None:
        return maybe if maybe.approval is not None else sure
    return sure or maybe or found.get((Verdict.DENY, Match.MAYBE))


def _firm(match: Match, call: Subject) -> Match:
    """A deny that may cover a text which the grammar does not take denies it."""
    return Match.YES if match is Match.MAYBE and call.unread else match


def _states(text: str, call: Subject) -> bool:
    pattern = pattern_of(text)
    return pattern is not None and call.allowed_by(pattern)


def _asked(rule: Rule, standing: Standing, *, sure: bool) -> Judgement:
    how = f"{rule.named} {'covers' if sure else 'may cover'} the call"
    if standing.human_in_the_loop:
        return Judgement(verdict=Verdict.ASK, grant=f"rule:{rule.id}", why=how, rule=rule)
    return Judgement(
        verdict=Verdict.DENY,
        grant=f"rule:{rule.id}",
        why=f"{how} and nobody can be asked",
        rule=rule,
    )


def _by_rule(verdict: Verdict, rule: Rule) -> Judgement:
    if rule.user_id is not None:
        whose = f"user {rule.user_id!r}"
    else:
        whose = "runs without a user" if verdict is Verdict.ALLOW else "every run"
    why = f"{rule.named} for {whose}" if rule.id > 0 else rule.named
    return Judgement(verdict=verdict, grant=f"rule:{rule.id}", why=why, rule=rule)
