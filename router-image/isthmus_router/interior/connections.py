"""Connections to neighbours: their standing links, and which of a group's connections is the way to the neighbour.

Opens and accepts the standing links, carries out what the connection groups decide (`upgrade/groups.py`), and tells
routing of links that come up, change or are lost; of an upgrade it tells nothing. Sans-IO.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from isthmus_router.core.model import PRIORITIES, Connection, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.port import CallLater, SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import WRONG_ROLE, RouterCore
from isthmus_router.core.terms import (
    CAPABILITY_CONTROL,
    CAPABILITY_ROUTER,
    Condition,
    Direction,
    LinkType,
    Terminus,
)
from isthmus_router.interior.abandoned import AbandonedConnections
from isthmus_router.upgrade import groups
from isthmus_router.upgrade.groups import ConnectionGroups, Label

log = logging.getLogger("ROUTER_LS")

MAX_HOPS = 128
MOST_HOPS_OF_ONE = MAX_HOPS // 2
"""Of the connections that one user, or one host without login, has opened."""
NO_NEIGHBOUR = Condition(
    "amqp:resource-limit-exceeded",
    f"there are {MAX_HOPS} inter-router connections, and this is the oldest whose peer has sent no hello message",
)


TOO_MANY = Condition(
    "amqp:resource-limit-exceeded",
    f"this user or host has {MOST_HOPS_OF_ONE} inter-router connections, which is as many as there may be",
)


class Routing(Protocol):
    """Who computes paths over the links to neighbours."""

    def link_up(self, hop: Hop, cost: int, least: int | None) -> None:
        """Both control links are attached; with `least`, the peer decides on the cost, down to that."""

    def link_cost(self, hop: Hop, cost: int) -> None:
        """The cost of a link that may be up has changed."""

    def link_lost(self, hop: Hop) -> None:
        """The neighbour cannot be reached over this link any more."""

    def control_message(self, hop: Hop, link: Link, payload: bytes) -> None:
        """A message came in on a control link."""


class NeighbourConnections:
    """The inter-router connections of one interior router; an observer and link handler of its core."""

    def __init__(
        self, core: RouterCore, routing: Routing, call_later: CallLater, regroup: Callable[[Connection], None]
    ) -> None:
        self.core = core
        self.hops: dict[int, Hop] = {}
        """Ways to neighbours by their link identifier."""
        self.groups: ConnectionGroups[Connection] = ConnectionGroups()
        self._routing = routing
        self._leaving = False
        self._abandoned = AbandonedConnections(lambda: core.port, self.groups, call_later, regroup)
        core.observers.append(self)
        core.link_handlers.append(self._take_link)
        core.lost.append(self.connection_closed)

    def leave(self) -> None:
        """Leave the network: neighbours route around this router at once, what is under way goes on.

        The control links are closed; the data links stay for outcomes and for deliveries sent before. What waits
        to take over, and would bring the neighbour back, is closed altogether.
        """
        self._leaving = True
        self._abandoned.forget()
        for connection in list(self.core.connections.values()):
            if self.groups.is_pending(connection):
                self.core.port.close_connection(connection, None)
        for hop in list(self.hops.values()):
            self._close_control(hop.connection)

    def connection_opened(self, connection: Connection) -> None:
        """The connector side opens every standing link: a control pair, and a data pair per priority."""
        label = Label(_group(connection), connection.group_ordinal or 0)
        if connection.role is Role.INTER_ROUTER_DATA:
            connection.active = False
            self._regroup(self.groups.data_opened(connection, label))
            group = self.groups.group_of(connection)
            if group is not None and group.current is not None:
                connection.hop = group.current.hop  # also of what it does not carry: nothing goes back there
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
                    if self.core.took_over is not None:
                        self.core.took_over(connection, replaced)
                    for other in (replaced, *passed):
                        self._put_aside(other)
                case groups.Carry(connection, data):
                    if connection.hop is not None:
                        self._carry(connection.hop, data)
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
        """A new way to a neighbour, if there are link identifiers left, and its peer has not had its part of them."""
        if connection.client is not None:
            own = [hop for hop in self.hops.values() if hop.connection.client == connection.client]
            if len(own) >= MOST_HOPS_OF_ONE and not self._make_room(own):
                log.warning(
                    "connection refused",
                    extra={
                        "connection": connection.id,
                        "peer": connection.name,
                        "reason": TOO_MANY.description,
                    },
                )
                self.core.port.close_connection(connection, TOO_MANY)
                return
        if len(self.hops) == MAX_HOPS:
            self._make_room(list(self.hops.values()))
        number = next((free for free in range(MAX_HOPS) if free not in self.hops), None)
        if number is None:
            log.error("too many neighbours", extra={"connection": connection.id, "limit": MAX_HOPS})
        else:
            self.hops[number] = Hop(number, connection)

    def _make_room(self, hops: Sequence[Hop]) -> bool:
        """Close the oldest incoming connection whose peer is no neighbour yet, and free its link identifier.

        Returns whether there was one.
        """
        strangers = [
            hop.connection
            for hop in hops
            if hop.neighbour is None and hop.connection.incoming and hop.connection.hop is hop
        ]
        if strangers:
            oldest = min(strangers, key=lambda connection: connection.id)
            self._end(oldest)
            self.core.port.close_connection(oldest, NO_NEIGHBOUR)
        return bool(strangers)

    def _carry(self, hop: Hop, data: tuple[Connection, ...]) -> None:
        """Streams to the neighbour go over these from now on."""
        for carrier in hop.data_connections:
            carrier.active = False
        hop.data_connections = data
        for carrier in data:
            carrier.hop, carrier.active = hop, True

    def _resume(self, connection: Connection) -> None:
        """Nothing will take over from it; the peer may have seen that differently, and have closed its links."""
        connection.superseded = False
        if None in connection.control_links:
            self._control_lost(connection)

    def _control_lost(self, connection: Connection) -> None:
        """The peer has closed a control link of the current connection."""
        if connection.problem is None and not self._leaving:
            connection.problem = f"the peer {connection.container} has closed the links for routing"
        if connection.hop is not None:
            self._link_lost(connection.hop)
        if not connection.incoming and not self._leaving:
            self._abandoned.add(connection)

    def _take_over(self, connection: Connection, replaced: Connection) -> None:
        """The way to the neighbour stays what it is for routing; another connection carries it."""
        hop = replaced.hop
        connection.active = True
        if hop is None:
            self._begin(connection)
        else:
            self._carry(hop, ())
            hop.carry_by(connection)
            self._hand_over(replaced, connection)
            if hop.up and connection.cost != replaced.cost:
                self.cost_changed(connection)
        self._both_control(connection)
        log.info("connection has taken over", extra=_described(connection, replaced))

    def _put_aside(self, connection: Connection) -> None:
        """The connection will not be used for anything new; the connector closes its control links.

        The other side does if what has replaced it is gone: the connector may not know, and go on with it.
        """
        connection.active, connection.superseded = False, True
        if not connection.incoming or connection.hop is None:
            self._close_control(connection)

    def _close_control(self, connection: Connection) -> None:
        for link in connection.control_links:
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
        """The neighbour is lost, and what this connection has replaced is not used again."""
        hop = connection.hop
        if hop is not None:
            hop.end()
            self._link_lost(hop)
            del self.hops[hop.number]
            for other in self.core.connections.values():
                if other.hop is hop:
                    other.hop = None
                    if other.superseded:
                        self._put_aside(other)

    def _link_lost(self, hop: Hop) -> None:
        if hop.up:
            hop.up = False
            self._routing.link_lost(hop)

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
            link.note_standing()
            self.core.port.accept_link(link, link.source, link.target)
            if link.incoming:
                self.core.port.top_up(link)
            self._control_attached(link)
            return True
        if CAPABILITY_ROUTER in capabilities:
            link.type = LinkType.ROUTER
            self.core.port.accept_link(link, link.source, link.target)
            self._number(link)
            link.note_standing()
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
            link.streaming = link.begins_early = True
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
            link.on_delivery = self._control_message
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
        self._routing.link_up(hop, connection.cost, least)

    def cost_changed(self, connection: Connection) -> None:
        """The cost of an open connection is another one now; the peer learns it from the link state."""
        hop = connection.hop
        if hop is not None:
            self._routing.link_cost(hop, connection.cost)

    def _control_message(self, link: Link, payload: bytes) -> None:
        connection = link.connection
        if self.groups.is_pending(connection) and connection.control_out is not None:
            self._regroup(self.groups.control_fit(connection))
        if connection.hop is not None:
            self._routing.control_message(connection.hop, link, payload)

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
        if link in connection.control_links:
            if link.incoming:
                connection.control_in = None
            else:
                connection.control_out = None
            if self.groups.is_pending(connection):
                self._put_aside(connection)
                self._regroup(self.groups.control_closed(connection))
            if self.groups.is_current(connection) and not connection.superseded:
                self._control_lost(connection)
        elif link in connection.data_links:
            connection.data_links[connection.data_links.index(link)] = None


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
