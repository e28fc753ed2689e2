"""Agents: make, list, read, change, switch off and on, archive."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from service.context import Call
from service.create import check_servers, check_tools
from service.describe import agent_body, agent_summary
from service.render import Json, page_body
from signoff.declared import check_external_tools
from signoff.domain.error import ConflictError, InvalidError, InvalidFieldError, MissingError
from signoff.store.agents import Agent
from signoff.wire.agent import ChangeAgent, CreateAgent

_PROJECTIONS = frozenset({"summary"})
#: What a template would bring itself.
_PERSONA = frozenset({"name", "instructions", "tools", "role", "goals", "allowed_senders"})
#: What null leaves as it is: these are never empty.
_NEVER_EMPTY = frozenset({"name", "default_permission_mode"})


class TemplateConflictError(InvalidError):
    """An agent is made from a template or from a persona of its own."""

    code = "from_template_conflict"


class NotArchivedError(InvalidError):
    """Only an archived agent can be brought back."""

    code = "agent_not_archived"


async def post(call: Call) -> Json:
    """Makes an agent; names need not be unique."""
    body = await call.body(CreateAgent)
    await call.demand_user(body.user_id)
    _check_template(body)
    fields = _fields(call, body, None)
    store = call.context.store
    await store.users.touch(call.account, body.user_id)
    agent = await store.agents.create(account=call.account, user_id=body.user_id, fields=fields)
    return Json(agent_body(agent), 201)


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
    shown = [agent_summary(agent) if summary else agent_body(agent) for agent in agents]
    return Json(page_body(shown, more=more))


async def get(call: Call) -> Json:
    """One agent, archived ones too."""
    return Json(agent_body(await _load(call)))


async def patch(call: Call) -> Json:
    """Changes an agent; runs that it has made stay as they are."""
    body = await call.body(ChangeAgent)
    agent = await _load(call)
    changes = _fields(call, body, agent)
    return Json(agent_body(await call.context.store.agents.change(agent, changes)))


async def delete(call: Call) -> Response:
    """Archives an agent; repeats change nothing."""
    await call.context.store.agents.archive(await _load(call))
    return Response(status_code=204)


async def disable(call: Call) -> Json:
    """Keeps an agent from starting runs; it stays in the list."""
    agent = await _load(call)
    switched = await call.context.store.agents.switch(agent, "disabled", of=("enabled", "disabled"))
    return Json(agent_body(switched))


async def enable(call: Call) -> Json:
    """Lets a disabled agent start runs again."""
    agent = await _load(call)
    switched = await call.context.store.agents.switch(agent, "enabled", of=("enabled", "disabled"))
    return Json(agent_body(switched))


async def unarchive(call: Call) -> Json:
    """Brings an archived agent back, as a disabled one."""
    agent = await _load(call)
    try:
        switched = await call.context.store.agents.switch(agent, "disabled", of=("archived",))
    except ConflictError as error:
        raise NotArchivedError(error.message, details=error.details) from None
    return Json(agent_body(switched))


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
    if body.mcp_servers is not None:
        given["mcp_servers"] = check_servers(call.context, body.mcp_servers)
    if body.tools is not None:
        given["tools"] = check_tools(call.context, body.tools, declared)
    return given


def _check_template(body: CreateAgent) -> None:
    if body.from_template is None:
        return
    clash = sorted(name for name in _PERSONA if getattr(body, name) is not None)
    if clash:
        msg = f"{clash[0]} cannot be given together with from_template"
        raise TemplateConflictError(msg, field=clash[0])
    raise InvalidFieldError("there are no templates here", field="from_template")
