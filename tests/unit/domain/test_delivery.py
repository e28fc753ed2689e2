"""The schedule of attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.delivery import (
    DEFAULT_SCHEDULE,
    DISABLE_AFTER_S,
    MAX_RETRY_AFTER_S,
    after_failure,
)

DELAYS = [5, 60, 300, 1800, 7200, 21600, 43200, 86400]


@pytest.mark.parametrize(("attempt", "delay"), list(enumerate(DELAYS, start=1)))
def test_the_default_schedule(attempt: int, delay: float) -> None:
    """Nine attempts, each so long after the one before."""
    found = after_failure(attempt, schedule=DEFAULT_SCHEDULE, jitter=0, retry_after_s=None)
    assert (found.delay_s, found.hold_s) == (delay, None)


def test_the_ninth_failure_is_the_last() -> None:
    """Also with a Retry-After, which still holds the endpoint."""
    last = after_failure(9, schedule=DEFAULT_SCHEDULE, jitter=1, retry_after_s=30)
    assert (last.delay_s, last.hold_s) == (None, 30)
    assert DISABLE_AFTER_S == 5 * 86400


@given(
    st.integers(1, 12),
    st.floats(-1, 1),
    st.none() | st.floats(-1e9, 1e9),
)
def test_delays_stay_within_ten_percent_and_never_undercut_retry_after(
    attempt: int, jitter: float, retry_after_s: float | None
) -> None:
    """Retry-After never shortens the schedule and is capped at a day."""
    found = after_failure(
        attempt, schedule=DEFAULT_SCHEDULE, jitter=jitter, retry_after_s=retry_after_s
    )
    if retry_after_s is None:
        assert found.hold_s is None
    else:
        assert found.hold_s == min(max(retry_after_s, 0), MAX_RETRY_AFTER_S)
    if attempt >= len(DEFAULT_SCHEDULE):
        assert found.delay_s is None
        return
    assert found.delay_s is not None
    planned = DEFAULT_SCHEDULE[attempt]
    assert found.delay_s >= planned * 0.9
    assert found.delay_s <= max(planned * 1.1, found.hold_s or 0)
    assert found.delay_s >= (found.hold_s or 0)


def test_a_schedule_of_ones_own() -> None:
    """Its length is the number of attempts."""
    assert after_failure(1, schedule=(0, 1), jitter=0, retry_after_s=None).delay_s == 1
    assert after_failure(2, schedule=(0, 1), jitter=0, retry_after_s=None).delay_s is None
