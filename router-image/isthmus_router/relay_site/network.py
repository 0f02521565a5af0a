"""Bridge sessions over the network of routers: where they come in at this router, and how they go out."""

from __future__ import annotations

from random import SystemRandom
from typing import TYPE_CHECKING

from isthmus_router.core.address import InProcessConsumer
from isthmus_router.core.model import Link
from isthmus_router.relay.over_network import INBOX, NetworkBridge, NetworkBridgeEvents

if TYPE_CHECKING:
    from isthmus_router.process import RouterProcess


class RelayNetwork:
    """Of one member; implements NetworkPort."""

    def __init__(self, process: RouterProcess, events: NetworkBridgeEvents) -> None:
        self._core = process.core
        self._loop = process.loop
        self.bridge = NetworkBridge(process.core.id, self, events, SystemRandom())
        self._refused = 0
        """Messages of clients and edges: what another site sends comes from another router."""
        self._consumer = InProcessConsumer(self._take, for_all=True)
        self._addresses: set[str] = set()

    def open(self) -> None:
        """Answers to what is sent from here arrive from now on."""
        self._core.register(INBOX, self._consumer)

    def listen(self, addresses: set[str]) -> None:
        """Other sites reach this member at these addresses, and no others, from now on."""
        for address in self._addresses - addresses:
            self._core.unregister(address)
        for address in addresses - self._addresses:
            self._core.register(address, self._consumer, mobile=True)
        self._addresses = addresses

    def statistics(self) -> dict[str, int]:
        """Counts since the start, as those of the driver."""
        return {
            "network_refused": self._refused,
            "network_malformed": self.bridge.malformed,
            "network_dropped": self.bridge.dropped,
        }

    def close(self) -> None:
        """Nothing arrives any more."""
        self.listen(set())
        self._core.unregister(INBOX)

    def _take(self, message: bytes, link: Link | None) -> None:
        if link is None or link.connection.role.is_between_interiors:
            self.bridge.on_message(message)
        else:
            self._refused += 1

    def send(self, to: str, message: bytes) -> bool:
        """Implements NetworkPort."""
        return self._core.originate(to, message)

    def wake(self) -> None:
        """Implements NetworkPort."""
        self._loop.call_soon(self.bridge.tell)
