"""Which IP addresses a fetch may reach. Pure.

A name on the list may resolve to anything: its owner, or a resolver in between, decides. So the addresses are looked at
too, and the connection is made to the address that was looked at (a second look-up could give another one).
Sources: the IANA registries of special-purpose addresses (RFC 6890), and the metadata services of cloud providers.
"""

from __future__ import annotations

import ipaddress

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # metadata of Azure, a public address
        "169.254.0.0/16",  # link-local, with the metadata of most clouds
        "192.0.0.192/32",  # metadata of Oracle Cloud
        "192.88.99.0/24",  # relays into IPv6
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "::/128",
        "::ffff:0:0/96",  # these forms hold an IPv4 address: the check would have to be made on that
        "::/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/32",
        "2002::/16",
        "fd00:42::42/128",  # metadata of Scaleway
        "fd00:c1::a9fe:a9fe/128",  # metadata of Oracle Cloud
        "fd00:ec2::/32",  # metadata of Amazon
        "fd20:ce::254/128",  # metadata of Google Cloud
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
"""Also not for a host that the operator named. `::1` is an exception: the loopback address of a local registry."""
_LOOPBACK6 = ipaddress.IPv6Address("::1")
_GLOBAL_UNICAST6 = ipaddress.IPv6Network("2000::/3")


def is_allowed_address(text: str, *, may_be_internal: bool) -> bool:
    """Whether to connect to an address. `may_be_internal`: private, loopback and documentation addresses too.

    False for a text that is no address, or has a zone (`fe80::1%eth0`).
    """
    try:
        address: _Address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if "%" in text or (address != _LOOPBACK6 and any(address in network for network in _NEVER)):
        return False
    return may_be_internal or _is_public(address)


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST6:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
