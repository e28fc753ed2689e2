"""The OpenAPI document, and the same as a page; at the root, without a key."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope

from service.context import Context
from service.openapi import Mounted, build
from service.operation import Answer, ok, operation
from service.page import STYLE, page
from service.render import Json
from signoff.domain.jsontext import compact

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
#: The page loads nothing and runs nothing.
_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'"


class Reference:
    """The document of one application, built when it is first asked for."""

    def __init__(self, mounts: Sequence[Mounted], version: str) -> None:
        self._mounts = mounts
        self._version = version
        self._bytes: tuple[bytes, bytes] | None = None

    def built(self) -> dict[str, Any]:
        """The document."""
        return build(self._mounts, version=self._version)

    def kept(self) -> tuple[bytes, bytes]:
        """The document and the page, as they are sent."""
        if self._bytes is None:
            found = self.built()
            self._bytes = compact(found).encode(), page(found).encode()
        return self._bytes


@operation(ok(dict[str, Any]), stored=False)
async def document(context: Context, scope: Scope, receive: Receive) -> Json:
    """This document."""
    del context, receive
    reference: Reference = scope["app"].state.reference
    return Json(reference.kept()[0])


@operation(Answer(status=200, media="text/html", about="The page."), stored=False)
async def docs(context: Context, scope: Scope, receive: Receive) -> Response:
    """This document as a page to read; it loads nothing from anywhere."""
    del context, receive
    reference: Reference = scope["app"].state.reference
    headers = {
        "content-security-policy": _POLICY,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return Response(reference.kept()[1], media_type="text/html", headers=headers)
