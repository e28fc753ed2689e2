"""Stored rules, which the wire calls permissions: make, list one scope, revoke, try out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import Response

from service.context import Call
from service.operation import NO_CONTENT, PAGED, SCOPED, USER, ok, operation
from service.order import check_named
from service.render import Json, page_body, policy_body
from signoff.canonical import canonical
from signoff.domain.approval import Approval, checked_approval
from signoff.domain.error import (
    ConflictError,
    InvalidFieldError,
    InvalidToolInputError,
    NotCanonicalError,
)
from signoff.domain.gate import ASK_TOOL
from signoff.domain.mode import Mode
from signoff.domain.path import below
from signoff.domain.question import check_plan, check_questions
from signoff.domain.rule import Rule, Standing, Verdict, denied_by, judge
from signoff.domain.rulecheck import ASKS_A_PERSON, KnownTool, check_limits, check_rule
from signoff.domain.timestamp import read_iso
from signoff.domain.uncovered import uncovered
from signoff.mcpserver import server_of
from signoff.subject import subject
from signoff.wire.body import Approvers
from signoff.wire.page import PageBody
from signoff.wire.policy import (
    CreatePolicy,
    DecidingRule,
    Evaluate,
    EvaluationBody,
    PolicyBody,
)
from signoff.wire.shown import approvers_body

#: Every call of an account's runs is checked against all of them.
MAX_PER_ACCOUNT = 10_000


@operation(
    ok(PolicyBody, 201),
    ok(PolicyBody, about="It stood already."),
    body=CreatePolicy,
    refuses=(
        "end_user_required",
        "invalid_pattern",
        "lookalike_name",
        "pattern_never_matches",
        "unknown_approver",
        "permission_differs",
        "reserved_tool",
        "too_many_permissions",
    ),
)
async def post(call: Call) -> Json:
    """Makes a rule, or finds the one of the same user, tool and effect."""
    body = await call.body(CreatePolicy)
    await call.demand_user(body.user_id)
    effect = Verdict(body.effect or "allow")
    check_rule(body.tool, effect, _known_tools(call))
    now_ms = call.context.now_ms()
    expires_ms = _expiry(body.expires_at, now_ms)
    approval = _approval(body.approvers)
    await check_named(call.context, call.account, body.approvers)
    check_limits(effect, max_uses=body.max_uses, approval=approval)
    known = (await call.context.store.catalog.rules(call.account, 1)).rules
    if len(known) >= MAX_PER_ACCOUNT:  # expired ones count until they are revoked
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
        now_ms=now_ms,
        author=call.by,
        expires_ms=expires_ms,
        max_uses=body.max_uses,
        approval=approval,
    )
    if not stored.created and not stored.rule.has_limits(expires_ms, body.max_uses, approval):
        msg = f"permission {stored.rule.id} stands with other limits; revoke it first"
        raise ConflictError(msg, code="permission_differs", details={"id": stored.rule.id})
    return Json(policy_body(stored.rule), 201 if stored.created else 200)


@operation(
    ok(EvaluationBody),
    body=Evaluate,
    refuses=(
        "invalid_pattern",
        "invalid_tool_input",
        "lookalike_name",
        "not_canonical",
        "pattern_never_matches",
        "reserved_tool",
        "unknown_tool",
    ),
)
async def evaluate(call: Call) -> Json:
    """What would become of a call, by the stored rules or by given ones; changes nothing.

    A tool of a configured MCP server counts as one with effects, and its input is not checked.
    """
    body = await call.body(Evaluate)
    asked = body.call
    tool = call.context.toolbox.get(asked.tool)
    if asked.tool in ASKS_A_PERSON:
        check = check_questions if asked.tool == ASK_TOOL else check_plan
        _check_input(check, asked.input)
        return Json(_evaluation("ask", None, f"{asked.tool} always asks a person"))
    if tool is None and server_of(asked.tool) not in call.context.mcp_servers:
        msg = f"call.tool: there is no tool called {asked.tool[:128]!r}"
        raise InvalidFieldError(msg, code="unknown_tool", field="call.tool")
    # What a tool of an MCP server takes and does is known to the workers only.
    _check_input(_anything if tool is None else tool.check, asked.input)
    rules = await _assumed(call, body)
    mode = Mode(body.mode or "approval")
    standing = Standing(
        mode=mode,
        plan_approved=False,
        human_in_the_loop=True,
        user_id=body.user_id,
        remembered={},
    )
    shown, now_ms = subject(asked.tool, tool, asked.input), call.context.now_ms()
    if tool is not None and tool.external:
        deny = denied_by(shown, user_id=body.user_id, rules=rules, now_ms=now_ms)
        if deny is not None:
            return Json(_evaluation("deny", deny, deny.named))
        return Json(_evaluation("ask", None, "an external tool waits for its result from outside"))
    read_only = tool is not None and tool.read_only
    found = judge(shown, read_only=read_only, standing=standing, rules=rules, now_ms=now_ms)
    # A call that needs a plan first is refused as it stands.
    verdict = "deny" if found.verdict is Verdict.PLAN_FIRST else found.verdict.value
    why = [found.why]
    if found.verdict is Verdict.ASK and found.rule is None:
        why += uncovered(shown, rules, user_id=body.user_id, now_ms=now_ms)
    return Json(_evaluation(verdict, found.rule, "; ".join(why)))


def _anything(_: dict[str, Any]) -> None:
    """The check of an input that nobody here can check."""


def _evaluation(verdict: str, rule: Rule | None, why: str) -> EvaluationBody:
    shown: DecidingRule | None = None
    if rule is not None:
        shown = {
            "id": rule.id if rule.id > 0 else None,
            "tool": rule.tool,
            "effect": rule.effect.value,
            "user_id": rule.user_id,
            "approvers": approvers_body(rule.approval),
        }
    return {"verdict": verdict, "rule": shown, "why": why}


def _check_input(check: Callable[[dict[str, Any]], object], tool_input: dict[str, Any]) -> None:
    try:
        check(tool_input)
        canonical(tool_input)
    except (InvalidToolInputError, NotCanonicalError) as error:
        field = below("call.input", error.field)
        raise InvalidFieldError(
            f"call.input: {error.message}", code=error.code, field=field
        ) from error


async def _assumed(call: Call, body: Evaluate) -> Sequence[Rule]:
    if body.rules is None:
        context = call.context
        # Nothing cached: who has just made a rule wants to see what it does.
        context.store.catalog.forget(call.account)
        return (await context.store.catalog.rules(call.account, 1)).rules
    known = _known_tools(call)
    rules: list[Rule] = []
    for n, item in enumerate(body.rules):
        effect = Verdict(item.effect)
        check_rule(item.tool, effect, known, field=f"rules[{n}].tool")
        approval = _approval(item.approvers)
        check_limits(effect, max_uses=None, approval=approval, field=f"rules[{n}].")
        rules.append(
            Rule(
                # Not stored, so without an id that anybody could look up.
                id=-(n + 1),
                tool=item.tool,
                effect=effect,
                user_id=body.user_id,
                source="given",
                created_ms=0,
                approval=approval,
            )
        )
    return rules


def _known_tools(call: Call) -> dict[str, KnownTool]:
    return {
        name: KnownTool(
            kind=tool.patterns, parameters=tuple(tool.input_schema.get("properties", {}))
        )
        for name, tool in call.context.toolbox.items()
    }


def _expiry(text: str | None, now_ms: int) -> int | None:
    if text is None:
        return None
    at_ms = read_iso(text)
    if at_ms is None:
        msg = "expires_at: an ISO 8601 time with its offset, such as 2027-01-31T12:00:00Z"
        raise InvalidFieldError(msg, field="expires_at")
    if at_ms <= now_ms:
        raise InvalidFieldError("expires_at: the time is past", field="expires_at")
    return at_ms


def _approval(given: Approvers | None) -> Approval | None:
    return checked_approval(None if given is None else given.model_dump())


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
