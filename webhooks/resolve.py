"""The addresses behind a name, judged as a whole: what any connection to a stranger begins with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from webhooks.address import Address
from webhooks.guard import LOCALHOST, Policy, check_addresses
from webhooks.url import Scheme

Lookup: TypeAlias = Callable[[str], Awaitable[list[Address]]]

# Per family. More answers than this add connects, not availability.
_DIALLED_ANSWERS = 2
_LOCALHOST: tuple[Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


async def resolve(host: str, *, lookup: Lookup, policy: Policy, scheme: Scheme) -> list[Address]:
    """The few addresses of ``host`` to dial, if every one that it has may be dialled.

    Raises ``AddressRefusedError`` for a forbidden answer, ``OSError`` for none.
    """
    if host == LOCALHOST:
        # By definition loopback; asking would let a resolver say otherwise.
        addresses = [address for address in _LOCALHOST if policy.allows(address)]
    else:
        addresses = await lookup(host)
    check_addresses(addresses, policy, scheme=scheme)
    if not addresses:
        raise OSError("the name has no address")
    return _few(addresses)


def _few(addresses: Iterable[Address]) -> list[Address]:
    distinct = list(dict.fromkeys(addresses))
    return [
        address
        for version in (6, 4)
        for address in [each for each in distinct if each.version == version][:_DIALLED_ANSWERS]
    ]
