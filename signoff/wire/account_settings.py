"""Bodies of an account's settings."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from signoff.wire.body import Body, ExpiryName, Wait
from signoff.wire.user import Cap


class ChangeSettings(Body):
    """PATCH /settings/; what is omitted stays, null clears a cap or a time limit."""

    per_end_user_run_limit: Cap | None = None
    per_end_user_cost_limit_cents: Cap | None = None
    per_end_user_rate_per_minute: Cap | None = None
    remind_after: Wait | None = None
    expires_in: Wait | None = None
    on_expiry: ExpiryName | None = None
    retention_mode: Literal["standard", "metadata_only"] | None = None
    require_end_user_id: bool | None = None
    approval_email_enabled: bool | None = None
    approval_slack_enabled: bool | None = None
    result_email_enabled: bool | None = None
    result_slack_enabled: bool | None = None


class SettingsBody(TypedDict):
    """The settings of one account."""

    per_end_user_run_limit: int | None
    per_end_user_cost_limit_cents: int | None
    per_end_user_rate_per_minute: int | None
    remind_after: float | None
    expires_in: float | None
    on_expiry: str | None
    retention_mode: str
    require_end_user_id: bool
    approval_email_enabled: bool
    approval_slack_enabled: bool
    result_email_enabled: bool
    result_slack_enabled: bool
