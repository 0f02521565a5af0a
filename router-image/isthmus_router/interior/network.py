"""An interior router's part in the network: the routing engine between its neighbours and the core.

Carries the engine's messages over the control links (forwarding those for others), and turns the engine's results
into hops, nodes and remote addresses of the core. Sans-IO: time comes from `clock`, and `schedule` is told when to
call `tick`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from isthmus_router.core.address import Address, AddressClass, address_key
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.planner import router_of
from isthmus_router.core.port import CallLater
from isthmus_router.core.router import ADVERTISED, RouterCore
from isthmus_router.interior.connections import NeighbourConnections
from isthmus_router.interior.log import RoutingLog
from isthmus_router.interior.rates import PassingRates
from isthmus_router.message.sections import (
    IncompleteError,
    RouterAnnotations,
    SectionError,
    annotations_length,
    decode_annotations,
    encode_annotations,
    find_to,
)
from isthmus_router.routing import actions as act
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.messages import MobileAddress

log = logging.getLogger("ROUTER_LS")

CONTROL_NAMES = frozenset({"qdrouter", "qdrouter.ma"})
"""What control messages to all routers are addressed to."""
MOST_ANNOTATION_BYTES = 64 * 1024
MOST_WAITING, MOST_WAITING_BYTES = 5_000, 32 * 1024 * 1024
"""Messages that wait for a neighbour, before those of others are not added. A neighbour that leaves twice as much
unread is disconnected."""


class InteriorNetwork:
    """Routing of one interior router."""

    def __init__(
        self,
        core: RouterCore,
        engine: RoutingEngine,
        clock: Callable[[], float],
        schedule: Callable[[float], None],
        *,
        call_later: CallLater,
        regroup: Callable[[Connection], None],
    ) -> None:
        """`regroup`: let the connector of a connection connect anew, as another group."""
        self.core = core
        self.engine = engine
        self._clock = clock
        self._schedule = schedule
        self._scheduled = float("inf")
        self._advertised: set[str] = set()
        self._reading = False
        self._log = RoutingLog()
        self.rates = PassingRates()
        self.on_event: Callable[[act.Action], None] | None = None
        """Called with what the routing engine has found out."""
        self._own_prefix = encode_annotations(0, None, core.name, (core.name,))
        self.connections = NeighbourConnections(core, self, call_later, regroup)
        core.advertised = self._on_local_consumers

    def start(self) -> None:
        """Begin to keep time."""
        self.tick()

    def tick(self) -> None:
        """The engine's deadline has passed."""
        self._scheduled = float("inf")
        self._carry_out(self.engine.on_tick(self._clock()))

    def leave(self) -> None:
        """Leave the network: neighbours route around this router at once, what is under way goes on."""
        self.connections.leave()

    def cost_changed(self, connection: Connection) -> None:
        """The cost of an open connection is another one now; the peer learns it from the link state."""
        self.connections.cost_changed(connection)

    # Links to neighbours

    def link_up(self, hop: Hop, cost: int, least: int | None) -> None:
        """Routing interface of the connections."""
        self._carry_out(self.engine.on_link_up(hop.number, cost, self._clock(), least))

    def link_cost(self, hop: Hop, cost: int) -> None:
        """Routing interface of the connections."""
        self._carry_out(self.engine.on_link_cost(hop.number, cost, self._clock()))

    def link_lost(self, hop: Hop) -> None:
        """Routing interface of the connections."""
        self._carry_out(self.engine.on_link_lost(hop.number, self._clock()))

    # Control messages

    def control_message(self, hop: Hop, link: Link, payload: bytes) -> None:
        """A control message came in: for this router, for another, or for all."""
        try:
            length = annotations_length(payload, len(payload))
            if length > MOST_ANNOTATION_BYTES:
                raise SectionError(f"router annotations of {length} bytes")
            annotations = decode_annotations(payload[:length]) if length else RouterAnnotations()
            to = find_to(payload, length, len(payload))
        except (SectionError, IncompleteError) as error:
            self._log.refused(hop.number, str(error), self._clock())
            return
        if to is None:
            return
        key = address_key(to.decode("utf-8", "replace"), self.core.id, edge=False)
        if key[0] in {AddressClass.LOCAL, AddressClass.TOPOLOGICAL}:
            self._carry_out(self.engine.on_message(hop.number, payload[length:], self._clock()))
        if key[0] in {AddressClass.TOPOLOGICAL, AddressClass.ROUTER}:
            self._pass_on(hop, link, key, annotations, payload[length:])

    def _pass_on(
        self, hop: Hop, link: Link, key: str, annotations: RouterAnnotations, message: bytes
    ) -> None:
        """Forward a control message that is for another router, or for all, unless it has been here."""
        name = self.core.name
        if len(annotations.trace) > self.core.radius + 1 or name in annotations.trace:
            return
        topological = key[0] == AddressClass.TOPOLOGICAL
        if topological and key[1:] not in CONTROL_NAMES:
            return  # an address would be made for each name, which peers can choose
        address = self.core.addresses.obtain(key) if topological else self.core.addresses.get(key)
        if address is None:
            return
        hops = list(self.core.planner.paths(address, link, annotations))
        if not topological:
            hops = hops[:1]
        if not hops:
            return
        origin = router_of(annotations.ingress or "")
        known = origin if origin in self.core.nodes else ""
        now = self._clock()
        if not self.rates.allows(hop.number, known, len(hops), len(message), now):
            self._log.refused(hop.number, f"too many messages of {known or 'others'} to be passed on", now)
            return
        trace = (*annotations.trace, name)
        prefix = encode_annotations(
            annotations.flags, annotations.to_override, annotations.ingress or name, trace
        )
        self._send([other for other in hops if self._has_room(other, len(message))], prefix + message)

    def _has_room(self, hop: Hop, size: int) -> bool:
        """Whether a neighbour takes what others send it: too much of it would have it disconnected."""
        control = hop.connection.control_out
        if control is None:
            return False
        room = control.waiting < MOST_WAITING and control.parked_bytes + size <= MOST_WAITING_BYTES
        self.rates.dropped += not room
        return room

    def _send(self, hops: Iterable[Hop], payload: bytes) -> None:
        for hop in hops:
            control = hop.connection.control_out
            if control is not None:
                self.core.port.send(control, payload, settled=True)

    # The engine's actions

    def _carry_out(self, actions: list[act.Action]) -> None:
        for action in actions:
            match action:
                case act.SendHello(number, payload):
                    hop = self.connections.hops.get(number)
                    if hop is not None:
                        self._send((hop,), self._own_prefix + payload)
                case act.SendUnicast(router, _, payload):
                    node = self.core.nodes.get(router)
                    if node is not None and node.hop is not None:
                        self._send((node.hop,), self._own_prefix + payload)
                case act.SendMulticast(_, payload):
                    hops = {node.hop for node in self.core.nodes.values() if node.hop is not None}
                    self._send(hops, self._own_prefix + payload)
                case act.RoutesChanged(table):
                    self._take_table(table)
                    self._tell(action)
                case act.RemoteAddressesChanged(router, added, removed):
                    node = self.core.remotes.node(router)
                    # A router announces consumers, never the way to another router or what is local to it.
                    for key in removed:
                        if key[0] in ADVERTISED:
                            self.core.remotes.remove(node, key)
                    for key, mobile in added.items():
                        if key[0] in ADVERTISED:
                            self.core.remotes.add(node, key, mobile.treatment)
                case act.RouterFlushed(router):
                    node = self.core.nodes.get(router)
                    if node is not None:
                        self.core.remotes.flush_node(node)
                case act.RouterRemoved(router, _):
                    self.core.remotes.remove_node(router)
                    self._log.event(action, self._clock())
                    self._tell(action)
                case _:
                    self._log.event(action, self._clock())
                    self._tell(action)
        if not self._reading and self.engine.has_work(self._clock()):
            self._reading = True
            self.core.port.work(self._read_updates())
        deadline = self.engine.next_deadline
        if deadline < self._scheduled:
            self._scheduled = deadline
            self._schedule(deadline)

    def _read_updates(self) -> Iterator[None]:
        """Large updates of addresses are read in steps."""
        try:
            while self.engine.has_work(self._clock()):
                self._carry_out(self.engine.work(self._clock()))
                yield
        finally:
            self._reading = False

    def _tell(self, action: act.Action) -> None:
        if self.on_event is not None:
            self.on_event(action)

    def _take_table(self, table: act.RouteTable) -> None:
        neighbours = {number: router for router, number in table.neighbours.items()}
        for hop in self.connections.hops.values():
            hop.neighbour = neighbours.get(hop.number)
        for router, route in table.routes.items():
            node = self.core.remotes.node(router)
            node.hop = self.connections.hops.get(route.link)
            node.cost = route.cost
            node.valid_origins = route.valid_origins
        for node in self.core.nodes.values():
            if node.id not in table.routes:
                node.hop = None
        self.core.radius = table.radius
        self.core.remotes.paths_changed()
        log.info("paths computed", extra={"routers": len(table.routes), "radius": table.radius})
        log.debug(
            "paths",
            extra={
                "next_hops": {router: route.next_hop for router, route in sorted(table.routes.items())},
                "costs": {router: route.cost for router, route in sorted(table.routes.items())},
            },
        )

    # Addresses of this router

    def _on_local_consumers(self, address: Address) -> None:
        """Tell the network when the first consumer of an address comes here and when the last one goes."""
        has_consumers = self.core.has_local_consumers(address)
        now = self._clock()
        if has_consumers and address.key not in self._advertised:
            self._advertised.add(address.key)
            mobile = MobileAddress(address.key, address.treatment)
            self._carry_out(self.engine.local_address_added(mobile, now))
        elif not has_consumers and address.key in self._advertised:
            self._advertised.discard(address.key)
            self._carry_out(self.engine.local_address_removed(address.key, now))
