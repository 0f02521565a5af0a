"""The choice among consumers of a balanced address: the least loaded, without looking at all of them each time.

A consumer's burden is what it has under way, or for the path to another router, what is under way there plus the
path's cost. Who has nothing to do is mostly found at once, and who is much less loaded than the others stays known for
a while, so that a delivery costs about the same with ten consumers and with thousands.

The consumers of a `closest` address take turns. Who lets deliveries wait is passed over and left out of the turns until
it eases.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from isthmus_router.core.model import Link
    from isthmus_router.core.nodes import PathLoad
    from isthmus_router.core.receivers import Receivers, Sink

RELUCTANT = 1 << 19
"""More than the load of any link (`Link.burden`)."""
NOBODY = 1 << 30
"""More than any burden."""


class Balance:
    """What is known of the consumers of one address.

    All but `candidate` have a burden of `least` or more, as far as they belong to routes that have them all. Where
    consumers take turns, `least` is more than nothing while some of them are in no line.
    """

    __slots__ = ("candidate", "least", "lines", "turn")

    def __init__(self) -> None:
        self.turn = 0
        """Where to begin to look, so that ties go round in turn."""
        self.forget()

    def forget(self) -> None:
        """The consumers have changed."""
        self.candidate: Link | PathLoad | None = None
        self.least = 0
        self.lines: tuple[OrderedDict[Link, None], OrderedDict[Link, None]] | None = None
        """Where they take turns: at least all that take deliveries, and all that let them wait but have room."""

    def removed(self, link: Link) -> None:
        """A link consumes no longer."""
        if self.candidate is link:
            self.candidate = None
        for line in self.lines or ():
            line.pop(link, None)

    def next_turn(self, count: int) -> int:
        """A place among `count`, one after the other."""
        self.turn = (self.turn + 1) % max(count, 1)
        return self.turn

    def next_in_turn(self, receivers: Receivers, consumers: Iterable[Link]) -> Link:
        """The link of the next delivery where `consumers` take turns: those that let deliveries wait come last."""
        lines = self.lines
        if lines is None:
            lines = self.lines = OrderedDict(), OrderedDict()
            self.least = 0
            for link in consumers:
                self._put_in_line(link)
        for patience, line in enumerate(lines):
            for _ in range(len(line)):
                link = next(iter(line))
                if link.burden() // RELUCTANT > patience:
                    del line[link]
                    self._put_in_line(link)
                    continue
                line.move_to_end(link)
                if link in receivers:
                    return link
        return cast("Link", receivers.sinks[self.next_turn(len(receivers.sinks))])

    def _put_in_line(self, link: Link) -> None:
        """Give a link a turn among those who are as reluctant; none if it is at its capacity."""
        assert self.lines is not None
        reluctance = link.burden() // RELUCTANT
        if reluctance:
            self.least = NOBODY
        if reluctance < len(self.lines):
            self.lines[reluctance][link] = None

    def choose(self, receivers: Receivers) -> int:
        """Which of the receivers gets the next delivery: one with the smallest burden."""
        sinks, loads = receivers.sinks, receivers.loads
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
        last = count - 1  # the others have been looked at, and what has been found out is kept
        for step in range(count):
            at = (start + step) % count
            load = loads[at]
            value = _burden(sinks[at]) if load is None else load.outstanding + load.cost
            if value < best_value:
                best, best_value, second = at, value, best_value
                if value <= least and step < last:
                    break
            elif value < second:
                second = value
        else:
            if receivers.whole:
                self.candidate, self.least = loads[best] or cast("Link", sinks[best]), second
        self.turn = (best + 1) % count
        return best

    def eased(self, consumer: Link | PathLoad) -> None:
        """A consumer may have a smaller burden than before, or is new."""
        if self.lines is not None:
            link = cast("Link", consumer)
            if link not in self.lines[0]:
                self._put_in_line(link)
            return
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
