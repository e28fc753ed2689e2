"""Money in whole millionths of a US dollar: sums stay exact, in the store and here."""

from __future__ import annotations

MICROS = 1_000_000
MICROS_PER_CENT = 10_000


def dollars(micros: int) -> str:
    """The decimal string of a sum: ``"0.0123"``, ``"12"``; never an exponent."""
    whole, rest = divmod(micros, MICROS)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")
