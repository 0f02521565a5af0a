"""What a member of a relay site is set to, and who hears of what happens at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import GroupName
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.port import NetworkPort
from isthmus_router.groups.resolver import ResolverSettings
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.unicast import UnicastSettings
from isthmus_router.groups.views import View
from isthmus_router.relay.settings import RelaySettings
from isthmus_router.sites.filters import Filters


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What an operator may set for a member; the same at all members of a site."""

    group: GroupName
    discovery: tuple[Callable[[NetworkPort], DiscoveryKind], ...]
    """Each makes one kind."""
    relay: RelaySettings
    filters: Filters = field(default_factory=Filters)
    resolver: ResolverSettings = field(default_factory=ResolverSettings)
    membership: MembershipSettings = field(default_factory=MembershipSettings)
    streams: StreamsSettings = field(default_factory=StreamsSettings)
    unicast: UnicastSettings = field(default_factory=UnicastSettings)


class MemberObserver(Protocol):
    """Who else hears of what happens at a member: logs, status, and whoever waits for its end."""

    def view_installed(self, view: View) -> None:
        """There is a new view of the site."""

    def left(self) -> None:
        """The member is in no view any more, as it wanted."""

    def event(self, name: str, *, trouble: bool = False, **fields: object) -> None:
        """Something worth a line in the log; `trouble`: somebody may have to do something about it."""

    def problem(self, who: str, reason: str) -> None:
        """Somebody does not belong here, or cannot be used; told as long as it is so."""
