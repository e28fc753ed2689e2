"""Which URLs may be registered and which addresses may be dialled.

Two checks, both needed. ``check_url`` runs when an endpoint is written and again before each
attempt; it settles what can be known without DNS. ``check_address`` runs on the very address that
is about to be dialled, so a name that resolves to something else later changes nothing.

The rule: https to public addresses. A network on the operator's allow list may be called as well,
also with plain http. The list names addresses literally: an IPv6 address that wraps an allowed
IPv4 one is not on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network

from signoff.domain.error import SettingsError, SignoffError
from webhooks.address import Address, Network, blocked_as
from webhooks.url import Scheme, Target, UrlRefusedError, parse

__all__ = ["AddressRefusedError", "Policy", "Target", "UrlRefusedError", "check_address"]
__all__ += ["check_addresses", "check_url"]

SETTING = "SIGNOFF_WEBHOOK_ALLOW"
LOCALHOST = "localhost"
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
# Suffixes that public DNS never answers for; what answers is the network we stand in.
_LOCAL_SUFFIXES = (
    ".localhost",
    ".local",
    ".localdomain",
    ".internal",
    ".intranet",
    ".corp",
    ".lan",
    ".home",
    ".home.arpa",
    ".svc",
)


class AddressRefusedError(SignoffError):
    """The address may not be dialled; ``reason`` is a stable word.

    Receivers' owners get the code only: the reason and the address would map our network.
    """

    code = "blocked_address"

    def __init__(self, reason: str) -> None:
        super().__init__("the address may not be called")
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The networks that the operator allows in addition to the public internet."""

    allow: tuple[Network, ...] = ()

    @classmethod
    def load(cls, raw: str | None, *, dev: bool = False) -> Policy:
        """Read ``SIGNOFF_WEBHOOK_ALLOW``: None is loopback in dev, else nothing; empty is nothing.

        Raises ``SettingsError`` that quotes the item which is not a CIDR.
        """
        if raw is None:
            return cls(allow=_LOOPBACK if dev else ())
        items = (item.strip() for item in raw.split(","))
        return cls(allow=tuple(_network(item) for item in items if item))

    def allows(self, address: Address) -> bool:
        """Whether an allowed network contains the address, families compared literally."""
        return any(address.version == net.version and address in net for net in self.allow)

    @property
    def allows_loopback(self) -> bool:
        """Whether ``localhost`` is a name that may be registered."""
        return any(
            net.version == own.version and net.overlaps(own)
            for net in self.allow
            for own in _LOOPBACK
        )

    @property
    def allows_inside(self) -> bool:
        """Whether a network other than loopback is allowed, so that local names have a use."""
        return any(not net.is_loopback for net in self.allow)


def check_url(url: str, policy: Policy) -> Target:
    """Return where ``url`` points if it may be an endpoint, else raise ``UrlRefusedError``.

    For a name this is not the last word: its addresses are checked when they are dialled.
    """
    target = parse(url)
    if target.literal is not None:
        _check_literal(target.literal, target.scheme, policy)
        return target
    if not _is_name_allowed(target.host, policy):
        raise UrlRefusedError("local_name")
    if target.scheme == "http" and not policy.allow:
        raise UrlRefusedError("https_required")
    return target


def check_address(address: Address, policy: Policy, *, scheme: Scheme) -> None:
    """Return if the address may be dialled for ``scheme``, else raise ``AddressRefusedError``."""
    if policy.allows(address):
        return
    reason = blocked_as(address)
    if reason is not None:
        raise AddressRefusedError(reason)
    if scheme != "https":
        raise AddressRefusedError("https_required")


def check_addresses(addresses: Iterable[Address], policy: Policy, *, scheme: Scheme) -> None:
    """Raise if any answer of one DNS lookup is refused.

    A name with one inside and one outside address is misconfigured or an attack; picking the good
    one would make the outcome depend on the order of the answers.
    """
    for address in addresses:
        check_address(address, policy, scheme=scheme)


def _check_literal(address: Address, scheme: Scheme, policy: Policy) -> None:
    try:
        check_address(address, policy, scheme=scheme)
    except AddressRefusedError as refused:
        if refused.reason == "https_required":
            raise UrlRefusedError("https_required") from None
        raise UrlRefusedError("blocked_address", detail=refused.reason) from None


def _is_name_allowed(host: str, policy: Policy) -> bool:
    if host == LOCALHOST:
        return policy.allows_loopback
    if "." in host and not host.endswith(_LOCAL_SUFFIXES):
        return True
    # Containers and clusters use such names; the dial still needs an allowed address.
    return policy.allows_inside and not host.endswith(f".{LOCALHOST}")


def _network(item: str) -> Network:
    try:
        if "%" not in item:
            return ip_network(item)
    except ValueError:
        pass
    message = f"{item!r} is not a network such as 10.1.0.0/16 or fd00:1::/48"
    raise SettingsError(message, field=SETTING)
