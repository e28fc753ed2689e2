"""What one end user may use of an account, and the periods in which use is counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

_DECEMBER = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Upper bounds; None is no bound and 0 blocks.

    The bound of costs is held against what is known of them when a run starts: a run that is
    under way may pass it, and models without a known price cost nothing.
    """

    run_limit: int | None = None
    cost_limit_cents: int | None = None
    rate_per_minute: int | None = None

    def over(self, defaults: Caps) -> Caps:
        """These caps, with the account's ``defaults`` where they say nothing."""

        def either(own: int | None, default: int | None) -> int | None:
            return default if own is None else own

        return Caps(
            run_limit=either(self.run_limit, defaults.run_limit),
            cost_limit_cents=either(self.cost_limit_cents, defaults.cost_limit_cents),
            rate_per_minute=either(self.rate_per_minute, defaults.rate_per_minute),
        )

    @property
    def counted(self) -> bool:
        """True when a new run has to be held against something."""
        bounds = (self.run_limit, self.cost_limit_cents, self.rate_per_minute)
        return any(bound is not None for bound in bounds)


def period_of(ms: int) -> str:
    """The calendar month (UTC) of a time, as ``202601``."""
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y%m}"


def period_end(ms: int) -> int:
    """When the month of a time ends, in Unix milliseconds."""
    now = datetime.fromtimestamp(ms / 1000, tz=UTC)
    year, month = (now.year + 1, 1) if now.month == _DECEMBER else (now.year, now.month + 1)
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp() * 1000)
