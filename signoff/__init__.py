"""Signoff: durable runs that stop and ask; this package is the SDK and the server's ground."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "Client",
    "SignatureError",
    "SignoffError",
    "__version__",
    "current_call",
    "sign_decision",
    "tool",
    "verify",
]

# No submodule may have the name of an export: importing it would bind the module over the export.
_HOMES = {
    "AsyncClient": "signoff.client.async_client",
    "Client": "signoff.client.client",
    "SignatureError": "signoff.signing",
    "SignoffError": "signoff.domain.error",
    "current_call": "signoff.tooldef",
    "sign_decision": "signoff.signing",
    "tool": "signoff.tooldef",
    "verify": "signoff.signing",
}

if TYPE_CHECKING:
    from signoff.client.async_client import AsyncClient
    from signoff.client.client import Client
    from signoff.domain.error import SignoffError
    from signoff.signing import SignatureError, sign_decision, verify
    from signoff.tooldef import current_call, tool
else:
    # Hidden from type checkers, to which it would say that every name exists.
    def __getattr__(name: str) -> object:
        """Load an export when it is first asked for, so that a verifier pays for no pydantic."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
