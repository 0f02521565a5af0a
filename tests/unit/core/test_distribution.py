"""Where deliveries go: each treatment over local consumers and other routers."""

from collections import Counter

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.model import Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.core.treatment import Treatment
from isthmus_router.message.sections import RouterAnnotations, decode_annotations

TREATMENTS = {"near": Treatment.CLOSEST, "even": Treatment.BALANCED, "all": Treatment.MULTICAST}


@pytest.fixture
def router() -> RouterInMemory:
    return RouterInMemory(treatments=TREATMENTS)


def route_of(sender: Link) -> Route:
    assert sender.route is not None
    return sender.route


def data_link(hop: Hop) -> Link:
    """Where deliveries from a neighbour come in."""
    return Link(0, hop.connection, Direction.IN, "data", source=Terminus(), target=Terminus())


def picks(route: Route, count: int) -> Counter[Link | Hop]:
    return Counter(route.choose()[0] for _ in range(count))


def test_closest_takes_local_consumers_in_turn_before_any_router(router: RouterInMemory) -> None:
    router.neighbour("B")
    router.consumers_at("B", "Mnear")
    sender = router.sender("near")
    one, two = router.receiver("near"), router.receiver("near")
    route = router.core.target_route(sender)
    assert route.kind is RouteKind.ROTATE
    assert picks(route, 10) == {one: 5, two: 5}


def test_closest_takes_the_routers_of_least_cost(router: RouterInMemory) -> None:
    cheap, equal, dear = router.neighbour("B", 2), router.neighbour("C", 2), router.neighbour("D", 3)
    for name in "BCD":
        router.consumers_at(name, "Mnear")
    route = router.core.target_route(router.sender("near"))
    assert picks(route, 8) == {cheap: 4, equal: 4}
    assert dear not in route.sinks


def test_a_full_consumer_is_passed_over(router: RouterInMemory) -> None:
    sender = router.sender("near")
    full, free = router.receiver("near"), router.receiver("near")
    full.unsettled = dict.fromkeys(range(full.capacity))
    assert picks(router.core.target_route(sender), 6) == {free: 6}


@pytest.mark.parametrize("address", ["near", "even"])
def test_consumers_with_credit_come_before_those_without(router: RouterInMemory, address: str) -> None:
    sender = router.sender(address)
    stopped, busy = router.receiver(address), router.receiver(address)
    stopped.parked.append(object())
    busy.unsettled = dict.fromkeys(range(20))
    route = router.core.target_route(sender)
    assert picks(route, 6) == {busy: 6}
    busy.parked.append(object())
    assert stopped in picks(route, 6)


@pytest.mark.parametrize("address", ["near", "even"])
def test_a_consumer_that_took_its_credit_back_comes_last(router: RouterInMemory, address: str) -> None:
    sender = router.sender(address)
    drained, busy = router.receiver(address), router.receiver(address)
    drained.drained = True
    busy.unsettled = dict.fromkeys(range(20))
    assert picks(router.core.target_route(sender), 6) == {busy: 6}


def test_balanced_weighs_load_against_cost(router: RouterInMemory) -> None:
    hop = router.neighbour("B", 5)
    router.consumers_at("B", "Meven")
    sender, local = router.sender("even"), router.receiver("even")
    route = router.core.target_route(sender)
    assert route.kind is RouteKind.BALANCE
    chosen = []
    for number in range(20):
        sink, load = route.choose()
        chosen.append(sink)
        if load is not None:
            load.outstanding += 1
        else:
            local.unsettled[number] = None
    # Nothing goes over the path of cost 5 before the local consumer has as much to do; then they share.
    assert chosen[:5] == [local] * 5
    assert Counter(chosen) == {local: 12, hop: 8} or Counter(chosen) == {local: 13, hop: 7}


def test_outstanding_deliveries_are_remembered_when_routes_change(router: RouterInMemory) -> None:
    hop = router.neighbour("B", 1)
    router.consumers_at("B", "Meven")
    sender, local = router.sender("even"), router.receiver("even")
    address = router.core.addresses["Meven"]
    router.core.target_route(sender)
    address.loads[hop].outstanding = 50
    router.receiver("even", local.connection)
    router.core.target_route(sender)
    assert address.loads[hop].outstanding == 50


def test_multicast_reaches_everybody_once_per_hop(router: RouterInMemory) -> None:
    hop = router.neighbour("B")
    router.neighbour("C", 2, via=hop)
    for name in "BC":
        router.consumers_at(name, "Mall", Treatment.MULTICAST)
    one, two = router.receiver("all"), router.receiver("all")
    route = router.core.target_route(router.sender("all"))
    assert route.kind is RouteKind.MULTICAST
    assert Counter(route.sinks) == {one: 1, two: 1, hop: 1}


def test_multicast_goes_only_where_the_ingress_router_is_a_valid_origin(router: RouterInMemory) -> None:
    origin = router.neighbour("A")
    allowed = router.neighbour("B", origins="A")
    router.neighbour("C", origins="B")
    for name in "ABC":
        router.consumers_at(name, "Mall", Treatment.MULTICAST)
    from_a = data_link(origin)
    route = router.core.route_for(from_a, "all", RouterAnnotations(ingress="0/A", trace=("0/A",)))
    assert route.sinks == [allowed]


def test_routers_already_passed_are_left_out_of_a_multicast(router: RouterInMemory) -> None:
    origin, passed = router.neighbour("A"), router.neighbour("B", origins="A")
    router.consumers_at("B", "Mall", Treatment.MULTICAST)
    from_a = data_link(origin)
    route = router.core.route_for(from_a, "all", RouterAnnotations(ingress="0/A", trace=("0/A", "0/B")))
    assert passed not in route.sinks
    assert route.kind is RouteKind.NONE


def test_a_trace_longer_than_the_network_is_a_loop(router: RouterInMemory) -> None:
    router.neighbour("A")
    assert router.core.radius == 3
    router.receiver("near")
    fine = RouterAnnotations(ingress="0/A", trace=("0/A", "0/B", "0/C", "0/D"))
    loop = RouterAnnotations(ingress="0/A", trace=(*fine.trace, "0/E"))
    assert router.core.route_for(None, "near", fine).kind is RouteKind.SINGLE
    assert router.core.route_for(None, "near", loop).kind is RouteKind.NONE


def test_the_annotation_section_names_target_ingress_and_trace(router: RouterInMemory) -> None:
    router.neighbour("B")
    router.consumers_at("B", "Mnear")
    first = decode_annotations(route_of(router.sender("near")).prefix)
    assert first == RouterAnnotations(0, "near", "0/ME", ("0/ME",))
    transit = RouterAnnotations(0, "near", "0/A", ("0/A",), "mesh")
    assert decode_annotations(router.core.route_for(None, "near", transit).prefix) == RouterAnnotations(
        0, "near", "0/A", ("0/A", "0/ME"), "mesh"
    )


def test_nothing_goes_back_to_the_edge_it_came_from(router: RouterInMemory) -> None:
    edge, other = router.connection(Role.EDGE), router.connection(Role.EDGE)
    sender = router.sender("near", edge)
    router.receiver("near", edge)
    assert route_of(sender).kind is RouteKind.NONE
    there = router.receiver("near", other)
    assert router.core.target_route(sender).sinks == [there]
