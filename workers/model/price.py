"""What a provider's reply cost, by the price list that pydantic-ai brings along."""

from __future__ import annotations

from decimal import ROUND_HALF_UP

from pydantic_ai.messages import ModelResponse

from signoff.domain.money import MICROS


def cost_micros(answer: ModelResponse) -> int:
    """The price in millionths of a US dollar, half ones rounded up; 0 where it is not known.

    The list is part of the package, so a model that is younger than it has no price.
    """
    try:
        price = answer.cost().total_price
    except (LookupError, ValueError, AssertionError):
        # No such model in the list, or a reply without its model's name or its usage.
        return 0
    return max(0, int((price * MICROS).to_integral_value(ROUND_HALF_UP)))
