"""The choice among consumers of a balanced address: the least loaded, without looking at all of them each time.

A consumer's burden is what it has under way, or for the path to another router, what is under way there plus the
path's cost. Who has nothing to do is mostly found at once, and who is much less loaded than the others stays known for
a while. Where that is not so, all consumers stand in lines by their burdens. So a delivery costs about the same with
ten consumers and with thousands.

The consumers of a `closest` address take turns. Who lets deliveries wait is passed over and left out of the turns until
it eases.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from isthmus_router.core.model import Link
    from isthmus_router.core.nodes import PathLoad
    from isthmus_router.core.receivers import Receivers, Sink

RELUCTANT = 1 << 19
"""More than the load of any link (`Link.burden`)."""
NOBODY = 1 << 30
"""More than any burden."""
MOST_LOOKS = 64
"""Consumers that are looked at for one delivery before they stand in lines by their burdens."""


class Balance:
    """What is known of the consumers of one address.

    All but `candidate` have a burden of `least` or more, as far as they belong to routes that have them all.
    """

    __slots__ = ("burdens", "candidate", "heeded", "least", "lines", "turn")

    def __init__(self) -> None:
        self.turn = 0
        """Where to begin to look, so that ties go round in turn."""
        self.forget()

    def forget(self) -> None:
        """The consumers have changed."""
        self.candidate: Link | PathLoad | None = None
        self.least = 0
        self.heeded = 0
        """`eased` has to be told of a consumer that has a smaller burden than this, and had a larger one."""
        self.burdens: Burdens | None = None
        """The consumers by their burdens, once many of them have been looked at for one delivery."""
        self.lines: tuple[OrderedDict[Link, None], OrderedDict[Link, None]] | None = None
        """Where they take turns: at least all that take deliveries, and all that let them wait but have room."""

    def removed(self, link: Link) -> None:
        """A link consumes no longer."""
        if self.candidate is link:
            self.candidate = None
        if self.burdens is not None:
            self.burdens.remove(link)
            if len(self.burdens) <= MOST_LOOKS // 2:
                self.burdens, self.heeded = None, self.least
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
            self.heeded = 0
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
            self.heeded = NOBODY
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
        looks = MOST_LOOKS if receivers.whole and count > MOST_LOOKS else count
        for step in range(looks):
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
            if looks < count:
                best = self.least_of_all(receivers)
            elif receivers.whole:
                self.remember(loads[best] or cast("Link", sinks[best]), second)
        self.turn = (best + 1) % count
        return best

    def least_of_all(self, receivers: Receivers) -> int:
        """Which of the receivers, who are all consumers, has the smallest burden, without a look at all of them."""
        burdens = self.burdens
        if burdens is None or burdens.receivers is not receivers:
            burdens = self.burdens = Burdens(receivers)
        self.candidate = None
        at, least = burdens.next()
        self._set_least(least)
        return at

    def remember(self, candidate: Link | PathLoad, second: int) -> None:
        """All have been looked at: this one has the smallest burden, and all others have `second` or more."""
        self.candidate = candidate
        self._set_least(second)

    def _set_least(self, least: int) -> None:
        self.least = least
        self.heeded = least if self.burdens is None else NOBODY

    def eased(self, consumer: Link | PathLoad) -> None:
        """A consumer may have a smaller burden than before, or is new."""
        if self.lines is not None:
            link = cast("Link", consumer)
            if link not in self.lines[0]:
                self._put_in_line(link)
            return
        if self.burdens is not None:
            self.burdens.eased(consumer)
        candidate = self.candidate
        if consumer is candidate:
            return
        value = consumer.burden()
        if value >= self.least:
            return
        other = NOBODY if candidate is None else candidate.burden()
        if value < other:
            self.candidate = consumer
            self._set_least(min(self.least, other))
        else:
            self._set_least(value)


class Burdens:
    """All consumers of one address in lines by their burdens.

    Each stands where its burden was when it was looked at last, or where it has eased since: it has no smaller burden.
    Who comes first in the first line is looked at again, and has its turn unless it has to go on to another line.
    """

    __slots__ = ("_line_of", "_lines", "_order", "receivers")

    def __init__(self, receivers: Receivers) -> None:
        """`receivers`: all consumers. `eased` and `remove` keep the lines up to date when some of them come or go."""
        self.receivers = receivers
        self._lines: dict[int, OrderedDict[Link | PathLoad, None]] = {}
        self._line_of: dict[Link | PathLoad, int] = {}
        self._order: list[int] = []
        """A heap of the burdens that have had a line; some may have none any more."""
        for sink, load in zip(receivers.sinks, receivers.loads, strict=True):
            consumer = load or cast("Link", sink)
            self._put(consumer, consumer.burden())

    def __len__(self) -> int:
        return len(self._line_of)

    def _has(self, consumer: Link | PathLoad) -> bool:
        """Whether it is one of the receivers."""
        sinks, at = self.receivers.sinks, consumer.place
        return at < len(sinks) and (sinks[at] is consumer or self.receivers.loads[at] is consumer)

    def _put(self, consumer: Link | PathLoad, burden: int) -> None:
        line = self._lines.get(burden)
        if line is None:
            line = self._lines[burden] = OrderedDict()
            heappush(self._order, burden)
        line[consumer] = None
        self._line_of[consumer] = burden

    def remove(self, consumer: Link | PathLoad) -> None:
        """It consumes no longer."""
        burden = self._line_of.pop(consumer, None)
        if burden is not None:
            del self._lines[burden][consumer]

    def eased(self, consumer: Link | PathLoad) -> None:
        """It has a smaller burden than before, or is new."""
        known, burden = self._line_of.get(consumer, NOBODY), consumer.burden()
        if burden < known and self._has(consumer):
            self.remove(consumer)
            self._put(consumer, burden)

    def next(self) -> tuple[int, int]:
        """The place of the consumer with the smallest burden, and that burden; those with the same take turns."""
        while True:
            least = self._order[0]
            line = self._lines[least]
            while line:
                consumer = next(iter(line))
                burden = consumer.burden()
                is_here = self._has(consumer)  # the compiled kernel takes the place without a further look
                if is_here and burden <= least:
                    line.move_to_end(consumer)
                    return consumer.place, least
                self.remove(consumer)
                if is_here:
                    self._put(consumer, burden)
            heappop(self._order)
            del self._lines[least]


def _burden(sink: Sink) -> int:
    return cast("Link", sink).burden()
