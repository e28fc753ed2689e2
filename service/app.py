"""Composition root of the service: settings, store, tools, routes, lifespan."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.reference import Reference
from service.api.table import all_routes
from service.auth import Keys
from service.context import Context
from service.errors import refusal
from service.hub import Hub
from service.openapi import Mounted
from service.watch import Watch
from signoff import __version__
from signoff.ambient import new_id, now_ms
from signoff.broker.hints import Hints
from signoff.broker.options import make_celery
from signoff.domain.error import MissingError, SignoffError, UnavailableError
from signoff.model_name import ModelNames
from signoff.settings import Settings
from signoff.signing import new_secret
from signoff.store import keys
from signoff.store.channels import Channels
from signoff.store.facade import Store, open_store
from signoff.store.listener import Listener
from signoff.toolbox import Toolbox
from webhooks.guard import Policy
from webhooks.publish import Publisher

logger = logging.getLogger(__name__)
RETRY_S = 0.5
_METHOD_NOT_ALLOWED = 405


class MethodError(SignoffError):
    """The path exists, but not for this method."""

    code = "method_not_allowed"


class TrailingSlash:
    """Serves a path with one trailing slash as the path without it, never by a redirect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        if scope["type"] == "http" and len(path := scope["path"]) > 1 and path.endswith("/"):
            scope = {**scope, "path": path[:-1]}
        await self._app(scope, receive, send)


def create_app(settings: Settings) -> Starlette:
    """The application; it starts also while the store is away, and answers 503 until it is not."""
    toolbox = Toolbox.load(settings.tools, Path.cwd())
    settings.require_secret_keys()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[dict[str, Callable[[], None]]]:
        context = make_context(settings, toolbox)
        app.state.context = context
        context.streams.start()
        opening = asyncio.create_task(_open(context))
        try:
            # A server that takes no connections before it works is the better neighbour, but a
            # store that is away must not keep the process down.
            await asyncio.wait([opening], timeout=RETRY_S)
            if opening.done():
                opening.result()
            yield {"leaving": context.watch.release}
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await context.streams.close()
            context.hints.close()
            await context.watch.close()
            await context.store.close()

    mounts = all_routes(development=settings.dev and settings.scripted_model)
    app = Starlette(
        routes=_routes(mounts),
        middleware=[Middleware(TrailingSlash)],
        exception_handlers={HTTPException: _refuse_http},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.reference = Reference(mounts, __version__)
    return app


def _routes(mounts: Sequence[Mounted]) -> list[BaseRoute]:
    """Routes for the router: those of the root first, as they are few."""
    found: list[BaseRoute] = [one for mount in mounts if not mount.prefix for one in mount.routes]
    for mount in mounts:
        if mount.prefix:
            router = Router(mount.routes, redirect_slashes=False)
            found.append(Mount(mount.prefix, app=router))
    return found


def make_context(settings: Settings, toolbox: Toolbox) -> Context:
    """The parts of one process; needs a running event loop."""
    store = open_store(
        settings.redis_url,
        secret_keys=settings.require_secret_keys(),
        shards=settings.shards,
        lease_s=settings.lease_s,
    )
    return Context(
        store=store,
        publisher=Publisher(store.catalog, now_ms=now_ms, token=new_id),
        toolbox=toolbox,
        mcp_servers=frozenset(settings.mcp_servers),
        models=ModelNames(
            default=settings.default_model,
            anthropic=settings.anthropic_api_key is not None,
            openai=settings.openai_api_key is not None or settings.openai_base_url is not None,
            scripted=settings.scripted_model,
            agents=frozenset(settings.agents),
        ),
        hints=Hints(make_celery(settings.broker_url)),
        keys=Keys(store.accounts, clock=time.monotonic),
        streams=Hub(store.frames, lambda heard: Channels(settings.redis_url, heard)),
        policy=Policy.load(settings.webhook_allow, dev=settings.dev),
        watch=Watch(
            Listener(
                settings.redis_url,
                [keys.channel(prefix, "shown") for prefix in store.shards.prefixes()],
            )
        ),
        public_url=settings.public_url,
        allow_volatile=settings.allow_volatile_redis,
        now_ms=now_ms,
        new_id=new_id,
        new_secret=lambda: new_secret(secrets.token_bytes),
    )


async def _open(context: Context) -> None:
    """Checks the store and loads its scripts, as soon as it can be reached."""
    while True:
        try:
            await _prepare(context.store)
        except UnavailableError:
            logger.warning("store_unavailable")
            await asyncio.sleep(RETRY_S)
            continue
        except SignoffError as error:
            # Nothing is served from a store that is not ours; the log says why.
            logger.critical("store_refused code=%s message=%s", error.code, error.message)
            raise
        context.startup.checked = True
        return


async def _prepare(store: Store) -> None:
    await store.layout.check()
    await store.scripts.load()


async def _refuse_http(request: Request, error: Exception) -> Response:
    """Envelopes what the router itself refuses."""
    context: Context = request.app.state.context
    status = error.status_code if isinstance(error, HTTPException) else 404
    ours: SignoffError = MissingError("there is nothing here")
    if status == _METHOD_NOT_ALLOWED:
        ours = MethodError("this path does not take this method")
    response = refusal(ours, request_id=f"req_{context.new_id()}", route="none")
    allow = (error.headers or {}).get("Allow") if isinstance(error, HTTPException) else None
    if allow is not None:
        response.headers["allow"] = allow
    return response


def __getattr__(name: str) -> Starlette:
    """Builds ``app`` when a server asks for it, so that importing this module needs no setting."""
    if name != "app":
        raise AttributeError(name)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    return create_app(Settings.load(os.environ))
