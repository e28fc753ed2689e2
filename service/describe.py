"""Turns agents, end users and settings into the bodies that clients read."""

from __future__ import annotations

from signoff.domain.allowance import Caps, period_end
from signoff.domain.event import usage_payload
from signoff.domain.timestamp import iso
from signoff.mcpserver import shown_servers
from signoff.store.account_settings import AccountSettings
from signoff.store.agents import Agent
from signoff.store.listing import Activity
from signoff.store.users import EndUser, Use
from signoff.wire.account_settings import SettingsBody
from signoff.wire.agent import AgentBody, AgentSummaryBody
from signoff.wire.user import EndUserBody, EndUserUsageBody


def agent_body(agent: Agent, activity: Activity) -> AgentBody:
    """An agent and what it does."""
    profile = agent.profile
    body: AgentBody = {
        "id": agent.id,
        "name": agent.name,
        "instructions": agent.instructions,
        "external_tools": profile.get("external_tools") or [],
        "mcp_servers": shown_servers(profile.get("mcp_servers")),
        "role": profile.get("role"),
        "goals": profile.get("goals"),
        "user_id": agent.user_id,
        "metadata": profile.get("metadata"),
        "allowed_senders": profile.get("allowed_senders"),
        "default_permission_mode": agent.default_mode,
        "status": agent.state,
        "model": agent.model,
        "effort": agent.effort,
        "enable_memory": profile.get("enable_memory"),
        "enable_history": profile.get("enable_history"),
        "enable_task_setup_tools": profile.get("enable_task_setup_tools"),
        "enable_feedback": profile.get("enable_feedback"),
        "enable_self_improvement": profile.get("enable_self_improvement"),
        "prompt_profile": profile.get("prompt_profile") or "platform",
        "disabled_builtin_tools": profile.get("disabled_builtin_tools") or [],
        "display_order": profile.get("display_order"),
        "group_id": profile.get("group_id"),
        "remind_after": profile.get("remind_after"),
        "expires_in": profile.get("expires_in"),
        "on_expiry": profile.get("on_expiry"),
        "approvers": profile.get("approvers"),
        "active_run_count": activity.count,
        "active_run_id": activity.run_id,
        "last_active_at": None if activity.last_ms is None else iso(activity.last_ms),
        "created_at": iso(agent.created_ms),
        "updated_at": iso(agent.updated_ms),
    }
    if agent.tools is not None:
        # Left out for every loaded tool: the reference platform's clients read null as a list.
        body["tools"] = agent.tools
    return body


def agent_summary(agent: Agent, activity: Activity) -> AgentSummaryBody:
    """An agent in a roster."""
    return {
        "id": agent.id,
        "name": agent.name,
        "role": agent.profile.get("role"),
        "user_id": agent.user_id,
        "default_permission_mode": agent.default_mode,
        "status": agent.state,
        "display_order": agent.profile.get("display_order"),
        "group_id": agent.profile.get("group_id"),
        "active_run_count": activity.count,
        "active_run_id": activity.run_id,
        "last_active_at": None if activity.last_ms is None else iso(activity.last_ms),
        "created_at": iso(agent.created_ms),
        "updated_at": iso(agent.updated_ms),
    }


def user_body(user: EndUser) -> EndUserBody:
    """An end user's profile."""
    return {
        "id": user.id,
        "user_id": user.user_id,
        "name": user.name,
        "email": user.email,
        "company": user.company,
        "metadata": user.metadata,
        "run_limit": user.caps.run_limit,
        "cost_limit_cents": user.caps.cost_limit_cents,
        "rate_per_minute": user.caps.rate_per_minute,
        "created_at": iso(user.created_ms),
        "updated_at": iso(user.updated_ms),
    }


def use_body(user: EndUser, use: Use, defaults: Caps, *, now_ms: int) -> EndUserUsageBody:
    """What an end user has used in the month of ``now_ms``."""
    caps, usage = user.caps.over(defaults), usage_payload(use.tokens)
    return {
        "id": user.id,
        "user_id": user.user_id,
        "runs_used": use.runs,
        "cost_used": usage["cost_usd"],
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "last_active_at": None if use.last_ms is None else iso(use.last_ms),
        "runs_limit": caps.run_limit,
        "cost_limit_cents": caps.cost_limit_cents,
        "rate_per_minute": caps.rate_per_minute,
        "period_end": iso(period_end(now_ms)),
    }


def settings_body(settings: AccountSettings) -> SettingsBody:
    """The settings of an account."""
    return {
        "per_end_user_run_limit": settings.per_end_user_run_limit,
        "per_end_user_cost_limit_cents": settings.per_end_user_cost_limit_cents,
        "per_end_user_rate_per_minute": settings.per_end_user_rate_per_minute,
        "remind_after": settings.remind_after,
        "expires_in": settings.expires_in,
        "on_expiry": settings.on_expiry,
        "retention_mode": settings.retention_mode,
        "require_end_user_id": settings.require_end_user_id,
        "approval_email_enabled": settings.approval_email_enabled,
        "approval_slack_enabled": settings.approval_slack_enabled,
        "result_email_enabled": settings.result_email_enabled,
        "result_slack_enabled": settings.result_slack_enabled,
    }
