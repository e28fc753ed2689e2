"""Whether the process is up, and whether the whole makes progress; at the root, without a key."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope

from service.context import Context
from service.operation import RETRY_HEADER, ok, operation
from service.render import Json
from signoff.domain.error import UnavailableError
from signoff.store.presence import ALIVE_S
from signoff.wire.health import HealthBody, ReadyBody

PATIENCE_S = 1.0


@operation(ok(HealthBody), stored=False)
async def health(context: Context, scope: Scope, receive: Receive) -> Json:
    """The process answers."""
    del context, scope, receive
    return Json({"status": "ok"})


@operation(
    ok(ReadyBody), ok(ReadyBody, 503, headers=RETRY_HEADER, about="It is not."), stored=False
)
async def ready(context: Context, scope: Scope, receive: Receive) -> Json:
    """The store answers and is durable, and at least one worker and one relay are alive."""
    del scope, receive
    try:
        async with asyncio.timeout(PATIENCE_S):
            reasons = await _reasons(context)
    except (UnavailableError, TimeoutError):
        reasons = ["store_unavailable"]
    if reasons:
        return Json({"status": "not_ready", "reasons": reasons}, 503, {"retry-after": "1"})
    return Json({"status": "ready", "reasons": []})


async def _reasons(context: Context) -> list[str]:
    presence = context.store.presence
    reasons = [] if context.startup.checked else ["store_not_checked"]
    await presence.ping()
    if not context.allow_volatile and not await _durable(context):
        reasons.append("store_volatile")
    reasons += [
        f"no_{kind}" for kind in ("worker", "relay") if not await presence.alive(kind, ALIVE_S)
    ]
    return reasons


async def _durable(context: Context) -> bool:
    try:
        return (await context.store.presence.durability()).safe
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - a server that refuses CONFIG does not say that it is safe
        return False
