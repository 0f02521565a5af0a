"""What a router counts over its life."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import LinkType


class LinkTally(Protocol):
    """Adds up the counts of all links, in steps."""

    def link_closed(self, link: Link) -> None:
        """The counts of a link belong to those that are gone from now on."""


@dataclass(slots=True)
class CoreCounters:
    """What happened on this router since its start; deliveries as counted by links that are gone."""

    deliveries_in: int = 0
    deliveries_out: int = 0
    ingress: int = 0
    """Of deliveries_in: from clients, containers and edges."""
    egress: int = 0
    """Of deliveries_out: to clients, containers and edges."""
    transit: int = 0
    """Of deliveries_out: to other interior routers, what the routers say to each other left out."""
    container_ingress: int = 0
    container_egress: int = 0
    """Of these, from and to route containers."""
    presettled: int = 0
    dropped_presettled: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    modified: int = 0
    delayed_1_second: int = 0
    delayed_10_seconds: int = 0
    connections_opened: int = 0
    connections_closed: int = 0
    links_attached: int = 0
    link_refusals: dict[str, int] = field(default_factory=dict)
    """Refused attaches by error condition."""
    messages_too_large: int = 0
    """Messages beyond what their link may carry."""

    def add_link(self, link: Link) -> None:
        """Take over the counts of a link; outcomes are counted where deliveries come in."""
        role, control = link.connection.role, link.type is LinkType.CONTROL
        inside = role.is_between_interiors
        container = role is Role.ROUTE_CONTAINER
        deliveries = link.deliveries
        self.dropped_presettled += link.dropped_presettled
        if link.incoming:
            self.deliveries_in += deliveries
            self.ingress += 0 if inside else deliveries
            self.container_ingress += deliveries if container else 0
            self.presettled += 0 if control else link.presettled
            self.accepted += link.accepted
            self.rejected += link.rejected
            self.released += link.released
            self.modified += link.modified
            self.delayed_1_second += link.delayed_1_second
            self.delayed_10_seconds += link.delayed_10_seconds
        else:
            self.deliveries_out += deliveries
            self.egress += 0 if inside else deliveries
            self.transit += deliveries if inside and not control else 0
            self.container_egress += deliveries if container else 0
