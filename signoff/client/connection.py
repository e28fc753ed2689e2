"""What both clients share about HTTP: where the service is, how long to wait, what a failure is."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from signoff.client.effects import Answer, Policy, Send
from signoff.client.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    RequestTimeoutError,
)

TIMEOUT_S = 30.0
RETRIES = 2
_CONNECT_S = 10.0
_SUFFIXES = ("/v1", "/api/v2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to reach one service."""

    base_url: str
    api_key: str = field(repr=False)
    timeout: float
    retries: int

    def policy(self) -> Policy:
        """When requests are repeated."""
        return Policy(
            retries=self.retries,
            new_key=lambda: str(uuid.uuid4()),
            spread=random.random,
        )

    def http(self) -> dict[str, Any]:
        """The arguments of the HTTP client underneath."""
        return {
            "base_url": self.base_url,
            "headers": {"authorization": f"Bearer {self.api_key}", "user-agent": "signoff-python"},
            "timeout": self.patience(0.0),
            "follow_redirects": False,
        }

    def patience(self, more_s: float) -> httpx.Timeout:
        """The limits of a request whose answer may take ``more_s`` longer."""
        connect = min(_CONNECT_S, self.timeout)
        return httpx.Timeout(self.timeout, connect=connect, read=self.timeout + more_s)


def read_options(*, base_url: str, api_key: str, timeout: float, retries: int) -> Options:
    """The options; raises InvalidArgumentError for what can never work."""
    text = base_url.rstrip("/")
    for suffix in _SUFFIXES:
        text = text.removesuffix(suffix)
    if not text.startswith(("http://", "https://")) or not httpx.URL(text).host:
        raise InvalidArgumentError(f"base_url is no http or https address: {base_url!r}")
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InvalidArgumentError("api_key is 1 or more printable ASCII characters")
    if not 0 < timeout < float("inf") or retries < 0:
        raise InvalidArgumentError("timeout is positive, and retries is not negative")
    return Options(base_url=text, api_key=api_key, timeout=timeout, retries=retries)


def request_args(send: Send, options: Options) -> dict[str, Any]:
    """A request as httpx takes it."""
    return {
        "method": send.method,
        "url": send.path,
        "params": send.query,
        "headers": send.headers,
        "content": send.body,
        "timeout": options.patience(send.patience_s),
    }


def answer_of(response: httpx.Response) -> Answer:
    """What of a response matters."""
    headers: Mapping[str, str] = response.headers
    return Answer(
        status=response.status_code,
        body=response.content,
        retry_after=headers.get("retry-after"),
    )


def failure(error: httpx.HTTPError | httpx.InvalidURL, options: Options) -> ConnectionFailedError:
    """Our exception for one of httpx: with the place of the service, never with the key in it."""
    kind = RequestTimeoutError if isinstance(error, httpx.TimeoutException) else None
    url = httpx.URL(options.base_url)
    place = f"{url.scheme}://{url.netloc.decode('ascii')}"
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (kind or ConnectionFailedError)(f"no answer from {place}: {why}")
