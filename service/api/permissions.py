"""Stored rules, which the wire calls permissions: make, list one scope, revoke."""

from __future__ import annotations

import re

from starlette.responses import Response

from service.context import Call
from service.operation import NO_CONTENT, PAGED, SCOPED, USER, ok, operation
from service.render import Json, page_body, policy_body
from signoff.declared import RESERVED
from signoff.domain.error import InvalidFieldError
from signoff.domain.rule import Verdict
from signoff.wire.page import PageBody
from signoff.wire.policy import CreatePolicy, PolicyBody

#: Every call of an account's runs is checked against all of them.
MAX_PER_ACCOUNT = 10_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PATTERN = re.compile(r"[()*]")


@operation(
    ok(PolicyBody, 201),
    ok(PolicyBody, about="It stood already."),
    body=CreatePolicy,
    refuses=("end_user_required", "pattern_not_supported", "reserved_tool", "too_many_permissions"),
)
async def post(call: Call) -> Json:
    """Makes a rule, or finds the one of the same user, tool and effect."""
    body = await call.body(CreatePolicy)
    await call.demand_user(body.user_id)
    effect = Verdict(body.effect or "allow")
    _check_tool(body.tool, effect)
    known = (await call.context.store.catalog.rules(call.account, 1)).rules
    if len(known) >= MAX_PER_ACCOUNT:
        identity = (body.tool, effect, body.user_id)
        if all((rule.tool, rule.effect, rule.user_id) != identity for rule in known):
            msg = f"an account has at most {MAX_PER_ACCOUNT} permissions"
            raise InvalidFieldError(msg, code="too_many_permissions")
    await call.context.store.users.touch(call.account, body.user_id)
    stored = await call.context.store.policies.put(
        account=call.account,
        user_id=body.user_id,
        tool=body.tool,
        effect=effect,
        source="api",
        now_ms=call.context.now_ms(),
    )
    return Json(policy_body(stored.rule), 201 if stored.created else 200)


@operation(ok(PageBody[PolicyBody]), parameters=(*PAGED, USER), refuses=SCOPED)
async def index(call: Call) -> Json:
    """The rules of exactly one scope, newest first: one user's, or those without a user."""
    query = call.query
    limit, cursor = query.limit(), query.cursor()
    user_id = query.text("user_id")
    await call.demand_user(user_id)
    rules = await call.context.store.policies.list(call.account, user_id)
    rows = [policy_body(rule) for rule in rules if cursor is None or rule.id < cursor]
    return Json(page_body(rows[:limit], more=len(rows) > limit))


@operation(NO_CONTENT, parameters=[USER], refuses=SCOPED)
async def delete(call: Call) -> Response:
    """Revokes a rule of the scope."""
    user_id = call.query.text("user_id")
    await call.demand_user(user_id)
    await call.context.store.policies.delete(call.account, user_id, call.id("policy_id"))
    return Response(status_code=204)


def _check_tool(tool: str, effect: Verdict) -> None:
    if _PATTERN.search(tool):
        msg = "tool: patterns are not supported yet; give a tool's name"
        raise InvalidFieldError(msg, code="pattern_not_supported", field="tool")
    if _NAME.fullmatch(tool) is None:
        msg = "tool: a name has 1 to 128 letters, digits, dots, underscores and hyphens"
        raise InvalidFieldError(msg, field="tool")
    if tool in RESERVED and effect is Verdict.ALLOW:
        msg = f"tool: {tool} asks a person and can never be allowed by a rule"
        raise InvalidFieldError(msg, code="reserved_tool", field="tool")
