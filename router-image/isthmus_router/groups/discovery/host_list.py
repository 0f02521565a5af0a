"""Discovery by a list of hosts that are configured, and of members that were met since.

Names in the list are looked up each time: a member that moves keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.groups.port import NetworkPort

MOST_LEARNED = 2_000


class Host(NamedTuple):
    """Where members may be: `ports` of them from the first on."""

    host: str
    """IP address or DNS name."""
    port: int
    ports: int = 1

    def addresses(self, host: str) -> Iterator[PhysicalAddress]:
        """Every port, at that IP address."""
        return (PhysicalAddress(host, self.port + step) for step in range(self.ports))


class HostList(DiscoveryKind):
    """Asks all of them."""

    def __init__(self, hosts: Sequence[Host], port: NetworkPort) -> None:
        self._hosts = tuple(hosts)
        self._port = port
        self._learned: dict[PhysicalAddress, None] = {}

    def ask(self, frame: bytes) -> Iterable[PhysicalAddress]:
        """IP addresses of the list, and members met."""
        for name in dict.fromkeys(each.host for each in self._hosts if not is_ip(each.host)):
            self._port.resolve(name)
        yield from (
            address for each in self._hosts if is_ip(each.host) for address in each.addresses(each.host)
        )
        yield from self._learned

    def on_resolved(self, host: str, addresses: Sequence[str]) -> Iterable[PhysicalAddress]:
        """What names of the list stand for."""
        for each in self._hosts:
            if each.host == host:
                for address in addresses:
                    yield from each.addresses(address)

    def learned(self, address: PhysicalAddress) -> None:
        """Asked from now on; beyond the limit, who was met longest ago is not."""
        self._learned.pop(address, None)
        if len(self._learned) >= MOST_LEARNED:
            del self._learned[next(iter(self._learned))]
        self._learned[address] = None


def is_ip(host: str) -> bool:
    """Whether it is an IP address rather than a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
