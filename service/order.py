"""What a run is to be: the order that was given, and what it and its agent come to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.context import Context, unscoped
from service.servers import read_servers
from signoff.declared import check_external_tools
from signoff.domain.approval import Approval, checked_approval
from signoff.domain.error import (
    ConflictError,
    InvalidFieldError,
    MissingError,
)
from signoff.domain.expiry import Limits
from signoff.domain.mode import Mode
from signoff.mcpserver import own_names, server_of
from signoff.model_name import SCRIPTED
from signoff.script import check_script
from signoff.shape import shape_of
from signoff.store.agents import Agent
from signoff.wire.body import Approvers
from signoff.wire.run import MAX_TURNS, CreateRun

DEFAULT_AGENT = "Assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A run as it was asked for, checked as far as that goes without the store."""

    account: str
    #: Who asks for it.
    by: str
    body: CreateRun
    #: None: the agent's, or the configured one.
    model: str | None
    external_tools: list[dict[str, Any]]
    #: None: the agent's, or all.
    mcp_servers: list[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a run starts from: its agent, and what the agent and the order come to."""

    agent: Agent
    user_id: str | None
    mode: Mode
    human: bool
    model: str
    limits: Limits
    tools: list[str] | None
    external_tools: list[dict[str, Any]]


def read_order(context: Context, account: str, body: CreateRun, *, by: str) -> Order:
    """The order of ``body``; raises InvalidFieldError for what can never be run."""
    _check_mode(body.permission_mode, human=body.human_in_the_loop)
    if None not in (body.agent_id, body.teammate_id) and body.agent_id != body.teammate_id:
        msg = "agent_id and teammate_id are one thing and must not differ"
        raise InvalidFieldError(msg, field="agent_id")
    if body.output_schema is not None:
        _check_schema(body.output_schema)
        shape_of(body.output_schema, field="output_schema")
    declared = [item.declaration() for item in body.external_tools or ()]
    check_external_tools(declared, loaded=context.toolbox)
    servers = body.mcp_servers
    if servers is not None:
        servers = read_servers(context, account, servers)
    model = None if body.model is None else _model(context, body.model, body)
    check_approvers(body.approvers)
    return Order(
        account=account,
        by=by,
        body=body,
        model=model,
        external_tools=declared,
        mcp_servers=servers,
    )


async def start_of(context: Context, order: Order) -> Start:
    """What the order and its agent come to; raises for an agent that takes no such run."""
    agent, body = await _agent(context, order), order.body
    mode, human = _standing(body, agent)
    user_id = agent.user_id if body.user_id is None else body.user_id
    model = order.model or _model(context, agent.model, body)
    limits = await _limits(context, order, agent)
    declared = _external_tools(context, order, agent)
    await check_named(context, order.account, body.approvers)
    tools = agent.tools
    if body.tools is not None:
        own = own_names(_servers(order, agent))
        tools = check_tools(context, body.tools, declared, own=own)
    return Start(
        agent=agent,
        user_id=user_id,
        mode=mode,
        human=human,
        model=model,
        limits=limits,
        tools=tools,
        external_tools=declared,
    )


async def _limits(context: Context, order: Order, agent: Agent) -> Limits:
    """The time that the run's gates have: its own word, its agent's, its account's."""
    settings = await context.store.account_settings.recent(order.account)
    own = Limits.read(order.body.model_dump(include=set(Limits().fields)))
    limits = own.over(Limits.read(agent.profile)).over(settings.limits)
    return limits.checked() if own.on_expiry is not None else limits


async def _agent(context: Context, order: Order) -> Agent:
    body, agents = order.body, context.store.agents
    agent_id = body.teammate_id if body.agent_id is None else body.agent_id
    if agent_id is None:
        await _demand_user(context, order.account, body.user_id)
        agent = await agents.find_or_create(
            account=order.account,
            user_id=body.user_id,
            name=body.name or DEFAULT_AGENT,
            instructions=None,
        )
    else:
        agent = await agents.get(order.account, agent_id)
        if agent.user_id is not None and body.user_id not in (None, agent.user_id):
            raise MissingError(f"no agent {agent_id}")
        await _demand_user(context, order.account, body.user_id or agent.user_id)
    check_enabled(agent)
    return agent


def _external_tools(context: Context, order: Order, agent: Agent) -> list[dict[str, Any]]:
    """The agent's and the order's; of one name the order's."""
    inherited = agent.profile.get("external_tools")
    if not inherited:
        return order.external_tools
    by_name = {item["name"]: item for item in [*inherited, *order.external_tools]}
    declared = list(by_name.values())
    # Together they may be too many, and a tool of that name may have been loaded since.
    check_external_tools(declared, loaded=context.toolbox)
    return declared


def check_enabled(agent: Agent) -> None:
    """Raises ConflictError for an agent that takes no runs."""
    details = {"agent_id": agent.id}
    if agent.state == "archived":
        raise ConflictError("the agent is archived", code="agent_archived", details=details)
    if agent.state == "disabled":
        raise ConflictError("the agent is disabled", code="agent_disabled", details=details)


async def _demand_user(context: Context, account: str, user_id: str | None) -> None:
    if user_id is None:
        settings = await context.store.account_settings.recent(account)
        if settings.require_end_user_id:
            raise unscoped()


def _model(context: Context, name: str | None, body: CreateRun) -> str:
    model = context.models.resolve(name)
    if model == SCRIPTED:
        check_script(body.metadata)
    return model


def _standing(body: CreateRun, agent: Agent) -> tuple[Mode, bool]:
    mode = Mode(body.permission_mode or agent.default_mode)
    if body.human_in_the_loop is None:
        return mode, mode.needs_person
    _check_mode(mode.value, human=body.human_in_the_loop)
    return mode, body.human_in_the_loop


def _check_mode(mode: str | None, *, human: bool | None) -> None:
    if mode is not None and Mode(mode).needs_person and human is not True:
        msg = f"permission_mode {mode} needs human_in_the_loop: true"
        raise InvalidFieldError(msg, field="permission_mode")


def config_of(order: Order, start: Start) -> dict[str, Any]:
    """What the run keeps, whatever becomes of its agent: the order's own values win."""
    body, agent = order.body, start.agent
    return {
        "model": start.model,
        "instructions": agent.instructions if body.instructions is None else body.instructions,
        "tools": start.tools,
        "mcp_servers": _servers(order, agent),
        **({"external_tools": start.external_tools} if start.external_tools else {}),
        "metadata": body.metadata,
        "max_turns": body.max_turns or MAX_TURNS,
        "name": agent.name,
        "output_schema": body.output_schema,
        "effort": agent.effort if body.effort is None else body.effort,
        "email_inbox": body.email_inbox,
        **start.limits.fields,
        "approvers": agent.profile.get("approvers") if body.approvers is None else _kept(body),
        "requested_by": [order.by],
    }


def _servers(order: Order, agent: Agent) -> list[Any] | None:
    return agent.profile.get("mcp_servers") if order.mcp_servers is None else order.mcp_servers


def _kept(body: CreateRun) -> dict[str, Any] | None:
    approval = check_approvers(body.approvers)
    return None if approval is None else approval.fields


def check_approvers(given: Approvers | None) -> Approval | None:
    """Who may decide, as asked for; raises InvalidFieldError for what makes no sense."""
    return checked_approval(None if given is None else given.model_dump())


async def check_named(context: Context, account: str, given: Approvers | None) -> None:
    """Raises InvalidFieldError ``unknown_approver`` for a key or an endpoint that can never decide.

    The key must be one of the account's that are not revoked, the endpoint one of the account's.
    End users are names of the account's own, and any will do.
    """
    named = [] if given is None or given.any_of is None else given.any_of
    kinds = [name.partition(":") for name in named]
    hooks = [int(of) for kind, _, of in kinds if kind == "webhook"]
    known = {f"webhook:{n}" for n in await context.store.endpoints.owned(account, hooks)}
    if any(kind == "key" for kind, _, _ in kinds):
        known.update(f"key:{n}" for n in await context.store.accounts.live_keys(account))
    for n, (kind, _, _) in enumerate(kinds):
        if kind != "user" and named[n] not in known:
            field = f"approvers.any_of[{n}]"
            what = "active key" if kind == "key" else "webhook endpoint"
            msg = f"{field}: the account has no {what} of this id"
            raise InvalidFieldError(msg, code="unknown_approver", field=field)


def check_tools(
    context: Context,
    names: Sequence[str],
    declared: Iterable[Mapping[str, Any]],
    *,
    own: Collection[str] = (),
) -> list[str]:
    """The names, each once; raises InvalidFieldError for one that no tool has.

    ``own`` are the names of MCP servers besides the operator's.

    Which tools an MCP server has is known to the workers only, so any name of one will do.
    """
    external = {item["name"] for item in declared}
    for n, name in enumerate(names):
        known = name in context.toolbox or name in external
        server = server_of(name)
        if not known and server not in context.mcp_servers and server not in own:
            msg = f"tools[{n}]: no tool is called {name[:64]!a}"
            raise InvalidFieldError(msg, code="unknown_tool", field=f"tools[{n}]")
    return list(dict.fromkeys(names))


def _check_schema(schema: Mapping[str, Any]) -> None:
    if schema.get("type") != "object":
        msg = "output_schema must describe an object"
        raise InvalidFieldError(msg, field="output_schema.type")
    level: list[Any] = [schema]
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if "$ref" in item:
                    msg = "output_schema must not hold references"
                    raise InvalidFieldError(msg, field="output_schema.$ref")
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
