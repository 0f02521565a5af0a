"""Discovery where members cannot reach each other: by gossip routers, and everything goes through those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus_router.groups.discovery.gossip import Gossip
from isthmus_router.groups.identity import MemberInfo, PhysicalAddress, tunnel_address


class Tunnel(Gossip):
    """Members are asked through the routers, whatever addresses they have registered."""

    def on_gossip_members(self, infos: Sequence[MemberInfo]) -> Iterable[PhysicalAddress]:
        """Their ids are their addresses."""
        return (tunnel_address(info.id) for info in self._rotated(infos))
