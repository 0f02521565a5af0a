"""Messages to one member of another site: member, own relay, relay of the other site, member.

A frame on the way may be lost with whoever has it: who sent it sends it again (`groups.unicast`). It crosses the bridge
once at most, and a member that is wrongly taken for a relay passes it on to who is.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus_router.groups.frames import HEADER_BYTES, Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View
from isthmus_router.relay.messages import BridgeKind, Unicast, pack_unicast, unpack_unicast
from isthmus_router.relay.port import BridgePort, RelayUser
from isthmus_router.relay.roles import relay_for

MOST_HOPS = 3
CROSSED = 0x80
"""In `hops`: it comes from another site."""
MOST_BACKLOG = 8 << 20
"""Bytes that wait at a session, beyond which nothing is put behind them."""


class Forwarding:
    """At every member."""

    def __init__(
        self,
        own: MemberId,
        port: MemberPort,
        bridge: BridgePort,
        user: RelayUser,
        session_to: Callable[[MemberId], int | None],
    ) -> None:
        """`session_to`: the session with the site that a member is in."""
        self._id = own
        self._port = port
        self._bridge = bridge
        self._user = user
        self._session_to = session_to
        self._view: View | None = None
        self._relays: tuple[MemberId, ...] = ()
        self.dropped = 0

    def view_installed(self, view: View, relays: tuple[MemberId, ...]) -> None:
        """Of the own site."""
        self._view, self._relays = view, relays

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        """From this member to one of another site."""
        self._outwards(now, Unicast(kind, 0, self._id, to, body))

    def on_frame(self, now: float, frame: bytes) -> None:
        """FORWARD, of a member of this site. Raises FrameError."""
        unicast = unpack_unicast(frame[HEADER_BYTES:])
        if self._inwards(now, unicast):
            return
        if unicast.hops & CROSSED:
            self.dropped += 1
        else:
            self._outwards(now, unicast)

    def on_bridge(self, now: float, session: int, kind: BridgeKind, frame: bytes) -> None:
        """UNICAST or UNICAST_LOST of another site. Raises FrameError."""
        unicast = unpack_unicast(frame[1:])
        if self._inwards(now, unicast._replace(hops=CROSSED)):
            return
        self.dropped += 1
        if kind is BridgeKind.UNICAST and unicast.kind is Kind.UNICAST:
            lost = Unicast(Kind.UNICAST_LOST, 0, unicast.destination, unicast.source, b"")
            self._bridge.send(session, bytes((BridgeKind.UNICAST_LOST,)) + pack_unicast(lost))

    def _inwards(self, now: float, unicast: Unicast) -> bool:
        """To a member of this site; False: it is not in this one."""
        if unicast.destination == self._id:
            self._user.forwarded(now, unicast.kind, unicast.source, unicast.body)
        elif self._view is not None and unicast.destination in self._view:
            self._port.send(now, unicast.destination, Kind.FORWARD, pack_unicast(unicast))
        else:
            return False
        return True

    def _outwards(self, now: float, unicast: Unicast) -> None:
        if self._id in self._relays:
            session = self._session_to(unicast.destination)
            if session is not None and self._bridge.backlog(session) <= MOST_BACKLOG:
                self._bridge.send(session, bytes((BridgeKind.UNICAST,)) + pack_unicast(unicast))
                return
        elif self._relays and unicast.hops < MOST_HOPS:
            onward = unicast._replace(hops=unicast.hops + 1)
            relay = relay_for(unicast.source, self._relays)
            self._port.send(now, relay, Kind.FORWARD, pack_unicast(onward))
            return
        self.dropped += 1
