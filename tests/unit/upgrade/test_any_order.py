"""Rotation under any order of events: what holds after every frame, and what both routers agree on in the end.

Two routers, each with a connector to the other. Frames of each connection stay in order, those of different
connections overtake each other in any way. Connections break at any time, with some of what was under way lost.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.edge.network import End
from tests.unit.upgrade.network import Connector, Network, Router, is_open, other_end

from isthmus_router.core.model import PRIORITIES, Connection
from isthmus_router.core.nodes import Hop
from isthmus_router.core.roles import Role
from isthmus_router.interior.abandoned import LEAST_SECONDS

numbers = st.integers(0, 100)
connectors = st.integers(0, 1)


class Rotation(RuleBasedStateMachine):
    """Connectors as they are: one control connection at a time for each ordinal, which only rises."""

    honest = True

    @initialize(mutual=st.booleans())
    def build(self, mutual: bool) -> None:
        self.network = Network()
        self.routers = (self.network.one, self.network.other)
        self.connectors = [self.network.connector_of(router) for router in self.routers[: 1 + mutual]]
        self.identifiers: dict[Hop, int] = {}
        self.ordinals: dict[Hop, int] = {}
        self.complete: dict[Hop, int] = {}
        self.currents_lost: list[int] = []
        for connector in self.connectors:
            connector.dial()
            connector.dial_data()
        self.comes_to_rest()

    @rule(
        which=connectors,
        step=st.sampled_from((1, 1, 1, 2, 7)),
        data=st.lists(st.booleans(), max_size=2),
        gives_up=st.booleans(),
    )
    def rotate(self, which: int, step: int, data: list[bool], gives_up: bool) -> None:
        """The ordinal rises; data connections are dialled before or after the control connection.

        What of the generation before has not opened yet does so later, if it is not given up.
        """
        connector = self.connectors[which % len(self.connectors)]
        connector.ordinal += step
        if gives_up:
            connector.give_up()
        for early in sorted(data, reverse=True):
            if early:
                connector.dial_data()
        connector.dial()
        for early in data:
            if not early:
                connector.dial_data()

    @rule(which=connectors)
    def connect_again(self, which: int) -> None:
        """As a connector does once its newest control connection is gone."""
        connector = self.connectors[which % len(self.connectors)]
        if connector.controls[-1] not in self.network.ends:
            connector.dial()

    @rule(which=connectors)
    def one_more_data_connection(self, which: int) -> None:
        self.connectors[which % len(self.connectors)].dial_data()

    @rule(which=connectors, count=st.sampled_from((1, 20, 60)))
    def rotate_while_a_data_connection_opens(self, which: int, count: int) -> None:
        """The peer has opened it, and may use it; the connection that follows is faster."""
        connector = self.connectors[which % len(self.connectors)]
        late = connector.dial_data()
        self._frames_arrive(other_end(late), 1)
        connector.give_up()
        connector.ordinal += 1
        new = connector.dial()
        for _ in range(count):
            self._frames_arrive(other_end(new), 1)
            self._frames_arrive(new, 1)

    @rule(which=numbers, arriving=st.integers(0, 40))
    def connection_breaks(self, which: int, arriving: int) -> None:
        ends = [end for end in self.network.ends if not end.broken]
        if ends:
            self.network.cut(ends[which % len(ends)], arriving)

    @rule(which=numbers)
    def replaced_connection_breaks(self, which: int) -> None:
        """One that both routers have replaced."""
        ends = [end for end in self.network.ends if _is_replaced(end) and _is_replaced(other_end(end))]
        if ends:
            self.network.cut(ends[which % len(ends)])

    @rule(which=numbers, count=st.sampled_from((1, 1, 2, 5, 20, 45, 60)))
    def frames_arrive(self, which: int, count: int) -> None:
        busy = [end for end in self.network.ends if end.inbox]
        if busy:
            self._frames_arrive(busy[which % len(busy)], count)

    def _frames_arrive(self, end: End, count: int) -> None:
        for _ in range(count):
            self.network.step(end)
            self.holds_at_any_time()

    @rule(seconds=st.sampled_from((0.1, 1.0, 2 * LEAST_SECONDS)))
    def time_passes(self, seconds: float) -> None:
        self.network.advance(seconds)

    @rule()
    def comes_to_rest(self) -> None:
        self.network.rest()
        self.holds_at_any_time()
        for connector in self.connectors:
            self._check_agreement(connector)
        up = any(hop.up for hop in self.network.one.routing.connections.hops.values())
        for router in self.routers:
            peers = {peer.core.id for peer in self.routers if peer is not router}
            assert set(router.engine.table.routes) == (peers if up else set())
        self._remember()

    def _remember(self) -> None:
        """With every way up, nothing disturbs routing from here on until a current connection is lost."""
        up = all(len(router.routing.connections.hops) == len(self.connectors) for router in self.routers)
        self.currents_lost = [router.currents_lost for router in self.routers] if up else []
        self.disturbances = [router.disturbances for router in self.routers]

    @invariant()
    def holds_at_any_time(self) -> None:
        for router in getattr(self, "routers", ()):
            for number, hop in router.routing.connections.hops.items():
                self._check_hop(router, number, hop)
            assert {connection.hop for connection in router.ends} <= {
                None,
                *router.routing.connections.hops.values(),
            }
            self._check_marks(router)
            self._check_groups(router)
        self._check_disturbances()

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        self.comes_to_rest()
        for end in list(self.network.ends):
            if not end.broken:
                self.network.cut(end)
        self.comes_to_rest()
        for router in self.routers:
            assert router.routing.connections.hops == {}
            assert router.routing.connections.groups._groups == {}
            assert router.routing.connections.groups._members == {}
            assert list(router.core.connections.values()) == [router.clients]

    # What holds

    def _check_hop(self, router: Router, number: int, hop: Hop) -> None:
        """What is new takes connections of the current ordinal only, which never decreases."""
        current = hop.connection
        assert current in router.ends
        assert current.hop is hop
        assert self.identifiers.setdefault(hop, number) == hop.number == number
        ordinal = _ordinal(current)
        assert self.ordinals.get(hop, ordinal) <= ordinal
        self.ordinals[hop] = ordinal
        for link in map(hop.link_for, range(PRIORITIES)):
            assert link is None or (link.connection is current and link in current.links)
        if None not in hop.data_links:
            self.complete[hop] = router.currents_lost
        elif hop in self.complete:
            assert router.currents_lost > self.complete[hop], "swapped to a connection that lacks links"
        for _ in range(len(hop.data_connections) + 1):
            carrier = hop.connection_for_stream()
            assert carrier in router.ends
            assert carrier.group_correlator == current.group_correlator
            assert _ordinal(carrier) == ordinal
            assert carrier is current or carrier.role is Role.INTER_ROUTER_DATA

    def _check_marks(self, router: Router) -> None:
        """The flags tell what is; of a connector's connections at most one is current."""
        groups = router.routing.connections.groups
        currents: set[str | None] = set()
        for connection in _controls(router):
            group = groups.group_of(connection)
            assert group is not None, "a refused connection is still open"
            is_current, is_pending = groups.is_current(connection), groups.is_pending(connection)
            if is_current:
                assert connection.group_correlator not in currents
                currents.add(connection.group_correlator)
            assert is_current + is_pending + (connection in group.replaced) == 1
            assert connection.active == is_current
            overtaken = connection in group.replaced or (is_current and bool(group.pending))
            assert connection.superseded == overtaken
            hop = connection.hop
            assert is_current == (hop is not None and hop.connection is connection)
            if is_pending:
                assert group.current is not None
                assert hop is group.current.hop
                assert _ordinal(connection) > _ordinal(group.current)

    def _check_groups(self, router: Router) -> None:
        """Nothing is remembered of what is gone."""
        groups = router.routing.connections.groups
        assert set(groups._members) <= set(router.ends)
        assert {id(group) for group, _ in groups._members.values()} == {
            id(g) for g in groups._groups.values()
        }

    def _check_disturbances(self) -> None:
        if self.currents_lost == [router.currents_lost for router in self.routers]:
            assert self.disturbances == [router.disturbances for router in self.routers]
        if self.honest:
            assert [router.closed_in_use for router in self.routers] == [0, 0]

    def _check_agreement(self, connector: Connector) -> None:
        """At rest both routers use the newest connection there is, or neither has a way to the other."""
        near, far = connector.near.hop(connector.correlator), connector.far.hop(connector.correlator)
        if near is None or far is None or not near.up or not far.up:
            assert near is None or not near.up
            assert far is None or not far.up
            return
        end = connector.near.ends[near.connection]
        assert other_end(end).connection is far.connection
        assert _ordinal(near.connection) == max(
            _ordinal(end.connection) for end in connector.controls if is_open(end)
        )
        carriers = [
            end
            for end in connector.data
            if is_open(end) and _ordinal(end.connection) == _ordinal(near.connection)
        ]
        assert set(near.data_connections) == {end.connection for end in carriers}
        assert set(far.data_connections) == {other_end(end).connection for end in carriers}
        for end in connector.controls:
            if is_open(end) and end.connection is not near.connection:
                for connection in (end.connection, other_end(end).connection):
                    assert connection.control_in is connection.control_out is None, "old control links"


def _ordinal(connection: Connection) -> int:
    return connection.group_ordinal or 0


def _is_replaced(end: End) -> bool:
    return is_open(end) and not end.connection.active and end.connection.superseded and not end.broken


def _controls(router: Router) -> list[Connection]:
    return [connection for connection in router.ends if connection.role is Role.INTER_ROUTER]


class DisorderlyRotation(Rotation):
    """Connectors that also dial what has no chance: routers refuse it, though perhaps not the same one of two."""

    honest = False

    @rule(which=connectors, back=st.integers(0, 2))
    def connect_with_an_ordinal_that_is_not_greater(self, which: int, back: int) -> None:
        connector = self.connectors[which % len(self.connectors)]
        connector.dial(max(0, connector.ordinal - back))

    @rule(which=connectors, back=st.integers(0, 2))
    def data_connection_that_is_not_of_the_newest(self, which: int, back: int) -> None:
        connector = self.connectors[which % len(self.connectors)]
        connector.dial_data(max(0, connector.ordinal - back))


Rotation.TestCase.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
DisorderlyRotation.TestCase.settings = Rotation.TestCase.settings
test_rotation_in_any_order = Rotation.TestCase
test_disorderly_rotation_in_any_order = DisorderlyRotation.TestCase
