"""What the driver tells of what happens: a member's stack of protocols, without I/O of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress


class Stack(Protocol):
    """One member. `now` is monotonic, in seconds; all calls are made by the event loop's thread.

    A call may raise FrameError for what a peer has sent; that is counted, and logged once per second at most.
    """

    @property
    def deadline(self) -> float:
        """When `on_time` is to be called; `math.inf`: not before something else happens."""

    def on_time(self, now: float) -> None:
        """`deadline` is over."""

    def flush(self, now: float) -> None:
        """The turn ends: send what has been collected in it."""

    def on_frame(self, now: float, source: PhysicalAddress | None, frame: bytes) -> None:
        """A frame. `source`: where the member is reached that it came from directly; None if by multicast."""

    def knows(self, member: MemberId) -> bool:
        """Whether it is in the view, was in it not long ago, or is about to be. Others have few frames to send."""

    def heard(self, now: float, member: MemberId) -> None:
        """Part of a frame of a member has come: it is there, though its frame takes long."""

    def connection_lost(self, now: float, address: PhysicalAddress, refused: bool) -> None:
        """The connection to that address has ended, or could not be made; frames sent there may be lost.

        `refused`: nobody listens there.
        """

    def on_resolved(self, now: float, host: str, addresses: Sequence[str]) -> None:
        """The IP addresses of a DNS name that was asked for; none if it has none or there was no answer."""

    def on_gossip_members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """Whom a gossip router knows."""

    def on_gossip_suspect(self, now: float, member: MemberId) -> None:
        """Every gossip router that had the member has lost it."""

    def bridge_opened(self, now: float, session: int, names: tuple[str, ...]) -> None:
        """A bridge session is there; the names are those of the peer's certificate, none without TLS."""

    def bridge_frame(self, now: float, session: int, frame: bytes) -> None:
        """A frame of a bridge session."""

    def bridge_heard(self, now: float, session: int) -> None:
        """Part of a frame of a bridge session has come."""

    def bridge_closed(self, now: float, session: int, reason: str) -> None:
        """A bridge session has ended, or could not be made."""

    def bridge_renewed(self, now: float, sessions: Sequence[int]) -> None:
        """There are new credentials; these sessions, which this member has dialled, were made with older ones. They
        go on until they are closed, so that others can be opened before."""
