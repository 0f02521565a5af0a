"""Which IP addresses count as one host."""

from __future__ import annotations

import ipaddress

IPV6_PREFIX = 64
"""A host has the addresses of such a network to itself, as a rule."""


def address_of(peer: str) -> str:
    """The address in the name of a socket, `<address>:<port>`, where one of IPv6 is in brackets."""
    return peer.rpartition(":")[0].strip("[]")


def network_of(address: str) -> str:
    """What the IP addresses of one host have in common: the address, or the IPv6 network.

    A socket for both versions has IPv4 addresses as addresses of IPv6, all of them in one network.
    """
    if ":" not in address:
        return address
    network = ipaddress.IPv6Network((address.partition("%")[0], IPV6_PREFIX), strict=False)
    mapped = ipaddress.IPv6Address(address.partition("%")[0]).ipv4_mapped
    return str(network if mapped is None else mapped)
