"""Who decides without a person: the order of the rules, the plan guard and the mode."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.approval import Approval
from signoff.domain.mode import Mode
from signoff.domain.rule import Rule, Standing, Verdict, asked_by, denied_by
from signoff.domain.rule import judge as judge_call
from signoff.domain.subject import Subject
from signoff.domain.suggestion import suggested_rules

NOW = 1_000_000


def judge(tool: str, **basis: Any) -> Any:
    return judge_call(Subject(tool, {}), now_ms=NOW, **basis)


DENY, ASK, ALLOW = Verdict.DENY, Verdict.ASK, Verdict.ALLOW


def rule(n: int, effect: Verdict, user_id: str | None = None, tool: str = "t") -> Rule:
    return Rule(id=n, tool=tool, effect=effect, user_id=user_id, source="api", created_ms=0)


def standing(
    mode: str = "autonomous",
    *,
    plan_approved: bool = False,
    hitl: bool = True,
    user_id: str | None = None,
    remembered: dict[str, str] | None = None,
) -> Standing:
    return Standing(
        mode=Mode(mode),
        plan_approved=plan_approved,
        human_in_the_loop=hitl,
        user_id=user_id,
        remembered=remembered or {},
    )


# (deny, ask, allow) rules present, read-only, mode, plan approved, HITL -> verdict and its grant.
TABLE = [
    # deny wins over everything
    ("deny ask allow", True, "autonomous", False, True, "deny", "rule:1"),
    ("deny", False, "plan", False, True, "deny", "rule:1"),
    # plan guard before ask and allow; reads are not guarded
    ("ask allow", False, "plan", False, True, "plan_first", "plan_guard"),
    ("allow", False, "plan", False, True, "plan_first", "plan_guard"),
    ("", False, "plan", False, True, "plan_first", "plan_guard"),
    ("", True, "plan", False, True, "allow", "read_only"),
    ("ask", True, "plan", False, True, "ask", "rule:2"),
    # ask before allow and read-only; nobody there to ask is a deny
    ("ask allow", True, "autonomous", False, True, "ask", "rule:2"),
    ("ask", False, "plan", True, True, "ask", "rule:2"),
    ("ask", False, "autonomous", False, False, "deny", "rule:2"),
    ("ask allow", True, "autonomous", False, False, "deny", "rule:2"),
    # allow before the mode
    ("allow", False, "approval", False, True, "allow", "rule:3"),
    ("allow", True, "approval", False, True, "allow", "rule:3"),
    ("allow", False, "plan", True, True, "allow", "rule:3"),
    # read-only before the mode
    ("", True, "approval", False, True, "allow", "read_only"),
    # mode
    ("", False, "autonomous", False, True, "allow", "mode"),
    ("", False, "autonomous", False, False, "allow", "mode"),
    ("", False, "approval", False, True, "ask", ""),
    ("", False, "plan", True, True, "ask", ""),
]


@pytest.mark.parametrize(
    ("present", "read_only", "mode", "approved", "hitl", "verdict", "grant"), TABLE
)
def test_the_first_hit_wins(
    *,
    present: str,
    read_only: bool,
    mode: str,
    approved: bool,
    hitl: bool,
    verdict: str,
    grant: str,
) -> None:
    """Deny, plan guard, ask, allow, read-only, mode; whatever order the rules are stored in."""
    made = {"deny": rule(1, DENY), "ask": rule(2, ASK), "allow": rule(3, ALLOW)}
    rules = [made[name] for name in present.split()]
    for order in itertools.permutations(rules):
        found = judge(
            "t",
            read_only=read_only,
            standing=standing(mode, plan_approved=approved, hitl=hitl),
            rules=order,
        )
        assert (found.verdict.value, found.grant) == (verdict, grant)


@pytest.mark.parametrize("effect", [DENY, ASK, ALLOW])
@pytest.mark.parametrize("rule_user", [None, "u1", "u2"])
@pytest.mark.parametrize("run_user", [None, "u1", "u2"])
def test_the_scope_of_a_rule(effect: Verdict, rule_user: str | None, run_user: str | None) -> None:
    """Without a user, ask and deny cover every run, allow only runs without a user."""
    expected = rule_user == run_user or (rule_user is None and effect is not ALLOW)
    assert rule(1, effect, rule_user).covers(Subject("t", {}), run_user) == (2 if expected else 0)


def test_a_rule_is_about_one_tool_by_exact_name() -> None:
    """No prefixes, no case folding."""
    for other in ("T", "t2", "", "t "):
        assert not rule(1, DENY).covers(Subject(other, {}), None)


def test_remembered_allows_only_until_its_policy_is_stored() -> None:
    """From then on the policy decides, so that revoking it works; deny and ask still win."""
    pending = standing("approval", remembered={"t": ""})
    stored = standing("approval", remembered={"t": "7"})
    assert judge("t", read_only=False, standing=pending, rules=()).grant == "remembered"
    assert judge("t", read_only=False, standing=stored, rules=()).verdict is ASK
    assert judge("u", read_only=False, standing=pending, rules=()).verdict is ASK
    for effect in (DENY, ASK):
        found = judge("t", read_only=False, standing=pending, rules=[rule(1, effect)])
        assert found.verdict is effect


def test_an_ordinary_tool_is_suggested_by_its_name() -> None:
    """What a reviewer is shown of it is the tool."""
    assert suggested_rules(Subject("t", {"a": 1})) == [{"tool": "t", "effect": "allow"}]


def test_a_rule_that_expired_or_is_used_up_covers_nothing() -> None:
    """To the millisecond, whatever its effect; one use below the bound it still does."""
    run = standing("approval")
    for effect in (DENY, ASK, ALLOW):
        for at, counts in ((NOW, False), (NOW + 1, True)):
            found = replace(rule(1, effect), expires_ms=at)
            judged = judge("t", read_only=False, standing=run, rules=[found])
            assert (judged.rule == found) is counts
    for uses, counts in ((2, False), (1, True)):
        found = replace(rule(1, ALLOW), max_uses=2, uses=uses)
        judged = judge("t", read_only=False, standing=run, rules=[found])
        assert (judged.verdict is ALLOW) is counts


def test_t28_a_denied_call_is_not_asked_again_in_its_turn() -> None:
    """The same digest is denied at once, naming the decision, whatever would allow it by now."""
    call = Subject("t", {}, digest="d1")
    run = replace(standing("autonomous"), denied={"d1": "req_7"})
    for rules in ([], [rule(1, ALLOW)], [rule(2, ASK)]):
        found = judge_call(call, read_only=False, standing=run, rules=rules, now_ms=NOW)
        assert (found.verdict, found.grant) == (DENY, "denied:req_7")
        assert "denied this very call" in found.why
        assert "req_7" not in found.why
    other = Subject("t", {}, digest="d2")
    judged = judge_call(other, read_only=False, standing=run, rules=[], now_ms=NOW)
    assert judged.verdict is ALLOW


rules = st.builds(
    rule,
    st.integers(1, 99),
    st.sampled_from([DENY, ASK, ALLOW]),
    st.sampled_from([None, "u1", "u2"]),
    st.sampled_from(["t", "u"]),
)
standings = st.builds(
    standing,
    st.sampled_from([m.value for m in Mode]),
    plan_approved=st.booleans(),
    hitl=st.booleans(),
    user_id=st.sampled_from([None, "u1", "u2"]),
    remembered=st.sampled_from([{}, {"t": ""}, {"t": "5"}]),
)


@given(st.lists(rules, max_size=6), standings, st.booleans())
def test_deny_always_wins_and_nobody_is_asked_who_is_not_there(
    stored: list[Rule], run: Standing, read_only: bool
) -> None:
    """A covering deny decides alone; ask rules never ask without a person; grants are real."""
    found = judge("t", read_only=read_only, standing=run, rules=stored)
    covering = [r for r in stored if r.covers(Subject("t", {}), run.user_id)]
    denies = [r for r in covering if r.effect is DENY]
    first = denied_by(Subject("t", {}), user_id=run.user_id, rules=stored, now_ms=NOW)
    assert first == (denies[0] if denies else None)
    if denies:
        assert (found.verdict, found.grant) == (DENY, f"rule:{denies[0].id}")
        return
    guarded = run.mode is Mode.PLAN and not run.plan_approved and not read_only
    assert (found.verdict is Verdict.PLAN_FIRST) == guarded
    asks = any(r.effect is ASK for r in covering)
    if asks and not guarded:
        assert found.verdict is (ASK if run.human_in_the_loop else DENY)
    if found.verdict is ALLOW and found.grant.startswith("rule:"):
        assert any(r.effect is ALLOW and found.grant == f"rule:{r.id}" for r in covering)
    assert found.why


@given(st.lists(rules, max_size=6), standings, st.booleans(), st.data())
def test_other_peoples_rules_do_not_count(
    stored: list[Rule], run: Standing, read_only: bool, data: st.DataObject
) -> None:
    """Taking rules away that do not cover the call never changes the verdict."""
    mine = [r for r in stored if r.covers(Subject("t", {}), run.user_id)]
    shuffled = data.draw(st.permutations(stored))
    first = judge("t", read_only=read_only, standing=run, rules=stored)
    assert judge("t", read_only=read_only, standing=run, rules=mine) == first
    again = judge("t", read_only=read_only, standing=run, rules=shuffled)
    assert again.verdict is first.verdict


ANN = Approval(any_of=("user:ann",))
BEN = Approval(any_of=("user:ben",))


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ([("t", None), ("t(a=*)", ANN), ("*", BEN)], 2),
        ([("t", BEN), ("t(a=*)", ANN)], 1),
        ([("t", None), ("t(a=*)", None)], 1),
        # "a" is left out, so a rule about it may cover the call.
        ([("t", None), ("t(b=*)", ANN)], 1),
    ],
)
def test_of_rules_that_ask_the_oldest_with_approvers_is_named(
    texts: list[tuple[str, Approval | None]], named: int
) -> None:
    """However the rules lie, and whoever asks for the name."""
    rules = [
        replace(rule(n, ASK, tool=text), approval=approval)
        for n, (text, approval) in enumerate(texts, start=1)
    ]
    call = Subject("t", {"a": "x"})
    found = judge_call(call, read_only=False, standing=standing(), rules=rules, now_ms=NOW)
    assert (found.verdict, found.grant) == (ASK, f"rule:{named}")
    assert asked_by(call, user_id=None, rules=rules, now_ms=NOW) is rules[named - 1]


def test_a_rule_with_approvers_that_may_cover_a_call_comes_before_one_that_does() -> None:
    """A command that cannot be read is not taken out of the hands of those who are to decide."""
    sure = rule(1, ASK, tool="Bash")
    perhaps = replace(rule(2, ASK, tool="Bash(rm:*)"), approval=ANN)
    call = Subject("Bash", {"command": "$x y"}, kind="shell", parameter="command")
    found = asked_by(call, user_id=None, rules=[sure, perhaps], now_ms=NOW)
    assert found is perhaps


def test_limits_are_the_same_whatever_the_order_of_the_names() -> None:
    """No limits ask for none; others must be the rule's."""
    both = Approval(any_of=("user:a", "user:b"), quorum=2)
    kept = replace(rule(1, ASK), approval=both)
    assert kept.has_limits(None, None, None)
    assert kept.has_limits(None, None, replace(both, any_of=("user:b", "user:a")))
    assert not kept.has_limits(None, None, replace(both, quorum=1))
    assert not kept.has_limits(5, None, None)
    assert not rule(1, ASK).has_limits(None, None, both)
