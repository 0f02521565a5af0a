"""Address tracking, interior side: tells each edge which of its senders' addresses can be delivered to.

Per edge connection there is one `Endpoint`: the tracking link that the edge attached, and the mobile
addresses to which links of that connection (the edge's proxies) produce, counted. Whether such an address is
reachable is the core's judgement of those very links, so a consumer behind the same edge does not count.

Source: the edge address tracking of the skupper-router family.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from isthmus_router.core.address import Address, normalise
from isthmus_router.core.model import MOST_UNREAD_BYTES, Connection, Link
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition
from isthmus_router.edge.messages import TRACKING_ADDRESS, encode_tracking

log = logging.getLogger("ROUTER_CORE")

NO_TRACKING = Condition("qd:connection-role", "Connection does not support address tracking")
NO_INCOMING = Condition("amqp:not-implemented", "Incoming messages not allowed")
NOT_READ = Condition("amqp:resource-limit-exceeded", "Too many tracking messages are not read")
TWICE = Condition("amqp:not-allowed", "Addresses are tracked on another link of this connection")

UNREAD_PER_ADDRESS = 2
UNREAD_ALLOWANCE = 10_000
"""An edge further behind than this loses its tracking link; on a new one it is told everything afresh. So does one
that always leaves a message unread, once that many addresses are outdated."""


@dataclass(slots=True)
class Tracked:
    """One address to which an edge produces."""

    links: int = 0
    reachable: bool = False
    told: bool = False
    """What the edge has been told last; edges start from unreachable."""


class Endpoint:
    """What one edge connection is told; exists while the edge has a tracking link or tracked links."""

    __slots__ = ("addresses", "link", "outdated")

    def __init__(self) -> None:
        self.link: Link | None = None
        self.addresses: dict[str, Tracked] = {}
        self.outdated: set[str] = set()
        """Addresses given up while a word that they are reachable may not have been read by the edge yet."""


class AddressTracking:
    """The endpoints of all edge connections of an interior; an observer and link handler of its core."""

    def __init__(self, core: RouterCore) -> None:
        self.core = core
        self.endpoints: dict[Connection, Endpoint] = {}
        self.messages_sent = 0
        core.observers.append(self)
        core.link_handlers.append(self._take_link)

    @property
    def tracked_addresses(self) -> int:
        """Addresses that links of edges produce to, counted for each edge connection."""
        return sum(len(endpoint.addresses) for endpoint in self.endpoints.values())

    # The tracking link

    def _take_link(self, link: Link) -> bool:
        terminus = link.target if link.incoming else link.source
        if terminus.address is None or normalise(terminus.address) != TRACKING_ADDRESS:
            return False
        if link.connection.role is not Role.EDGE:
            self.core.refuse(link, NO_TRACKING)
            return True
        if link.incoming:
            self.core.refuse(link, NO_INCOMING)
            return True
        endpoint = self._endpoint(link.connection)
        if endpoint.link is not None:
            self.core.refuse(link, TWICE)
            return True
        self.core.port.accept_link(link, link.source, link.target)
        endpoint.link = link
        link.connection.superseded = False
        self.core.port.work(self._tell_all(endpoint, link))
        return True

    def _tell_all(self, endpoint: Endpoint, link: Link) -> Iterator[None]:
        """Bring the edge up to date on all addresses, in steps: it may have very many."""
        if endpoint.link is link:
            for key in list(endpoint.addresses):
                if endpoint.link is not link:
                    return
                tracked = endpoint.addresses.get(key)
                if tracked is not None:
                    self._tell(endpoint, key, tracked)
                yield

    def _endpoint(self, connection: Connection) -> Endpoint:
        endpoint = self.endpoints.get(connection)
        if endpoint is None:
            endpoint = self.endpoints[connection] = Endpoint()
        return endpoint

    def _tell(self, endpoint: Endpoint, key: str, tracked: Tracked) -> None:
        """Bring the edge up to date on one address."""
        if tracked.told is not tracked.reachable:
            tracked.told = tracked.reachable
            self._send(endpoint, key, tracked.reachable)

    def _send(self, endpoint: Endpoint, key: str, reachable: bool) -> None:
        link = endpoint.link
        if link is None:
            return
        if (
            link.load() > UNREAD_ALLOWANCE + UNREAD_PER_ADDRESS * len(endpoint.addresses)
            or len(endpoint.outdated) > UNREAD_ALLOWANCE
            or link.parked_bytes > MOST_UNREAD_BYTES
        ):
            log.warning("edge does not read tracking messages", extra={"connection": link.connection.id})
            self.core.port.detach_link(link, NOT_READ)
            return
        self.messages_sent += 1
        self.core.port.send(link, encode_tracking(key, reachable), settled=False)

    # Core events

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface: nothing to do before the edge attaches links."""

    def connection_closed(self, connection: Connection) -> None:
        """Observer interface: every link was unbound before, so nothing is left."""

    def link_bound(self, link: Link) -> None:
        """An edge's link produces to an address: count it; reachability is told by `reachability_changed`."""
        address = _tracked_address(link)
        if address is None:
            return
        endpoint = self._endpoint(link.connection)
        tracked = endpoint.addresses.setdefault(address.key, Tracked())
        tracked.links += 1
        # Every proxy link starts unbound at the edge, whatever was said to an earlier one.
        told, tracked.told = tracked.told, False
        if told or address.key in endpoint.outdated:
            endpoint.outdated.discard(address.key)
            if link.route is None or link.route.kind is RouteKind.NONE:
                self._send(endpoint, address.key, False)

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Deliveries from the edge to this address find somebody, or no longer do."""
        address = _tracked_address(link)
        if address is None:
            return
        endpoint = self.endpoints[link.connection]
        tracked = endpoint.addresses[address.key]
        tracked.reachable = reachable
        if endpoint.link is not None:
            self._tell(endpoint, address.key, tracked)

    def link_unbound(self, link: Link) -> None:
        """A link of an edge is gone: a tracked one, or the tracking link itself."""
        endpoint = self.endpoints.get(link.connection)
        if endpoint is None:
            return
        if link is endpoint.link:
            endpoint.link = None
            # If the connection stays, the edge uses another one from now on.
            link.connection.superseded = True
            endpoint.outdated.clear()
            for tracked in endpoint.addresses.values():
                tracked.told = False
        else:
            address = _tracked_address(link)
            if address is None:
                return
            self._release(endpoint, address.key)
        if endpoint.link is None and not endpoint.addresses:
            del self.endpoints[link.connection]

    def _release(self, endpoint: Endpoint, key: str) -> None:
        tracked = endpoint.addresses[key]
        tracked.links -= 1
        if tracked.links:
            return
        del endpoint.addresses[key]
        if endpoint.link is None:
            return
        if endpoint.link.load() == 0:
            # The edge has read all that was sent, so nothing old can reach a proxy link it opens later.
            endpoint.outdated.clear()
        elif tracked.told:
            endpoint.outdated.add(key)


def _tracked_address(link: Link) -> Address | None:
    """The mobile address to which an edge's link produces; None for every other link.

    Addresses served by the router itself, such as `$management`, are every router's own.
    """
    address = link.address
    if (
        address is None
        or not link.incoming
        or link.connection.role is not Role.EDGE
        or not address.is_mobile
        or (address.handler is not None and not address.handler.for_all)
    ):
        return None
    return address
