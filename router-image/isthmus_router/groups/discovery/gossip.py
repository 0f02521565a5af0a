"""Discovery by gossip routers, where members register: those are asked for all, and then each member itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import MemberInfo, PhysicalAddress
from isthmus_router.groups.port import NetworkPort


class Gossip(DiscoveryKind):
    """Members are asked directly, at the addresses that they have registered."""

    def __init__(self, port: NetworkPort) -> None:
        self._port = port

    def ask(self, frame: bytes) -> Iterable[PhysicalAddress]:
        """Nobody, before a router answers."""
        self._port.ask_gossip_routers()
        return ()

    def on_gossip_members(self, infos: Sequence[MemberInfo]) -> Iterable[PhysicalAddress]:
        """Where they are."""
        return (address for info in infos for address in info.addresses)
