"""Sums of money as text."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.money import MICROS, dollars


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "0"), (1, "0.000001"), (3_150, "0.00315"), (10_000_000, "10"), (12_500_000, "12.5")],
)
def test_a_sum_is_a_plain_decimal(micros: int, text: str) -> None:
    """No exponent, no zeros behind the point, nothing rounded."""
    assert dollars(micros) == text


@given(st.integers(min_value=0, max_value=10**15))
def test_nothing_is_lost(micros: int) -> None:
    """The text is exactly the sum."""
    assert Decimal(dollars(micros)) * MICROS == micros
