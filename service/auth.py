"""Who makes a request: API keys from the Authorization header, remembered for a second."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from signoff.domain.error import UnauthorizedError
from signoff.store.accounts import Accounts, Principal

#: A revoked key ends within this time. It saves a round trip on nearly every request.
KEEP_S = 1.0
_KEPT = 10_000
_MAX_KEY = 512
_SCHEME = b"bearer "


def bearer(scope: Scope) -> str | None:
    """The key of the one ``Authorization: Bearer`` header; None for anything else."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) != 1 or found[0][: len(_SCHEME)].lower() != _SCHEME:
        return None
    raw: bytes = found[0][len(_SCHEME) :].strip()
    if not 0 < len(raw) <= _MAX_KEY:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class Keys:
    """Authenticates by key; refusals are alike whatever was wrong, and are never remembered."""

    def __init__(self, accounts: Accounts, *, clock: Callable[[], float]) -> None:
        self._accounts = accounts
        self._clock = clock
        self._known: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    async def principal(self, scope: Scope) -> Principal:
        """The caller, or UnauthorizedError."""
        secret = bearer(scope)
        found = None if secret is None else await self._find(secret)
        if found is None:
            raise UnauthorizedError("a valid API key is needed: Authorization: Bearer <key>")
        return found

    async def _find(self, secret: str) -> Principal | None:
        now = self._clock()
        known = self._known.get(secret)
        if known is not None and now < known[1]:
            return known[0]
        found = await self._accounts.authenticate(secret)
        if found is None:
            self._known.pop(secret, None)
            return None
        self._known[secret] = (found, now + KEEP_S)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found
