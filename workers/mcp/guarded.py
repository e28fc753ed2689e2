"""Requests to a server that an account names: only to its own address, judged each time anew."""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus

import httpx2

from webhooks.address import Address
from webhooks.guard import AddressRefusedError, Policy, Target, check_address
from webhooks.resolve import Lookup, resolve

#: For a name to be looked up, and for each address to be connected.
CONNECT_S = 10.0
# One session needs a few: a stream of announcements, and calls side by side.
_LIMITS = httpx2.Limits(max_connections=16, max_keepalive_connections=4, keepalive_expiry=4.0)


class Guarded(httpx2.AsyncBaseTransport):
    """Sends requests for ``target`` to addresses that the policy admits, and to nothing else.

    The name is looked up for each request and every answer judged; the connection is made to the
    very address that was judged, with the name as Host and in the handshake. A kept connection is
    one to such an address. No proxies, no other origin, no redirects, whatever asks for them.
    """

    def __init__(
        self, target: Target, *, policy: Policy, lookup: Lookup, trust: ssl.SSLContext
    ) -> None:
        self._target = target
        self._policy = policy
        self._lookup = lookup
        self._inner = httpx2.AsyncHTTPTransport(verify=trust, trust_env=False, limits=_LIMITS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer; raises ConnectError or ConnectTimeout when nothing was sent."""
        if not self._is_meant(request.url):
            raise httpx2.ConnectError("another address than the server's")
        response = await self._sent(request, await self._addresses())
        if HTTPStatus.MULTIPLE_CHOICES <= response.status_code < HTTPStatus.BAD_REQUEST:
            await response.aclose()
            raise httpx2.RemoteProtocolError("a redirect is not followed")
        return response

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inner.aclose()

    def _is_meant(self, url: httpx2.URL) -> bool:
        port = url.port or (443 if url.scheme == "https" else 80)
        target = self._target
        return (url.scheme, url.host, port) == (target.scheme, target.host, target.port)

    async def _addresses(self) -> list[Address]:
        target = self._target
        try:
            if target.literal is not None:
                check_address(target.literal, self._policy, scheme=target.scheme)
                return [target.literal]
            async with asyncio.timeout(CONNECT_S):
                return await resolve(
                    target.host, lookup=self._lookup, policy=self._policy, scheme=target.scheme
                )
        except (AddressRefusedError, OSError) as error:  # TimeoutError is one of the latter
            raise httpx2.ConnectError("the address may not be called, or is not known") from error

    async def _sent(self, request: httpx2.Request, addresses: list[Address]) -> httpx2.Response:
        failure: httpx2.TransportError | None = None
        for address in addresses:
            try:
                return await self._inner.handle_async_request(self._to(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure or httpx2.ConnectError("no address")

    def _to(self, request: httpx2.Request, address: Address) -> httpx2.Request:
        """The same request, with the address in place of the name."""
        extensions = dict(request.extensions)
        if self._target.literal is None:
            extensions["sni_hostname"] = self._target.host
        return httpx2.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,
            stream=request.stream,
            extensions=extensions,
        )
