"""Webhook endpoints and their deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from service.context import Call
from service.operation import NO_CONTENT, PAGED, SCOPED, USER, ok, operation
from service.query import Query
from service.render import Json, delivery_body, page_body, webhook_body
from signoff.domain import event as events
from signoff.domain.error import ConflictError, InvalidFieldError, MissingError
from signoff.store.endpoints import Endpoint, EndpointChange
from signoff.store.runs import Fanout
from signoff.wire.page import PageBody
from signoff.wire.webhook import ChangeWebhook, CreateWebhook, DeliveryBody, TestedBody, WebhookBody
from webhooks.guard import check_url

MAX_PER_SCOPE = 100
#: Each process keeps the endpoints of an account in memory.
MAX_PER_ACCOUNT = 5000
OVERLAP_S = 24 * 3600


@operation(
    ok(WebhookBody, 201),
    body=CreateWebhook,
    refuses=("blocked_address", "end_user_required", "invalid_url", "too_many_webhooks"),
)
async def post(call: Call) -> Json:
    """Makes an endpoint; the only answer but a rotation's that shows its secret."""
    body = await call.body(CreateWebhook)
    await call.demand_user(body.user_id)
    check_url(body.url, call.context.policy)
    wanted = list(events.DEFAULT_EVENTS) if body.events is None else _events(body.events)
    endpoints = call.context.store.endpoints
    in_account, in_scope = await endpoints.count(call.account, body.user_id)
    if in_scope >= MAX_PER_SCOPE or in_account >= MAX_PER_ACCOUNT:
        msg = f"at most {MAX_PER_SCOPE} webhooks a scope and {MAX_PER_ACCOUNT} an account"
        raise InvalidFieldError(msg, code="too_many_webhooks")
    await call.context.store.users.touch(call.account, body.user_id)
    endpoint = await endpoints.create(
        account=call.account,
        user_id=body.user_id,
        url=body.url,
        events=wanted,
        signature=body.signature or call.surface.signature,
        secret=call.context.new_secret(),
        now_ms=call.context.now_ms(),
    )
    return Json(webhook_body(endpoint, origin=call.origin, reveal=True), 201)


@operation(ok(PageBody[WebhookBody]), parameters=(*PAGED, USER), refuses=SCOPED)
async def index(call: Call) -> Json:
    """The endpoints of exactly one scope, newest first."""
    query = call.query
    limit, cursor = query.limit(), query.cursor()
    user_id = query.text("user_id")
    await call.demand_user(user_id)
    found = await call.context.store.endpoints.list(call.account, user_id)
    rows = [
        webhook_body(endpoint, origin=call.origin, reveal=False)
        for endpoint in found
        if cursor is None or endpoint.id < cursor
    ]
    return Json(page_body(rows[:limit], more=len(rows) > limit))


@operation(ok(WebhookBody), parameters=[USER], refuses=SCOPED)
async def get(call: Call) -> Json:
    """One endpoint."""
    endpoint = await _load(call, call.query)
    return Json(webhook_body(endpoint, origin=call.origin, reveal=False))


@operation(
    ok(WebhookBody),
    body=ChangeWebhook,
    parameters=[USER],
    refuses=("blocked_address", "end_user_required", "invalid_url"),
)
async def patch(call: Call) -> Json:
    """Changes an endpoint; a rotated secret keeps the old one valid for the overlap."""
    body = await call.body(ChangeWebhook)
    if body.url is not None:
        check_url(body.url, call.context.policy)
    endpoint = await _load(call, call.query)
    now_ms = call.context.now_ms()
    rotate = body.rotate_secret is True
    overlap_s = OVERLAP_S if body.overlap_seconds is None else body.overlap_seconds
    change = EndpointChange(
        url=body.url,
        events=None if body.events is None else _events(body.events),
        active=body.active,
        new_secret=call.context.new_secret() if rotate else None,
        previous_until_ms=now_ms + overlap_s * 1000,
    )
    changed = await call.context.store.endpoints.change(endpoint, change, now_ms=now_ms)
    if body.active is True or body.url is not None:
        await call.context.store.outbox.forgive(endpoint.id)
    return Json(webhook_body(changed, origin=call.origin, reveal=rotate))


@operation(NO_CONTENT, parameters=[USER], refuses=SCOPED)
async def delete(call: Call) -> Response:
    """Removes an endpoint; what was still to be sent is not sent any more."""
    await call.context.store.endpoints.delete(await _load(call, call.query))
    return Response(status_code=204)


@operation(
    ok(TestedBody, 202), parameters=[USER], refuses=("end_user_required", "webhook_inactive")
)
async def test(call: Call) -> Json:
    """Sends ``webhook.test`` to this endpoint only, the way of every other event."""
    endpoint = await _load(call, call.query)
    if not endpoint.active:
        msg = "the webhook is not active, so nothing would be sent"
        raise ConflictError(msg, code="webhook_inactive")
    context = call.context
    payload = {"webhook_id": endpoint.id, "user_id": endpoint.user_id}
    event = context.publisher.event(events.WEBHOOK_TEST, payload)
    shard = context.store.shards.of(endpoint.id)
    fanout = Fanout(version="", endpoints=(str(endpoint.id),))
    await context.store.outbox.emit(shard, call.account, event, fanout)
    return Json({"status": "ok", "event_id": event.id, "webhook_endpoint_id": endpoint.id}, 202)


@operation(ok(PageBody[DeliveryBody]), parameters=(*PAGED, USER), refuses=SCOPED)
async def deliveries(call: Call) -> Json:
    """What went, or is to go, to an endpoint, newest first."""
    query = call.query
    limit, cursor = query.limit(), query.cursor()
    endpoint = await _load(call, query)
    found, more = await call.context.store.outbox.page(endpoint.id, limit=limit, before=cursor)
    return Json(page_body([delivery_body(item) for item in found], more=more))


@operation(ok(DeliveryBody), parameters=[USER], refuses=SCOPED)
async def delivery(call: Call) -> Json:
    """One delivery with the log of its attempts."""
    endpoint = await _load(call, call.query)
    delivery_id = call.id("delivery_id")
    found = await call.context.store.outbox.get(delivery_id)
    if found.endpoint_id != endpoint.id:
        raise MissingError(f"no delivery {delivery_id}")
    return Json(delivery_body(found))


async def _load(call: Call, query: Query) -> Endpoint:
    webhook_id, user_id = call.id("webhook_id"), query.text("user_id")
    await call.demand_user(user_id)
    endpoint = await call.context.store.endpoints.get(call.account, webhook_id)
    if user_id is not None and user_id != endpoint.user_id:
        raise MissingError(f"no webhook {webhook_id}")
    return endpoint


def _events(names: Sequence[str]) -> list[str]:
    for n, name in enumerate(names):
        if name not in events.EVENT_TYPES:
            msg = f"events[{n}]: no event is called {name[:64]!a}"
            raise InvalidFieldError(msg, field=f"events[{n}]")
    return list(dict.fromkeys(names))
