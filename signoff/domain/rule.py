"""Who decides about a tool call without a person: rules, then the mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from signoff.domain.mode import Mode


class Verdict(StrEnum):
    """What happens to a call before any person is involved."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    #: Plan mode before approval: an error result says that a plan is needed.
    PLAN_FIRST = "plan_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A stored allow, ask or deny for calls of one tool, by exact name.

    ``user_id`` None: an allow covers runs without a user only; ask and deny cover every run.
    """

    id: int
    tool: str
    effect: Verdict
    user_id: str | None
    source: str
    created_ms: int

    def covers(self, tool: str, user_id: str | None) -> bool:
        """True when the rule speaks about a call of ``tool`` in a run of ``user_id``."""
        if self.tool != tool:
            return False
        if self.user_id is None and self.effect is not Verdict.ALLOW:
            return True
        return self.user_id == user_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a run brings to the verdict on its calls."""

    mode: Mode
    plan_approved: bool
    human_in_the_loop: bool
    user_id: str | None
    #: Tool name to the id of the policy that "remember" stored ("" while it is being stored).
    remembered: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with what it rests on (``grant``) and why, for people."""

    verdict: Verdict
    grant: str
    why: str


def judge(tool: str, *, read_only: bool, standing: Standing, rules: Iterable[Rule]) -> Judgement:
    """The verdict on one call: deny, plan guard, ask, allow, read-only, mode; first hit wins."""
    found = [rule for rule in rules if rule.covers(tool, standing.user_id)]
    by_effect = {rule.effect: rule for rule in reversed(found)}
    if deny := by_effect.get(Verdict.DENY):
        return _by_rule(Verdict.DENY, deny)
    planning = standing.mode is Mode.PLAN and not standing.plan_approved
    if planning and not read_only:
        return Judgement(
            verdict=Verdict.PLAN_FIRST,
            grant="plan_guard",
            why="plan mode: a plan must be approved before calls with effects",
        )
    if ask := by_effect.get(Verdict.ASK):
        if standing.human_in_the_loop:
            return _by_rule(Verdict.ASK, ask)
        return Judgement(
            verdict=Verdict.DENY,
            grant=f"rule:{ask.id}",
            why="an ask rule covers the call and nobody can be asked",
        )
    if allow := by_effect.get(Verdict.ALLOW):
        return _by_rule(Verdict.ALLOW, allow)
    if tool in standing.remembered and standing.remembered[tool] == "":
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


def denied_by(tool: str, *, user_id: str | None, rules: Iterable[Rule]) -> Rule | None:
    """The deny rule that covers the call, if any; deny wins over every grant."""
    for rule in rules:
        if rule.effect is Verdict.DENY and rule.covers(tool, user_id):
            return rule
    return None


def suggested_rules(tool: str, *, patterned: bool) -> list[dict[str, str]]:
    """The rules a reviewer may accept with an approval; never broader than what is shown.

    A tool whose calls differ by a pattern (a command, a path) gets none until its pattern can
    be stated.
    """
    return [] if patterned else [{"tool": tool, "effect": Verdict.ALLOW.value}]


def _by_rule(verdict: Verdict, rule: Rule) -> Judgement:
    whose = "every run" if rule.user_id is None else f"user {rule.user_id!r}"
    return Judgement(
        verdict=verdict, grant=f"rule:{rule.id}", why=f"{rule.effect} rule {rule.id} for {whose}"
    )
