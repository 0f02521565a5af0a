"""What links have been doing lately, looked at once a second so that a delivery costs nothing for it."""

from __future__ import annotations

from collections.abc import Iterable

from cproton_ffi.lib import pn_link_credit

from isthmus_router.core.model import Connection, Direction, Link

WINDOW_SECONDS = 5
"""Over which the settle rate is an average."""


class Activity:
    """One link. Seconds are those of the `ActivityMonitor`."""

    __slots__ = ("_settled", "deliveries", "last_delivery", "out_of_credit", "settle_rate")

    def __init__(self) -> None:
        self.deliveries = 0
        self.last_delivery: int | None = None
        """The second in which there was a delivery last."""
        self.out_of_credit: int | None = None
        """The second since which an OUT link has had no credit; None while it has some."""
        self.settle_rate = 0
        """Deliveries settled per second."""
        self._settled = [0] * WINDOW_SECONDS

    def look(self, link: Link, second: int) -> None:
        """Take in what changed within the last second."""
        deliveries = link.deliveries
        settled = deliveries - len(link.unsettled)
        slot = second % WINDOW_SECONDS
        before = self._settled[slot]
        if settled != before or self.settle_rate:
            self.settle_rate = (settled - before) // WINDOW_SECONDS
            self._settled[slot] = settled
        if deliveries != self.deliveries:
            self.deliveries = deliveries
            self.last_delivery = second
        if link.direction is Direction.OUT:
            if pn_link_credit(link.io) > 0:
                self.out_of_credit = None
            elif self.out_of_credit is None:
                self.out_of_credit = second


class ActivityMonitor:
    """All links of one router process."""

    def __init__(self) -> None:
        self.second = 0
        """Since the router started."""

    def look(self, connections: Iterable[Connection]) -> None:
        """To be called every second."""
        self.second += 1
        second = self.second
        for connection in connections:
            for link in connection.links:
                activity = link.activity
                if activity is None:
                    activity = link.activity = Activity()
                activity.look(link, second)

    def last_delivery_seconds(self, connection: Connection) -> int | None:
        """Seconds since the last delivery on any link of a connection; None when none was seen."""
        seen = [
            link.activity.last_delivery
            for link in connection.links
            if link.activity is not None and link.activity.last_delivery is not None
        ]
        return self.second - max(seen) if seen else None
