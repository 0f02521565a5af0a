"""An interior router's part in the network: inter-router links, and the routing engine between them and the core.

Opens and accepts the standing links of inter-router connections, carries the routing engine's messages over
the control links (forwarding those for others), and turns the engine's results into hops, nodes and remote
addresses of the core. Sans-IO: time comes from `clock`, and `schedule` is told when to call `tick`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from isthmus_router.core.address import AddressClass, address_key
from isthmus_router.core.model import (
    CAPABILITY_CONTROL,
    CAPABILITY_ROUTER,
    PRIORITIES,
    Address,
    Condition,
    Connection,
    Direction,
    Hop,
    Link,
    LinkType,
    Terminus,
)
from isthmus_router.core.port import SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import WRONG_ROLE, RouterCore
from isthmus_router.interior.log import RoutingLog
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
from isthmus_router.upgrade import groups
from isthmus_router.upgrade.groups import ConnectionGroups, Label

log = logging.getLogger("ROUTER_LS")

MAX_HOPS = 128


class InteriorNetwork:
    """Inter-router links and routing of one interior router; an observer and link handler of its core."""

    def __init__(
        self,
        core: RouterCore,
        engine: RoutingEngine,
        clock: Callable[[], float],
        schedule: Callable[[float], None],
    ) -> None:
        self.core = core
        self.engine = engine
        self.hops: dict[int, Hop] = {}
        """Ways to neighbours by their link identifier."""
        self.groups: ConnectionGroups[Connection] = ConnectionGroups()
        self._clock = clock
        self._schedule = schedule
        self._scheduled = float("inf")
        self._advertised: set[str] = set()
        self._log = RoutingLog()
        self._leaving = False
        self._own_prefix = encode_annotations(0, None, core.name, (core.name,))
        core.observers.append(self)
        core.link_handlers.append(self._take_link)
        core.advertised = self._on_local_consumers

    def start(self) -> None:
        """Begin to keep time."""
        self.tick()

    def tick(self) -> None:
        """The engine's deadline has passed."""
        self._scheduled = float("inf")
        self._carry_out(self.engine.on_tick(self._clock()))

    def leave(self) -> None:
        """Leave the network: neighbours route around this router at once, what is under way goes on.

        The control links are closed; the data links stay for outcomes and for deliveries sent before. What waits
        to take over, and would bring the neighbour back, is closed altogether.
        """
        self._leaving = True
        for connection in list(self.core.connections.values()):
            if self.groups.is_pending(connection):
                self.core.port.close_connection(connection, None)
        for hop in list(self.hops.values()):
            connection = hop.connection
            for link in (connection.control_in, connection.control_out):
                if link is not None:
                    self.core.port.detach_link(link)

    # Connections and their standing links

    def connection_opened(self, connection: Connection) -> None:
        """The connector side opens every standing link: a control pair, and a data pair per priority."""
        label = Label(_group(connection), connection.group_ordinal or 0)
        if connection.role is Role.INTER_ROUTER_DATA:
            self._regroup(self.groups.data_opened(connection, label))
        if connection.role is not Role.INTER_ROUTER or self._leaving:
            return
        if connection.container == self.core.id:
            connection.problem = f"the peer has the same router id as this router: {self.core.id}"
        self._regroup(self.groups.control_opened(connection, label))
        if not connection.incoming and self.groups.group_of(connection) is not None:
            self._open_standing(connection)

    def _open_standing(self, connection: Connection) -> None:
        control = Terminus(capabilities=frozenset((CAPABILITY_CONTROL,)))
        for direction in (Direction.IN, Direction.OUT):
            link = self.core.port.open_link(
                connection,
                direction,
                link_type=LinkType.CONTROL,
                source=control,
                target=control,
                session=SessionClass.CONTROL,
            )
            link.on_answered = self._control_attached
            link.on_refused = self._control_refused
        data = Terminus(capabilities=frozenset((CAPABILITY_ROUTER,)))
        for priority in range(PRIORITIES):
            for direction in (Direction.IN, Direction.OUT):
                link = self.core.port.open_link(
                    connection,
                    direction,
                    link_type=LinkType.ROUTER,
                    source=data,
                    target=data,
                    session=SessionClass.PRIORITY,
                    priority=priority,
                )
                if direction is Direction.OUT:
                    connection.data_links[priority] = link
        connection.router_links_in = connection.router_links_out = PRIORITIES

    def connection_closed(self, connection: Connection) -> None:
        """The neighbour is gone if this was the connection to it, and none takes over."""
        self._regroup(self.groups.closed(connection))
        connection.hop = None

    def _regroup(self, actions: list[groups.Action[Connection]]) -> None:
        for action in actions:
            match action:
                case groups.Begin(connection):
                    self._begin(connection)
                case groups.Wait(connection, current):
                    connection.hop, connection.active = current.hop, False
                    current.superseded = True
                    log.info("connection waits to take over", extra=_described(connection, current))
                case groups.Resume(connection):
                    self._resume(connection)
                case groups.TakeOver(connection, replaced, passed):
                    self._take_over(connection, replaced)
                    for other in (replaced, *passed):
                        self._put_aside(other)
                case groups.Carry(connection, data):
                    if connection.hop is not None:
                        connection.hop.data_connections = data
                        for carrier in data:
                            carrier.hop = connection.hop
                case groups.Refuse(connection, reason):
                    connection.hop = None
                    log.warning(
                        "connection refused",
                        extra={"connection": connection.id, "peer": connection.name, "reason": reason},
                    )
                    self.core.port.close_connection(connection, Condition("amqp:connection:forced", reason))
                case groups.End(connection):
                    self._end(connection)

    def _begin(self, connection: Connection) -> None:
        """A new way to a neighbour, if there are link identifiers left."""
        number = next((free for free in range(MAX_HOPS) if free not in self.hops), None)
        if number is None:
            log.error("too many neighbours", extra={"connection": connection.id, "limit": MAX_HOPS})
        else:
            self.hops[number] = Hop(number, connection)

    def _resume(self, connection: Connection) -> None:
        """Nothing will take over from it; the peer may have seen that differently, and have closed its links."""
        connection.superseded = False
        if connection.hop is not None and (connection.control_in is None or connection.control_out is None):
            self._link_lost(connection.hop)

    def _take_over(self, connection: Connection, replaced: Connection) -> None:
        """The way to the neighbour stays what it is for routing; another connection carries it."""
        hop = replaced.hop
        connection.active = True
        if hop is None:
            self._begin(connection)
        else:
            hop.carry_by(connection)
            self._hand_over(replaced, connection)
            if hop.up and connection.cost != replaced.cost:
                self.cost_changed(connection)
        self._both_control(connection)
        log.info("connection has taken over", extra=_described(connection, replaced))

    def _put_aside(self, connection: Connection) -> None:
        """The connection will not be used for anything new; the connector closes its control links."""
        connection.active, connection.superseded = False, True
        if not connection.incoming:
            for link in (connection.control_in, connection.control_out):
                if link is not None:
                    self.core.port.detach_link(link)

    def _hand_over(self, replaced: Connection, connection: Connection) -> None:
        """What has not been sent yet is sent on the new connection, after what was sent on the old one."""
        assert connection.hop is not None
        pairs = []
        for priority, old in enumerate(replaced.data_links):
            new = connection.hop.link_for(priority)
            if old is not None and new is not None:
                pairs.append((old, new))
        self.core.port.hand_over(pairs)

    def _end(self, connection: Connection) -> None:
        hop = connection.hop
        if hop is not None:
            self._link_lost(hop)
            del self.hops[hop.number]
            for other in self.core.connections.values():
                if other.hop is hop:
                    other.hop = None

    def _link_lost(self, hop: Hop) -> None:
        if hop.up:
            hop.up = False
            self._carry_out(self.engine.on_link_lost(hop.number, self._clock()))

    def _take_link(self, link: Link) -> bool:
        """Accept what the peer of an inter-router connection attaches for routing."""
        connection = link.connection
        capabilities = (link.target if link.incoming else link.source).capabilities
        if connection.role is not Role.INTER_ROUTER:
            return False
        if CAPABILITY_CONTROL in capabilities:
            taken = connection.control_in if link.incoming else connection.control_out
            if taken is not None:
                self.core.refuse(link, WRONG_ROLE)
                return True
            link.type = LinkType.CONTROL
            self.core.port.accept_link(link, link.source, link.target)
            if link.incoming:
                self.core.port.top_up(link)
            self._control_attached(link)
            return True
        if CAPABILITY_ROUTER in capabilities:
            link.type = LinkType.ROUTER
            self.core.port.accept_link(link, link.source, link.target)
            self._number(link)
            if link.incoming:
                self.core.port.top_up(link)
            return True
        return False

    def _number(self, link: Link) -> None:
        """The order of attach is the priority, in each direction; later ones carry single streams."""
        connection = link.connection
        if link.incoming:
            number = connection.router_links_in
            connection.router_links_in += 1
        else:
            number = connection.router_links_out
            connection.router_links_out += 1
        if number >= PRIORITIES:
            link.streaming = True
            if not link.incoming:
                connection.idle_streams.append(link)
            return
        link.priority = number
        if not link.incoming:
            connection.data_links[number] = link
            self._see_whether_fit(connection)

    def _control_attached(self, link: Link) -> None:
        connection = link.connection
        if link.incoming:
            connection.control_in = link
            link.on_delivery = self._on_control
        else:
            connection.control_out = link
        if connection.superseded and not connection.active:
            self._put_aside(connection)
        if connection.control_in is None or connection.control_out is None:
            return
        if self.groups.is_current(connection):
            self._both_control(connection)
        else:
            self._see_whether_fit(connection)

    def _see_whether_fit(self, connection: Connection) -> None:
        """A connection can take over once both control links and those for messages are attached.

        The connector has opened all of them by itself. The other side waits for the last one, or for a word on
        the control link: a peer with fewer of them sends none before it has attached all it will.
        """
        if (
            self.groups.is_pending(connection)
            and connection.control_in is not None
            and connection.control_out is not None
            and (not connection.incoming or None not in connection.data_links)
        ):
            self._regroup(self.groups.control_fit(connection))

    def _both_control(self, connection: Connection) -> None:
        hop = connection.hop
        if hop is None or hop.up or connection.control_in is None or connection.control_out is None:
            return
        hop.up = True
        least = connection.own_cost if connection.incoming else None
        self._carry_out(self.engine.on_link_up(hop.number, connection.cost, self._clock(), least))

    def cost_changed(self, connection: Connection) -> None:
        """The cost of an open connection is another one now; the peer learns it from the link state."""
        hop = connection.hop
        if hop is not None:
            self._carry_out(self.engine.on_link_cost(hop.number, connection.cost, self._clock()))

    def _control_refused(self, link: Link, condition: Condition) -> None:
        connection = link.connection
        if connection.problem is None:
            connection.problem = (
                f"the peer {connection.container} refuses inter-router links ({condition.name}): "
                "is its listener one of role inter-router?"
            )
            log.error(
                "inter-router links refused",
                extra={"connection": connection.id, "peer": connection.name, "reason": connection.problem},
            )

    def link_bound(self, link: Link) -> None:
        """Observer interface: endpoint links are no concern of routing."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to do."""

    def link_unbound(self, link: Link) -> None:
        """A standing link is gone, alone or with its connection."""
        connection = link.connection
        if link in (connection.control_in, connection.control_out):
            if link.incoming:
                connection.control_in = None
            else:
                connection.control_out = None
            if self.groups.is_pending(connection):
                self._put_aside(connection)
                self._regroup(self.groups.control_closed(connection))
            if connection.superseded:
                return
            if connection.problem is None and not self._leaving:
                connection.problem = f"the peer {connection.container} has closed the links for routing"
            if connection.hop is not None and self.groups.is_current(connection):
                self._link_lost(connection.hop)
        elif link in connection.data_links:
            connection.data_links[connection.data_links.index(link)] = None

    # Control messages

    def _on_control(self, link: Link, payload: bytes) -> None:
        """A control message came in: for this router, for another, or for all."""
        hop = link.connection.hop
        if hop is None:
            return
        if self.groups.is_pending(link.connection) and link.connection.control_out is not None:
            self._regroup(self.groups.control_fit(link.connection))
        try:
            length = annotations_length(payload, len(payload))
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
            self._pass_on(link, key, annotations, payload[length:])

    def _pass_on(self, link: Link, key: str, annotations: RouterAnnotations, message: bytes) -> None:
        """Forward a control message that is for another router, or for all, unless it has been here."""
        name = self.core.name
        if len(annotations.trace) > self.core.radius + 1 or name in annotations.trace:
            return
        topological = key[0] == AddressClass.TOPOLOGICAL
        address = self.core.address_for(key) if topological else self.core.addresses.get(key)
        if address is None:
            return
        hops = list(self.core.planner.paths(address, link, annotations))
        trace = (*annotations.trace, name)
        prefix = encode_annotations(
            annotations.flags, annotations.to_override, annotations.ingress or name, trace
        )
        self._send(hops if topological else hops[:1], prefix + message)

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
                    hop = self.hops.get(number)
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
                case act.RemoteAddressesChanged(router, added, removed):
                    node = self.core.node(router)
                    for key in removed:
                        self.core.remove_remote(node, key)
                    for key, mobile in added.items():
                        self.core.add_remote(node, key, mobile.treatment)
                case act.RouterFlushed(router):
                    node = self.core.nodes.get(router)
                    if node is not None:
                        self.core.flush_node(node)
                case act.RouterRemoved(router, _):
                    self.core.remove_node(router)
                    log.info("router removed", extra={"router": router})
                case _:
                    self._log.event(action, self._clock())
        deadline = self.engine.next_deadline
        if deadline < self._scheduled:
            self._scheduled = deadline
            self._schedule(deadline)

    def _take_table(self, table: act.RouteTable) -> None:
        neighbours = {number: router for router, number in table.neighbours.items()}
        for hop in self.hops.values():
            hop.neighbour = neighbours.get(hop.number)
        for router, route in table.routes.items():
            node = self.core.node(router)
            node.hop = self.hops.get(route.link)
            node.cost = route.cost
            node.valid_origins = route.valid_origins
        for node in self.core.nodes.values():
            if node.id not in table.routes:
                node.hop = None
        self.core.radius = table.radius
        self.core.paths_changed()
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


def _group(connection: Connection) -> str | None:
    """The correlation id, which another router cannot take for its own."""
    correlator = connection.group_correlator
    if correlator is None:
        return None
    return correlator if not connection.incoming else f"{connection.container}\0{correlator}"


def _described(connection: Connection, replaced: Connection) -> dict[str, object]:
    return {
        "connection": connection.id,
        "ordinal": connection.group_ordinal,
        "replaces": replaced.id,
        "of_ordinal": replaced.group_ordinal,
        "peer": connection.name,
        "container": connection.container,
    }
