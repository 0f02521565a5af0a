"""The hosts that users may connect from: `remoteHosts` of a user group."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Range = tuple[Address, Address]

ANYWHERE = "*"
_LOCALHOST = ("127.0.0.1", "::1")


def host_ranges(text: str) -> list[Range]:
    """First and last address of what one entry stands for: an address, a range `a-b`, a network in CIDR notation,
    or `localhost`.

    Raises ValueError, which says what would be right.
    """
    if text == "localhost":
        return [(address, address) for address in map(ipaddress.ip_address, _LOCALHOST)]
    first, dash, last = (part.strip() for part in text.partition("-"))
    try:
        if not dash:
            network = ipaddress.ip_network(text, strict=False)
            return [(network[0], network[-1])]
        low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a host: give '*', an IP address, a range 'first-last', a network like "
            "10.0.0.0/8, or 'localhost'; other names are not looked up"
        ) from None
    if low.version != high.version:
        raise ValueError(f"{text!r} mixes IPv4 and IPv6")
    if int(low) > int(high):
        raise ValueError(f"{text!r} has the greater address first")
    return [(low, high)]


class RemoteHosts:
    """Hosts, by what the entries of one group say."""

    def __init__(self, entries: Iterable[str]) -> None:
        entries = [entry for entry in entries if entry]
        self._anywhere = ANYWHERE in entries
        self._ranges = [found for entry in entries if entry != ANYWHERE for found in host_ranges(entry)]

    def __contains__(self, host: str) -> bool:
        """Whether `host`, an IP address as the socket tells it, is one of them."""
        if self._anywhere:
            return True
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(
            low.version == address.version and int(low) <= int(address) <= int(high)
            for low, high in self._ranges
        )
