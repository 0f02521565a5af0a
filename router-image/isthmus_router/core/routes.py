"""Forwarding plans: where the deliveries of an incoming link go, decided once and used for every delivery.

A `Route` is the result of all routing decisions for one address as seen from one origin (link, ingress router,
trace). The forwarding kernel takes a sink from it per delivery and never decides anything else. Any change
that could alter the decision sets `valid` to False; the holder then asks the core for a new one.
Source: docs/architecture.md; distributions as in the skupper-router family.
"""

from __future__ import annotations

from collections.abc import Collection

from isthmus_router.core.address import Address, InProcessConsumer, SettlingConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.receivers import NOBODY, Choice, Receivers, RouteKind, Sink


class Route:
    """One forwarding plan. `prefix` is the encoded annotation section for sinks on router connections."""

    __slots__ = (
        "address",
        "deliveries",
        "from_interior",
        "handler",
        "kind",
        "link",
        "owner",
        "prefix",
        "receivers",
        "resends",
        "shared",
        "valid",
    )

    def __init__(
        self,
        address: Address | None,
        receivers: Receivers,
        prefix: bytes,
        *,
        handler: InProcessConsumer | SettlingConsumer | None = None,
    ) -> None:
        self.address = address
        self.receivers = receivers
        self.prefix = prefix
        self.handler = handler
        self.resends = False
        """On a SELECTIVE route: what a receiver releases is sent to another one."""
        self.kind = receivers.kind
        self.link: Link | None = None
        """The only sink, when that is a link."""
        if self.kind is RouteKind.SINGLE and isinstance(receivers.sinks[0], Link):
            self.link = receivers.sinks[0]
        self.from_interior = False
        """Its deliveries come from another interior router."""
        self.valid = True
        self.deliveries = 0
        self.shared = False
        """Held by any number of client links: it does not end with one of them."""
        self.owner: Address | None = None
        """The address whose changes make this route invalid."""

    def make_selective(self, *, resends: bool) -> None:
        """Look at each delivery before a receiver is chosen."""
        self.kind, self.link, self.resends = RouteKind.SELECTIVE, None, resends

    def end(self) -> None:
        """It is not valid any more. Links may hold it for long, but not what it led to."""
        self.valid = False
        self.deliveries = 0
        self.receivers, self.link, self.handler = NOBODY, None, None

    @property
    def sinks(self) -> list[Sink]:
        """Who may get its deliveries."""
        return self.receivers.sinks

    @property
    def ingress(self) -> int:
        """Deliveries that entered the network of interior routers here."""
        return 0 if self.from_interior else self.deliveries

    @property
    def transit(self) -> int:
        """Deliveries sent to other interior routers; those of BALANCE are counted by their address."""
        kind, hops = self.receivers.kind, self.receivers.hops
        if kind is RouteKind.BALANCE:
            return 0
        return self.deliveries * (hops if kind is RouteKind.MULTICAST else min(hops, 1))

    @property
    def handled(self) -> int:
        """Deliveries to a consumer inside this router."""
        return self.deliveries if self.kind is RouteKind.IN_PROCESS else 0

    def choose(self) -> Choice:
        """Pick the sink of the next delivery of a route that has one for each."""
        assert self.address is not None
        return self._count(self.receivers.choose(self.address))

    def choose_for(self, size: int, tried: Collection[Sink] = ()) -> Choice | None:
        """As `choose`, but for a message of `size` bytes that some have been tried for; None without any."""
        assert self.address is not None
        choice = self.receivers.choose_for(self.address, size, tried)
        return None if choice is None else self._count(choice)

    def _count(self, choice: Choice) -> Choice:
        if choice[1] is not None:
            assert self.address is not None
            self.address.transit_closed += 1
        return choice
