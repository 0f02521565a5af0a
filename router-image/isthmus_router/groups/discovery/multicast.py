"""Discovery by UDP multicast: one datagram asks everybody on the network; answers come by TCP."""

from __future__ import annotations

from collections.abc import Iterable

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import PhysicalAddress
from isthmus_router.groups.port import NetworkPort


class Multicast(DiscoveryKind):
    """On the interfaces and to the group that the driver has been told."""

    def __init__(self, port: NetworkPort) -> None:
        self._port = port

    def ask(self, frame: bytes) -> Iterable[PhysicalAddress]:
        """Everybody who listens."""
        self._port.multicast(frame)
        return ()
