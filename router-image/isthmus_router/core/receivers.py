"""The receivers that come into question for deliveries to an address, and the choice among them.

All routes of an address to the same receivers share one `Receivers`, so what a route takes does not depend on how many
there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from enum import Enum
from itertools import islice
from operator import attrgetter
from typing import cast

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import Hop, PathLoad

Sink = Link | Hop
Choice = tuple[Sink, PathLoad | None]
"""A receiver, and the load of the path where it is a hop that was chosen by its load."""

MOST_COMPARED = 32
"""Receivers of which the least loaded is found where not every one will do."""

_ID, _SIZE, _SIZE_AND_ID = (
    attrgetter("id"),
    attrgetter("max_message_size"),
    attrgetter("max_message_size", "id"),
)


class RouteKind(Enum):
    """How a delivery is spread over the receivers."""

    NONE = "none"
    """Nobody to deliver to: release."""
    SINGLE = "single"
    """Exactly one sink."""
    ROTATE = "rotate"
    """One of several, in turn."""
    BALANCE = "balance"
    """One of several, the least loaded."""
    MULTICAST = "multicast"
    """A copy to each."""
    IN_PROCESS = "in-process"
    """A consumer inside the router."""
    SELECTIVE = "selective"
    """One of several, if it will take this delivery: see `Receivers.choose_for`."""


ONE_OF_THE_SINKS = frozenset({RouteKind.SINGLE, RouteKind.ROTATE, RouteKind.BALANCE})


class Receivers:
    """Who may get a delivery, and in which way. Only `add` and `remove` change it.

    Links without a largest message come first among the sinks, then the other links, then the hops.
    """

    __slots__ = ("_by_size", "_members", "hops", "kind", "limited", "loads", "sinks", "whole")

    def __init__(
        self,
        kind: RouteKind,
        sinks: list[Sink],
        loads: list[PathLoad | None] | None = None,
        *,
        hops: int = 0,
        whole: bool = False,
    ) -> None:
        """`loads` runs parallel to `sinks` (BALANCE only): None for a local link, the path's load for a hop.

        `hops`: how many of the sinks lead to other routers; they are the last ones. `whole`: every consumer of the
        address that comes into question is among the sinks (`Balance`).
        """
        self.kind = kind
        self.sinks = sinks
        self.loads = loads or []
        self.hops = hops
        self.whole = whole
        self.limited = 0
        """Where one of the sinks gets the delivery: how many of them take no message of any size."""
        self._by_size: list[Link] | None = None
        """These by their largest message, and by id, once that has been asked for."""
        self._members: frozenset[Sink] | None = None
        if kind in ONE_OF_THE_SINKS:
            links = cast("list[Link]", sinks[: len(sinks) - hops])
            limited = [link for link in links if link.max_message_size]
            self.limited = len(limited)
            if 0 < len(limited) < len(links):
                sinks[: len(links)] = [link for link in links if not link.max_message_size] + limited
        if whole and kind in {RouteKind.ROTATE, RouteKind.BALANCE}:
            for place, sink in enumerate(sinks):
                load = self.loads[place] if self.loads else None
                (load or cast("Link", sink)).place = place

    @property
    def can_change(self) -> bool:
        """Whether `add` and `remove` make sense."""
        several = self.kind is RouteKind.BALANCE or (self.kind is RouteKind.ROTATE and not self.hops)
        return several and self.whole

    @property
    def is_limited(self) -> bool:
        """Whether some of the sinks, of which one gets the delivery, take no message of any size."""
        return self.limited > 0

    @property
    def largest(self) -> int:
        """Bytes of the largest message that any of the sinks takes (0: any)."""
        return self._in_order()[-1].max_message_size if 0 < self.limited == len(self.sinks) else 0

    def add(self, link: Link) -> bool:
        """Add a link that consumes now. False if these receivers have to be determined again."""
        if self.kind is RouteKind.ROTATE and link.proxy is not cast("Link", self.sinks[0]).proxy:
            return link.proxy  # a proxy gets nothing while other links consume
        place = len(self.sinks) - self.hops
        self.sinks.insert(place, link)
        link.place = place
        if self.loads:
            self.loads.insert(place, None)
            for load in self.loads[place + 1 :]:
                cast("PathLoad", load).place += 1
        if link.max_message_size:
            self.limited += 1
            if self._by_size is not None:
                insort(self._by_size, link, key=_SIZE_AND_ID)
        else:
            self._swap(link, place - self.limited)
        return True

    def remove(self, link: Link) -> bool:
        """Remove a link that no longer consumes. False if these receivers have to be determined again."""
        if link not in self:
            return True  # it is a proxy that got nothing
        if len(self.sinks) == 2:  # one is not several
            return False
        last = len(self.sinks) - self.hops - 1
        if link.place > last - self.limited:
            self.limited -= 1
            if not self._forget_size(link):
                return False
        else:
            self._swap(link, last - self.limited)
        self._swap(link, last)
        del self.sinks[last]
        if self.loads:
            del self.loads[last]
            for load in self.loads[last:]:
                cast("PathLoad", load).place -= 1
        return True

    def _swap(self, link: Link, place: int) -> None:
        """Have a link exchange places with another one."""
        other = cast("Link", self.sinks[place])
        self.sinks[link.place], self.sinks[place] = other, link
        other.place, link.place = link.place, place

    def _forget_size(self, link: Link) -> bool:
        """Leave a link out of those by their largest message. False if it is not where it has to be."""
        if self._by_size is None:
            return True
        at = bisect_left(self._by_size, _SIZE_AND_ID(link), key=_SIZE_AND_ID)
        if self._by_size[at : at + 1] != [link]:
            return False
        del self._by_size[at]
        return True

    def _in_order(self) -> list[Link]:
        """The links with a largest message, by its size."""
        if self._by_size is None:
            free = len(self.sinks) - self.hops - self.limited
            by_id = sorted(cast("list[Link]", self.sinks[free : free + self.limited]), key=_ID)
            self._by_size = sorted(by_id, key=_SIZE)  # twice, as numbers are compared faster than pairs
        return self._by_size

    def __contains__(self, link: Link) -> bool:
        """Whether a consumer of the address is among the sinks."""
        if self.whole:
            return link.place < len(self.sinks) and self.sinks[link.place] is link
        if self._members is None:
            self._members = frozenset(self.sinks)
        return link in self._members

    def choose(self, address: Address) -> Choice:
        """Pick the sink of the next delivery to `address`.

        Consumers that take deliveries come before those that let them wait.
        """
        sinks = self.sinks
        if self.kind is RouteKind.BALANCE:
            at = address.balance.choose(self)
            return sinks[at], self.loads[at]
        if len(sinks) == 1:
            return sinks[0], None
        if self.hops:  # then all of them are hops
            return sinks[address.balance.next_turn(len(sinks))], None
        return address.balance.next_in_turn(self, address.consumers), None

    def choose_for(self, address: Address, size: int, tried: Collection[Sink] = ()) -> Choice | None:
        """As `choose`, but for a message of `size` bytes that some have been tried for; None without any."""
        if 0 < self.largest < size:
            return None
        choice = self.choose(address)
        sink = choice[0]
        if sink not in tried and not 0 < _limit(sink) < size:
            return choice
        takers = list(islice(self._takers(address, size, tried), MOST_COMPARED))
        return min(takers, key=_burden, default=None)

    def _takers(self, address: Address, size: int, tried: Collection[Sink]) -> Iterator[Choice]:
        """Those that take `size` bytes and have not been tried."""
        first_hop = len(self.sinks) - self.hops
        free = first_hop - self.limited
        ordered = self._in_order() if self.limited else []
        first = bisect_left(ordered, size, key=_SIZE)
        count = free + self.hops + len(ordered) - first
        start = address.balance.next_turn(count)
        for step in range(count):
            at = (start + step) % count
            load = None
            if at < free:
                sink = self.sinks[at]
            elif at < free + self.hops:
                sink = self.sinks[first_hop + at - free]
                load = self.loads[first_hop + at - free] if self.loads else None
            else:
                sink = ordered[first + at - free - self.hops]
            if sink not in tried:
                yield sink, load


def _limit(sink: Sink) -> int:
    """Bytes of the largest message that a sink takes (0: any)."""
    return 0 if sink.__class__ is Hop else cast("Link", sink).max_message_size


def _burden(choice: Choice) -> int:
    sink, load = choice
    if load is not None:
        return load.burden()
    return 0 if sink.__class__ is Hop else cast("Link", sink).burden()


NOBODY = Receivers(RouteKind.NONE, [])
INSIDE = Receivers(RouteKind.IN_PROCESS, [])
"""Of routes to a consumer inside the router."""
