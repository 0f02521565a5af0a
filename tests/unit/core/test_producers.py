"""Producers: credit follows destinations, attaches are accepted or refused, nothing is left behind."""

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import RouteKind
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.core.treatment import Treatment


@pytest.fixture
def router() -> RouterInMemory:
    return RouterInMemory(treatments={"closed": Treatment.UNAVAILABLE})


def test_credit_comes_with_the_first_consumer_and_goes_with_the_last(router: RouterInMemory) -> None:
    sender = router.sender("q")
    assert sender not in router.port.credit
    one, two = router.receiver("q"), router.receiver("q")
    assert router.port.credit[sender]
    router.core.link_closed(one)
    assert router.port.credit[sender]
    router.core.link_closed(two)
    assert not router.port.credit[sender]


def test_consumers_on_other_routers_count(router: RouterInMemory) -> None:
    sender = router.sender("q")
    router.neighbour("B")
    router.consumers_at("B", "Mq")
    assert router.port.credit[sender]
    node = router.core.remotes.node("B")
    node.hop = None
    router.core.remotes.paths_changed()
    assert not router.port.credit[sender]
    router.core.remotes.remove_node("B")
    assert "RB" not in router.core.addresses


def test_an_anonymous_sender_has_credit_at_once(router: RouterInMemory) -> None:
    assert router.port.credit[router.sender(None)]


@pytest.mark.parametrize("target", ["closed", "closed/below"])
def test_an_unavailable_address_refuses_both_ends(router: RouterInMemory, target: str) -> None:
    for link in (router.sender(target), router.receiver(target)):
        assert router.port.refused[link].name == "amqp:not-found"
    assert "M" + target not in router.core.addresses


def test_a_receiver_needs_an_address(router: RouterInMemory) -> None:
    assert router.port.refused[router.receiver(None)].name == "qd:no-route-to-dest"


def test_a_client_cannot_attach_where_routers_talk(router: RouterInMemory) -> None:
    link = router.sender("q", router.connection(Role.INTER_ROUTER))
    assert router.port.refused[link].name == "qd:connection-role"
    assert router.core.counters.link_refusals == {"qd:connection-role": 1}


def test_temporary_addresses_lead_back_to_this_router(router: RouterInMemory) -> None:
    receiver = router.attach(router.connection(), Direction.OUT, Terminus(dynamic=True), Terminus())
    source, _ = router.port.accepted[receiver]
    assert source.address is not None
    assert source.address.startswith("amqp:/_topo/0/ME/temp.")
    assert router.core.route_for(None, source.address).sinks == [receiver]


def test_a_route_to_nobody_is_asked_for_again_when_somebody_comes(router: RouterInMemory) -> None:
    route = router.core.route_for(None, "late")
    assert route.kind is RouteKind.NONE
    receiver = router.receiver("late")
    assert not route.valid
    assert router.core.route_for(None, "late").sinks == [receiver]


def test_nothing_is_left_of_links_that_are_gone(router: RouterInMemory) -> None:
    before = len(router.core.addresses)
    connection = router.connection()
    for number in range(20):
        router.sender(f"q{number}", connection)
        router.receiver(f"q{number}", connection)
    router.core.connection_closed(connection)
    assert len(router.core.addresses) == before
    assert not connection.links


def test_senders_with_one_target_share_one_route(router: RouterInMemory) -> None:
    router.receiver("q")
    one, two = router.sender("q"), router.sender("q")
    assert one.route is two.route
    router.core.link_closed(one)
    assert two.route is not None
    assert two.route.valid


def test_a_changed_treatment_reaches_addresses_in_use(router: RouterInMemory) -> None:
    sender = router.sender("q")
    router.receiver("q")
    router.receiver("q")
    router.core.configured.patterns.add_prefix("q", ConfiguredAddress(Treatment.MULTICAST))
    router.core.configure_addresses(router.core.configured.patterns, Treatment.BALANCED)
    assert router.core.target_route(sender).kind is RouteKind.MULTICAST
