"""Agents: make, list, read, change, switch off and on, archive."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from service.context import Call
from service.describe import agent_body, agent_summary
from service.operation import NO_CONTENT, PAGED, SCOPED, USER, choice, flag, ok, operation
from service.order import check_approvers, check_named, check_tools
from service.render import Json, page_body
from service.servers import read_servers
from signoff.declared import check_external_tools
from signoff.domain.error import ConflictError, InvalidError, InvalidFieldError, MissingError
from signoff.domain.expiry import Limits
from signoff.mcpserver import own_names
from signoff.store.agents import Agent
from signoff.wire.agent import AgentBody, AgentSummaryBody, ChangeAgent, CreateAgent
from signoff.wire.page import PageBody

_PROJECTIONS = frozenset({"summary"})
#: What a template would bring itself.
_PERSONA = frozenset({"name", "instructions", "tools", "role", "goals", "allowed_senders"})
#: What makes an agent's fields unusable.
_REFUSED = (
    "end_user_required",
    "invalid_url",
    "reserved_tool",
    "unknown_approver",
    "unknown_model",
    "unknown_tool",
)
#: What null leaves as it is: these are never empty.
_NEVER_EMPTY = frozenset({"name", "default_permission_mode"})


class TemplateConflictError(InvalidError):
    """An agent is made from a template or from a persona of its own."""

    code = "from_template_conflict"


class NotArchivedError(InvalidError):
    """Only an archived agent can be brought back."""

    code = "agent_not_archived"


@operation(
    ok(AgentBody, 201),
    body=CreateAgent,
    refuses=("from_template_conflict", *_REFUSED),
)
async def post(call: Call) -> Json:
    """Makes an agent; names need not be unique."""
    body = await call.body(CreateAgent)
    await call.demand_user(body.user_id)
    _check_template(body)
    fields = _fields(call, body, None)
    Limits.read(fields).checked()
    await check_named(call.context, call.account, body.approvers)
    store = call.context.store
    await store.users.touch(call.account, body.user_id)
    agent = await store.agents.create(account=call.account, user_id=body.user_id, fields=fields)
    return await _shown(call, agent, status=201)


@operation(
    ok(PageBody[AgentBody | AgentSummaryBody]),
    parameters=(
        *PAGED,
        USER,
        flag("include_archived", "archived ones too"),
        choice("fields", tuple(_PROJECTIONS), "less of each"),
    ),
    refuses=SCOPED,
)
async def index(call: Call) -> Json:
    """Agents newest first: of one user, or of every user."""
    query = call.query
    limit, cursor = query.limit(), query.cursor()
    summary = query.choice("fields", _PROJECTIONS) == "summary"
    user_id = query.text("user_id")
    await call.demand_user(user_id)
    agents, more = await call.context.store.agents.page(
        call.account,
        user_id=user_id,
        archived=query.flag("include_archived") is True,
        limit=limit,
        before=cursor,
    )
    does = await call.context.store.listing.of_agents(call.account, [item.id for item in agents])
    body = agent_summary if summary else agent_body
    shown = [body(agent, activity) for agent, activity in zip(agents, does, strict=True)]
    return Json(page_body(shown, more=more))


@operation(ok(AgentBody), parameters=[USER], refuses=SCOPED)
async def get(call: Call) -> Json:
    """One agent, archived ones too."""
    return await _shown(call, await _load(call))


@operation(
    ok(AgentBody),
    body=ChangeAgent,
    parameters=[USER],
    refuses=("conflict", *_REFUSED),
)
async def patch(call: Call) -> Json:
    """Changes an agent; runs that it has made stay as they are."""
    body = await call.body(ChangeAgent)
    agent = await _load(call)
    changes = _fields(call, body, agent)
    if Limits().fields.keys() & changes.keys():
        Limits.read({**agent.profile, **changes}).checked()
    await check_named(call.context, call.account, body.approvers)
    return await _shown(call, await call.context.store.agents.change(agent, changes))


@operation(NO_CONTENT, parameters=[USER], refuses=SCOPED)
async def delete(call: Call) -> Response:
    """Archives an agent; repeats change nothing."""
    await call.context.store.agents.archive(await _load(call))
    return Response(status_code=204)


@operation(ok(AgentBody), parameters=[USER], refuses=("conflict", "end_user_required"))
async def disable(call: Call) -> Json:
    """Keeps an agent from starting runs; it stays in the list."""
    agent = await _load(call)
    switched = await call.context.store.agents.switch(agent, "disabled", of=("enabled", "disabled"))
    return await _shown(call, switched)


@operation(ok(AgentBody), parameters=[USER], refuses=("conflict", "end_user_required"))
async def enable(call: Call) -> Json:
    """Lets a disabled agent start runs again."""
    agent = await _load(call)
    switched = await call.context.store.agents.switch(agent, "enabled", of=("enabled", "disabled"))
    return await _shown(call, switched)


@operation(ok(AgentBody), parameters=[USER], refuses=("agent_not_archived", "end_user_required"))
async def unarchive(call: Call) -> Json:
    """Brings an archived agent back, as a disabled one."""
    agent = await _load(call)
    try:
        switched = await call.context.store.agents.switch(agent, "disabled", of=("archived",))
    except ConflictError as error:
        raise NotArchivedError(error.message, details=error.details) from None
    return await _shown(call, switched)


async def _shown(call: Call, agent: Agent, *, status: int = 200) -> Json:
    (activity,) = await call.context.store.listing.of_agents(call.account, [agent.id])
    return Json(agent_body(agent, activity), status)


async def _load(call: Call) -> Agent:
    user_id = call.query.text("user_id")
    await call.demand_user(user_id)
    agent_id = call.id("agent_id")
    agent = await call.context.store.agents.get(call.account, agent_id)
    if user_id is not None and user_id != agent.user_id:
        raise MissingError(f"no agent {agent_id}")
    return agent


def _fields(call: Call, body: ChangeAgent, agent: Agent | None) -> dict[str, Any]:
    """What the body sets; null clears, as far as the field can be empty."""
    if body.model is not None:
        call.context.models.resolve(body.model)
    given = {
        name: getattr(body, name)
        for name in body.model_fields_set & ChangeAgent.model_fields.keys()
        if name not in _NEVER_EMPTY or getattr(body, name) is not None
    }
    declared = [] if agent is None else agent.profile.get("external_tools") or []
    if body.external_tools is not None:
        declared = [item.declaration() for item in body.external_tools]
        check_external_tools(declared, loaded=call.context.toolbox)
        given["external_tools"] = declared
    servers = None if agent is None else agent.profile.get("mcp_servers")
    if body.mcp_servers is not None:
        given["mcp_servers"] = read_servers(
            call.context, call.account, body.mcp_servers, kept=servers or ()
        )
    if body.tools is not None:
        own = own_names(given.get("mcp_servers", servers))
        given["tools"] = check_tools(call.context, body.tools, declared, own=own)
    approval = check_approvers(body.approvers)
    if approval is not None:
        given["approvers"] = approval.fields
    return given


def _check_template(body: CreateAgent) -> None:
    if body.from_template is None:
        return
    clash = sorted(name for name in _PERSONA if getattr(body, name) is not None)
    if clash:
        msg = f"{clash[0]} cannot be given together with from_template"
        raise TemplateConflictError(msg, field=clash[0])
    raise InvalidFieldError("there are no templates here", field="from_template")
