"""What a member knows of the other sites: what its relays tell, each with a version of its own.

SITES: `[epoch number, epoch coordinator, version, [[host, port] ...], [[site, state, [view ...]] ...]]`; without the
last field it is the answer of who has got that version. Reports of former relays count until a present one tells.

A member that is no relay yet may be one in a later view, so a few reports of such members are retained. A relay whose
report is not answered sends it again after a second, so a refused report is not lost.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.membership.numbers import FIRST_CREDIT
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId
from isthmus_router.relay.messages import (
    a,
    as_endpoints,
    as_id,
    as_list,
    as_name,
    as_number,
    as_view,
    endpoint_fields,
    view_fields,
)
from isthmus_router.relay.settings import Endpoint
from isthmus_router.relay.sites import RANK, GlobalView, SiteReport, SiteState, global_view, newest

MOST_SITES = 256
MOST_AHEAD = 4
"""Reports that are retained of members that are no relays yet,"""
MOST_MEMBERS_AHEAD = 16_384
"""and members in all of these. Reports beyond that are not retained; the member repeats them."""
MOST_FORMER = 4
"""Reports that are retained of relays that have left."""


class Told(NamedTuple):
    """What one relay tells."""

    epoch: ViewId
    version: int
    endpoints: tuple[Endpoint, ...]
    """Where it is reached by other sites."""
    sites: tuple[SiteReport, ...]

    @property
    def members(self) -> int:
        """How many it names."""
        return sum(len(view.ids) for report in self.sites for view in report.views)


def told_fields(told: Told) -> list[object]:
    """The body of SITES."""
    return [
        told.epoch.number,
        bytes(told.epoch.coordinator),
        told.version,
        endpoint_fields(told.endpoints),
        [
            [report.site, report.state.value, [view_fields(view) for view in report.views]]
            for report in told.sites
        ],
    ]


def as_told(body: list[object]) -> Told | None:
    """None: an answer. Raises FrameError."""
    number, coordinator, version, endpoints, sites = as_list(body, 5)[:5]
    if sites is None:
        return None
    reports: list[SiteReport] = []
    for entry in as_list(sites, 0, MOST_SITES):
        site, state, views = as_list(entry, 3)[:3]
        state = a(str, state)
        if state not in RANK:
            raise FrameError(f"unknown state of a site: {state}")
        reports.append(SiteReport(as_name(site), SiteState(state), _as_views(views)))
    return Told(
        ViewId(as_number(number), as_id(coordinator)),
        as_number(version),
        as_endpoints(endpoints),
        tuple(reports),
    )


def _as_views(value: object) -> tuple[View, ...]:
    """Of one site, with as many members as relays count. Raises FrameError."""
    views: list[View] = []
    members = 0
    for each in as_list(value, 0, MOST_MEMBERS):
        view = as_view(each)
        members += len(view.ids)
        if members > MOST_MEMBERS:
            raise FrameError(f"site with more than {MOST_MEMBERS} members")
        views.append(view)
    return tuple(views)


class SiteTable:
    """Merged from the relays of this site."""

    def __init__(self, own_site: str) -> None:
        self._own_site = own_site
        self._told: dict[MemberId, Told] = {}
        self._relays: tuple[MemberId, ...] = ()
        self._oldest: tuple[MemberId, ...] = ()
        self._former: set[MemberId] = set()
        """Members that were relays in a view of this member and have told something."""
        self._site_of: dict[MemberId, str] = {}
        self.sites: dict[str, SiteReport] = {}
        self.view: GlobalView | None = None

    def site_of(self, member: MemberId) -> str | None:
        """The other site that it is in, if it is in one."""
        return self._site_of.get(member)

    def endpoints(self, relay: MemberId) -> tuple[Endpoint, ...]:
        """Where a relay of this site is reached by others."""
        told = self._told.get(relay)
        return told.endpoints if told is not None else ()

    def view_installed(
        self, view: View, relays: tuple[MemberId, ...], oldest: tuple[MemberId, ...]
    ) -> dict[str, SiteState]:
        """Of this site. `oldest`: its relays, also if the site has yet to begin. As `take`."""
        self._relays, self._oldest = relays, oldest
        self._former = {relay for relay in self._told if relay in oldest or relay in self._former}
        return self._merge(view)

    def may_tell(self, member: MemberId, told: Told, view: View) -> bool:
        """Whether it is a relay, or may be one in a view that is still to come."""
        if told.epoch.number > view.id.number + FIRST_CREDIT:
            return False
        if member in self._oldest:
            return True
        if member not in view or told.epoch <= view.id:
            return False
        ahead = self._told.keys() - self._former - {member, *self._oldest}
        members = told.members + sum(self._told[other].members for other in ahead)
        return len(ahead) < MOST_AHEAD and members <= MOST_MEMBERS_AHEAD

    def take(self, relay: MemberId, told: Told, view: View) -> dict[str, SiteState]:
        """What a relay tells; sites whose state is new, with that. Whether it is newer is seen here."""
        last = self._told.get(relay)
        if relay not in view or (
            last is not None and (last.epoch, last.version) > (told.epoch, told.version)
        ):
            return {}
        self._told[relay] = told
        if relay in self._oldest:
            self._former.add(relay)
        return self._merge(view)

    def _merge(self, view: View) -> dict[str, SiteState]:
        # What another member tells is kept if it is a relay in a view that is still to come.
        present = {relay: self._told[relay] for relay in self._relays if relay in self._told}
        here = set(view.ids)
        self._told = {
            relay: told
            for relay, told in self._told.items()
            if relay in present
            or (relay in here and (not present or told.epoch > view.id))
            or (relay in self._former and not present)
        }
        gone = [relay for relay in self._told if relay not in here]
        for relay in gone[:-MOST_FORMER]:
            del self._told[relay]
        reports: dict[str, list[SiteReport]] = {}
        former = {relay: told for relay, told in self._told.items() if relay in self._former}
        for told in (present or former).values():
            for report in told.sites:
                reports.setdefault(report.site, []).append(report)
        before = self.sites
        self.sites = {
            site: SiteReport(
                site,
                min((report.state for report in of_site), key=RANK.__getitem__),
                newest(view for report in of_site for view in report.views),
            )
            for site, of_site in reports.items()
        }
        self._site_of = {
            member: site
            for site, report in self.sites.items()
            for part in report.views
            for member in part.ids
        }
        self.view = global_view(self._own_site, view, self.sites.values())
        unknown = SiteReport("", SiteState.UNKNOWN, ())
        return {
            site: report.state
            for site, report in self.sites.items()
            if before.get(site, unknown).state is not report.state
        }
