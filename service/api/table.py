"""The routes of both surfaces and of the root."""

from __future__ import annotations

from starlette.routing import Route

from service.api import callbacks, gates, health, permissions, runs, webhooks
from service.context import Surface
from service.dispatch import open_route, route


def surface_routes(surface: Surface) -> list[Route]:
    """What is served under ``surface``; the busiest paths come first."""
    return [
        open_route(callbacks.PATH, "POST", callbacks.post),
        route(surface, "/runs", {"POST": runs.post, "GET": runs.index}),
        route(surface, "/runs/{run_id}", {"GET": runs.get}),
        route(surface, "/runs/{run_id}/permissions", {"GET": gates.index}),
        route(surface, "/runs/{run_id}/approve", {"POST": gates.approve}),
        route(surface, "/runs/{run_id}/answer", {"POST": gates.answer}),
        route(surface, "/runs/{run_id}/decisions", {"POST": gates.decisions}),
        route(surface, "/runs/{run_id}/cancel", {"POST": runs.cancel}),
        route(surface, "/runs/{run_id}/permission-mode", {"PATCH": runs.permission_mode}),
        route(surface, "/runs/{run_id}/messages", {"GET": runs.messages}),
        route(surface, "/requests", {"GET": gates.inbox}),
        route(surface, "/permissions", {"POST": permissions.post, "GET": permissions.index}),
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


def root_routes() -> list[Route]:
    """What is served at the root."""
    return [
        open_route("/health", "GET", health.health),
        open_route("/ready", "GET", health.ready),
    ]
