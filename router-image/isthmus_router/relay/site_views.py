"""Who is in other sites: gathered by the relays from their sessions, told to every member of the own site."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from isthmus_router.groups.frames import FrameError, Kind, decode_body, encode_body
from isthmus_router.groups.identity import NOBODY, MemberId, can_be_of, is_of_one_site
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.messages import (
    BridgeKind,
    a,
    as_endpoints,
    as_id,
    as_view,
    endpoint_fields,
    pack,
    unpack,
    view_fields,
)
from isthmus_router.relay.port import RelayUser, SiteStreams
from isthmus_router.relay.session import Session
from isthmus_router.relay.settings import Endpoint, RelaySettings
from isthmus_router.relay.site_table import SiteTable, Told, as_told, told_fields
from isthmus_router.relay.sites import KnownSite, SiteState

TELL_AGAIN_INTERVAL = 1.0
VIEW_AGAIN_INTERVAL = 0.5
TELL_INTERVAL = 0.1
"""Seconds between changes of views of which members are told: a site may change its view at any rate."""

Send = Callable[[int, bytes], None]


class SiteViews:
    """At every member the table; at a relay what it knows by its own sessions as well."""

    def __init__(
        self,
        own: MemberId,
        settings: RelaySettings,
        streams: SiteStreams,
        port: MemberPort,
        user: RelayUser,
    ) -> None:
        self._id = own
        self._streams = streams
        self._settings = settings
        self._port = port
        self._user = user
        self._view: View | None = None
        self._known: dict[str, KnownSite] = {}
        self._version = 0
        self._unaware: set[MemberId] = set()
        """Members that have not answered the last SITES."""
        self._tell_again_at = inf
        self._told_at = -inf
        self._tell_at = inf
        """When members are told of views that have changed meanwhile."""
        self.refused = 0
        """SITES of members that are no relays."""
        self.table = SiteTable(settings.site)

    def configure(self, settings: RelaySettings) -> None:
        """Other sites from now on; a relay learns of them in the next `view_installed`."""
        self._settings = settings
        if self._known:
            self._known = {
                site: self._known.get(site) or KnownSite(site, settings.grace) for site in settings.sites
            }

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        grace = min((site.deadline for site in self._known.values()), default=inf)
        return min(self._tell_at, self._tell_again_at, grace)

    def view_installed(
        self, now: float, view: View, relays: tuple[MemberId, ...], oldest: tuple[MemberId, ...]
    ) -> None:
        """Of the own site. A member that starts to relay goes on from what the others have told. `oldest`: the relays
        of the view, also if the site has yet to begin."""
        self._view = view
        before = self.table.view
        self._announce(now, self.table.view_installed(view, relays, oldest), before != self.table.view)
        if self._id in relays:
            if not self._known:
                self._known = {site: KnownSite(site, self._settings.grace) for site in self._settings.sites}
                for site, report in self.table.sites.items():
                    if site in self._known:
                        self._known[site].take_over(now, report)
            self._tell(now)
        else:
            self._known.clear()
            self._unaware.clear()
            self._tell_at = self._tell_again_at = inf

    def stale(self, session: Session) -> bool:
        """Whether a newer relay of the site is known than the session's."""
        known = self._known.get(session.site)
        return known is not None and known.stale(session.peer)

    def newest_relay(self, site: str) -> MemberId | None:
        """The one with the newest view."""
        told = self._known[site].told if site in self._known else {}
        return max(told, key=lambda relay: told[relay].id, default=None)

    def heard(self, now: float, session: Session, view: View) -> None:
        """A session has told the view of its site."""
        known = self._known.get(session.site)
        if known is None:
            return
        before = known.report()
        known.heard(session.peer, view)
        if known.report() == before:
            return
        if known.state is not before.state or now >= self._told_at + TELL_INTERVAL:
            self._tell(now)
        else:
            self._tell_at = self._told_at + TELL_INTERVAL

    def lost(self, now: float, session: Session) -> None:
        """The last session with a relay of the site has ended."""
        known = self._known.get(session.site)
        if known is not None:
            before = known.state
            known.lost(now, session.peer)
            if known.state is not before:
                self._tell(now)

    def left(self, now: float, session: Session) -> None:
        """The site has said goodbye."""
        known = self._known.get(session.site)
        if known is not None:
            known.left(session.peer)
            self._tell(now)

    def on_view(self, now: float, session: Session, frame: bytes) -> tuple[Endpoint, ...]:
        """VIEW over a bridge session; the endpoints of who sent it. Raises FrameError."""
        fields, endpoints = unpack(frame, 2)[:2]
        view = as_view(fields)
        if problem := self.objection(session.site, view):
            raise FrameError(problem)
        self.heard(now, session, view)
        return as_endpoints(endpoints)

    def objection(self, site: str, view: View) -> str:
        """Why that is no view of the site: a site has no members of this one, nor of a third; empty: it may be."""
        for member in view.ids:
            if not can_be_of(member, site):
                return f"site {site} says that it has a member whose id is of another site"
            if is_of_one_site(member):
                continue
            own = self._view is not None and member in self._view
            other = self._settings.site if own else self.table.site_of(member)
            if other not in (None, site):
                return f"site {site} says that it has a member of site {other}"
        return ""

    def tell_view(self, now: float, session: Session, send: Send, endpoints: tuple[Endpoint, ...]) -> None:
        """Send the own view over a session."""
        view = self._view
        if view is not None:
            session.told_view, session.told_at = view.id, now
            send(session.id, pack(BridgeKind.VIEW, view_fields(view), endpoint_fields(endpoints)))

    def pong(self, session: Session, send: Send) -> None:
        """Answer a PING with the epoch of the last view that its sender has reported.

        If none is known, the epoch is 0, and the sender reports its view again.
        """
        known = self._known.get(session.site)
        if known is not None:
            view = known.told.get(session.peer)
            epoch = view.id if view is not None else ViewId(0, NOBODY)
            send(session.id, pack(BridgeKind.PONG, epoch.number, bytes(epoch.coordinator)))

    def on_pong(
        self, now: float, session: Session, frame: bytes, send: Send, endpoints: tuple[Endpoint, ...]
    ) -> None:
        """If the peer does not know the present view, a frame was lost. Raises FrameError."""
        number, coordinator = unpack(frame, 2)[:2]
        epoch = ViewId(a(int, number), as_id(coordinator))
        if epoch != session.told_view and now - session.told_at > VIEW_AGAIN_INTERVAL:
            self.tell_view(now, session, send, endpoints)

    def on_sites(self, now: float, sender: MemberId, frame: bytes, view: View) -> None:
        """SITES of a relay, or an answer to it. Raises FrameError."""
        body = decode_body(frame, fields=5)
        told = as_told(body)
        if told is None:
            if body[2] == self._version:
                self._unaware.discard(sender)
            return
        if not self.table.may_tell(sender, told, view):
            self.refused += 1
            return
        before = self.table.view
        changed = self.table.take(sender, told, view)
        answer = encode_body(told.epoch.number, bytes(told.epoch.coordinator), told.version, [], None)
        self._port.send(now, sender, Kind.SITES, answer)
        self._announce(now, changed, self.table.view != before)

    def on_time(self, now: float) -> None:
        """Sites whose grace is over, and members that have not answered."""
        before = [site.report() for site in self._known.values()]
        for site in self._known.values():
            site.on_time(now)
        if now >= self._tell_at or before != [site.report() for site in self._known.values()]:
            self._tell(now)
        elif now >= self._tell_again_at and self._view is not None:
            self._unaware.intersection_update(self._view.ids)
            body = encode_body(*told_fields(self._told(self._view)))
            for member in self._unaware:
                self._port.send(now, member, Kind.SITES, body)
            self._tell_again_at = now + TELL_AGAIN_INTERVAL if self._unaware else inf

    def _told(self, view: View) -> Told:
        reports = tuple(site.report() for site in self._known.values())
        return Told(view.id, self._version, self._settings.own_endpoints, reports)

    def _tell(self, now: float) -> None:
        view = self._view
        if view is None:
            return
        self._version += 1
        self._told_at, self._tell_at = now, inf
        told = self._told(view)
        self._unaware = set(view.ids) - {self._id}
        self._tell_again_at = now + TELL_AGAIN_INTERVAL if self._unaware else inf
        self._port.send_all(now, Kind.SITES, encode_body(*told_fields(told)))
        before = self.table.view
        self._announce(now, self.table.take(self._id, told, view), self.table.view != before)

    def _announce(self, now: float, changed: dict[str, SiteState], is_new: bool) -> None:
        for site, state in changed.items():
            self._user.site_changed(now, site, state)
        if is_new and self.table.view is not None:
            for report in self.table.sites.values():
                if report.state in (SiteState.UP, SiteState.LEFT):
                    # One that is out of reach may come back as it was, and be known then.
                    ids = [member for view in report.views for member in view.ids]
                    self._streams.site_view(now, report.site, ids)
            self._user.global_view(now, self.table.view)
