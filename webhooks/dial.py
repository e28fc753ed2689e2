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
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

from webhooks.address import Address
from webhooks.guard import LOCALHOST, AddressRefusedError, Policy, check_address, check_addresses
from webhooks.url import Scheme

Lookup: TypeAlias = Callable[[str], Awaitable[list[Address]]]

# Per family. More answers than this add connects, not availability.
_DIALLED_ANSWERS = 2
# Most servers close idle connections after 5 s or later. Leaving first avoids the race between
# their close and our next request.
_KEEP_ALIVE_S = 4.0
# A 1xx answer costs us parsing and costs the receiver nothing; honest ones send one or two.
_MAX_INFORMATIONAL = 16
_LOCALHOST: tuple[Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

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


def system_trust() -> ssl.SSLContext:
    """Return a client context that trusts the system's authorities and no environment variable.

    ``ssl.create_default_context`` would follow SSL_CERT_FILE, and write keys to SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    cafile, capath = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    context.load_verify_locations(
        cafile=cafile if cafile.is_file() else None,
        capath=capath if capath.is_dir() or not cafile.is_file() else None,
    )
    return context


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
        if host == LOCALHOST:
            # By definition loopback; asking would let a resolver say otherwise.
            addresses = [address for address in _LOCALHOST if self._policy.allows(address)]
        else:
            addresses = await self._lookup(host)
        check_addresses(addresses, self._policy, scheme=self._scheme)
        if not addresses:
            raise OSError("the name has no address")
        return [_result(host, port, address) for address in _few(addresses)]

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


def _few(addresses: Iterable[Address]) -> list[Address]:
    distinct = list(dict.fromkeys(addresses))
    return [
        address
        for version in (6, 4)
        for address in [each for each in distinct if each.version == version][:_DIALLED_ANSWERS]
    ]


def _result(name: str, port: int, address: Address) -> ResolveResult:
    return ResolveResult(
        hostname=name,
        host=str(address),
        port=port,
        family=socket.AF_INET if address.version == 4 else socket.AF_INET6,  # noqa: PLR2004
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST,
    )
