"""Messages to one member of another site: member, own relay, relay of the other site, member.

A frame on the way may be lost: its source sends it again (`groups.unicast`). It crosses the bridge once at most. In the
site of its source, the source itself sends it to the relay. In the other site, the relay sends it to its destination. A
member that is wrongly taken for a relay drops it. So nobody speaks for another member of its own site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf

from isthmus_router.groups.frames import HEADER_BYTES, FrameError, Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View
from isthmus_router.relay.messages import BridgeKind, Unicast, pack_unicast, unpack_unicast
from isthmus_router.relay.port import BridgePort, RelayUser
from isthmus_router.relay.roles import relay_for

CROSSED = 0x80
"""In `hops`: it comes from another site."""
MOST_BACKLOG = 8 << 20
"""Bytes that wait at a session, beyond which nothing is put behind them."""
LITTLE_BACKLOG = 256 << 10
FRAME_BYTES = 64
"""What a frame adds to its body, about."""
MOST_OF_SITE = 1 << 20
"""Bytes that a site may add to what waits for a member in `SHARE_SECONDS`, unless less than `LITTLE_BACKLOG` waits."""
SHARE_SECONDS = 1.0


class Forwarding:
    """At every member."""

    def __init__(
        self,
        own: MemberId,
        port: MemberPort,
        bridge: BridgePort,
        user: RelayUser,
        session_to: Callable[[MemberId], int | None],
        site_of: Callable[[MemberId], str | None],
    ) -> None:
        """`session_to`: the session with the site that a member is in; `site_of`: that site."""
        self._site_of = site_of
        self._id = own
        self._port = port
        self._bridge = bridge
        self._user = user
        self._session_to = session_to
        self._view: View | None = None
        self._relays: tuple[MemberId, ...] = ()
        self._oldest: tuple[MemberId, ...] = ()
        self._added: dict[MemberId, tuple[float, Counter[str]]] = {}
        """Bytes from each site since that time, for members of this one for whom much waits."""
        self.dropped = 0

    def view_installed(self, view: View, relays: tuple[MemberId, ...], oldest: tuple[MemberId, ...]) -> None:
        """Of the own site. `oldest`: its relays, also if the site has yet to begin."""
        self._view, self._relays, self._oldest = view, relays, oldest
        self._added = {member: added for member, added in self._added.items() if member in view}

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        """From this member to one of another site."""
        self._outwards(now, Unicast(kind, 0, self._id, to, body))

    def on_frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        """FORWARD, of a member of this site. Raises FrameError."""
        unicast = unpack_unicast(frame[HEADER_BYTES:])
        if not unicast.hops & CROSSED:
            if unicast.source != sender or unicast.kind is Kind.UNICAST_LOST:
                raise FrameError("FORWARD in the name of another member")
            if self._is_here(unicast.destination):
                raise FrameError("FORWARD between members of one site")
            if self._id in self._relays:
                self._outwards(now, unicast)
            else:
                self.dropped += 1
        elif self._is_here(unicast.source):
            raise FrameError("FORWARD from another site in the name of a member of this one")
        elif sender in self._oldest and unicast.destination == self._id:
            self._user.forwarded(now, unicast.kind, unicast.source, unicast.body)
        else:
            self.dropped += 1  # or the sender has another view

    def _is_here(self, member: MemberId) -> bool:
        return member == self._id or (self._view is not None and member in self._view)

    def on_bridge(self, now: float, session: int, site: str, kind: BridgeKind, frame: bytes) -> None:
        """UNICAST or UNICAST_LOST of another site, which speaks for its own members only. Raises FrameError."""
        unicast = unpack_unicast(frame[1:])
        lost = unicast.kind is Kind.UNICAST_LOST
        # A member that is not there any more is known to be in no site.
        of = self._site_of(unicast.source) or (site if lost else None)
        if of != site or self._is_here(unicast.source) or lost is not (kind is BridgeKind.UNICAST_LOST):
            self.dropped += 1
            return
        if self._inwards(now, site, unicast._replace(hops=CROSSED)):
            return
        self.dropped += 1
        if kind is BridgeKind.UNICAST and unicast.kind is Kind.UNICAST:
            answer = Unicast(Kind.UNICAST_LOST, 0, unicast.destination, unicast.source, b"")
            self._bridge.send(session, bytes((BridgeKind.UNICAST_LOST,)) + pack_unicast(answer))

    def _inwards(self, now: float, site: str, unicast: Unicast) -> bool:
        """From a site to a member of this one; False: it is not in this one."""
        if unicast.destination == self._id:
            self._user.forwarded(now, unicast.kind, unicast.source, unicast.body)
        elif self._view is None or unicast.destination not in self._view:
            return False
        elif self._may_add(now, site, unicast):
            self._port.send(now, unicast.destination, Kind.FORWARD, pack_unicast(unicast))
        else:
            self.dropped += 1
        return True

    def _may_add(self, now: float, site: str, unicast: Unicast) -> bool:
        """Whether a site may have one more frame wait for a member, as others need room too."""
        member = unicast.destination
        since, added = self._added.get(member, (-inf, Counter()))
        if now >= since + SHARE_SECONDS or self._user.backlog(member) < LITTLE_BACKLOG:
            added = Counter()
            self._added[member] = now, added
        if added[site] >= MOST_OF_SITE:
            return False
        added[site] += len(unicast.body) + FRAME_BYTES
        return True

    def _outwards(self, now: float, unicast: Unicast) -> None:
        if self._id in self._relays:
            session = self._session_to(unicast.destination)
            if session is not None and self._bridge.backlog(session) <= MOST_BACKLOG:
                self._bridge.send(session, bytes((BridgeKind.UNICAST,)) + pack_unicast(unicast))
                return
        elif self._relays:
            onward = unicast._replace(hops=unicast.hops + 1)
            relay = relay_for(unicast.source, self._relays)
            self._port.send(now, relay, Kind.FORWARD, pack_unicast(onward))
            return
        self.dropped += 1
