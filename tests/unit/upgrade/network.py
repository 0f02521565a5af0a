"""Two interior routers in memory and the connections of their connectors, whose frames a test moves one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.edge import network as memory
from tests.unit.edge.network import End

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import CAPABILITY_TRUNKING, Condition
from isthmus_router.interior.abandoned import ABANDONED
from isthmus_router.interior.network import InteriorNetwork
from isthmus_router.routing import actions as act
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.timers import Timers

FOREVER = 1e9
TIMERS = Timers(hello_max_age=FOREVER, remote_ls_max_age=FOREVER)
"""Silence proves nothing here: frames wait for as long as a test likes."""


class CountingEngine(RoutingEngine):
    """Counts what it is told of its links."""

    links_up = 0
    links_lost = 0

    def on_link_up(self, link: int, cost: int, now: float, least: int | None = None) -> list[act.Action]:
        self.links_up += 1
        return super().on_link_up(link, cost, now, least)

    def on_link_lost(self, link: int, now: float) -> list[act.Action]:
        self.links_lost += 1
        return super().on_link_lost(link, now)


class Port(memory.MemoryPort):
    """Also closes connections, as the driver does: at once as far as its own router is concerned."""

    def __init__(self, router: Router) -> None:
        super().__init__(router)
        self.handed_over: list[tuple[Link, Link]] = []

    def hand_over(self, pairs: Sequence[tuple[Link, Link]]) -> None:
        for old, new in pairs:
            assert not old.incoming
            assert not new.incoming
            assert (old.connection.group_ordinal or 0) < (new.connection.group_ordinal or 0)
        self.handed_over += pairs

    def close_connection(self, connection: Connection, condition: Condition | None) -> None:
        end = self.router.ends[connection]
        if condition is not ABANDONED:
            self.router.closed_in_use += other_end(end).connection in other_end(end).router.used
        self.router.network.close(end)


class Router(memory.Router):
    """An interior router: core, routing engine, and the system between them."""

    network: Network
    port: Port

    def __init__(self, network: Network, router_id: str) -> None:
        super().__init__(network, router_id, edge=False)
        self.port = Port(self)
        self.core.attach_port(self.port)
        self.engine = CountingEngine(
            router_id, instance=next(network.numbers), now=network.now, timers=TIMERS
        )
        self.routing = InteriorNetwork(
            self.core,
            self.engine,
            lambda: network.now,
            self._schedule,
            call_later=network.call_later,
            regroup=self._regroup,
        )
        self.closed_in_use = 0
        """Connections that it refused, or closed too early, although the peer had something under way on them."""
        self.used: set[Connection] = set()
        """Connections over which it has sent something, or could have."""
        self.currents_lost = 0
        """How often the connection that was the way to the neighbour has gone."""
        self.routing.start()

    def _schedule(self, deadline: float) -> None:
        self.network.call_at(deadline, self.routing.tick)

    def _regroup(self, connection: Connection) -> None:
        for connector in self.network.connectors:
            if connector.near is self and connector.correlator == connection.group_correlator:
                connector.regroup()

    def close_connection(self, connection: Connection) -> None:
        if connection in (hop.connection for hop in self.routing.connections.hops.values()):
            self.currents_lost += 1
        super().close_connection(connection)

    @property
    def disturbances(self) -> tuple[int, int, int]:
        """What a rotation must not cause: links that the engine sees come and go, and path computations."""
        return self.engine.links_up, self.engine.links_lost, self.engine.recomputations

    def hop(self, correlator: str) -> Hop | None:
        """The way to the neighbour over the connections of one connector."""
        found = [
            hop
            for hop in self.routing.connections.hops.values()
            if hop.connection.group_correlator == correlator
        ]
        assert len(found) < 2, f"{correlator} is more than one way"
        return found[0] if found else None


@dataclass(eq=False)
class Connector:
    """One router's connector to the other; `dialled` are its own ends of all connections it ever made."""

    near: Router
    far: Router
    correlator: str
    ordinal: int = 0
    controls: list[End] = field(default_factory=list)
    data: list[End] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.near.network.connectors.append(self)

    def dial(self, ordinal: int | None = None) -> End:
        """A control connection."""
        ordinal = self.ordinal if ordinal is None else ordinal
        self.controls.append(self.near.network.dial(self, Role.INTER_ROUTER, ordinal))
        return self.controls[-1]

    def give_up(self) -> None:
        """Close the newest control connection if it is in its handshake; the peer may have opened it already."""
        newest = self.controls[-1]
        if newest in self.near.network.ends and not is_open(newest) and not newest.broken:
            self.near.closed_in_use += other_end(newest).connection in self.far.used
            self.near.network.close(newest)

    def regroup(self) -> None:
        """Connect anew as another group."""
        self.correlator += "'"
        self.give_up()
        self.dial()
        self.dial_data()

    def dial_data(self, ordinal: int | None = None) -> End:
        """A data connection."""
        ordinal = self.ordinal if ordinal is None else ordinal
        self.data.append(self.near.network.dial(self, Role.INTER_ROUTER_DATA, ordinal))
        return self.data[-1]


def is_open(end: End) -> bool:
    """Whether the router at this end has it open."""
    return end.connection in end.router.ends


def other_end(end: End) -> End:
    """The same connection at the other router."""
    assert end.other is not None
    return end.other


class Network(memory.Network):
    """Two routers; either may have a connector to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.connectors: list[Connector] = []
        self.one, self.other = Router(self, "ONE"), Router(self, "OTHER")

    def connector_of(self, near: Router) -> Connector:
        """A connector of this router to the other one."""
        far = self.other if near is self.one else self.one
        return Connector(near, far, f"connector of {near.core.id}")

    def dial(self, connector: Connector, role: Role, ordinal: int) -> End:
        """Connect; the end of the router that does."""
        near, far = (
            End(
                router,
                Connection(
                    next(self.numbers),
                    role,
                    incoming=router is connector.far,
                    name=f"{role.label} {ordinal}",
                    container=peer.core.id,
                    group_correlator=connector.correlator,
                    group_ordinal=ordinal,
                    offered_capabilities=frozenset((CAPABILITY_TRUNKING,)),
                    io=router,
                ),
            )
            for router, peer in ((connector.near, connector.far), (connector.far, connector.near))
        )
        near.other, far.other = far, near
        self.ends += [near, far]

        def opened(end: End) -> None:
            end.router.ends[end.connection] = end
            if end is far:
                far.send(lambda: opened(near))
            end.router.core.connection_opened(end.connection)

        near.send(lambda: opened(far))
        return near

    def close(self, end: End) -> None:
        """One router closes a connection; the other one hears of it after all that was sent before."""
        other = other_end(end)
        end.inbox.clear()
        end.broken = True
        self.ends.remove(end)
        if not other.broken:
            other.inbox.append(lambda: self._broken(other))
        if is_open(end):
            end.router.close_connection(end.connection)

    def step(self, end: End) -> None:
        super().step(end)
        for hop in end.router.routing.connections.hops.values():
            end.router.used.update(hop.data_connections)
            if hop.link_for(0) is not None:
                end.router.used.add(hop.connection)

    def rest(self) -> None:
        """Let everything arrive, and everything that is due happen."""
        self.settle()
        for _ in range(5):
            self.advance(1.0)
            self.settle()
