"""Composition root of the worker: settings, tools, agents, model, engine, the one Celery task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down

from signoff.ambient import new_id, now_ms
from signoff.broker.hints import Hints
from signoff.broker.options import make_celery
from signoff.domain.error import SettingsError
from signoff.settings import Settings
from signoff.store.facade import Store, open_store
from signoff.toolbox import Toolbox
from signoff.tooldef import limit_threads
from webhooks.guard import Policy
from webhooks.publish import Publisher
from workers.agent.loading import load_roster
from workers.engine import Engine
from workers.history import Histories
from workers.judging import Judging
from workers.model.routed import RoutedModel
from workers.model.scripted import ScriptedModel
from workers.runtime import Runtime
from workers.tasks import register
from workers.tools import Elsewhere, Strangers, Tools


def make_runtime(settings: Settings, app: Celery) -> Runtime:
    """The process's runtime; tools load now, everything with a loop later."""
    toolbox = Toolbox.load(settings.tools, Path.cwd())
    roster = load_roster(settings.agents, Path.cwd(), timeout_s=settings.agent_timeout_s)
    limit_threads(settings.worker_slots)
    servers = _servers(settings)

    def build() -> Engine:
        store = open_store(
            settings.redis_url,
            secret_keys=settings.require_secret_keys(),
            shards=settings.shards,
            lease_s=settings.lease_s,
        )
        scripted = None
        if settings.scripted_model:
            scripted = ScriptedModel(default_delay_ms=settings.scripted_delay_ms)
        return Engine(
            store=store,
            publisher=Publisher(store.catalog, now_ms=now_ms, token=new_id),
            tools=Tools(toolbox, servers, lambda: _strangers(settings, store)),
            judging=Judging(lambda: f"req_{new_id()}"),
            model=RoutedModel(
                scripted=scripted,
                anthropic_api_key=settings.anthropic_api_key,
                openai_api_key=settings.openai_api_key,
                openai_base_url=settings.openai_base_url,
            ),
            histories=Histories(store.runs),
            now_ms=now_ms,
            new_id=new_id,
            lease_s=settings.lease_s,
            hint=Hints(app).send,
            roster=roster,
        )

    return Runtime(build, redis_url=settings.redis_url, slots=settings.worker_slots)


def _servers(settings: Settings) -> Elsewhere | None:
    """The MCP servers; who has none does not load what speaks to them."""
    if not settings.mcp_servers:
        return None
    try:
        from workers.mcp.servers import Servers  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        msg = f"SIGNOFF_MCP_SERVERS needs {error.name}: pip install 'signoff[mcp]'"
        raise SettingsError(msg, field="SIGNOFF_MCP_SERVERS") from error
    return Servers(settings.mcp_servers)


def _strangers(settings: Settings, store: Store) -> Strangers:
    """What reaches the servers of accounts, as far as webhooks may be called."""
    from workers.mcp.own import OwnServers  # noqa: PLC0415 - loaded when a run brings one

    return OwnServers(
        policy=Policy.load(settings.webhook_allow, dev=settings.dev),
        open_headers=store.server_headers.open,
        taken=settings.mcp_servers,
    )


def make_app(settings: Settings) -> Celery:
    """The Celery application that ``signoff worker`` runs."""
    app = make_celery(settings.broker_url)
    runtime = make_runtime(settings, app)
    register(app, runtime)

    def ready(**_: Any) -> None:
        runtime.start()

    def shutting_down(**_: Any) -> None:
        runtime.stop_taking()

    def shutdown(**_: Any) -> None:
        runtime.stop()

    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(shutting_down, weak=False)
    worker_shutdown.connect(shutdown, weak=False)
    return app


app = make_app(Settings.load(os.environ))
