"""Which of a member's physical addresses is used: a strategy, picked by its name.

The choice is kept until that address fails or the member has others, so that frames to a member keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Protocol

from isthmus_router.groups.identity import PhysicalAddress


class Chooser(Protocol):
    """Picks one of some addresses; never called with none."""

    def choose(self, addresses: Sequence[PhysicalAddress]) -> PhysicalAddress:
        """The one to use."""


class First:
    """As announced: the best first."""

    def choose(self, addresses: Sequence[PhysicalAddress]) -> PhysicalAddress:
        """The first."""
        return addresses[0]


class Rotate:
    """Another one for each choice: the load is spread over members' interfaces."""

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, addresses: Sequence[PhysicalAddress]) -> PhysicalAddress:
        """The next in turn."""
        self._turn += 1
        return addresses[self._turn % len(addresses)]


class SameNetwork:
    """One in a subnet that this member is in itself, if there is one."""

    def __init__(self, networks: Sequence[str]) -> None:
        """`networks`: CIDR. Raises ValueError."""
        self._networks = [ip_network(network, strict=False) for network in networks]

    def choose(self, addresses: Sequence[PhysicalAddress]) -> PhysicalAddress:
        """The first of the own subnets, else the first."""
        return next((address for address in addresses if self._is_near(address)), addresses[0])

    def _is_near(self, address: PhysicalAddress) -> bool:
        try:
            host = ip_address(address.host)
        except ValueError:
            return False
        return any(host in network for network in self._networks)


def make_chooser(name: str, networks: Sequence[str]) -> Chooser:
    """The strategy of that name. Raises ValueError."""
    match name:
        case "first":
            return First()
        case "rotate":
            return Rotate()
        case "same-network":
            return SameNetwork(networks)
    raise ValueError(f"no such choice of addresses: {name}")
