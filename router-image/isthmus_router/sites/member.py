"""One member of a relay site: the whole stack from physical addresses to other sites, without I/O.

What the driver is told by its sockets it tells the member (`transport.stack.Stack`); what senders want sent the member
is told by its face (`SitePort`). Between the two every frame belongs to one layer, by its kind:

```
 face (AMQP)   publish, send_to                      deliver, received, gap
 relay/        other sites: bridge sessions, site views, what is kept for them
 groups/       streams (to all), unicast (to one), membership (views)
               discovery, resolver (UUID -> physical address)
 transport/    connections
```
Source: the logical address design and the RELAY design (docs/relay.md).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import Batch, GroupMessage, decode_message, encode_message
from isthmus_router.groups.discovery.finder import Answer, Finder
from isthmus_router.groups.discovery.ways import Ways
from isthmus_router.groups.frames import (
    HEADER_BYTES,
    PROTOCOL_VERSION,
    FrameError,
    Kind,
    decode_header,
    encode_frame,
)
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, PhysicalAddress, short
from isthmus_router.groups.membership.membership import Membership
from isthmus_router.groups.names import Names
from isthmus_router.groups.port import NetworkPort
from isthmus_router.groups.resolver import Resolver
from isthmus_router.groups.streams.streams import Streams
from isthmus_router.groups.unicast import Unicasts
from isthmus_router.groups.views import View
from isthmus_router.relay.keeper import DROPPED_INTERVAL
from isthmus_router.relay.port import BridgePort
from isthmus_router.relay.relay import Relay
from isthmus_router.relay.sites import GlobalView, SiteState
from isthmus_router.sites.port import MOST_ANSWERS, SiteMember, SiteUser
from isthmus_router.sites.settings import MemberObserver, MemberSettings
from isthmus_router.sites.snapshot import MemberSnapshot

_DISCOVERY = frozenset((Kind.DISCOVER, Kind.FOUND))
_BY_MULTICAST = frozenset((Kind.DISCOVER, Kind.WHO_HAS))
"""All that is sent so; whoever is in the network can, under anybody's name, with TLS between members or without."""
_RESOLVER = frozenset((Kind.WHO_HAS, Kind.I_HAVE, Kind.INVALIDATE))
_RELAY = frozenset((Kind.SITES, Kind.SITE_ACKS, Kind.FORWARD, Kind.BEHIND))
_UNICAST = frozenset((Kind.UNICAST, Kind.UNICAST_ACK, Kind.UNICAST_LOST))
_STREAMS = frozenset(
    (Kind.BATCH, Kind.REPAIR, Kind.MISSING, Kind.POSITIONS, Kind.STABLE, Kind.START, Kind.GAP)
)


_OF_MEMBERS = _STREAMS | _UNICAST | _RELAY
"""Taken from members of the view only."""
MOST_REPAIR_BACKLOG = 1 << 20
"""Bytes that wait for a member, beyond which its requests for repair are not answered. It asks again, or others."""
_REFUSED_SECONDS = 10.0
"""Between two lines of the log about frames of members that may not send them."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """Token of one."""

    to: MemberId


class Member:
    """Events in (`Stack`, `SitePort`), calls of ports and of its user out."""

    def __init__(
        self,
        info: MemberInfo,
        settings: MemberSettings,
        network: NetworkPort,
        bridge: BridgePort,
        observer: MemberObserver,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        """`clock`: the time that events come with, for what is published between them."""
        self.id = info.id
        self.info = info
        self.settings = settings
        self.own = SiteMember(info.id, settings.group.site, info.name)
        self.user: SiteUser | None = None
        """Set before `start`."""
        self.misdirected = 0
        """Frames for who was at this physical address before."""
        self._refused_frames = 0
        self._refused_told = -_REFUSED_SECONDS
        self.view_changes = 0
        self._clock = clock
        self._observer = observer
        self._names = Names()
        self._network = network
        ways = Ways([make(network) for make in settings.discovery], network)
        self.resolver = Resolver(info, settings.group, network, ways, self, settings.resolver, self._names)
        self._finder = Finder(self.resolver, ways, self)
        self.membership = Membership(info, settings.membership, self, self, random)
        self.streams = Streams(info.id, settings.group.site, settings.streams, self, self, random)
        self.unicasts = Unicasts(info.id, settings.unicast, self, self)
        self.relay = Relay(info, settings.relay, self.streams, bridge, self, self, random)
        self._members: dict[MemberId, SiteMember] = {info.id: self.own}
        """Of all sites."""
        self._unprotected: deque[tuple[int, object]] = deque()
        """Tokens by the number of the batch that must be protected first."""
        self._refused: deque[object] = deque()
        """Tokens of messages to one member for which there was no room."""
        self.dropped = 0
        """Pre-settled messages to one member: there was no room, or it had gone before it had them."""
        self._dropped_told = 0
        self._tell_dropped_at = inf
        self._answers: Counter[MemberId] = Counter()
        """By the member that they wait for."""
        self._leaving = False

    # Stack: start, end and time

    def start(self, now: float) -> None:
        """Look for the group, or be its first member."""
        self.membership.join(now)

    def configure(self, now: float, settings: MemberSettings) -> None:
        """Other filters, sites, bounds and numbers of relays and copies hold from now on; the rest does not change."""
        self.settings = settings
        self.relay.configure(now, settings.relay)
        self.streams.configure(now, settings.streams)

    def readdressed(self, addresses: tuple[PhysicalAddress, ...]) -> None:
        """This member is reached elsewhere from now on."""
        self.info = self.info._replace(addresses=addresses)
        self.resolver.readdressed(addresses)
        self.membership.info = self.info

    def leave(self, now: float) -> None:
        """Go in good order: other sites are told, then the own one; `MemberObserver.left` follows."""
        if not self._leaving:
            self._leaving = True
            self._finder.leave()
            self.relay.leave(now)

    def close(self, now: float) -> None:
        """It has left, in good order or not: nobody knows whether what is under way gets there."""
        self._tell_refused()
        self.unicasts.close(now)
        self._tell_dropped()
        while self._unprotected:
            self.outcome(now, self._unprotected.popleft()[1], False, "")

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(
            self.resolver.deadline,
            self.membership.deadline,
            self.streams.deadline,
            self.unicasts.deadline,
            self.relay.deadline,
            self._tell_dropped_at,
        )

    def on_time(self, now: float) -> None:
        """Whatever is due."""
        for layer in (self.resolver, self.membership, self.streams, self.unicasts, self.relay):
            if layer.deadline <= now:
                layer.on_time(now)
        if now >= self._tell_dropped_at:
            self._tell_dropped()

    def flush(self, now: float) -> None:
        """The turn ends."""
        self.streams.flush(now)
        self.unicasts.flush(now)
        self._tell_refused()

    # Stack: from members of the own site

    def on_frame(self, now: float, source: PhysicalAddress | None, frame: bytes) -> None:
        """A frame of a member; without a source it came by multicast. Raises FrameError."""
        kind, sender, destination = decode_header(frame)
        by_multicast = source is None
        if by_multicast and kind not in _BY_MULTICAST:
            raise FrameError(f"{kind.name} by multicast")
        if destination not in (NOBODY, self.id):
            self.misdirected += 1
            return
        if sender == self.id:
            return
        if kind is Kind.BATCH:  # most of them
            self.membership.heard(now, sender)
            if self.knows(sender):
                self.streams.on_frame(now, kind, sender, frame)
            else:
                self._refuse(now, kind, sender)
        elif kind in _DISCOVERY:
            self._finder.on_frame(now, kind, sender, frame, by_multicast=by_multicast)
        elif kind in _RESOLVER:
            self.resolver.on_frame(now, kind, sender, destination, frame, by_multicast=by_multicast)
        else:
            self.membership.heard(now, sender)
            if kind in _OF_MEMBERS and not self._is_here(sender):
                self._refuse(now, kind, sender)
            elif kind is Kind.REPAIR and self.backlog(sender) > MOST_REPAIR_BACKLOG:
                pass
            elif kind in _STREAMS:
                self.streams.on_frame(now, kind, sender, frame)
            elif kind is Kind.UNICAST_LOST:
                raise FrameError("UNICAST_LOST that no relay has brought")
            elif kind in _UNICAST:
                self.unicasts.on_frame(now, kind, sender, frame[HEADER_BYTES:])
            elif kind in _RELAY:
                self.relay.on_frame(now, kind, sender, frame)
            else:
                self.membership.on_frame(now, kind, sender, frame)

    def knows(self, member: MemberId) -> bool:
        """Members of the view, of the next one, and for a while those that have left: their batches are under way."""
        return self._is_here(member) or self.streams.was_member(member) or self.membership.expects(member)

    def _refuse(self, now: float, kind: Kind, sender: MemberId) -> None:
        """It has another view than this member, or it is none of the site's members; the first will send it again."""
        self._refused_frames += 1
        if now - self._refused_told >= _REFUSED_SECONDS:
            self._refused_told = now
            member = self._names.describe(sender)
            self._observer.event("frame of a member that is not in the view", kind=kind.name, member=member)

    @property
    def refused(self) -> int:
        """Frames of those who may not send them."""
        return self._refused_frames + self.streams.refused + self.relay.refused

    def heard(self, now: float, member: MemberId) -> None:
        """Part of a frame of a member has come."""
        self.membership.heard(now, member)
        self.streams.heard(now, member)

    def connection_lost(self, now: float, address: PhysicalAddress, refused: bool) -> None:
        """A connection has ended, or could not be made."""
        there = self.resolver.cache.users(address)
        self.resolver.connection_lost(now, address)
        for member in there:
            entry = self.resolver.cache.get(member)
            elsewhere = entry is not None and entry.choice != address
            self.membership.connection_lost(now, member, refused=refused and not elsewhere)

    def on_resolved(self, now: float, host: str, addresses: Sequence[str]) -> None:
        """A DNS name was looked up."""
        self._finder.on_resolved(now, host, addresses)

    def on_gossip_members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """A gossip router has said whom it knows."""
        self._finder.on_gossip_members(now, infos)

    def on_gossip_suspect(self, now: float, member: MemberId) -> None:
        """Every gossip router that had the member has lost it."""
        self.membership.suspect(now, member)

    # Stack: from other sites

    def bridge_opened(self, now: float, session: int, names: tuple[str, ...]) -> None:
        """There is a session."""
        self.relay.opened(now, session, names)

    def bridge_frame(self, now: float, session: int, frame: bytes) -> None:
        """A frame of a session."""
        self.relay.frame(now, session, frame)

    def bridge_heard(self, now: float, session: int) -> None:
        """Part of a frame of a session has come."""
        self.relay.heard(now, session)

    def bridge_closed(self, now: float, session: int, reason: str) -> None:
        """A session has ended, or could not be made."""
        self.relay.closed(now, session, reason)

    def bridge_renewed(self, now: float, sessions: Sequence[int]) -> None:
        """These sessions were made with credentials that are not the newest."""
        self.relay.renewed(now, sessions)

    # SitePort

    @property
    def room(self) -> int:
        """Bytes that may be published now; none before there is a view."""
        if self._leaving or self.membership.view is None:
            return 0
        return min(self.streams.room, self.relay.room)

    def publish(self, messages: Sequence[GroupMessage], token: object | None) -> None:
        """Send to everybody of the group."""
        now = self._clock()
        number = 0
        for targets, batch in self.settings.filters.batches(messages):
            number = self.streams.publish(now, batch, targets)
        if token is not None:
            self._unprotected.append((number, token))

    def send_to(
        self, member: MemberId, message: GroupMessage, token: object | None, source: object = None
    ) -> None:
        """Send to one member."""
        now = self._clock()
        if self.unicasts.send(now, member, encode_message(message), token, source):
            return
        if token is None:
            self._drop(now)
        else:
            self._refused.append(token)

    def _drop(self, now: float) -> None:
        self.dropped += 1
        self._tell_dropped_at = min(self._tell_dropped_at, now + DROPPED_INTERVAL)

    def _tell_dropped(self) -> None:
        new, self._dropped_told = self.dropped - self._dropped_told, self.dropped
        self._tell_dropped_at = inf
        if new:
            event = "pre-settled messages to one member dropped"
            self._observer.event(event, trouble=True, messages=new)

    def answer(self, member: MemberId, message: GroupMessage) -> None:
        """Implements SitePort."""
        if self._answers[member] < MOST_ANSWERS:
            self._answers[member] += 1
            self.send_to(member, message, _Answer(member))

    def _tell_refused(self) -> None:
        while self._refused:
            token = self._refused.popleft()
            if isinstance(token, _Answer):
                self.outcome(self._clock(), token, False, "")
            elif self.user is not None:
                self.user.failed(token, Outcome.RELEASED)

    def positions(self) -> dict[MemberId, int]:
        """Implements SitePort."""
        streams = self.streams
        return {
            origin: log.next - 1 for origin in streams.origins() if (log := streams.log(origin)) is not None
        }

    def awaits(self, origin: MemberId) -> bool:
        """Implements SitePort."""
        return origin in self._members or self.streams.log(origin) is not None

    def in_contact(self, site: str) -> bool:
        """Implements SitePort."""
        return site == self.own.site or self.relay.contacted(site)

    # MemberPort

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        """Implements MemberPort: also to members of other sites, by way of the relay."""
        if kind in _UNICAST and not self._is_here(to):
            self.relay.forward(now, to, kind, body)  # repeated until it gets there, or its member is gone
            return
        self.resolver.send(now, to, encode_frame(kind, self.id, to, body))

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        """Implements MemberPort."""
        view = self.membership.view
        if view is None or len(view.ids) == 1:
            return
        frame = encode_frame(kind, self.id, NOBODY, body)
        for member in view.ids:
            if member != self.id:
                self.resolver.send(now, member, frame)

    # FinderUser, ResolverUser

    def found(self, now: float, answers: Sequence[Answer]) -> None:
        """Implements FinderUser."""
        self.membership.found(now, answers)

    def collision(self, now: float, domain: str, info: MemberInfo) -> None:
        """Implements FinderUser."""
        own = self.settings.group
        self._observer.problem(f"member {info.name}", f"domain {domain!r}; this member is of {own.domain!r}")

    def version_mismatch(self, now: float, sender: MemberId, version: int) -> None:
        """Implements FinderUser."""
        reason = f"protocol version {version}; this member speaks {PROTOCOL_VERSION}"
        self._observer.problem(f"member {short(sender)}", reason)

    def unreachable(self, now: float, member: MemberId, frames: int) -> None:
        """Implements ResolverUser."""
        self._observer.event(
            "member not found", trouble=True, member=self._names.describe(member), dropped=frames
        )

    # MembershipUser

    def find(self, now: float, *, initial: bool) -> None:
        """Implements MembershipUser."""
        self._finder.find(now, initial=initial)

    def known(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """Implements MembershipUser."""
        for info in infos:
            self.resolver.learn(now, info, own_word=False)

    def state(self, now: float) -> bytes:
        """Implements MembershipUser."""
        return self.streams.positions()

    def states(self, now: float, states: Mapping[MemberId, bytes]) -> None:
        """Implements MembershipUser."""
        for member, positions in states.items():
            self.streams.take_positions(now, member, positions)

    def baseline(self, now: float) -> bytes:
        """Implements MembershipUser."""
        return self.streams.baseline()

    def take_baseline(self, now: float, baseline: bytes) -> None:
        """Implements MembershipUser."""
        self.streams.take_baseline(now, baseline)

    def view_installed(self, now: float, view: View, left: tuple[MemberId, ...]) -> None:
        """Implements MembershipUser."""
        self.resolver.view_installed(now, view)
        self._finder.view_installed(view)
        self.relay.view_installed(now, view)
        self.streams.view_installed(now, view)
        self.relay.origins_changed(now)
        for member in left:
            self.unicasts.gone(now, member, "the member has left")
        self.unicasts.route_changed(now)
        self.view_changes += 1
        self._observer.view_installed(view)
        self.room_changed(now)

    def left(self, now: float) -> None:
        """Implements MembershipUser."""
        self.resolver.close(now)
        self._observer.left()

    # StreamsUser

    def delivered(self, now: float, batch: Batch) -> None:
        """Implements StreamsUser."""
        self.relay.delivered(now, batch)
        if self.user is None:
            return
        self.user.deliver(self._member(batch.origin, batch.site), list(batch.messages()), batch.number)

    def gap(
        self, now: float, origin: MemberId, site: str, from_number: int, to_number: int, messages_lost: int
    ) -> None:
        """Implements StreamsUser."""
        name = self._member(origin, site).name
        self._observer.event("messages lost", trouble=True, site=site, origin=name, messages=messages_lost)
        if self.user is not None:
            self.user.gap(self._member(origin, site), messages_lost)

    def protected(self, now: float, number: int) -> None:
        """Implements StreamsUser."""
        while self._unprotected and self._unprotected[0][0] <= number:
            token = self._unprotected.popleft()[1]
            if self.user is not None:
                self.user.protected(token)

    def held(self, now: float, origin: MemberId, number: int) -> None:
        """Implements StreamsUser."""
        self.relay.held(now, origin, number)

    def room_changed(self, now: float) -> None:
        """Implements StreamsUser and RelayUser."""
        if self.user is not None:
            self.user.room_changed()

    def relayed(self, origin: MemberId) -> float:
        """Implements StreamsUser."""
        return self.relay.relayed(origin)

    def elsewhere(self, number: int) -> int:
        """Implements StreamsUser."""
        return self.relay.elsewhere(number)

    # UnicastUser

    def received(self, now: float, sender: MemberId, message: bytes) -> None:
        """Implements UnicastUser."""
        if self.user is not None:
            self.user.received(self._member(sender, self.own.site), decode_message(message))

    def outcome(self, now: float, token: object, delivered: bool, reason: str) -> None:
        """Implements UnicastUser."""
        if isinstance(token, _Answer):
            self._answers[token.to] -= 1
            if not self._answers[token.to]:
                del self._answers[token.to]
            return
        if token is None and not delivered:
            self._drop(now)
        if self.user is None or token is None:
            return
        if delivered:
            self.user.protected(token)
        else:
            self.user.failed(token, Outcome.MODIFIED)

    # RelayUser

    def site_changed(self, now: float, site: str, state: SiteState) -> None:
        """Implements RelayUser."""
        self._observer.event(
            "site changed", trouble=state is SiteState.UNREACHABLE, site=site, state=state.value
        )
        if state is SiteState.UP:
            ids = (member.id for member in self._members.values() if member.site == site)
            self.unicasts.route_changed(now, ids)

    def global_view(self, now: float, view: GlobalView) -> None:
        """Implements RelayUser."""
        before = self._members
        members = [SiteMember(info.id, site, info.name) for site, info in view.members]
        for member in members:
            self._names.put(
                member.id, member.name
            )  # it may still be heard of when its site goes on without it
        self._members = {member.id: member for member in members} | {self.id: self.own}
        for site in self.settings.relay.sites:
            ids = [member.id for member in members if member.site == site]
            self.streams.site_view(now, site, ids)
        for member in before.values():
            if member.id not in self._members and member.site != self.own.site:
                self.unicasts.gone(now, member.id, "the member, or its site, is out of reach")
        if self.user is not None:
            self.user.members_changed(members)

    def forwarded(self, now: float, kind: Kind, source: MemberId, body: bytes) -> None:
        """Implements RelayUser."""
        self.unicasts.on_frame(now, kind, source, body)

    def backlog(self, member: MemberId) -> int:
        """Implements RelayUser."""
        address = self.resolver.address(member)
        return 0 if address is None else self._network.backlog(address, member)

    def behind(self, now: float) -> bool:
        """Implements RelayUser."""
        return self.user is not None and self.user.behind(now)

    def relay_left(self, now: float) -> None:
        """Implements RelayUser."""
        self.membership.leave(now)

    def stranger(self, site: str, reason: str) -> None:
        """Implements RelayUser."""
        self._observer.problem(f"bridge from {site or 'an unknown site'}", reason)

    def log(self, event: str, *, trouble: bool = False, **fields: object) -> None:
        """Implements RelayUser."""
        self._observer.event(event, trouble=trouble, **fields)

    # Status and metrics

    def snapshot(self, now: float) -> MemberSnapshot:
        """For metrics."""
        view = self.membership.view
        return MemberSnapshot(
            self.settings.group.group,
            len(view.ids) if view else 0,
            self.view_changes,
            self.relay.snapshot(now),
            self.settings.relay,
            self.streams.snapshot(),
            self.resolver.counters,
            self.unicasts.waiting,
            self.unicasts.repeated,
            self.dropped,
            self.misdirected,
            self.refused,
        )

    @property
    def members(self) -> Mapping[MemberId, SiteMember]:
        """Of all sites, as far as they are known here."""
        return self._members

    def _is_here(self, member: MemberId) -> bool:
        view = self.membership.view
        return view is not None and member in view

    def _member(self, member: MemberId, site: str) -> SiteMember:
        return self._members.get(member) or SiteMember(member, site, self._names.name(member))
