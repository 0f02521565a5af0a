"""The receivers of an address are shared by its routes, and kept up to date while consumers come and go."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.model import Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.planner import LEAST_SETS
from isthmus_router.core.receivers import Receivers, RouteKind, Sink
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.treatment import Treatment
from isthmus_router.message.sections import RouterAnnotations

TREATMENTS = {"even": Treatment.BALANCED, "near": Treatment.CLOSEST, "all": Treatment.MULTICAST}
LIMITS = [100, 64, 65, 200, 100]
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from(["client", "edge", "proxy", "limited"])),
        st.tuples(st.just("leave"), st.integers(0, 20)),
        st.tuples(st.just("announce"), st.integers(0, 2)),
    ),
    max_size=40,
)


class Crowd:
    """A router, the consumers of an address, and senders of all kinds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.router = RouterInMemory(treatments=TREATMENTS)
        self.hops = [self.router.neighbour(other) for other in ("B", "C", "D")]
        self.edge = self.router.connection(Role.EDGE)
        self.senders = [self.router.sender(name), self.router.sender(name, self.edge)]
        self.links: list[Link] = []

    def change(self, what: str, which: int | str) -> None:
        if what == "join":
            role = Role.EDGE if which in {"edge", "proxy"} else Role.NORMAL
            connection = self.edge if which == "edge" else self.router.connection(role)
            limit = LIMITS[len(self.links) % len(LIMITS)] if which == "limited" else 0
            self.links.append(self.join(connection, proxy=which == "proxy", limit=limit))
        elif what == "leave" and self.links:
            self.router.core.link_closed(self.links.pop(int(which) % len(self.links)))
        elif what == "announce":
            self.router.consumers_at("BCD"[int(which)], f"M{self.name}", TREATMENTS[self.name])

    def join(self, connection: object, *, proxy: bool, limit: int) -> Link:
        bind = self.router.core.bind_consumer

        def bound(link: Link, address: object) -> None:
            link.proxy, link.max_message_size = proxy, limit
            bind(link, address)  # type: ignore[arg-type]

        with patch.object(self.router.core, "bind_consumer", bound):
            return self.router.receiver(self.name, connection)  # type: ignore[arg-type]

    def route(self, sender: Link) -> Route:
        assert sender.route is not None
        return sender.route if sender.route.valid else self.router.core.target_route(sender)


def described(receivers: Receivers) -> tuple[object, ...]:
    """Everything that matters of them, without their order."""
    loads = dict(zip(receivers.sinks, receivers.loads, strict=False))
    hops = receivers.sinks[len(receivers.sinks) - receivers.hops :]
    return (
        receivers.kind,
        set(receivers.sinks),
        len(receivers.sinks),
        loads,
        set(hops),
        receivers.is_limited,
        receivers.largest,
    )


def takers_of(route: Route, size: int) -> set[Sink]:
    """Those that get a message of that many bytes, if each that is asked releases it."""
    tried: set[Sink] = set()
    while route.kind is RouteKind.SELECTIVE and (found := route.choose_for(size, tried)) is not None:
        assert found[0] not in tried
        assert isinstance(found[0], Hop) or not 0 < found[0].max_message_size < size
        tried.add(found[0])
    return tried


@pytest.mark.parametrize("name", TREATMENTS)
@given(CHANGES)
def test_routes_lead_to_those_who_would_be_found_anew(
    name: str, changes: list[tuple[str, int | str]]
) -> None:
    crowd = Crowd(name)
    for change in changes:
        crowd.change(*change)
        for sender in crowd.senders:
            route = crowd.route(sender)
            kept = described(route.receivers)
            assert sender.address is not None
            if route.receivers.whole and route.kind in {RouteKind.BALANCE, RouteKind.ROTATE}:
                loads = route.receivers.loads or [None] * len(route.sinks)
                assert [each.place for each in _placed(route.sinks, loads)] == list(range(len(route.sinks)))
            takers = [takers_of(route, size) for size in (64, 65, 150)]
            sender.address.invalidate()
            assert described(crowd.route(sender).receivers) == kept
            if route.kind is RouteKind.SELECTIVE:
                assert takers == [takers_of(crowd.route(sender), size) for size in (64, 65, 150)]


def _placed(sinks: list[Sink], loads: list[object]) -> list[Link]:
    return [load or sink for sink, load in zip(sinks, loads, strict=True)]  # type: ignore[misc]


@pytest.mark.parametrize("name", ["even", "near"])
def test_a_route_of_many_lasts(name: str) -> None:
    """Consumers that come and go cost the routes of an address nothing."""
    crowd = Crowd(name)
    for _ in range(3):
        crowd.change("join", "client")
    route = crowd.route(crowd.senders[0])
    crowd.change("join", "client")
    assert route.valid
    assert route.sinks == crowd.links
    crowd.change("leave", 0)
    assert route.valid
    assert set(route.sinks) == set(crowd.links)
    crowd.change("leave", 0)
    crowd.change("leave", 0)
    assert not route.valid
    assert route.sinks == [], "a route that has ended holds nobody"
    assert crowd.route(crowd.senders[0]).link is crowd.links[0]


def test_spellings_share_the_receivers() -> None:
    router = RouterInMemory(treatments=TREATMENTS)
    for _ in range(3):
        router.receiver("even")
    sender = router.sender(None)
    routes = [router.core.route_for(sender, f"amqp://h{n}/even") for n in range(3)]
    far = router.connection(Role.EDGE)
    edge = router.sender(None, far)
    routes += [
        router.core.route_for(edge, "even", RouterAnnotations(to_override=f"amqp://h{n}/even"))
        for n in range(3)
    ]
    assert len({id(route.receivers) for route in routes}) == 1


def test_sets_of_receivers_are_bounded() -> None:
    """Edges, each of which gets what the others send, and a bound of the places in all lists together."""
    router = RouterInMemory(treatments=TREATMENTS)
    edges = [router.connection(Role.EDGE) for _ in range(2 * LEAST_SETS)]
    for edge in edges:
        router.receiver("even", edge)
    address = router.core.addresses["Meven"]
    with patch("isthmus_router.core.planner.MOST_PLACES", 100):
        for edge in edges:
            sender = router.sender("even", edge)
            route = router.core.target_route(sender)
            assert len(route.sinks) == len(edges) - 1
            assert len(address.known_receivers) <= LEAST_SETS


@pytest.mark.parametrize("size", [1, 64, 65, 100, 101, 200, 201, 1000])
@pytest.mark.parametrize("name", ["even", "near"])
def test_a_message_gets_to_one_that_takes_it(name: str, size: int) -> None:
    """It never gets to one that takes smaller messages only, or that has been tried."""
    crowd = Crowd(name)
    limits = [1, 50, 64, 70, 100, 120, 128, 200, 500]
    connection = crowd.router.connection()
    links = [crowd.join(connection, proxy=False, limit=limit) for limit in limits]
    route = crowd.route(crowd.senders[0])
    assert route.kind is RouteKind.SELECTIVE
    assert takers_of(route, size) == {link for link in links if link.max_message_size >= size}


@pytest.mark.parametrize("name", ["even", "near"])
def test_a_route_of_many_with_largest_messages_lasts(name: str) -> None:
    """Nothing is sorted or counted anew when one of them comes or goes."""
    crowd = Crowd(name)
    for _ in range(4):
        crowd.change("join", "limited")
    route = crowd.route(crowd.senders[0])
    assert len(takers_of(route, 100)) == 2
    with patch("isthmus_router.core.receivers.sorted", side_effect=AssertionError, create=True):
        for change in (("join", "limited"), ("join", "client"), ("leave", 0), ("leave", 1), ("leave", 2)):
            crowd.change(*change)
            assert route.valid
            assert takers_of(route, 100) == {
                link for link in crowd.links if not 0 < link.max_message_size < 100
            }
    receivers = route.receivers
    crowd.change("join", "client")
    while any(link.max_message_size for link in crowd.links):
        assert route.valid
        crowd.change("leave", next(at for at, link in enumerate(crowd.links) if link.max_message_size))
    assert not route.valid
    assert crowd.route(crowd.senders[0]).kind is not RouteKind.SELECTIVE
    assert crowd.route(crowd.senders[0]).receivers is receivers


def test_paths_that_have_ended_are_forgotten() -> None:
    """A neighbor comes back again and again, while another one sends to an address that both consume from."""
    router = RouterInMemory(treatments=TREATMENTS)
    router.receiver("even")
    sending = router.neighbour("B")
    router.consumers_at("B", "Meven")
    address = router.core.addresses["Meven"]
    annotations = RouterAnnotations(to_override="even", ingress="0/B", trace=("0/B",))
    for _ in range(5):
        hop = router.neighbour("C", origins="B")
        router.consumers_at("C", "Meven")
        sender = router.sender(None, sending.connection)
        route = router.core.route_for(sender, "even", annotations)
        assert hop in route.sinks
        hop.end()
    assert sum(hop.ended for hop in address.loads) <= 1
