"""Edges and interiors under any order of events: what holds once everything has been said.

Two interiors that do not know each other, two edges with connections to either, clients everywhere. Frames wait
in queues, so that attaches, detaches, tracking messages and lost connections overtake each other in any way that
they can on real connections. Routers look at the producers of an address, and edges at all addresses, within the event
that concerns them, or in steps, between which anything may happen.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.edge.network import Network, Router

from isthmus_router.core import reachability
from isthmus_router.core.model import Link
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.terms import RESERVED_PREFIX, Direction, LinkType
from isthmus_router.edge import steps

IN, OUT = Direction.IN, Direction.OUT
ADDRESSES = ("x", "y")
SETTLING_SECONDS = 200.0
"""Longer than every limit, delay and retry of the edge."""

numbers = st.integers(0, 100)


class EdgeNetwork(RuleBasedStateMachine):
    """Random events, frame by frame; `comes_to_rest` checks the whole network against a simple model."""

    @initialize()
    def build(self) -> None:
        self.network = Network()
        self.interiors = [self.network.add(name, edge=False) for name in ("A", "B")]
        self.edges = [self.network.add(name, edge=True) for name in ("E", "F")]
        self.clients: list[tuple[Router, Link]] = []

    @rule(where=numbers, address=st.sampled_from(ADDRESSES), direction=st.sampled_from((IN, OUT)))
    def client_attaches(self, where: int, address: str, direction: Direction) -> None:
        router = [*self.edges, *self.interiors][where % 4]
        self.clients.append((router, router.attach(direction, address)))

    @rule(which=numbers)
    def client_detaches(self, which: int) -> None:
        if self.clients:
            router, link = self.clients.pop(which % len(self.clients))
            router.close_link(link)

    @rule(which=numbers)
    def client_comes_back(self, which: int) -> None:
        """Detached and attached again at once: the case in which old messages meet new proxies."""
        if self.clients:
            router, link = self.clients.pop(which % len(self.clients))
            router.close_link(link)
            address = (link.target if link.incoming else link.source).address
            self.clients.append((router, router.attach(link.direction, address)))

    @rule(
        edge=numbers,
        interior=numbers,
        ordinal=st.sampled_from((None, 0, 1, 2, 3)),
        cost=st.sampled_from((1, 1, 2)),
    )
    def edge_connects(self, edge: int, interior: int, ordinal: int | None, cost: int) -> None:
        if len(self.network.ends) < 12:
            self.network.connect(self.edges[edge % 2], self.interiors[interior % 2], ordinal, cost)

    @rule(which=numbers, arriving=st.integers(0, 3))
    def connection_breaks(self, which: int, arriving: int) -> None:
        ends = [end for end in self.network.ends if not end.broken]
        if ends:
            self.network.cut(ends[which % len(ends)], arriving)

    @rule(which=numbers)
    def interior_detaches_a_link(self, which: int) -> None:
        links = [
            (router, link)
            for router in self.interiors
            for connection in router.ends
            for link in sorted(connection.links, key=lambda link: link.id)
        ]
        if links:
            router, link = links[which % len(links)]
            router.port.detach_link(link)

    @rule(which=numbers, count=st.integers(1, 6))
    def frames_arrive(self, which: int, count: int) -> None:
        busy = [end for end in self.network.ends if end.inbox]
        if busy:
            for _ in range(count):
                self.network.step(busy[which % len(busy)])

    @rule(seconds=st.sampled_from((0.1, 1.0, 3.0, 10.0)))
    def time_passes(self, seconds: float) -> None:
        self.network.advance(seconds)

    @rule(count=st.integers(1, 3))
    def work_goes_on(self, count: int) -> None:
        for _ in range(count):
            self.network.work_on()

    @rule()
    def comes_to_rest(self) -> None:
        self.network.settle()
        for _ in range(20):
            self.network.advance(SETTLING_SECONDS / 20)
            self.network.settle()
        for edge in self.edges:
            self._check_uplinks(edge)
            self._check_proxies(edge)
        for interior in self.interiors:
            self._check_endpoints(interior)
        for router, link in self.clients:
            if link.incoming:
                self._check_credit(router, link)

    @invariant()
    def credit_agrees_with_routes(self) -> None:
        if not hasattr(self, "network") or self.network.jobs:
            return
        for router, link in getattr(self, "clients", ()):
            if link.incoming:
                assert link.route is not None
                assert (router.port.credit[link] > 0) == (link.route.kind is not RouteKind.NONE)

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        self.comes_to_rest()
        for end in [end for end in self.network.ends if not end.router.core.edge]:
            self.network.cut(end)
        self.network.settle()
        while self.clients:
            self.client_detaches(0)
        self.network.advance(SETTLING_SECONDS)
        self.network.settle()
        for edge in self.edges:
            assert edge.edge is not None
            assert edge.edge.proxy.demands == {}
            assert edge.edge.proxy.uplink is None
            assert edge.core.uplink is None
            assert edge.core.addresses == {}
        for interior in self.interiors:
            assert interior.interior is not None
            assert interior.interior.tracking.endpoints == {}
            assert interior.core.addresses == {}

    # The model

    def _locals(self, router: Router, address: str, direction: Direction) -> int:
        return sum(
            1
            for where, link in self.clients
            if where is router
            and link.direction is direction
            and (link.target if link.incoming else link.source).address == address
        )

    def _interior_of(self, edge: Router) -> Router | None:
        assert edge.edge is not None
        active = edge.edge.connections.active
        return None if active is None else self.network.routers[active.name]

    def _reachable_elsewhere(self, edge: Router, address: str) -> bool:
        """Whether somebody consumes on the edge's interior, or on another edge attached to the same one."""
        interior = self._interior_of(edge)
        if interior is None:
            return False
        others = [other for other in self.edges if other is not edge and self._interior_of(other) is interior]
        return any(self._locals(router, address, OUT) for router in (interior, *others))

    def _check_uplinks(self, edge: Router) -> None:
        assert edge.edge is not None
        active = edge.edge.connections.active
        opened = list(edge.ends)
        assert [c for c in opened if c.active] == ([] if active is None else [active])
        assert (active is None) == (not opened)
        assert (edge.core.uplink is None) == (active is None)
        if active is not None:
            assert edge.core.uplink is not None
            assert edge.core.uplink.connection is active
            assert active.cost == min(connection.cost for connection in opened)
            if active.tls_ordinal is not None:
                equals = [connection for connection in opened if connection.cost == active.cost]
                assert active.tls_ordinal == max(item.tls_ordinal or 0 for item in equals)

    def _check_proxies(self, edge: Router) -> None:
        assert edge.edge is not None
        active = edge.edge.connections.active
        found: Counter[tuple[str, Direction]] = Counter()
        for connection in edge.ends:
            for link in connection.links:
                name = (link.source if link.incoming else link.target).address
                if (
                    link.type is LinkType.ENDPOINT
                    and name is not None
                    and not name.startswith(RESERVED_PREFIX)
                ):
                    assert connection is active, f"{link} is left over on a standby"
                    found[name, link.direction] += 1
        wanted: Counter[tuple[str, Direction]] = Counter()
        for address in ADDRESSES if active is not None else ():
            if self._locals(edge, address, IN):
                wanted[address, OUT] = 1
            if self._locals(edge, address, OUT):
                wanted[address, IN] = 1
        assert found == wanted
        for address in ADDRESSES:
            bound = [link for link in edge.consumers("M" + address) if link.proxy]
            reachable = self._locals(edge, address, IN) > 0 and self._reachable_elsewhere(edge, address)
            assert len(bound) == reachable, f"{edge.core.id} {address}: {bound}"

    def _check_credit(self, router: Router, link: Link) -> None:
        address = link.target.address
        assert address is not None
        expected = self._locals(router, address, OUT) > 0
        if router.core.edge:
            expected = expected or self._reachable_elsewhere(router, address)
        else:
            attached = [edge for edge in self.edges if self._interior_of(edge) is router]
            expected = expected or any(self._locals(edge, address, OUT) for edge in attached)
        assert (router.port.credit[link] > 0) == expected

    def _check_endpoints(self, interior: Router) -> None:
        assert interior.interior is not None
        endpoints = interior.interior.tracking.endpoints
        for connection, endpoint in endpoints.items():
            assert connection in interior.ends
            produced = Counter(
                link.address.key
                for link in connection.links
                if link.incoming and link.address is not None and link.address.is_mobile
            )
            assert {key: tracked.links for key, tracked in endpoint.addresses.items()} == produced
            assert not (endpoint.link is None and not endpoint.addresses)
            for key, tracked in endpoint.addresses.items():
                assert tracked.told == tracked.reachable, key


EdgeNetwork.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_any_order_of_events = EdgeNetwork.TestCase


class EdgeNetworkInSteps(EdgeNetwork):
    """Routers that look at all producers in steps, and edges that open and lose proxies in steps."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = ExitStack()
        for module in (reachability, steps):
            self.at_once.enter_context(patch.object(module, "AT_ONCE", 0))

    @initialize()
    def build(self) -> None:
        super().build()
        self.network.uplinks_go_in_steps = True

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.at_once.close()


EdgeNetworkInSteps.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_any_order_of_events_in_steps = EdgeNetworkInSteps.TestCase

EVENTS = ("producer", "consumer", "to the edge", "to the interior", "tracking lost", "work goes on")


@pytest.mark.parametrize("at_once", [0, reachability.AT_ONCE])
@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_any_interleaving_on_one_address(at_once: int, events: list[str]) -> None:
    """A producer here and a consumer there come and go while frames are under way."""
    with patch.object(reachability, "AT_ONCE", at_once), patch.object(steps, "AT_ONCE", at_once):
        interleave(events)


def interleave(events: list[str]) -> None:
    """Let these things happen, and check what comes of them."""
    network = Network()
    interior, edge = network.add("A", edge=False), network.add("E", edge=True)
    uplink = network.connect(edge, interior)
    network.settle()
    links: dict[str, Link | None] = {"producer": None, "consumer": None}
    places = {"producer": (edge, IN), "consumer": (interior, OUT)}
    for event in events:
        if event in places:
            router, direction = places[event]
            link = links[event]
            if link is None:
                links[event] = router.attach(direction, "x")
            else:
                router.close_link(link)
                links[event] = None
        elif event == "to the edge":
            network.step(uplink)
        elif event == "to the interior":
            assert uplink.other is not None
            network.step(uplink.other)
        elif event == "work goes on":
            network.work_on()
        else:
            assert interior.interior is not None
            for endpoint in list(interior.interior.tracking.endpoints.values()):
                if endpoint.link is not None:
                    interior.port.detach_link(endpoint.link)
    network.settle()
    network.advance(SETTLING_SECONDS)
    network.settle()
    producer = links["producer"]
    bound = [link for link in edge.consumers("Mx") if link.proxy]
    assert len(bound) == (producer is not None and links["consumer"] is not None)
    if producer is not None:
        assert (edge.port.credit[producer] > 0) == bool(bound)
