"""How a connection to a receiver is opened: names are looked up, judged and dialled in one step.

The address that is dialled is the address that was judged. Two layers see it: the resolver judges
all answers for a name, and the socket factory judges the concrete address right before its socket
exists, which also covers literals and whatever a lower layer might make of a host. A pooled
connection keeps the peer it was dialled to, and the policy is fixed for the life of the process,
so reusing one can never reach an address that was not judged, whoever registered the URL first.
"""

from __future__ import annotations

import socket
import ssl
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, TypeAlias

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

from webhooks.address import Address
from webhooks.guard import AddressRefusedError, Policy, check_address
from webhooks.resolve import Lookup, resolve
from webhooks.url import Scheme

# Most servers close idle connections after 5 s or later. Leaving first avoids the race between
# their close and our next request.
_KEEP_ALIVE_S = 4.0
# A 1xx answer costs us parsing and costs the receiver nothing; honest ones send one or two.
_MAX_INFORMATIONAL = 16

# Appended to by the socket factory in the task that makes the attempt: says whether the attempt
# used a fresh connection. A list, because racing connects run in copies of the context.
dialled: ContextVar[list[str]] = ContextVar("dialled")


#: What ``getaddrinfo`` gives and aiohttp hands to a socket factory.
_AddressInfo: TypeAlias = tuple[
    int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]
]


class DialRefusedError(OSError):
    """An ``AddressRefusedError`` in the only shape that connect races pass on faithfully."""

    def __init__(self) -> None:
        super().__init__("the address may not be called")


class Resolver(AbstractResolver):
    """Looks a name up and returns its addresses only if every one of them may be dialled."""

    def __init__(self, lookup: Lookup, policy: Policy, scheme: Scheme) -> None:
        self._lookup = lookup
        self._policy = policy
        self._scheme: Scheme = scheme

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: int = socket.AF_UNSPEC,  # noqa: ARG002
    ) -> list[ResolveResult]:
        """Raise ``AddressRefusedError`` for a forbidden answer, ``OSError`` for none."""
        addresses = await resolve(
            host, lookup=self._lookup, policy=self._policy, scheme=self._scheme
        )
        return [_result(host, port, address) for address in addresses]

    async def close(self) -> None:
        """Hold nothing, so release nothing."""


class Connector(TCPConnector):
    """A connection pool for one scheme that dials judged addresses only."""

    def __init__(
        self,
        policy: Policy,
        *,
        scheme: Scheme,
        lookup: Lookup,
        trust: ssl.SSLContext,
        limit: int,
        limit_per_host: int,
    ) -> None:
        super().__init__(
            resolver=Resolver(lookup, policy, scheme),
            socket_factory=partial(_open, policy, scheme),
            use_dns_cache=False,
            ssl=trust,
            limit=limit,
            limit_per_host=limit_per_host,
            keepalive_timeout=_KEEP_ALIVE_S,
        )
        # No public seam exists; tests/integration/test_sender.py fails if this one moves.
        protocol: type[ResponseHandler] = _Protocol
        self._factory = partial(protocol, loop=self._loop)


class _Protocol(ResponseHandler):
    """aiohttp's reader of answers, which by itself skips 1xx answers without end."""

    _informational = 0

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        if not HTTPStatus.CONTINUE <= data[0].code < HTTPStatus.OK:
            self._informational = 0
            super().feed_data(data, size)
            return
        self._informational += 1
        if self._informational <= _MAX_INFORMATIONAL:
            super().feed_data(data, size)
        elif self.transport is not None:
            self.transport.abort()
            self.set_exception(HttpProcessingError(message="too many 1xx answers"))


def _open(policy: Policy, scheme: Scheme, info: _AddressInfo) -> socket.socket:
    family, kind, protocol, _, peer = info
    try:
        check_address(ip_address(str(peer[0])), policy, scheme=scheme)
    except (AddressRefusedError, ValueError):
        raise DialRefusedError from None
    dialled.get([]).append(str(peer[0]))
    return socket.socket(family, kind, protocol)


def _result(name: str, port: int, address: Address) -> ResolveResult:
    return ResolveResult(
        hostname=name,
        host=str(address),
        port=port,
        family=socket.AF_INET if address.version == 4 else socket.AF_INET6,  # noqa: PLR2004
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )
