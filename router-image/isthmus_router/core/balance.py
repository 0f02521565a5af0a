"""The choice among consumers of a balanced address: the least loaded, without looking at all of them each time.

A consumer's burden is what it has under way, or for the path to another router, what is under way there plus the
path's cost. Who has nothing to do is mostly found at once, and who is much less loaded than the others stays known for
a while, so that a delivery costs about the same with ten consumers and with thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from isthmus_router.core.model import Link
    from isthmus_router.core.nodes import PathLoad
    from isthmus_router.core.routes import Route, Sink

RELUCTANT = 1 << 19
"""More than the load of any link (`Link.burden`)."""
NOBODY = 1 << 30
"""More than any burden."""


class Balance:
    """What is known of the consumers of one address.

    All but `candidate` have a burden of `least` or more, as far as they belong to routes that have them all.
    """

    __slots__ = ("candidate", "least", "turn")

    def __init__(self) -> None:
        self.turn = 0
        """Where to begin to look, so that ties go round in turn."""
        self.forget()

    def forget(self) -> None:
        """The consumers have changed."""
        self.candidate: Link | PathLoad | None = None
        self.least = 0

    def choose(self, route: Route) -> int:
        """Which of the route's sinks gets the next delivery: one with the smallest burden."""
        sinks, loads = route.sinks, route.loads
        count = len(sinks)
        least = self.least
        candidate = self.candidate
        if candidate is not None:
            at = candidate.place
            if at < count and (sinks[at] is candidate or loads[at] is candidate):
                load = loads[at]
                if (_burden(sinks[at]) if load is None else load.outstanding + load.cost) < least:
                    return at
        best = start = self.turn % count
        best_value = second = NOBODY
        for step in range(count):
            at = (start + step) % count
            load = loads[at]
            value = _burden(sinks[at]) if load is None else load.outstanding + load.cost
            if value < best_value:
                best, best_value, second = at, value, best_value
                if value <= least:
                    break
            elif value < second:
                second = value
        else:
            if route.whole:
                self.candidate, self.least = loads[best] or cast("Link", sinks[best]), second
        self.turn = (best + 1) % count
        return best

    def eased(self, consumer: Link | PathLoad) -> None:
        """A consumer may have a smaller burden than before."""
        candidate = self.candidate
        if consumer is candidate:
            return
        value = consumer.burden()
        if value >= self.least:
            return
        other = NOBODY if candidate is None else candidate.burden()
        if value < other:
            self.candidate, self.least = consumer, min(self.least, other)
        else:
            self.least = value


def _burden(sink: Sink) -> int:
    return cast("Link", sink).burden()
