"""Discovery by DNS: a headless Service has an address record for each of its pods.

The Service should publish addresses that are not ready: members find each other before they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.groups.port import NetworkPort


class Dns(DiscoveryKind):
    """All members listen at one port."""

    def __init__(self, service: str, members_port: int, port: NetworkPort) -> None:
        self._service = service
        self._members_port = members_port
        self._port = port

    def ask(self, frame: bytes) -> Iterable[PhysicalAddress]:
        """Nobody, before the name is looked up."""
        self._port.resolve(self._service)
        return ()

    def on_resolved(self, host: str, addresses: Sequence[str]) -> Iterable[PhysicalAddress]:
        """Every pod."""
        if host == self._service:
            yield from (PhysicalAddress(address, self._members_port) for address in addresses)
