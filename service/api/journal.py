"""The account's event log and its audit trail."""

from __future__ import annotations

import json
import re
from typing import Any

from service.context import Call
from service.operation import LIMIT, choice, ok, operation, text, whole
from service.render import Json
from signoff.domain.error import InvalidFieldError
from signoff.domain.event import EVENT_TYPES
from signoff.domain.timestamp import iso
from signoff.store.journal import AuditRow, Entry, Rows
from signoff.wire.journal import AuditBody, EventBody
from signoff.wire.page import PageBody

_AFTER = text("starting_after", "the `next_starting_after` of the page before")
_RUN = whole("run_id", "of this run only")
_ENTRY = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,5})")
#: What the store calls by another word than clients do.
_NAMES = {"request": "request_id", "call": "tool_use_id"}


@operation(
    ok(PageBody[EventBody]),
    parameters=(LIMIT, _AFTER, choice("type", tuple(EVENT_TYPES), "of this type only"), _RUN),
    refuses=["not_found"],
)
async def events(call: Call) -> Json:
    """What happened in the account, newest first: events of every user, sent or not.

    They are kept for thirty days. A page of few matches may be short, or empty, while
    ``has_more`` says that there is more to look at.
    """
    query = call.query
    limit, after = query.limit(), query.text("starting_after")
    found = await call.context.store.journal.events(
        call.account,
        limit=limit,
        after=after,
        kind=query.choice("type", EVENT_TYPES),
        run_id=query.integer("run_id"),
    )
    return Json(_page(found, [json.loads(event.body) for event in found.rows]))


@operation(ok(PageBody[AuditBody]), parameters=(LIMIT, _AFTER, _RUN))
async def audit(call: Call) -> Json:
    """Who decided what, what was started with which digest, and what came too late; newest first.

    ``action`` is ``decision``, ``mode``, ``cancel``, ``tool_start`` or ``late_result``.
    """
    query = call.query
    limit, after = query.limit(), query.text("starting_after")
    found = await call.context.store.journal.audit(
        call.account,
        limit=limit,
        after=None if after is None else _entry(after),
        run_id=query.integer("run_id"),
    )
    return Json(_page(found, [_audit_body(row) for row in found.rows]))


def _entry(name: str) -> Entry:
    found = _ENTRY.fullmatch(name)
    if found is None:
        msg = "starting_after is no id of an entry"
        raise InvalidFieldError(msg, field="starting_after")
    return int(found[1]), int(found[2]), int(found[3])


def _audit_body(row: AuditRow) -> AuditBody:
    details = {_NAMES.get(name, name): value for name, value in row.fields.items()}
    return {
        "id": row.id,
        "created_at": iso(row.place[0]),
        "action": row.what,
        "run_id": row.run_id,
        "by": details.pop("by", None),
        "details": details,
    }


def _page(found: Rows[Any], bodies: list[Any]) -> PageBody[Any]:
    return {
        "data": bodies,
        "has_more": found.next_id is not None,
        "next_starting_after": found.next_id,
    }
