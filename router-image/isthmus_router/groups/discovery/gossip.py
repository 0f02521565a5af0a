"""Discovery by gossip routers, where members register: those are asked for all, and then each member itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import MOST_PHYSICAL_ADDRESSES, MemberInfo, PhysicalAddress
from isthmus_router.groups.port import NetworkPort

ROTATED_BY = 97
"""Members by which the beginning of an answer moves: fewer than a member connects to at a time."""


class Gossip(DiscoveryKind):
    """Members are asked directly, at the addresses that they have registered."""

    def __init__(self, port: NetworkPort) -> None:
        self._port = port
        self._answers = 0

    def ask(self, frame: bytes) -> Iterable[PhysicalAddress]:
        """Nobody, before a router answers."""
        self._port.ask_gossip_routers()
        return ()

    def on_gossip_members(self, infos: Sequence[MemberInfo]) -> Iterable[PhysicalAddress]:
        """Where they are: the first address of each member, then the second ones.

        Only so many are asked. Anyone may register members and addresses, so each answer begins elsewhere.
        """
        infos = self._rotated(infos)
        return (
            info.addresses[rank]
            for rank in range(MOST_PHYSICAL_ADDRESSES)
            for info in infos
            if rank < len(info.addresses)
        )

    def _rotated(self, infos: Sequence[MemberInfo]) -> Sequence[MemberInfo]:
        start = self._answers * ROTATED_BY % max(1, len(infos))
        self._answers += 1
        return (*infos[start:], *infos[:start])
