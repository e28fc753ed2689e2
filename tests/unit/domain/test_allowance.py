"""Caps and the months that they count in."""

from signoff.domain.allowance import Caps, period_end, period_of

JANUARY, LAST_OF_2026 = 1_767_225_600_000, 1_798_761_599_999


def test_own_caps_win_over_the_accounts() -> None:
    """Each cap for itself; 0 is a cap, None is not."""
    own = Caps(run_limit=0, rate_per_minute=5)
    merged = own.over(Caps(run_limit=9, cost_limit_cents=7))
    assert merged == Caps(run_limit=0, cost_limit_cents=7, rate_per_minute=5)


def test_each_cap_is_counted() -> None:
    """Without any, a new run is held against nothing."""
    assert not Caps().counted
    assert Caps(cost_limit_cents=1).counted
    assert Caps(run_limit=0).counted
    assert Caps(rate_per_minute=0).counted


def test_months_are_those_of_utc() -> None:
    """The first and the last millisecond of a year belong to their months."""
    assert (period_of(JANUARY), period_of(JANUARY - 1)) == ("202601", "202512")
    assert period_of(LAST_OF_2026) == "202612"
    assert period_end(LAST_OF_2026) == LAST_OF_2026 + 1
    assert period_of(period_end(JANUARY)) == "202602"
