"""Bodies of the routes that exist in development only."""

from __future__ import annotations

from typing_extensions import TypedDict

from signoff.wire.body import Body


class Register(Body):
    """POST /api/v1/auth/register, as test suites of the reference platform send it."""

    email: str
    password: str
    first_name: str | None = None


class RegisteredBody(TypedDict):
    """The key of the account that was made."""

    api_key: str
