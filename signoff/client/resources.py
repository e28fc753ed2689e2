"""The groups of calls, once for both clients: what differs is who carries the calls out."""

from __future__ import annotations

from signoff.client import account_ops, ops, policy_ops, run_ops
from signoff.client import wait as waiting
from signoff.client.bind import AsyncResource, Each, Method, Procedure, Resource


class RunCalls:
    """Runs, their gates, and waiting for them."""

    create = Method(ops.create_run)
    get = Method(ops.get_run)
    list = Method(ops.list_runs)
    each = Each(ops.list_runs)
    messages = Method(ops.messages)
    cancel = Method(ops.cancel)
    reply = Method(ops.reply)
    update_permission_mode = Method(ops.update_permission_mode)
    permissions = Method(ops.permissions)
    approve = Method(ops.approve)
    answer = Method(ops.answer)
    decide = Method(ops.decide)
    send_event = Method(ops.send_event)
    submit_results = Method(ops.submit_results)
    retry = Method(run_ops.retry)
    archive = Method(run_ops.archive)
    unarchive = Method(run_ops.unarchive)
    view = Method(run_ops.view)
    share = Method(run_ops.share)
    unshare = Method(run_ops.unshare)
    outcome = Method(run_ops.outcome)
    check = Method(run_ops.check)
    needs_you = Method(run_ops.needs_you)
    activity = Method(run_ops.activity)
    wait = Procedure(waiting.wait)
    create_and_wait = Procedure(waiting.create_and_wait)
    reply_and_wait = Procedure(waiting.reply_and_wait)


class _PermissionCalls:
    """Stored rules about tool calls."""

    create = Method(policy_ops.create_policy)
    evaluate = Method(policy_ops.evaluate_policies)
    list = Method(policy_ops.list_policies)
    each = Each(policy_ops.list_policies)
    delete = Method(policy_ops.delete_policy)


class _RequestCalls:
    """Open gates of all runs: the inbox."""

    list = Method(ops.list_requests)
    each = Each(ops.list_requests)


class _WebhookCalls:
    """Webhook endpoints and what was sent to them."""

    create = Method(ops.create_webhook)
    get = Method(ops.get_webhook)
    list = Method(ops.list_webhooks)
    each = Each(ops.list_webhooks)
    update = Method(ops.update_webhook)
    delete = Method(ops.delete_webhook)
    test = Method(ops.send_test)
    deliveries = Method(ops.list_deliveries)
    each_delivery = Each(ops.list_deliveries)
    delivery = Method(ops.get_delivery)


class _AgentCalls:
    """What runs start from."""

    create = Method(ops.create_agent)
    get = Method(ops.get_agent)
    list = Method(ops.list_agents)
    each = Each(ops.list_agents)
    update = Method(ops.update_agent)
    archive = Method(ops.archive_agent)
    unarchive = Method(ops.unarchive_agent)
    enable = Method(ops.enable_agent)
    disable = Method(ops.disable_agent)


class _UserCalls:
    """The account's end users."""

    create = Method(ops.create_user)
    get = Method(ops.get_user)
    list = Method(ops.list_users)
    each = Each(ops.list_users)
    update = Method(ops.update_user)
    delete = Method(ops.delete_user)


class _SettingsCalls:
    """The settings of the account."""

    get = Method(account_ops.get_settings)
    update = Method(account_ops.update_settings)


class _UsageCalls:
    """What was used this month."""

    end_users = Method(account_ops.end_users)
    each_end_user = Each(account_ops.end_users)


class _EventCalls:
    """What happened in the account."""

    list = Method(account_ops.list_events)
    each = Each(account_ops.list_events)


class _AuditCalls:
    """Who did what in the account's runs."""

    list = Method(account_ops.list_audit)
    each = Each(account_ops.list_audit)


class Permissions(_PermissionCalls, Resource):
    """Stored rules about tool calls."""


class AsyncPermissions(_PermissionCalls, AsyncResource):
    """Stored rules about tool calls."""


class Requests(_RequestCalls, Resource):
    """Open gates of all runs: the inbox."""


class AsyncRequests(_RequestCalls, AsyncResource):
    """Open gates of all runs: the inbox."""


class Webhooks(_WebhookCalls, Resource):
    """Webhook endpoints and what was sent to them."""


class AsyncWebhooks(_WebhookCalls, AsyncResource):
    """Webhook endpoints and what was sent to them."""


class Agents(_AgentCalls, Resource):
    """What runs start from."""


class AsyncAgents(_AgentCalls, AsyncResource):
    """What runs start from."""


class Users(_UserCalls, Resource):
    """The account's end users."""


class AsyncUsers(_UserCalls, AsyncResource):
    """The account's end users."""


class Settings(_SettingsCalls, Resource):
    """The settings of the account."""


class AsyncSettings(_SettingsCalls, AsyncResource):
    """The settings of the account."""


class Usage(_UsageCalls, Resource):
    """What was used this month."""


class AsyncUsage(_UsageCalls, AsyncResource):
    """What was used this month."""


class Events(_EventCalls, Resource):
    """What happened in the account."""


class AsyncEvents(_EventCalls, AsyncResource):
    """What happened in the account."""


class Audit(_AuditCalls, Resource):
    """Who did what in the account's runs."""


class AsyncAudit(_AuditCalls, AsyncResource):
    """Who did what in the account's runs."""
