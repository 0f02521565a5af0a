"""RELAY at one member: its role, what its site is told, and what goes to other sites and comes from them.

The parts: `Bridge` (sessions), `Outlet` (what goes to one site), `Inlet` (what comes from others, and is
acknowledged), `Keeper` (what is kept for other sites), `Sites` (who is there, told to every member), `Forwarding`
(messages to one member) and `Leaving`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import inf
from random import Random

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.frames import PROTOCOL_VERSION, Kind
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View
from isthmus_router.relay.backpressure import Backpressure
from isthmus_router.relay.bridge import Bridge
from isthmus_router.relay.buffer import Backlog
from isthmus_router.relay.forwarding import Forwarding
from isthmus_router.relay.inlet import Inlet
from isthmus_router.relay.keeper import Keeper
from isthmus_router.relay.leaving import Leaving
from isthmus_router.relay.messages import (
    BridgeKind,
    Hello,
    Position,
    pack,
    unpack,
    unpack_numbers,
    unpack_range,
)
from isthmus_router.relay.outlet import Outlet
from isthmus_router.relay.port import BridgePort, RelayUser, SiteStreams
from isthmus_router.relay.roles import relay_for, relays_of
from isthmus_router.relay.session import Phase, Session
from isthmus_router.relay.settings import Endpoint, RelaySettings
from isthmus_router.relay.site_acks import SiteAcks
from isthmus_router.relay.site_views import SiteViews
from isthmus_router.relay.sites import GlobalView, SiteState
from isthmus_router.relay.snapshot import RelaySnapshot, SiteSnapshot

UPKEEP_INTERVAL = 0.5
"""Of bounds that are a matter of time, of streams that are gone, and of sessions with relays that are none."""


class Relay:
    """Events in, calls of ports out; `on_time` is due at `deadline`."""

    def __init__(
        self,
        self_info: MemberInfo,
        settings: RelaySettings,
        streams: SiteStreams,
        bridge: BridgePort,
        port: MemberPort,
        user: RelayUser,
        random: Random,
    ) -> None:
        self._id = self_info.id
        self._settings = settings
        self._streams = streams
        self._user = user
        self._view: View | None = None
        self._relays: tuple[MemberId, ...] = ()
        self._oldest: tuple[MemberId, ...] = ()
        """The relays by the view, also those that have yet to begin: others take from them what relays send."""
        self._refused = 0
        self._begin_by = inf
        """This member is no relay before, as its site begins with it and others are still to come."""
        self._upkeep_at = inf
        self._bridge = Bridge(settings, bridge, self, random)
        self._keeper = Keeper(self._id, settings, streams, self._dropped, self._is_reachable)
        self._buffer = self._keeper.buffer
        self._acks = SiteAcks(self._keeper, port)
        self._sites = SiteViews(self._id, settings, streams, port, user)
        self._backpressure = Backpressure(port, user.behind)
        self._inlet = Inlet(streams, self._bridge.send, self._backpressure, self.site_of)
        self._forwarding = Forwarding(self._id, port, bridge, user, self._session_to, self.site_of)
        self._leaving = Leaving(
            self._inlet,
            self._sites.table,
            self._open_sessions,
            self._say_goodbye,
            self._keeper.is_awaited,
            self._mine,
        )
        self._outlets: dict[str, Outlet] = {}
        self._fed: dict[str, int] = {}
        self._ahead: dict[MemberId, dict[str, int]] = {}
        """By origin and site: the highest acknowledged batch, while this member does not have it."""
        """The session that each site's outlet uses."""
        self.configure(0.0, settings)

    def configure(self, now: float, settings: RelaySettings) -> None:
        """Other sites, bounds and numbers of relays hold from now on; group and own site are the same."""
        self._settings = settings
        self._keeper.configure(settings)
        self._sites.configure(settings)
        self._bridge.configure(now, settings)
        kept = self._outlets
        self._outlets = {
            site: kept.get(site) or Outlet(site, self._streams, self._buffer) for site in settings.sites
        }
        for site, remote in settings.sites.items():
            self._outlets[site].window = settings.network_window if remote.over_network else settings.window
        self._leaving.outlets = self._outlets
        self._fed = {site: session for site, session in self._fed.items() if site in self._outlets}
        if self._view is not None:
            self.view_installed(now, self._view)

    # What others ask

    @property
    def is_relay(self) -> bool:
        """Whether this member has bridge sessions."""
        return self._id in self._relays

    @property
    def global_view(self) -> GlobalView | None:
        """The members of all sites; None: not a member yet."""
        return self._sites.table.view

    def site_of(self, member: MemberId) -> str | None:
        """The other site that a member is in; None: it is in none that is known."""
        return self._sites.table.site_of(member)

    def contacted(self, site: str) -> bool:
        """Whether there has been a session with the site: from then on, what it lacks is kept."""
        return site in self._buffer.contacted

    @property
    def refused(self) -> int:
        """Frames of members that are no relays."""
        return self._refused + self._sites.refused

    @property
    def room(self) -> int:
        """Bytes that this member may publish without going faster than other sites; see `RelayUser.room_changed`."""
        return self._keeper.pacing.room

    def relayed(self, origin: MemberId) -> float:
        """Up to which number no batch of the origin is needed for other sites: what the streams ask."""
        return self._keeper.relayed(origin)

    def elsewhere(self, number: int) -> int:
        """The highest number up to which each batch of this member after `number` is held by another site."""
        return self._keeper.elsewhere(number)

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(
            self._bridge.deadline,
            self._acks.deadline,
            self._sites.deadline,
            self._inlet.deadline,
            self._backpressure.deadline,
            self._keeper.pacing.deadline,
            self._begin_by,
            self._leaving.deadline,
            self._upkeep_at,
            min((outlet.deadline for outlet in self._outlets.values()), default=inf),
        )

    # Events of this site

    def view_installed(self, now: float, view: View) -> None:
        """A view of the own site; before anything else hears of it."""
        was_relay = self.is_relay
        if self._view is None and len(view.ids) == 1:
            self._begin_by = now + self._settings.initial_timeout
        if len(view.ids) >= self._settings.initial_members or now >= self._begin_by:
            self._begin_by = inf
        self._view = view
        self._relays = relays_of(view, self._settings.relays) if self._begin_by == inf else ()
        self._upkeep_at = min(self._upkeep_at, now + UPKEEP_INTERVAL)
        self._oldest = relays_of(view, self._settings.relays)
        self._forwarding.view_installed(view, self._relays, self._oldest)
        self._keeper.view_installed(now, view)
        self._sites.view_installed(now, view, self._relays, self._oldest)
        if self.is_relay:
            mine = set(self._mine())
            for outlet in self._outlets.values():
                outlet.keep(mine)
            if not was_relay:
                self._bridge.activate(now)
            for session in self._open_sessions():
                self._sites.tell_view(now, session, self._bridge.send, self._reached_at())
            self._acks.tell_all(now)
        elif was_relay:
            self._bridge.resign(now)
        self._ahead = {
            origin: sites
            for origin, sites in self._ahead.items()
            if self.is_relay and self._streams.log(origin) is not None
        }
        self._leaving.view_installed(now, view)

    def origins_changed(self, now: float) -> None:
        """The streams have taken up a view: other sites hear where those of new members begin."""
        if self.is_relay:
            for origin in self._mine():
                for outlet in self._outlets.values():
                    outlet.more(now, origin)

    def delivered(self, now: float, batch: Batch) -> None:
        """The streams have delivered a batch here."""
        if batch.site != self._settings.site:
            self._backpressure.delivered(now)
            return
        if not self._outlets:
            return
        self._keeper.delivered(now, batch)
        if self._ahead:
            for site, number in self._ahead.pop(batch.origin, {}).items():
                self._note(now, site, batch.origin, number, batch.number)
        if self.is_relay and relay_for(batch.origin, self._relays) == self._id:
            for outlet in self._outlets.values():
                outlet.more(now, batch.origin)

    def held(self, now: float, origin: MemberId, number: int) -> None:
        """A stream of another site is safe up to that number: this member and another one have it."""
        log = self._streams.log(origin)
        if log is not None:
            self._inlet.held(now, origin, number, self._open_sessions(log.site))
            self._leaving.look(now)

    def on_frame(self, now: float, kind: Kind, sender: MemberId, frame: bytes) -> None:
        """SITES, SITE_ACKS, FORWARD or BEHIND, of a member of the view. Raises FrameError."""
        if self._view is None or sender not in self._view:
            return  # what it says is said again once both have the same view
        if kind is Kind.SITES:
            self._sites.on_sites(now, sender, frame, self._view)
        elif kind is Kind.SITE_ACKS:
            self._on_site_acks(now, sender, frame)
        elif kind is Kind.FORWARD:
            self._forwarding.on_frame(now, sender, frame)
        elif kind is Kind.BEHIND:
            self._backpressure.heard(now)
        self._pace(now)

    def _on_site_acks(self, now: float, sender: MemberId, frame: bytes) -> None:
        if sender not in self._oldest:
            self._refused += 1
            return
        try:
            self._acks.on_frame(now, frame)
        finally:  # what it says may be wrong of one site and right of others
            self._leaving.look(now)
            self._pace(now)

    def forward(self, now: float, to: MemberId, kind: Kind, body: bytes) -> bool:
        """Send a frame to a member of another site; False: no site with such a member is known. It may be lost."""
        if self.site_of(to) is None:
            return False
        self._forwarding.send(now, to, kind, body)
        return True

    def leave(self, now: float) -> None:
        """Say goodbye to other sites; `relay_left` is told when that is done."""
        self._leaving.begin(now, self._settings.goodbye_timeout, is_relay=self.is_relay)

    def on_time(self, now: float) -> None:
        """Whatever is due."""
        self._bridge.on_time(now)
        self._acks.on_time(now)
        self._sites.on_time(now)
        if now >= self._backpressure.deadline:
            self._backpressure.look(now)
        self._inlet.on_time(now, self._bridge.sessions.values())
        for outlet in self._outlets.values():
            outlet.on_time(now)
        if now >= self._upkeep_at:
            self._upkeep_at = now + UPKEEP_INTERVAL
            self._upkeep(now)
        if now >= self._begin_by and self._view is not None:
            self.view_installed(now, self._view)
        self._leaving.on_time(now)
        self._pace(now)

    # Events of the bridge's driver

    def opened(self, now: float, session: int, certificate_names: tuple[str, ...]) -> None:
        """There is a connection; with the names in the certificate of who is at the other end."""
        self._bridge.opened(now, session, certificate_names)

    def frame(self, now: float, session: int, frame: bytes) -> None:
        """A frame has come."""
        self._bridge.frame(now, session, frame)

    def heard(self, now: float, session: int) -> None:
        """Part of a frame has come."""
        self._bridge.heard(now, session)

    def closed(self, now: float, session: int, reason: str) -> None:
        """A session has ended, or could not be made."""
        self._bridge.closed(now, session, reason)

    def renewed(self, now: float, sessions: Iterable[int]) -> None:
        """There are new credentials: sessions that were dialled with older ones are dialled again, one by one."""
        for number in sessions:
            session = self._bridge.sessions.get(number)
            if session is not None and session.endpoint is not None:
                self._bridge.redial(now, session.site, (session.endpoint,), "new credentials")

    # What the bridge asks and tells

    def hello(self, to_site: str) -> Hello:
        """What this member says of itself, and what it has of the other site."""
        view = self._view
        assert view is not None  # a member without a view is no relay
        positions = tuple(
            Position(origin, log.next, log.messages)
            for origin in self._streams.origins()
            if (log := self._streams.log(origin)) is not None and log.site == to_site
        )
        own = self._settings
        return Hello(
            PROTOCOL_VERSION,
            own.group,
            own.site,
            own.domain,
            to_site,
            self._id,
            self._reached_at(),
            view,
            positions,
        )

    def name_of(self, member: MemberId) -> str | None:
        """The logical name of a member in the view of this site; None if it is not there."""
        members = self._view.members if self._view is not None else ()
        return next((info.name for info in members if info.id == member), None)

    def objection(self, site: str, view: View) -> str:
        """Why that is no view of the other site; empty: it may be."""
        return self._sites.objection(site, view)

    def relay_endpoints(self) -> tuple[Endpoint, ...]:
        """Of the relays of this site, other than this one."""
        return tuple(
            endpoint
            for relay in self._relays
            if relay != self._id
            for endpoint in self._sites.table.endpoints(relay)
        )

    def session_opened(self, now: float, session: Session, hello: Hello) -> None:
        """The handshake is done."""
        self._user.log("session with another site", site=session.site, dialled=session.dialled)
        self._sites.heard(now, session, hello.view)
        self._sites.tell_view(now, session, self._bridge.send, self._reached_at())
        self._inlet.begin(now, session)
        self._feed(now, session.site, hello)
        if self._fed.get(session.site) != session.id:
            send = partial(self._bridge.send, session.id)
            self._outlets[session.site].tell_starts(send, self._mine())
        self._leaving.look(now)
        dialler = self._bridge.diallers.get(session.site)
        if not session.dialled and dialler is not None:
            current = self._bridge.sessions.get(dialler.session or 0)
            elsewhere = hello.endpoints and current and current.endpoint not in hello.endpoints
            if current is None or (current.phase is Phase.DIALLING and elsewhere):
                self._bridge.redial(now, session.site, hello.endpoints, "its relay is elsewhere")

    def session_frame(self, now: float, session: Session, kind: BridgeKind, frame: bytes) -> None:
        """Of an open session. Raises FrameError."""
        site = session.site
        if kind is BridgeKind.ACK:
            if not self._sites.stale(session):
                self._on_ack(now, site, frame)
        elif kind is BridgeKind.NAK:
            self._outlets[site].repeat(now, unpack_range(frame))
        elif kind is BridgeKind.VIEW:
            session.endpoints = self._sites.on_view(now, session, frame)
        elif kind is BridgeKind.GOODBYE:
            (last,) = unpack(frame, 1)[:1]
            if last is True:
                self._sites.left(now, session)
        elif kind is BridgeKind.PONG:
            if session.pinged is not None:
                session.round_trip, session.pinged = now - session.pinged, None
            self._sites.on_pong(now, session, frame, self._bridge.send, self._reached_at())
        elif kind is BridgeKind.PING:
            self._inlet.on_ping(now, session, unpack_numbers(frame))
            self._sites.pong(session, self._bridge.send)
        elif kind in (BridgeKind.UNICAST, BridgeKind.UNICAST_LOST):
            self._forwarding.on_bridge(now, session.id, site, kind, frame)
        else:
            self._inlet.on_frame(now, session, kind, frame)

    def session_ended(self, now: float, session: Session, reason: str) -> None:
        """It was open."""
        self._user.log(
            "session with another site ended", site=session.site, dialled=session.dialled, reason=reason
        )
        site = session.site
        if not any(other.peer == session.peer for other in self._open_sessions(site)):
            self._sites.lost(now, session)
        if self._fed.get(site) == session.id:
            del self._fed[site]
            self._outlets[site].end()
            self._leaving.look(now)
            if site not in self._bridge.diallers:
                # What the site has is to be heard anew, so it is to greet anew.
                for other in self._open_sessions(site):
                    self._bridge.end(now, other, "another session has ended")

    def stranger(self, site: str, reason: str) -> None:
        """Somebody was refused who is of no configured site."""
        self._user.stranger(site, reason)

    def log(self, event: str, *, trouble: bool = False, **fields: object) -> None:
        """For the log."""
        self._user.log(event, trouble=trouble, **fields)

    # Within

    def _is_reachable(self, site: str) -> bool:
        report = self._sites.table.sites.get(site)  # a new member has not heard of it yet
        return report is None or report.state in (SiteState.UP, SiteState.SUSPECT)

    def _pace(self, now: float) -> None:
        pacing = self._keeper.pacing
        if pacing.room <= 0 and pacing.update(now):
            self._user.room_changed(now)

    def _dropped(self, site: str, messages: int) -> None:
        event = "messages that another site has not acknowledged dropped"
        self._user.log(event, trouble=True, site=site, messages=messages)

    def _reached_at(self) -> tuple[Endpoint, ...]:
        return self._settings.own_endpoints

    def _open_sessions(self, site: str | None = None) -> Iterator[Session]:
        for session in list(self._bridge.sessions.values()):
            if session.phase is Phase.OPEN and site in (None, session.site):
                yield session

    def _mine(self) -> Iterator[MemberId]:
        """Origins that this relay relays."""
        for origin, _ in self._keeper.local_logs():
            if relay_for(origin, self._relays) == self._id:
                yield origin

    def _feed(self, now: float, site: str, hello: Hello) -> None:
        """Use the session that was dialled; where none can be, one that the other site has dialled."""
        best = max(
            self._open_sessions(site),
            key=lambda session: (session.dialled, not self._sites.stale(session), session.since),
        )
        passive = site not in self._bridge.diallers
        if (best.dialled or passive) and self._fed.get(site) != best.id and best.peer == hello.relay:
            self._fed[site] = best.id
            send, backlog = partial(self._bridge.send, best.id), partial(self._bridge.backlog, best.id)
            self._outlets[site].begin(now, send, backlog, hello.positions, self._mine())
            if site not in self._buffer.contacted:
                self._buffer.contacted.add(site)
                self._acks.changed(now)

    def _session_to(self, member: MemberId) -> int | None:
        site = self.site_of(member)
        if site is None or site in self._fed:
            return self._fed[site] if site else None
        return next((session.id for session in self._open_sessions(site)), None)

    def _on_ack(self, now: float, site: str, frame: bytes) -> None:
        outlet = self._outlets[site]
        for origin, number in unpack_numbers(frame):
            log = self._streams.log(origin)
            if log is None or log.site != self._settings.site:
                continue
            self._note(now, site, origin, number, log.next - 1)
            outlet.acknowledge(now, origin, number)
        self._leaving.look(now)
        self._pace(now)

    def _note(self, now: float, site: str, origin: MemberId, number: int, last: int) -> None:
        """A site has acknowledged the batches of an origin up to `number`. This member has those up to `last`.

        It tells other members of no batch that it does not have: the site may have received that batch from another
        relay, or may have made up the number.
        """
        if number > last and origin != self._id:
            self._ahead.setdefault(origin, {})[site] = number
            number = last
        if self._keeper.acknowledge(now, site, origin, number):
            self._acks.acknowledged(now, site, origin)

    def _say_goodbye(self, now: float, last: bool) -> None:
        for session in self._open_sessions():
            self._bridge.send(session.id, pack(BridgeKind.GOODBYE, last))
        self._bridge.close_all(now, "leaving")
        self._user.relay_left(now)

    def _upkeep(self, now: float) -> None:
        self._keeper.on_time(now)
        for session in list(self._open_sessions()):
            if session.dialled and self._sites.stale(session) and now - session.since > UPKEEP_INTERVAL:
                newest = self._sites.newest_relay(session.site)
                endpoints = next(
                    (other.endpoints for other in self._open_sessions(session.site) if other.peer == newest),
                    (),
                )
                self._bridge.redial(now, session.site, endpoints, "another relay is newer")

    # Status

    def snapshot(self, now: float) -> RelaySnapshot:
        """For status and metrics."""
        return RelaySnapshot(
            self._settings.site,
            self.is_relay,
            self._keeper.is_holder,
            self._keeper.is_holder and self._streams.ready,
            self._view.id if self._view else None,
            self._buffer.messages,
            self._buffer.bytes,
            self._forwarding.dropped,
            self._bridge.malformed,
            tuple(self._site_snapshot(now, site) for site in self._outlets),
        )

    def _site_snapshot(self, now: float, site: str) -> SiteSnapshot:
        outlet, report = self._outlets[site], self._sites.table.sites.get(site)
        session = self._bridge.sessions.get(self._fed.get(site, 0))
        dialler = self._bridge.diallers.get(site)
        received = self._inlet.counts[site]
        lag = self._buffer.backlog(now, site) if self._keeper.is_holder else Backlog(0, 0, 0.0)
        return SiteSnapshot(
            site,
            report.state if report else SiteState.UNKNOWN,
            sum(len(view.ids) for view in report.views) if report else 0,
            session.peer if session else None,
            self._bridge.refusal(now, site),
            dialler.problem if dialler and self.is_relay else "",
            *lag,
            outlet.sent_messages,
            outlet.replayed,
            received.messages,
            received.duplicates,
            outlet.gaps,
            received.lost,
            self._buffer.dropped[site],
            self._keeper.pacing.held_back(now, site),
            session.round_trip if session else None,
        )
