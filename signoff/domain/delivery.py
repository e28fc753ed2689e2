"""When a delivery is tried again, and when an endpoint is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: Seconds before each of the nine attempts, each after the one before ended.
DEFAULT_SCHEDULE: tuple[float, ...] = (0, 5, 60, 300, 1800, 7200, 21600, 43200, 86400)
JITTER = 0.1
#: An endpoint that only failed for this long is disabled.
DISABLE_AFTER_S = 5 * 24 * 3600
MAX_RETRY_AFTER_S = 24 * 3600


class DeliveryState(StrEnum):
    """Where one delivery stands."""

    PENDING = "pending"
    #: A relay is sending it right now.
    LEASED = "leased"
    SUCCESS = "success"
    #: All attempts failed, or the endpoint said that it is gone.
    FAILED = "failed"
    #: Its pause was settled; it is not announced again.
    SUPERSEDED = "superseded"
    #: Its endpoint was deleted or disabled.
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """What follows a failed attempt: ``delay_s`` None means that it was the last."""

    delay_s: float | None
    hold_s: float | None = None


def after_failure(
    attempt: int, *, schedule: Sequence[float], jitter: float, retry_after_s: float | None
) -> Backoff:
    """The pause after failed attempt number ``attempt`` (from 1).

    ``jitter`` in -1…1 moves the delay by up to ±10 %. A Retry-After holds the whole endpoint and
    never shortens the schedule; it is capped at a day.
    """
    hold = None if retry_after_s is None else min(max(retry_after_s, 0.0), MAX_RETRY_AFTER_S)
    if attempt >= len(schedule):
        return Backoff(delay_s=None, hold_s=hold)
    delay = schedule[attempt] * (1 + JITTER * jitter)
    return Backoff(delay_s=delay if hold is None else max(delay, hold), hold_s=hold)
