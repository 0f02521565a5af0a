"""What links have been doing lately, looked at once a second so that a delivery costs nothing for it.

Only links with deliveries cost anything: the tens of thousands that merely stand by on an interior are passed
over, connection by connection or with one comparison. A client can have as many with deliveries, so the router looks
at them in steps between other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cproton_ffi.lib import pn_link_credit

from isthmus_router.core.model import Connection, Link

WINDOW_SECONDS = 5
"""Over which the settle rate is an average."""
AT_ONCE = 64
"""Links that are looked at in one step."""
PASSED_OVER = 32
"""As so many links that are passed over counts one that is looked at."""


class Activity:
    """One link that has had deliveries. Seconds are those of the `ActivityMonitor`."""

    __slots__ = (
        "_settled",
        "counted",
        "deliveries",
        "last_delivery",
        "looked",
        "out_of_credit",
        "settle_rate",
        "starved",
    )

    def __init__(self) -> None:
        self.deliveries = 0
        self.last_delivery: int | None = None
        """The second in which there was a delivery last."""
        self.out_of_credit: int | None = None
        """The second since which nothing can be sent on the link for lack of credit; None while there is some."""
        self.settle_rate = 0
        """Deliveries settled per second."""
        self.starved = 0
        """Seconds, not told of yet, in which nothing could be sent for lack of credit."""
        self.counted = 0
        """The second up to which these are counted."""
        self.looked = 0
        """The second of the last look."""
        self._settled = [0] * WINDOW_SECONDS

    def look(self, link: Link, second: int) -> bool:
        """Take in what changed since the last look; whether the next second may bring something new."""
        deliveries = link.deliveries
        settled = deliveries - len(link.unsettled)
        for missed in range(max(self.looked + 1, second - WINDOW_SECONDS), second):
            self._settled[missed % WINDOW_SECONDS] = self._settled[self.looked % WINDOW_SECONDS]
        self.looked = second
        slot = second % WINDOW_SECONDS
        before = self._settled[slot]
        busy = deliveries != self.deliveries
        if settled != before or self.settle_rate:
            self.settle_rate = (settled - before) // WINDOW_SECONDS
            self._settled[slot] = settled
            busy = True
        if deliveries != self.deliveries:
            self.deliveries = deliveries
            self.last_delivery = link.connection.last_delivery = second
        if pn_link_credit(link.io) > 0:
            self.has_credit(link, second)
        elif self.out_of_credit is None:
            self.out_of_credit = second
        return busy or bool(link.unsettled) or self._settled.count(settled) < WINDOW_SECONDS

    def has_credit(self, link: Link, second: int) -> None:
        """There is credit now."""
        if link.incoming:
            self.count_starved(second)
        self.out_of_credit = None

    def count_starved(self, second: int, since: int = 0) -> None:
        """Count the seconds without credit that are not counted yet, and not before `since`.

        A link that has used up its credit and gets more before the next look has not been without.
        """
        if self.out_of_credit is not None:
            self.starved += max(
                0, second - max(self.out_of_credit, self.counted, self.last_delivery or 0, since)
            )
        self.counted = second


class ActivityMonitor:
    """All links of one router process."""

    def __init__(self) -> None:
        self.second = 0
        """Since the router started."""
        self.busy: set[Link] = set()
        """Links with deliveries of late, or unsettled ones."""
        self._under_way = False

    def look(self, connections: Iterable[Connection]) -> Iterator[None]:
        """To be called every second, and carried out in steps. Nothing begins before the last one has ended."""
        self.second += 1
        if self._under_way:
            return iter(())
        self._under_way = True
        stirred = []
        for connection in connections:
            if connection.io.stirred:
                connection.io.stirred = False
                stirred.append(connection)
        return self._look(stirred, self.second)

    def _look(self, stirred: list[Connection], second: int) -> Iterator[None]:
        try:
            for connection in stirred:
                yield from self._look_for_deliveries(connection)
            for number, link in enumerate(list(self.busy), 1):
                if link in self.busy and not link.activity.look(link, second):
                    self.busy.discard(link)
                if number % AT_ONCE == 0:
                    yield
        finally:
            self._under_way = False

    def _look_for_deliveries(self, connection: Connection) -> Iterator[None]:
        for number, link in enumerate(list(connection.links), 1):
            if link.deliveries and link in connection.links:
                activity = link.activity
                if activity is None:
                    activity = link.activity = Activity()
                if activity.deliveries != link.deliveries:
                    self.busy.add(link)
            if number % (AT_ONCE * PASSED_OVER) == 0:
                yield

    def forget(self, link: Link) -> None:
        """The link is gone."""
        self.busy.discard(link)

    def credit_changed(self, link: Link) -> None:
        """The receiving end of a link, this router of an IN link, has given credit or taken it back."""
        activity = link.activity
        if pn_link_credit(link.io) > 0:
            if activity is not None:
                activity.has_credit(link, self.second)
            return
        if activity is None:
            activity = link.activity = Activity()
        if activity.out_of_credit is None:
            activity.out_of_credit = self.second

    def fed(self, link: Link, clock: int) -> None:
        """The receiver of an OUT link on which messages wait gives credit. `clock`: `Settlement.now`."""
        if link.activity is not None:
            link.activity.count_starved(self.second, self._waits_since(link, clock))

    def _waits_since(self, link: Link, clock: int) -> int:
        """The second in which the oldest message came that waits on an OUT link, as far as that is known."""
        arrived: int | None = getattr(link.parked[0].record, "arrived", None)
        return 0 if arrived is None else self.second - (clock - arrived) // 1_000_000

    def take_starved_seconds(self, link: Link, now: float, clock: int) -> int:
        """Seconds, since the last time, in which nothing could be sent on a link for lack of credit.

        On an OUT link only while messages waited. `now`: monotonic time in seconds; `clock`: `Settlement.now`.
        """
        activity = link.activity
        if pn_link_credit(link.io) <= 0 and not link.boundless and (link.incoming or link.parked):
            if activity is None:
                activity = link.activity = Activity()
                activity.out_of_credit = self.second - int(now - link.attached_at)
            activity.count_starved(self.second, 0 if link.incoming else self._waits_since(link, clock))
        if activity is None:
            return 0
        starved: int = activity.starved
        activity.starved = 0
        return starved

    def zero_credit_seconds(self, link: Link, now: float) -> int:
        """How long a link has had no credit; 0 for one that has some. `now`: monotonic time in seconds."""
        if pn_link_credit(link.io) > 0:
            return 0
        if link.activity is None:
            return int(now - link.attached_at)
        dry: int | None = link.activity.out_of_credit
        return 0 if dry is None else self.second - dry

    def last_delivery_seconds(self, connection: Connection) -> int | None:
        """Seconds since the last delivery on any link of a connection; None when none was seen."""
        seen = connection.last_delivery
        return None if seen is None else self.second - seen
