"""What a router counts over its life."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus_router.core.model import Link


@dataclass(slots=True)
class CoreCounters:
    """What happened on this router since its start; deliveries as counted by links that are gone."""

    deliveries_in: int = 0
    deliveries_out: int = 0
    transit_in: int = 0
    transit_out: int = 0
    """Of these, deliveries from and to other routers."""
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
        transit = link.deliveries if link.connection.role.is_between_routers else 0
        if link.incoming:
            self.transit_in += transit
            self.deliveries_in += link.deliveries
            self.presettled += link.presettled
            self.accepted += link.accepted
            self.rejected += link.rejected
            self.released += link.released
            self.modified += link.modified
            self.delayed_1_second += link.delayed_1_second
            self.delayed_10_seconds += link.delayed_10_seconds
        else:
            self.transit_out += transit
            self.deliveries_out += link.deliveries
            self.dropped_presettled += link.dropped_presettled
