"""Calls about the account as a whole: settings, use, events, audit trail."""

from __future__ import annotations

from typing import Unpack

from signoff.client.op import Op, at, one, page, query
from signoff.client.options import SettingsOptions, known
from signoff.client.overview import AuditEntry, EndUserUsage, Event, Settings
from signoff.client.values import Page


def get_settings() -> Op[Settings]:
    """All settings."""
    return Op(method="GET", path=at("settings"), read=one(Settings))


def update_settings(**options: Unpack[SettingsOptions]) -> Op[Settings]:
    """Changes what is given; None clears a cap."""
    body = known(options, SettingsOptions)
    return Op(method="PATCH", path=at("settings"), body=body, read=one(Settings))


def end_users(
    *,
    user_id: str | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[EndUserUsage]]:
    """What end users have used this month: one of them, or all, newest profile first."""
    return Op(
        method="GET",
        path=at("usage", "end-users"),
        query=query(user_id=user_id, limit=limit, starting_after=starting_after),
        read=page(EndUserUsage),
    )


def list_events(
    *,
    type: str | None = None,  # noqa: A002 - the wire's word
    run_id: int | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[Event]]:
    """What happened in the account, newest first; kept for thirty days."""
    return Op(
        method="GET",
        path=at("events"),
        query=query(type=type, run_id=run_id, limit=limit, starting_after=starting_after),
        read=page(Event),
    )


def list_audit(
    *,
    run_id: int | None = None,
    limit: int | None = None,
    starting_after: int | str | None = None,
) -> Op[Page[AuditEntry]]:
    """Who decided what, and what was started with which digest, newest first."""
    return Op(
        method="GET",
        path=at("audit"),
        query=query(run_id=run_id, limit=limit, starting_after=starting_after),
        read=page(AuditEntry),
    )
