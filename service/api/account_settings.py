"""The settings of the caller's account."""

from __future__ import annotations

from service.context import Call
from service.describe import settings_body
from service.operation import ok, operation
from service.render import Json
from signoff.wire.account_settings import ChangeSettings, SettingsBody

_CAPS = frozenset(name for name in ChangeSettings.model_fields if name.startswith("per_end_user_"))


@operation(ok(SettingsBody))
async def get(call: Call) -> Json:
    """All settings."""
    return Json(settings_body(await call.context.store.account_settings.get(call.account)))


@operation(ok(SettingsBody), body=ChangeSettings)
async def patch(call: Call) -> Json:
    """Changes settings; null clears a cap and leaves everything else as it is."""
    body = await call.body(ChangeSettings)
    changes = {
        name: value
        for name, value in body.model_dump(exclude_unset=True).items()
        if value is not None or name in _CAPS
    }
    store = call.context.store
    changed = await store.account_settings.change(call.account, changes)
    store.users.forget(call.account)
    return Json(settings_body(changed))
