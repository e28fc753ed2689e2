"""Stored rules of the fake: made once, with their limits, counted, and tried out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from signoff.domain.approval import Approval, checked_approval
from signoff.domain.error import ConflictError, InvalidFieldError, MissingError
from signoff.domain.mode import Mode
from signoff.domain.rule import Judgement, Rule, Standing, Verdict, judge
from signoff.domain.rulecheck import check_limits, check_rule
from signoff.domain.subject import Subject
from signoff.domain.timestamp import read_iso
from signoff.domain.uncovered import uncovered
from signoff.wire.body import Approvers
from signoff.wire.policy import CreatePolicy, Evaluate

Limits = tuple[int | None, int | None, Approval | None]


class Rulebook:
    """The rules by id; tools of the fake have no patterns, so theirs are named arguments."""

    def __init__(
        self, *, tools: Collection[str], number: Callable[[], int], now_ms: Callable[[], int]
    ) -> None:
        self._tools = dict.fromkeys(tools)
        self._number = number
        self._now_ms = now_ms
        self._rules: dict[int, Rule] = {}

    def all(self) -> list[Rule]:
        """Every rule, oldest first."""
        return list(self._rules.values())

    def create(self, body: CreatePolicy) -> tuple[Rule, bool]:
        """The rule of a request, and whether it is new."""
        effect = Verdict(body.effect or "allow")
        check_rule(body.tool, effect, self._tools)
        expires_ms = None if body.expires_at is None else read_iso(body.expires_at)
        if body.expires_at is not None and (expires_ms is None or expires_ms <= self._now_ms()):
            raise InvalidFieldError("expires_at: a time to come", field="expires_at")
        approval = _approval(body.approvers)
        check_limits(effect, max_uses=body.max_uses, approval=approval)
        limits = (expires_ms, body.max_uses, approval)
        rule, made = self.put(body.tool, effect, body.user_id, "api", limits)
        if not made and not rule.has_limits(*limits):
            msg = f"permission {rule.id} stands with other limits; revoke it first"
            raise ConflictError(msg, code="permission_differs", details={"id": rule.id})
        return rule, made

    def put(
        self,
        tool: str,
        effect: Verdict,
        user_id: str | None,
        source: str,
        limits: Limits = (None, None, None),
    ) -> tuple[Rule, bool]:
        """The one rule of (user, tool, effect), and whether it is new."""
        for rule in self.all():
            if (rule.tool, rule.effect, rule.user_id) == (tool, effect, user_id):
                if not rule.spent(self._now_ms()):
                    return rule, False
                del self._rules[rule.id]
        made = Rule(
            id=self._number(),
            tool=tool,
            effect=effect,
            user_id=user_id,
            source=source,
            created_ms=self._now_ms(),
            author="key:fake",
            expires_ms=limits[0],
            max_uses=limits[1],
            approval=limits[2],
        )
        self._rules[made.id] = made
        return made, True

    def used(self, rule: Rule) -> None:
        """Counts a call that the rule let start."""
        self._rules[rule.id] = replace(rule, uses=rule.uses + 1, last_used_ms=self._now_ms())

    def delete(self, rule_id: int, user_id: str | None) -> None:
        """Revokes a rule of that scope."""
        rule = self._rules.get(rule_id)
        if rule is None or rule.user_id != user_id:
            raise MissingError(f"no permission {rule_id}")
        del self._rules[rule_id]

    def evaluate(self, body: Evaluate, *, read_only: bool) -> Judgement:
        """What would become of a call."""
        rules = self.all()
        if body.rules is not None:
            rules = [
                Rule(
                    id=-n,
                    tool=item.tool,
                    effect=Verdict(item.effect),
                    user_id=body.user_id,
                    source="given",
                    created_ms=0,
                    approval=_approval(item.approvers),
                )
                for n, item in enumerate(body.rules, start=1)
            ]
        standing = Standing(
            mode=Mode(body.mode or "approval"),
            plan_approved=False,
            human_in_the_loop=True,
            user_id=body.user_id,
            remembered={},
        )
        call = Subject(body.call.tool, body.call.input)
        now_ms = self._now_ms()
        found = judge(call, read_only=read_only, standing=standing, rules=rules, now_ms=now_ms)
        if found.verdict is not Verdict.ASK or found.rule is not None:
            return found
        missed = uncovered(call, rules, user_id=body.user_id, now_ms=now_ms)
        return replace(found, why="; ".join([found.why, *missed]))


def _approval(given: Approvers | None) -> Approval | None:
    return checked_approval(None if given is None else given.model_dump())
