"""The routes of both surfaces and of the root."""

from __future__ import annotations

from service.api import (
    account_settings,
    agent_events,
    agents,
    callbacks,
    development,
    gates,
    health,
    journal,
    metrics,
    permissions,
    reference,
    replies,
    run_actions,
    run_views,
    runs,
    users,
    webhooks,
)
from service.context import COMPATIBLE, NATIVE, Surface
from service.dispatch import Served, open_route, route
from service.openapi import Mounted


def surface_routes(surface: Surface) -> list[Served]:
    """What is served under ``surface``; the busiest paths come first."""
    return [
        open_route(callbacks.PATH, "POST", callbacks.post),
        route(surface, "/runs", {"POST": runs.post, "GET": run_views.index}),
        *_run_words(surface),
        route(surface, "/runs/{run_id}", {"GET": runs.get}),
        route(surface, "/runs/{run_id}/stream", {"GET": runs.stream}),
        route(surface, "/runs/{run_id}/permissions", {"GET": gates.index}),
        route(surface, "/runs/{run_id}/approve", {"POST": gates.approve}),
        route(surface, "/runs/{run_id}/answer", {"POST": gates.answer}),
        route(surface, "/runs/{run_id}/decisions", {"POST": gates.decisions}),
        route(surface, "/runs/{run_id}/events", {"POST": agent_events.post}),
        route(surface, "/runs/{run_id}/results", {"POST": gates.results}),
        route(surface, "/runs/{run_id}/cancel", {"POST": runs.cancel}),
        route(surface, "/runs/{run_id}/permission-mode", {"PATCH": runs.permission_mode}),
        route(surface, "/runs/{run_id}/reply", {"POST": replies.post}),
        route(surface, "/runs/{run_id}/messages", {"GET": runs.messages}),
        *_run_extras(surface),
        route(surface, "/requests", {"GET": gates.inbox}),
        *(one for name in ("agents", "teammates") for one in _agents(surface, name)),
        route(surface, "/users", {"POST": users.post, "GET": users.index}),
        route(
            surface,
            "/users/{user_id}",
            {"GET": users.get, "PATCH": users.patch, "DELETE": users.delete},
        ),
        route(surface, "/events", {"GET": journal.events}),
        route(surface, "/audit", {"GET": journal.audit}),
        route(surface, "/usage/end-users", {"GET": users.usage}),
        route(
            surface,
            "/settings",
            {"GET": account_settings.get, "PATCH": account_settings.patch},
        ),
        route(surface, "/permissions", {"POST": permissions.post, "GET": permissions.index}),
        route(surface, "/permissions/evaluate", {"POST": permissions.evaluate}),
        route(surface, "/permissions/{policy_id}", {"DELETE": permissions.delete}),
        route(surface, "/webhooks", {"POST": webhooks.post, "GET": webhooks.index}),
        route(
            surface,
            "/webhooks/{webhook_id}",
            {"GET": webhooks.get, "PATCH": webhooks.patch, "DELETE": webhooks.delete},
        ),
        route(surface, "/webhooks/{webhook_id}/test", {"POST": webhooks.test}),
        route(surface, "/webhooks/{webhook_id}/deliveries", {"GET": webhooks.deliveries}),
        route(
            surface,
            "/webhooks/{webhook_id}/deliveries/{delivery_id}",
            {"GET": webhooks.delivery},
        ),
    ]


def _run_words(surface: Surface) -> list[Served]:
    """Words under /runs; before the ids, for which they must not be taken."""
    return [
        route(surface, "/runs/check", {"GET": run_views.check}),
        route(surface, "/runs/needs-you", {"GET": run_views.needs_you}),
        route(surface, "/runs/activity", {"GET": run_views.activity}),
        route(surface, "/runs/with-files", {"POST": run_actions.with_files}),
        route(surface, "/runs/first-session", {"POST": run_actions.first_session}),
    ]


def _run_extras(surface: Surface) -> list[Served]:
    """What is done with a run besides deciding."""
    return [
        route(surface, "/runs/{run_id}/reply/with-files", {"POST": run_actions.reply_with_files}),
        route(surface, "/runs/{run_id}/outcome", {"GET": run_views.outcome}),
        route(surface, "/runs/{run_id}/retry", {"POST": run_actions.retry_run}),
        route(surface, "/runs/{run_id}/archive", {"POST": run_actions.archive}),
        route(surface, "/runs/{run_id}/unarchive", {"POST": run_actions.unarchive}),
        route(surface, "/runs/{run_id}/view", {"POST": run_actions.view}),
        route(
            surface,
            "/runs/{run_id}/share",
            {"POST": run_actions.share, "DELETE": run_actions.unshare},
        ),
        route(surface, "/runs/{run_id}/files", {"GET": run_views.files}),
        route(surface, "/runs/{run_id}/files/{name}/download", {"GET": run_views.download}),
        open_route(run_views.SHARED_PATH, "GET", run_views.shared),
    ]


def _agents(surface: Surface, name: str) -> list[Served]:
    """Agents under one of their two names."""
    one = f"/{name}/{{agent_id}}"
    return [
        route(surface, f"/{name}", {"POST": agents.post, "GET": agents.index}),
        route(surface, one, {"GET": agents.get, "PATCH": agents.patch, "DELETE": agents.delete}),
        route(surface, f"{one}/disable", {"POST": agents.disable}),
        route(surface, f"{one}/enable", {"POST": agents.enable}),
        route(surface, f"{one}/unarchive", {"POST": agents.unarchive}),
    ]


def development_routes() -> list[Served]:
    """What is served besides in development with the scripted model only."""
    return [open_route("/api/v1/auth/register", "POST", development.register)]


def root_routes() -> list[Served]:
    """What is served at the root."""
    return [
        open_route("/health", "GET", health.health),
        open_route("/ready", "GET", health.ready),
        open_route("/metrics", "GET", metrics.metrics),
        open_route("/openapi.json", "GET", reference.document),
        open_route("/docs", "GET", reference.docs),
    ]


def all_routes(*, development: bool = False) -> list[Mounted]:
    """Everything that is served, and where."""
    return [
        Mounted(prefix=NATIVE.prefix, tag="/v1", routes=surface_routes(NATIVE)),
        Mounted(
            prefix="",
            tag="root",
            routes=[*root_routes(), *(development_routes() if development else ())],
        ),
        Mounted(
            prefix=COMPATIBLE.prefix, tag="/api/v2, the same", routes=surface_routes(COMPATIBLE)
        ),
    ]
