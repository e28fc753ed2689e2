"""Who decides without a person: the order of the rules, the plan guard and the mode."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.mode import Mode
from signoff.domain.rule import Rule, Standing, Verdict, denied_by, judge, suggested_rules

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
    assert rule(1, effect, rule_user).covers("t", run_user) == expected


def test_a_rule_is_about_one_tool_by_exact_name() -> None:
    """No prefixes, no case folding."""
    for other in ("T", "t2", "", "t "):
        assert not rule(1, DENY).covers(other, None)


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


def test_suggestions_are_never_broader_than_what_is_shown() -> None:
    """A tool whose calls differ by a pattern gets none."""
    assert suggested_rules("t", patterned=True) == []
    assert suggested_rules("t", patterned=False) == [{"tool": "t", "effect": "allow"}]


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
    covering = [r for r in stored if r.covers("t", run.user_id)]
    denies = [r for r in covering if r.effect is DENY]
    first = denied_by("t", user_id=run.user_id, rules=stored)
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
    mine = [r for r in stored if r.covers("t", run.user_id)]
    shuffled = data.draw(st.permutations(stored))
    first = judge("t", read_only=read_only, standing=run, rules=stored)
    assert judge("t", read_only=read_only, standing=run, rules=mine) == first
    again = judge("t", read_only=read_only, standing=run, rules=shuffled)
    assert again.verdict is first.verdict
