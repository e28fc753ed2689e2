"""The one parser of webhook URLs: it accepts one spelling of everything and refuses the rest.

Two parsers that read a URL differently are how a checked host and a dialled host come apart, so
what this one returns is what is dialled, and nothing downstream parses the text again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Literal, TypeAlias, cast

from signoff.domain.error import InvalidError
from webhooks.address import Address

Scheme: TypeAlias = Literal["http", "https"]

MAX_URL = 2048
_MAX_NAME = 253
_MAX_PORT = 65535

# RFC 3986's characters and nothing else: no space, no control, no backslash, no non-ASCII digit
# or dot that a lower layer would fold into an ASCII one.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")
_ESCAPES = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
_SPLIT = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(.*))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
# What resolvers and browsers read as a number: the last label decides.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

_WHY = {
    "not_text": "the URL is not text",
    "too_long": f"the URL is longer than {MAX_URL} characters",
    "character": "the URL contains a character that must be percent-encoded or is not ASCII",
    "escape": "the URL contains a % without two hexadecimal digits",
    "scheme": "the URL must begin with https:// (or http:// for networks the operator allows)",
    "fragment": "the URL has a fragment, which is never sent",
    "userinfo": "the URL contains a user name or password",
    "host": "the host is not a valid lower-case DNS name or IP address",
    "ip_spelling": "the host is a number that is not a plain dotted IPv4 address",
    "port": "the port is not a plain number from 1 to 65535",
    "local_name": "the host name is only known inside a network",
    "blocked_address": "the host is an address that may not be called",
    "https_required": "only https URLs are accepted here",
}


class UrlRefusedError(InvalidError):
    """The URL may not be a webhook endpoint; ``reason`` is a stable word."""

    code = "invalid_url"

    def __init__(self, reason: str, *, detail: str | None = None) -> None:
        details = {"reason": reason} if detail is None else {"reason": reason, "detail": detail}
        super().__init__(_WHY[reason], field="url", details=details)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a request goes, in the one spelling that is checked, dialled and sent as Host."""

    scheme: Scheme
    host: str
    port: int
    path_qs: str
    literal: Address | None

    @property
    def url(self) -> str:
        """The same target as text; default ports are left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = self.port == _default_port(self.scheme)
        return f"{self.scheme}://{host}{'' if default else f':{self.port}'}{self.path_qs}"


def parse(url: str) -> Target:
    """Return the parts of ``url``, or raise ``UrlRefusedError``; says nothing about permission."""
    scheme, authority, rest = _split(url)
    if "@" in authority:
        raise UrlRefusedError("userinfo")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise UrlRefusedError("port" if authority.count(":") > 1 else "host")
    literal, host = _host(parts[1].lower())
    port = _default_port(scheme) if parts[2] is None else _port(parts[2])
    path_qs = rest if rest.startswith("/") else f"/{rest}"
    return Target(scheme=scheme, host=host, port=port, path_qs=path_qs, literal=literal)


def _split(url: str) -> tuple[Scheme, str, str]:
    if not isinstance(url, str):
        raise UrlRefusedError("not_text")
    if len(url) > MAX_URL:
        raise UrlRefusedError("too_long")
    if _CHARACTERS.fullmatch(url) is None:
        raise UrlRefusedError("character")
    if _ESCAPES.fullmatch(url) is None:
        raise UrlRefusedError("escape")
    parts = _SPLIT.match(url)
    if parts is None:
        raise UrlRefusedError("scheme")
    if parts.end() != len(url):
        raise UrlRefusedError("fragment")
    return cast("Scheme", parts[1].lower()), parts[2], parts[3]


def _host(host: str) -> tuple[Address | None, str]:
    if host.startswith("["):
        address = _v6(host[1:-1])
        return address, str(address)
    if _NUMBER.fullmatch(host.rsplit(".", 1)[-1]):
        literal = _v4(host)
        return literal, str(literal)
    if len(host) > _MAX_NAME or not all(map(_is_label, host.split("."))):
        raise UrlRefusedError("host")
    return None, host


def _v6(text: str) -> IPv6Address:
    if "%" in text:
        raise UrlRefusedError("host", detail="zone")
    try:
        return IPv6Address(text)
    except AddressValueError:
        raise UrlRefusedError("host") from None


def _v4(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)  # exactly four decimal parts, no leading zeros
    except AddressValueError:
        raise UrlRefusedError("ip_spelling") from None


def _is_label(label: str) -> bool:
    if _LABEL.fullmatch(label) is None:
        return False
    return not label.startswith("xn--") or _is_punycode(label[4:])


def _is_punycode(text: str) -> bool:
    try:
        return not text.encode("ascii").decode("punycode").isascii()
    except UnicodeError:
        return False


def _port(text: str) -> int:
    if _PORT.fullmatch(text) is None or int(text) > _MAX_PORT:
        raise UrlRefusedError("port")
    return int(text)


def _default_port(scheme: Scheme) -> int:
    return 443 if scheme == "https" else 80
