"""Routes that exist in development only: accounts without an operator, for test suites."""

from __future__ import annotations

from starlette.types import Receive, Scope

from service.body import check, read_json
from service.context import Context
from service.dispatch import check_open
from service.operation import ok, operation
from service.render import Json
from signoff.wire.development import Register, RegisteredBody


@operation(ok(RegisteredBody, 201), body=Register)
async def register(context: Context, scope: Scope, receive: Receive) -> Json:
    """Makes an account with one key. Who asks is not checked, and nothing else is kept."""
    check_open(context, scope)
    _, value = await read_json(scope, receive)
    check(Register, value)
    accounts, secret = context.store.accounts, f"sk_dev_{context.new_id()}"
    account = await accounts.ensure(f"registered {context.new_id()}")
    await accounts.add_key(account, secret=secret, name="registered", now_ms=context.now_ms())
    return Json({"api_key": secret}, 201)
