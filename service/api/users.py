"""End users: profiles, caps, and what they have used this month."""

from __future__ import annotations

from starlette.responses import Response

from service.context import Call
from service.describe import use_body, user_body
from service.operation import NO_CONTENT, PAGED, USER, ok, operation
from service.render import Json, page_body
from signoff.domain.allowance import period_of
from signoff.domain.error import MissingError
from signoff.wire.page import PageBody
from signoff.wire.user import ChangeUser, CreateUser, EndUserBody, EndUserUsageBody

_MAX_USER_ID = 255


@operation(ok(EndUserBody, 201), body=CreateUser, refuses=["user_exists"])
async def post(call: Call) -> Json:
    """Makes the profile of a user that has none yet, not even by having been used."""
    body = await call.body(CreateUser)
    fields = body.model_dump(exclude={"user_id"}, exclude_none=True)
    user = await call.context.store.users.create(call.account, body.user_id, fields)
    return Json(user_body(user), 201)


@operation(ok(PageBody[EndUserBody]), parameters=PAGED)
async def index(call: Call) -> Json:
    """Profiles, newest first."""
    query = call.query
    users, more = await call.context.store.users.page(
        call.account, limit=query.limit(), before=query.cursor()
    )
    return Json(page_body([user_body(user) for user in users], more=more))


@operation(ok(EndUserBody))
async def get(call: Call) -> Json:
    """One profile."""
    return Json(user_body(await call.context.store.users.get(call.account, _user_id(call))))


@operation(ok(EndUserBody), body=ChangeUser)
async def patch(call: Call) -> Json:
    """Changes a profile; null clears, metadata is replaced as a whole."""
    body = await call.body(ChangeUser)
    changes = body.model_dump(exclude_unset=True)
    user = await call.context.store.users.change(call.account, _user_id(call), changes)
    return Json(user_body(user))


@operation(NO_CONTENT)
async def delete(call: Call) -> Response:
    """Removes a profile with its caps; runs, policies and webhooks of the user stay."""
    await call.context.store.users.delete(call.account, _user_id(call))
    return Response(status_code=204)


@operation(ok(PageBody[EndUserUsageBody]), parameters=(*PAGED, USER))
async def usage(call: Call) -> Json:
    """What users have used this month: of one of them, or of all, page by page."""
    query, store = call.query, call.context.store
    limit, cursor, user_id = query.limit(), query.cursor(), query.text("user_id")
    if user_id is None:
        users, more = await store.users.page(call.account, limit=limit, before=cursor)
    else:
        try:
            users, more = [await store.users.get(call.account, user_id)], False
        except MissingError:
            users, more = [], False
    now_ms = call.context.now_ms()
    used = await store.users.used(call.account, [user.user_id for user in users], period_of(now_ms))
    defaults = (await store.account_settings.get(call.account)).caps
    rows = [
        use_body(user, use, defaults, now_ms=now_ms) for user, use in zip(users, used, strict=True)
    ]
    return Json(page_body(rows, more=more))


def _user_id(call: Call) -> str:
    user_id: str = call.scope["path_params"]["user_id"]
    if len(user_id) > _MAX_USER_ID:
        raise MissingError("no such user")
    return user_id
