"""MCP servers of agents and runs: the operator's by name, an account's own by address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.context import Context
from signoff.domain.error import InvalidFieldError
from signoff.mcpserver import MASK, can_be_sent, is_server_name
from signoff.wire.body import GivenServer
from webhooks.guard import UrlRefusedError, check_url

MAX_OWN = 8
MAX_HEADERS = 16
#: Of all headers of one server together.
MAX_HEADER_BYTES = 8192
# Set by the protocol, or about the connection and not the request.
_NOT_OURS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def read_servers(
    context: Context,
    account: str,
    given: Sequence[str | GivenServer],
    *,
    kept: Sequence[Any] = (),
) -> list[Any]:
    """What is stored of ``given``: names each once, own servers with their headers sealed.

    A masked header keeps the value that it has in ``kept``, for the same name and URL only. Raises
    InvalidFieldError; no message repeats a header.
    """
    found: dict[str, Any] = {}
    own = 0
    for n, item in enumerate(given):
        if isinstance(item, str):
            if item not in context.mcp_servers:
                msg = f"mcp_servers[{n}]: no MCP server is called {item[:64]!a}"
                raise InvalidFieldError(msg, field=f"mcp_servers[{n}]")
            found[item] = item
            continue
        own += 1
        if own > MAX_OWN:
            msg = f"mcp_servers[{n}]: at most {MAX_OWN} servers of one's own"
            raise InvalidFieldError(msg, field=f"mcp_servers[{n}]")
        field = f"mcp_servers[{n}].name"
        if not is_server_name(item.name):
            msg = f"{field}: up to 32 of a-z, 0-9, hyphens and single underscores within"
            raise InvalidFieldError(msg, field=field)
        if item.name in found or item.name in context.mcp_servers:
            raise InvalidFieldError(f"{field}: the name is taken", field=field)
        found[item.name] = _own(context, account, item, kept, f"mcp_servers[{n}]")
    return list(found.values())


def _own(
    context: Context, account: str, item: GivenServer, kept: Sequence[Any], field: str
) -> dict[str, Any]:
    try:
        url = check_url(item.url, context.policy).url
    except UrlRefusedError as error:
        raise InvalidFieldError(
            error.message, code=error.code, field=f"{field}.url", details=error.details
        ) from None
    server: dict[str, Any] = {"name": item.name, "url": url}
    headers = dict(item.headers or {})
    if MASK in headers.values():
        headers = _unmasked(context, account, server, headers, kept)
    _check_headers(headers, f"{field}.headers")
    if headers:
        sealed = context.store.server_headers.close(account, server, headers)
        server |= {"header_names": list(headers), "sealed": sealed}
    return server


def _unmasked(
    context: Context,
    account: str,
    server: Mapping[str, Any],
    headers: Mapping[str, str],
    kept: Sequence[Any],
) -> dict[str, str]:
    """The headers with the values that stand where they are masked; a mask of nothing stays."""
    known: dict[str, str] = {}
    for old in kept:
        if not isinstance(old, str) and (old["name"], old["url"]) == tuple(server.values()):
            stands = context.store.server_headers.open(account, old)
            known = {name.lower(): value for name, value in stands.items()}
    return {
        name: known.get(name.lower(), value) if value == MASK else value
        for name, value in headers.items()
    }


def _check_headers(headers: Mapping[str, str], field: str) -> None:
    if len({name.lower() for name in headers}) != len(headers):
        raise InvalidFieldError(f"{field}: a header is given twice", field=field)
    for name, value in headers.items():
        if value == MASK:
            msg = f"{field}: a masked value stands for one that the same server has already"
            raise InvalidFieldError(msg, field=field)
        if not can_be_sent(name, value):
            raise InvalidFieldError(f"{field}: a header cannot be sent", field=field)
        if name.lower() in _NOT_OURS or name.lower().startswith("proxy-"):
            msg = f"{field}: a header belongs to the protocol or the connection"
            raise InvalidFieldError(msg, field=field)
    size = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        msg = f"{field}: at most {MAX_HEADERS} headers and {MAX_HEADER_BYTES} characters"
        raise InvalidFieldError(msg, field=field)
