"""What the layers of a group ask of what is below them. Every call returns at once; none calls back before it does."""

from __future__ import annotations

from typing import Protocol

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId, PhysicalAddress


class NetworkPort(Protocol):
    """The driver: connections by physical address, made when they are needed."""

    def send(self, to: PhysicalAddress, frame: bytes) -> None:
        """Send, in order over one connection while there is one. A frame may be lost; if its connection could not be
        made or has ended, that is told (`connection_lost`)."""

    def backlog(self, to: PhysicalAddress, member: MemberId) -> int:
        """Bytes that were sent to the member at that address, and that wait for the network to take them."""

    def multicast(self, frame: bytes) -> None:
        """Send by UDP multicast, where that is the way members are discovered."""

    def resolve(self, host: str) -> None:
        """Look a DNS name up; the answer comes as an event, with what addresses there are, or none."""

    def ask_gossip_routers(self) -> None:
        """Ask every gossip router for the members of the group; what they know comes as an event."""

    def drop(self, to: PhysicalAddress, member: MemberId) -> None:
        """Close the connection to that address if it is with that member, who is gone; another may be there now."""


class MemberPort(Protocol):
    """What membership, streams and unicast send through: members, by their identity."""

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        """To one member. May be lost, or wait for its physical address to be found."""

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        """To every other member of the view; the same bytes to all."""
