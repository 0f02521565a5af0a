"""Other sites as a relay knows them, and the global view: the members of all sites.

A site is known by the views that its relays tell. The view's id is the relay's *epoch*: of views that share a member
only the newest counts, so that a relay which does not know yet that it is none any more does not count. Views without
a member in common are parts of a divided site, and count together. The global view has no number of its own: its id
is that of each site's view, the same in all sites.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId


class SiteState(StrEnum):
    """How another site is, to this one. Of what several relays say, what is first here counts."""

    UP = "up"
    SUSPECT = "suspect"
    """Its last session ended less than the grace ago."""
    UNREACHABLE = "unreachable"
    LEFT = "left"
    """Its last member has said goodbye."""
    UNKNOWN = "unknown"
    """There has been no session yet."""


RANK = {state: rank for rank, state in enumerate(SiteState)}


def newest(views: Iterable[View]) -> tuple[View, ...]:
    """The views that count, newest first."""
    kept: list[View] = []
    members: set[MemberId] = set()
    for view in sorted(views, key=lambda view: view.id, reverse=True):
        if members.isdisjoint(view.ids):
            kept.append(view)
            members.update(view.ids)
    return tuple(kept)


class SiteReport(NamedTuple):
    """What a relay tells of another site."""

    site: str
    state: SiteState
    views: tuple[View, ...]


class GlobalView(NamedTuple):
    """The members of all sites that are up or suspect: sites by name, members by age."""

    id: tuple[tuple[str, ViewId], ...]
    members: tuple[tuple[str, MemberInfo], ...]
    """With the name of their site."""


def global_view(own_site: str, own: View, others: Iterable[SiteReport]) -> GlobalView:
    """Of the own view and what is known of others."""
    views = {report.site: report.views for report in others} | {own_site: (own,)}
    return GlobalView(
        tuple((site, view.id) for site in sorted(views) for view in views[site]),
        tuple((site, member) for site in sorted(views) for view in views[site] for member in view.members),
    )


@dataclass(slots=True)
class KnownSite:
    """Another site, at a relay."""

    name: str
    grace: float
    state: SiteState = SiteState.UNKNOWN
    told: dict[MemberId, View] = field(default_factory=dict)
    """The last view of each of its relays."""
    live: set[MemberId] = field(default_factory=set)
    """Its relays that there is a session with."""
    deadline: float = inf
    """When relays without a session do not count any more."""

    @property
    def views(self) -> tuple[View, ...]:
        """Those that count, newest first."""
        return newest(self.told.values())

    @property
    def epoch(self) -> ViewId | None:
        """Of the newest view."""
        return max((view.id for view in self.told.values()), default=None)

    def stale(self, relay: MemberId) -> bool:
        """Whether a newer relay than this one is known."""
        view, epoch = self.told.get(relay), self.epoch
        return epoch is not None and (view is None or view.id < epoch)

    def report(self) -> SiteReport:
        """For the members of the own site."""
        return SiteReport(self.name, self.state, self.views)

    def take_over(self, now: float, report: SiteReport) -> None:
        """Start from what another relay of the own site has told: nobody hears of a mere change of relays."""
        if self.state is SiteState.UNKNOWN and report.views:
            self.state = SiteState.SUSPECT
            self.told = {view.coordinator.id: view for view in report.views}
            self.deadline = now + self.grace

    def heard(self, relay: MemberId, view: View) -> None:
        """A relay of the site that there is a session with tells its view."""
        last = self.told.get(relay)
        if last is None or last.id <= view.id:
            self.told[relay] = next((other for other in self.told.values() if other == view), view)
            self.told = {
                member: other
                for member, other in self.told.items()
                if member in self.live or member == relay or not set(other.ids) & set(view.ids)
            }
            self._make_room()
        self.live.add(relay)
        self.state = SiteState.UP
        if self.live.issuperset(self.told):
            self.deadline = inf

    def _make_room(self) -> None:
        """Forget the oldest views if all have too many members together: relays may tell of any number. What several
        relays tell alike counts once."""
        kept: set[int] = set()
        members = 0
        for relay, view in sorted(self.told.items(), key=lambda item: item[1].id, reverse=True):
            if id(view) in kept:
                continue
            if members + len(view.ids) > MOST_MEMBERS:
                del self.told[relay]
            else:
                members += len(view.ids)
                kept.add(id(view))

    def lost(self, now: float, relay: MemberId) -> None:
        """The last session with that relay has ended."""
        self.live.discard(relay)
        self.deadline = now + self.grace
        if not self.live and self.state is SiteState.UP:
            self.state = SiteState.SUSPECT

    def left(self, relay: MemberId) -> None:
        """Its last member is leaving: nobody is expected to follow."""
        self.live.discard(relay)
        self.told.pop(relay, None)
        if not self.live:
            self.told.clear()
            self.state, self.deadline = SiteState.LEFT, inf

    def on_time(self, now: float) -> None:
        """Forget relays that have been without a session for the grace."""
        if now < self.deadline:
            return
        self.deadline = inf
        self.told = {relay: view for relay, view in self.told.items() if relay in self.live}
        if not self.live and self.state is SiteState.SUSPECT:
            self.state = SiteState.UNREACHABLE
