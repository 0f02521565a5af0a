"""Forwarding plans: where the deliveries of an incoming link go, decided once and used for every delivery.

A `Route` is the result of all routing decisions for one address as seen from one origin (link, ingress router,
trace). The forwarding kernel takes a sink from it per delivery and never decides anything else. Any change
that could alter the decision sets `valid` to False; the holder then asks the core for a new one.
Source: docs/architecture.md; distributions as in the skupper-router family.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import cast

from isthmus_router.core.address import Address, InProcessConsumer, SettlingConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import Hop, PathLoad

Sink = Link | Hop


class RouteKind(Enum):
    """How a delivery is spread over the sinks."""

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
    """One of several, if it will take this delivery: see `Route.choose_for`."""


ONE_OF_THE_SINKS = frozenset({RouteKind.SINGLE, RouteKind.ROTATE, RouteKind.BALANCE})


class Route:
    """One forwarding plan.

    `prefix` is the encoded annotation section for sinks on router connections. `loads` runs parallel to
    `sinks` (BALANCE only): None for a local link, the path's load for a hop.
    """

    __slots__ = (
        "address",
        "deliveries",
        "from_interior",
        "handler",
        "kind",
        "largest",
        "link",
        "loads",
        "members",
        "owner",
        "prefix",
        "resends",
        "shared",
        "sinks",
        "spread",
        "valid",
        "whole",
    )

    def __init__(
        self,
        kind: RouteKind,
        address: Address | None,
        sinks: list[Sink],
        prefix: bytes,
        *,
        loads: list[PathLoad | None] | None = None,
        handler: InProcessConsumer | SettlingConsumer | None = None,
    ) -> None:
        self.kind = kind
        self.spread = kind
        """How a SELECTIVE route is spread over what remains."""
        self.resends = False
        """On a SELECTIVE route: what a receiver releases is sent to another one."""
        self.address = address
        self.sinks = sinks
        self.link: Link | None = None
        """The only sink, when that is a link."""
        if kind is RouteKind.SINGLE and isinstance(sinks[0], Link):
            self.link = sinks[0]
        self.prefix = prefix
        self.loads = loads or []
        self.whole = False
        """Every consumer of the address that comes into question is among the sinks (`Balance`)."""
        self.members: frozenset[Sink] | None = None
        """The sinks, as far as they have been asked for as a set."""
        self.largest = 0
        """Of SELECTIVE: bytes of the largest message that any of the sinks takes (0: any)."""
        self.handler = handler
        self.from_interior = False
        """Its deliveries come from another interior router."""
        self.valid = True
        self.deliveries = 0
        self.shared = False
        """Held by any number of client links: it does not end with one of them."""
        self.owner: Address | None = None
        """The address whose changes make this route invalid."""

    def make_whole(self) -> None:
        """No consumer of the address that comes into question is missing among the sinks."""
        self.whole = True
        for place, sink in enumerate(self.sinks):
            load = self.loads[place] if self.loads else None
            (load or cast("Link", sink)).place = place

    @property
    def ingress(self) -> int:
        """Deliveries that entered the network of interior routers here."""
        return 0 if self.from_interior else self.deliveries

    @property
    def transit(self) -> int:
        """Deliveries sent to other interior routers; those of BALANCE are counted by their address."""
        if self.spread in {RouteKind.NONE, RouteKind.IN_PROCESS, RouteKind.BALANCE}:
            return 0
        hops = sum(isinstance(sink, Hop) for sink in self.sinks)
        return self.deliveries * (hops if self.kind is RouteKind.MULTICAST else min(hops, 1))

    @property
    def handled(self) -> int:
        """Deliveries to a consumer inside this router."""
        return self.deliveries if self.kind is RouteKind.IN_PROCESS else 0

    def make_selective(self, *, resends: bool) -> None:
        """Look at each delivery before a receiver is chosen."""
        self.kind, self.link, self.resends = RouteKind.SELECTIVE, None, resends
        sizes = [0 if isinstance(sink, Hop) else sink.max_message_size for sink in self.sinks]
        self.largest = 0 if 0 in sizes else max(sizes)

    def choose_for(self, size: int, tried: Collection[Sink] = ()) -> tuple[Sink, PathLoad | None] | None:
        """As `choose`, but for a message of `size` bytes that some have been tried for; None without any."""
        if 0 < self.largest < size:
            return None
        sink, load = self.choose()
        if sink not in tried and (isinstance(sink, Hop) or not 0 < sink.max_message_size < size):
            return sink, load
        if load is not None and self.address is not None:
            self.address.transit_closed -= 1
        left = self.among(size, tried)
        return None if left is None else left.choose()

    def among(self, size: int, tried: Collection[Sink] = ()) -> Route | None:
        """For a choice among the receivers that take `size` bytes and have not been tried; None without any."""
        left = [
            at
            for at, sink in enumerate(self.sinks)
            if (sink.__class__ is Hop or not 0 < sink.max_message_size < size)  # type: ignore[union-attr]
            and sink not in tried
        ]
        if not left:
            return None
        loads = [self.loads[at] for at in left] if self.loads else None
        return Route(self.spread, self.address, [self.sinks[at] for at in left], self.prefix, loads=loads)

    def choose(self) -> tuple[Sink, PathLoad | None]:
        """Pick the sink of the next delivery of a route that has one for each.

        Consumers that take deliveries come before those that let them wait.
        """
        assert self.address is not None
        if self.spread is RouteKind.BALANCE:
            at = self.address.balance.choose(self)
            if self.loads[at] is not None:
                self.address.transit_closed += 1
            return self.sinks[at], self.loads[at]
        sinks = self.sinks
        if len(sinks) == 1:
            return sinks[0], None
        if isinstance(sinks[0], Hop):  # so are the others
            self.address.rotation = (self.address.rotation + 1) % 0x3FFFFFFF
            return sinks[self.address.rotation % len(sinks)], None
        return self.address.balance.next_in_turn(self), None
