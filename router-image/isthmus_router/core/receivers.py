"""The receivers that come into question for deliveries to an address, and the choice among them.

All routes of an address to the same receivers share one `Receivers`, so what a route takes does not depend on how many
there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import cast

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import Hop, PathLoad

Sink = Link | Hop
Choice = tuple[Sink, PathLoad | None]
"""A receiver, and the load of the path where it is a hop that was chosen by its load."""

MOST_COMPARED = 32
"""Receivers of which the least loaded is found where not every one will do."""


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
    """Who may get a delivery, and in which way. Only `add` and `remove` change it."""

    __slots__ = ("_members", "_takers", "hops", "is_limited", "kind", "largest", "loads", "sinks", "whole")

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
        self.is_limited = False
        """Some of the sinks, of which one gets the delivery, take no message of any size."""
        self.largest = 0
        """If so, bytes of the largest message that any of them takes (0: any)."""
        self._members: frozenset[Sink] | None = None
        self._takers: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        if kind in ONE_OF_THE_SINKS:
            limits = {cast("Link", sink).max_message_size for sink in islice(sinks, len(sinks) - hops)}
            limits |= {0} if hops else set()
            self.is_limited = limits != {0}
            self.largest = 0 if 0 in limits else max(limits)
        if whole and kind in {RouteKind.ROTATE, RouteKind.BALANCE}:
            for place, sink in enumerate(sinks):
                load = self.loads[place] if self.loads else None
                (load or cast("Link", sink)).place = place

    @property
    def can_change(self) -> bool:
        """Whether `add` and `remove` make sense."""
        several = self.kind is RouteKind.BALANCE or (self.kind is RouteKind.ROTATE and not self.hops)
        return several and self.whole and not self.is_limited

    def add(self, link: Link) -> bool:
        """Add a link that consumes now. False if these receivers have to be determined again."""
        if link.max_message_size:
            return False
        if self.kind is RouteKind.ROTATE and link.proxy is not cast("Link", self.sinks[0]).proxy:
            return link.proxy  # a proxy gets nothing while other links consume
        place = len(self.sinks) - self.hops
        self.sinks.insert(place, link)
        link.place = place
        if self.loads:
            self.loads.insert(place, None)
            for load in self.loads[place + 1 :]:
                cast("PathLoad", load).place += 1
        return True

    def remove(self, link: Link) -> bool:
        """Remove a link that no longer consumes. False if these receivers have to be determined again."""
        if link not in self:
            return True  # it is a proxy that got nothing
        if len(self.sinks) == 2:  # one is not several
            return False
        last = len(self.sinks) - self.hops - 1
        moved = cast("Link", self.sinks[last])
        self.sinks[link.place], moved.place = moved, link.place
        del self.sinks[last]
        if self.loads:
            del self.loads[last]
            for load in self.loads[last:]:
                cast("PathLoad", load).place -= 1
        return True

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
        places = list(islice(self._places(address, size, tried), MOST_COMPARED))
        if not places:
            return None
        at = min(places, key=self._burden)
        return self.sinks[at], self.loads[at] if self.loads else None

    def _places(self, address: Address, size: int, tried: Collection[Sink]) -> Iterator[int]:
        """Where those are that take `size` bytes and have not been tried: first those that take much more."""
        roomy, tight = self._that_take(size)
        start = address.balance.next_turn(len(roomy))
        for step in range(len(roomy)):
            at = roomy[(start + step) % len(roomy)]
            if self.sinks[at] not in tried:
                yield at
        for at in tight:
            if _limit(self.sinks[at]) < size:
                return
            if self.sinks[at] not in tried:
                yield at

    def _that_take(self, size: int) -> tuple[Sequence[int], Sequence[int]]:
        """Where those are that take every message up to the next power of two, and those with a limit below that."""
        if not self.is_limited:
            return range(len(self.sinks)), ()
        power = max(size - 1, 0).bit_length()
        takers = self._takers.get(power)
        if takers is None:
            most = 1 << power
            limits = [_limit(sink) for sink in self.sinks]
            roomy = [at for at, limit in enumerate(limits) if not 0 < limit < most]
            tight = [at for at, limit in enumerate(limits) if most // 2 < limit < most]
            tight.sort(key=lambda at: -limits[at])
            takers = self._takers[power] = roomy, tight
        return takers

    def _burden(self, at: int) -> int:
        sink, load = self.sinks[at], self.loads[at] if self.loads else None
        if load is not None:
            return load.burden()
        return 0 if sink.__class__ is Hop else cast("Link", sink).burden()


def _limit(sink: Sink) -> int:
    """Bytes of the largest message that a sink takes (0: any)."""
    return 0 if sink.__class__ is Hop else cast("Link", sink).max_message_size


NOBODY = Receivers(RouteKind.NONE, [])
INSIDE = Receivers(RouteKind.IN_PROCESS, [])
"""Of routes to a consumer inside the router."""
