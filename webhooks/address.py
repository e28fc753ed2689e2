"""The table of addresses that are not the public internet, and why each is not.

Written out instead of asking ``ipaddress.is_global``: that answers True for loopback inside NAT64
and IPv4-compatible forms, for site-local and for multicast, and differs between Python versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_V4: Mapping[str, Iterable[str]] = {
    "this_network": ["0.0.0.0/8"],  # Linux connects 0.0.0.0 to loopback
    "private": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"],
    "shared": ["100.64.0.0/10"],  # carrier NAT; also one cloud's metadata, 100.100.100.200
    "loopback": ["127.0.0.0/8"],
    "link_local": ["169.254.0.0/16"],  # most clouds' metadata
    "protocol": ["192.0.0.0/24"],  # also one cloud's metadata, 192.0.0.192
    "documentation": ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"],
    "transition": ["192.88.99.0/24"],  # 6to4 relays, withdrawn
    "benchmark": ["198.18.0.0/15"],
    "platform": ["168.63.129.16/32"],  # public by number, the host agent inside one cloud
    "multicast": ["224.0.0.0/4"],
    "reserved": ["240.0.0.0/4"],  # broadcast included
}

# Only 2000::/3 is handed out as unicast, so everything outside is refused without being listed;
# the names below only make the refusal say more. The first hit wins.
_V6: Mapping[str, Iterable[str]] = {
    "unspecified": ["::/128"],
    "loopback": ["::1/128"],
    "embedded": [
        "::/96",  # IPv4-compatible
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b:1::/48",  # NAT64 for local use; where the IPv4 address sits is the site's choice
        "2002::/16",  # 6to4
        "2001::/32",  # Teredo
    ],
    "private": ["fc00::/7", "fec0::/10"],  # also metadata, fd00:ec2::254
    "link_local": ["fe80::/10"],
    "multicast": ["ff00::/8"],
    "discard": ["100::/64"],
    "protocol": ["2001::/23"],
    "documentation": ["2001:db8::/32", "3fff::/20"],
    "segment_routing": ["5f00::/16"],
}

_V4_TABLE = tuple((IPv4Network(text), name) for name, texts in _V4.items() for text in texts)
_V6_TABLE = tuple((IPv6Network(text), name) for name, texts in _V6.items() for text in texts)
_UNICAST = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
# Interface identifiers 0000:5efe:a.b.c.d and 0200:5efe:a.b.c.d, under any prefix.
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})


def blocked_as(address: Address) -> str | None:
    """Return why ``address`` is not public, as a stable word, or None if it is public.

    An IPv6 address that carries an IPv4 address is never more public than what it carries.
    """
    if isinstance(address, IPv4Address):
        return next((name for network, name in _V4_TABLE if address in network), None)
    if address in _MAPPED or address in _NAT64:
        return blocked_as(_low_v4(address))
    named = next((name for network, name in _V6_TABLE if address in network), None)
    if named is None and address not in _UNICAST:
        return "reserved"
    if named is None and int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
        return blocked_as(_low_v4(address))
    return named


def _low_v4(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
