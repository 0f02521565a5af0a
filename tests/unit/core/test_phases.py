"""Phases: which one a link or message is in, and what other routers are told of it."""

from __future__ import annotations

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.address import address_key, split_phase, waypoint_phase, with_phase
from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.model import Link
from isthmus_router.core.patterns import PatternTree
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Direction, Terminus
from isthmus_router.core.treatment import Treatment
from isthmus_router.message.sections import decode_annotations

WAYPOINT = ConfiguredAddress(Treatment.CLOSEST, egress_phase=1)


@pytest.fixture
def router() -> RouterInMemory:
    """A router on which `orders` is a waypoint's address."""
    router = RouterInMemory()
    router.core.configured.patterns.add_prefix("orders", WAYPOINT)
    return router


def key_of(link: Link) -> str:
    assert link.address is not None
    return link.address.key


def to_override(route: Route | None) -> str | None:
    assert route is not None
    return decode_annotations(route.prefix).to_override


@pytest.mark.parametrize(
    ("text", "key", "name", "phase"),
    [
        ("orders", "Morders", "orders", 0),
        ("_$phase.1/orders", "M_$phase.1/orders", "orders", 1),
        ("/_$phase.9/orders/eu", "M_$phase.9/orders/eu", "orders/eu", 9),
        ("_$phase.0/orders", "Morders", "orders", 0),
        ("_$phase.12/orders", "M_$phase.12/orders", "_$phase.12/orders", 0),
        ("_$phase.1/", "M_$phase.1", "_$phase.1", 0),
    ],
)
def test_a_phase_is_part_of_the_name(text: str, key: str, name: str, phase: int) -> None:
    for edge in (False, True):
        assert address_key(text, "ME", edge=edge) == key
    assert split_phase(key[1:]) == (name, phase)
    assert with_phase(name, phase) == key[1:]


@pytest.mark.parametrize(
    ("capabilities", "sends", "receives"),
    [
        ({"qd.waypoint"}, 1, 0),
        ({"queue", "qd.waypoint.2"}, 2, 1),
        ({"qd.waypoint_9"}, 9, 8),
        ({"qd.waypoint.0"}, None, None),
        ({"qd.waypoints"}, None, None),
        (set(), None, None),
    ],
)
def test_a_waypoint_says_so(capabilities: set[str], sends: int | None, receives: int | None) -> None:
    assert waypoint_phase(capabilities, incoming=True) == sends
    assert waypoint_phase(capabilities, incoming=False) == receives


def test_clients_send_in_one_phase_and_receive_from_another(router: RouterInMemory) -> None:
    sender, receiver = router.sender("/orders/eu"), router.receiver("orders/eu")
    assert key_of(sender) == "Morders/eu"
    assert key_of(receiver) == "M_$phase.1/orders/eu"
    assert sender not in router.port.credit
    assert {address.name for address in router.core.addresses.values()} == {"orders/eu"}
    assert {address.treatment for address in router.core.addresses.values()} == {Treatment.CLOSEST}


def test_a_waypoint_joins_the_phases(router: RouterInMemory) -> None:
    sender, receiver = router.sender("orders"), router.receiver("orders")
    capable = frozenset({"qd.waypoint"})
    taking = router.attach(None, Direction.OUT, Terminus("orders", capabilities=capable), Terminus())
    giving = router.attach(None, Direction.IN, Terminus(), Terminus("orders", capabilities=capable))
    assert sender.route is not None
    assert sender.route.sinks == [taking]
    assert giving.route is not None
    assert giving.route.sinks == [receiver]
    assert (to_override(sender.route), to_override(giving.route)) == ("orders", "_$phase.1/orders")


def test_routers_say_what_phase_they_mean(router: RouterInMemory) -> None:
    edge = router.connection(Role.EDGE)
    assert key_of(router.receiver("orders", edge)) == "Morders"
    assert key_of(router.receiver("_$phase.1/orders", edge)) == "M_$phase.1/orders"
    capable = Terminus("orders", capabilities=frozenset({"qd.waypoint"}))
    assert key_of(router.attach(edge, Direction.IN, Terminus(), capable)) == "Morders"


def test_a_client_may_name_the_phase(router: RouterInMemory) -> None:
    assert key_of(router.receiver("_$phase.4/orders")) == "M_$phase.4/orders"
    assert router.core.addresses["M_$phase.4/orders"].treatment is Treatment.CLOSEST


@pytest.fixture
def phased() -> RouterInMemory:
    """A router on which every address has phases."""
    router = RouterInMemory()
    router.core.configured.patterns.add_pattern(
        "#", ConfiguredAddress(Treatment.CLOSEST, ingress_phase=2, egress_phase=2)
    )
    return router


@pytest.mark.parametrize("name", ["$management", "_$temp.x", "_local/$management"])
def test_what_is_not_the_clients_has_no_phases(phased: RouterInMemory, name: str) -> None:
    assert "phase" not in key_of(phased.receiver(name))
    assert "phase" not in key_of(phased.sender(name))


def test_a_temporary_address_has_no_phases(phased: RouterInMemory) -> None:
    receiver = phased.attach(phased.connection(), Direction.OUT, Terminus(dynamic=True), Terminus())
    assert "phase" not in key_of(receiver)
    assert receiver.source.address is not None
    assert key_of(phased.sender(receiver.source.address)) == key_of(receiver)


def test_only_its_connection_receives_from_a_temporary_address(router: RouterInMemory) -> None:
    own = router.connection()
    receiver = router.attach(own, Direction.OUT, Terminus(dynamic=True), Terminus())
    name = receiver.source.address
    assert key_of(router.receiver(name, own)) == key_of(receiver)
    for refused in (router.receiver(name), router.receiver("amqp:/_topo/0/ME/temp.invented")):
        assert router.port.refused[refused].name == "amqp:unauthorized-access"


def test_messages_of_an_anonymous_sender_are_in_the_senders_phase() -> None:
    router = RouterInMemory()
    router.core.configured.patterns.add_prefix(
        "orders", ConfiguredAddress(Treatment.BALANCED, ingress_phase=2, egress_phase=2)
    )
    router.neighbour("B")
    router.consumers_at("B", "M_$phase.2/orders")
    route = router.core.route_for(router.sender(None), "orders")
    assert route.kind is RouteKind.SINGLE
    assert to_override(route) == "_$phase.2/orders"
    other = router.connection(Role.INTER_ROUTER)
    other.control_in = router.attach(other, Direction.IN, Terminus(), Terminus())
    assert router.core.route_for(other.control_in, "orders").kind is RouteKind.NONE


def test_a_changed_configuration_sends_away_those_in_the_wrong_phase(router: RouterInMemory) -> None:
    detached: dict[Link, Condition | None] = {}

    def detach(link: Link, condition: Condition | None = None) -> None:
        detached[link] = condition
        router.core.link_closed(link)

    router.port.detach_link = detach  # type: ignore[method-assign]
    sender, receiver, other = router.sender("orders"), router.receiver("orders"), router.receiver("other")
    capable = Terminus("orders", capabilities=frozenset({"qd.waypoint.2"}))
    waypoint = router.attach(None, Direction.OUT, capable, Terminus())
    edge = router.receiver("_$phase.1/orders", router.connection(Role.EDGE))
    list(router.core.configure_addresses(PatternTree(), Treatment.BALANCED))
    assert list(detached) == [receiver]
    condition = detached[receiver]
    assert condition is not None
    assert condition.name == "amqp:link:detach-forced"
    for link in (sender, other, waypoint, edge):
        assert link in link.connection.links
