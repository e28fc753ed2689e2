"""One signed attempt to deliver one event to one endpoint, with its outcome as a value.

A receiver is a stranger: everything it can send, withhold or drag out ends within one deadline,
within fixed bounds on memory, in an ``Attempt`` with a fixed reason code.
"""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from types import TracebackType
from typing import Literal, Self, TypeAlias

import aiohttp
from yarl import URL

from signoff.signing import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    SecretError,
    SignatureError,
    sign,
    sign_hex,
)
from webhooks.answer import body_text, retry_after
from webhooks.dial import Connector, DialRefusedError, dialled
from webhooks.guard import AddressRefusedError, Policy, UrlRefusedError, check_url
from webhooks.lookup import SystemLookup
from webhooks.resolve import Lookup
from webhooks.trust import system_trust

logger = logging.getLogger(__name__)

DEADLINE_S = 15.0
_BODY_LIMIT = 16 * 1024
_LINE_LIMIT = 8190
_HEADER_LIMIT = 128
_URLS_REMEMBERED = 4096
# aiohttp warns about raw bytes beyond this size, because one write of them blocks the loop.
_ONE_WRITE = 1024 * 1024

Outcome: TypeAlias = Literal["delivered", "failed"]
Reason: TypeAlias = Literal[
    "invalid_url",  # the stored URL is not acceptable under today's policy
    "blocked_address",  # the URL or DNS names an address that may not be called
    "signing",  # no usable secret; nothing was sent, never unsigned
    "dns",
    "connect",
    "tls",
    "timeout",
    "connection_lost",  # closed before an answer
    "protocol",  # the answer is not acceptable HTTP, or ends early
    "redirect",
    "status",
    "internal",  # our fault; the log has the traceback
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """How an endpoint's deliveries are signed; secrets newest first, never in a repr."""

    kind: Literal["standard", "hex"]
    secrets: tuple[str, ...] = field(repr=False)

    def headers(self, *, msg_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """Return the three headers; the hex form has room for one signature, the newest secret's.

        Raises ``SecretError`` or ``SignatureError`` for what cannot be signed.
        """
        if not self.secrets:
            raise SecretError("missing")
        if self.kind == "hex":
            value = sign_hex(self.secrets[0], msg_id=msg_id, timestamp=timestamp, body=body)
        else:
            value = sign(self.secrets, msg_id=msg_id, timestamp=timestamp, body=body)
        return {ID_HEADER: msg_id, TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one attempt came to; ``status`` and ``body`` are kept also when the attempt failed."""

    outcome: Outcome
    status: int | None = None
    error: Reason | None = None
    body: str = ""
    duration_ms: int = 0
    retry_after_s: float | None = None
    gone: bool = False
    resent: bool = False


@dataclass(slots=True)
class _Answer:
    """What has been read so far; survives the exception that ends the reading."""

    status: int | None = None
    body: bytearray = field(default_factory=bytearray)
    retry_after: list[str] = field(default_factory=list)
    resent: bool = False


class Sender:
    """Sends attempts over shared keep-alive connections; open it once in each process.

    No redirects, proxies, cookies, credentials or decompression, whatever the environment says.
    The deadline covers everything from the wait for a connection to the last byte of the answer.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        clock: Callable[[], float],
        deadline_s: float = DEADLINE_S,
        lookup: Lookup | None = None,
        trust: ssl.SSLContext | None = None,
        connections: int = 512,
        connections_per_host: int = 512,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._deadline_s = deadline_s
        self._lookup = lookup or SystemLookup()
        self._trust = trust or system_trust()
        self._limits = (connections, connections_per_host)
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._check = lru_cache(_URLS_REMEMBERED)(self._check_url)

    async def __aenter__(self) -> Self:
        # One pool a scheme: what may be dialled depends on it, and a socket does not tell.
        for scheme in ("https", "http") if self._policy.allow else ("https",):
            connector = Connector(
                self._policy,
                scheme="https" if scheme == "https" else "http",
                lookup=self._lookup,
                trust=self._trust,
                limit=self._limits[0],
                limit_per_host=self._limits[1],
            )
            self._sessions[scheme] = _session(connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def send(self, *, url: str, msg_id: str, body: bytes, signing: Signing) -> Attempt:
        """Make one attempt and return what came of it; raises nothing that a receiver can cause.

        A reused connection that turns out to be closed before any answer is replaced once, within
        the same attempt and deadline (``resent``): the receiver's idle time-out is not a failure.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        answer = _Answer()
        try:
            target = self._check(url)
            headers = signing.headers(msg_id=msg_id, timestamp=int(self._clock()), body=body)
            async with asyncio.timeout(self._deadline_s):
                await self._exchange(target, headers, body, answer)
            error = _status_error(answer.status)
        except Exception as failure:
            error = _reason(failure)
            if error == "internal":
                logger.exception("attempt_crashed event=%s", msg_id)
        return Attempt(
            outcome="delivered" if error is None else "failed",
            status=answer.status,
            error=error,
            body=body_text(answer.body),
            duration_ms=round((loop.time() - started) * 1000),
            retry_after_s=retry_after(answer.status, answer.retry_after, now=self._clock()),
            gone=answer.status == HTTPStatus.GONE,
            resent=answer.resent,
        )

    def _check_url(self, url: str) -> URL:
        # Already in its one spelling; encoded=True keeps yarl from giving it another.
        return URL(check_url(url, self._policy).url, encoded=True)

    async def _exchange(
        self, target: URL, headers: dict[str, str], body: bytes, answer: _Answer
    ) -> None:
        opened: list[str] = []
        dialled.set(opened)
        try:
            await self._post(target, headers, body, answer)
        except aiohttp.ClientConnectionError as failure:
            if opened or not _is_unanswered(failure, answer):
                raise
            answer.resent = True
            await self._post(target, headers, body, answer)

    async def _post(
        self, target: URL, headers: dict[str, str], body: bytes, answer: _Answer
    ) -> None:
        payload = body if len(body) <= _ONE_WRITE else io.BytesIO(body)
        session = self._sessions[target.scheme]
        async with session.post(
            target, data=payload, headers=headers, allow_redirects=False
        ) as response:
            answer.status = response.status
            answer.retry_after = response.headers.getall("Retry-After", [])
            content = response.content
            while not content.at_eof():
                answer.body += await content.readany()
                if len(answer.body) >= _BODY_LIMIT:
                    response.close()  # the rest is not worth its bytes; drop the connection
                    return


def _session(connector: Connector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={
            "user-agent": "Signoff-Webhooks/1",
            "content-type": "application/json",
            "accept": "*/*",
            "accept-encoding": "identity",
        },
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=_BODY_LIMIT,
        max_line_size=_LINE_LIMIT,
        max_field_size=_LINE_LIMIT,
        max_headers=_HEADER_LIMIT,
    )


def _is_unanswered(failure: aiohttp.ClientConnectionError, answer: _Answer) -> bool:
    if isinstance(failure, aiohttp.ClientConnectorError) or answer.status is not None:
        return False
    # A disconnect in the middle of an answer's head carries the part that did arrive.
    partial_head = getattr(failure, "message", None)
    return partial_head is None or isinstance(partial_head, str)


def _status_error(status: int | None) -> Reason | None:
    family = (status or 0) // 100
    if family == 2:  # noqa: PLR2004 - 2xx, the whole family and nothing else
        return None
    return "redirect" if family == 3 else "status"  # noqa: PLR2004 - 3xx


# First match wins: subclasses stand before their parents.
_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (UrlRefusedError, "invalid_url"),
    (AddressRefusedError, "blocked_address"),
    (SecretError, "signing"),
    (SignatureError, "signing"),
    (TimeoutError, "timeout"),
    (aiohttp.ClientConnectorDNSError, "dns"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ClientConnectorError, "connect"),
    (aiohttp.ClientConnectionError, "connection_lost"),
    (aiohttp.ClientError, "protocol"),
    (OSError, "connection_lost"),
)


def _reason(failure: Exception) -> Reason:
    if isinstance(failure, UrlRefusedError) and failure.reason == "blocked_address":
        return "blocked_address"
    if isinstance(getattr(failure, "os_error", None), DialRefusedError):
        return "blocked_address"
    for kind, reason in _REASONS:
        if isinstance(failure, kind):
            return reason
    return "internal"
