"""The edge's side: which links it opens, when they are bound, and what its clients get."""

from __future__ import annotations

import pytest
from tests.unit.edge.network import End, Network, Router, credit, proxies
from tests.unit.steps import finished

from isthmus_router.core.address import InProcessConsumer
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Direction, LinkType
from isthmus_router.core.treatment import Treatment
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, TRACKING_ADDRESS, encode_tracking
from isthmus_router.message.control import Message, encode_message

IN, OUT = Direction.IN, Direction.OUT


def test_standing_links(edge: Router, interior: Router, uplink: End) -> None:
    described = [
        (link.direction, link.source.address or link.target.address, sorted(link.source.capabilities))
        for link in edge.port.opened
    ]
    assert described == [
        (OUT, MESH_DISCOVERY_ADDRESS, []),
        (OUT, None, []),
        (IN, "E", [CAPABILITY_EDGE_DOWNLINK]),
        (IN, TRACKING_ADDRESS, []),
    ]
    assert edge.port.opened[3].capacity == 32
    assert edge.core.uplink is edge.port.opened[1]
    assert [connection.mesh_id for connection in interior.ends] == [edge.core.mesh_id]
    assert len(interior.consumers("HE")) == 1


def test_one_proxy_per_address_and_direction(network: Network, edge: Router, uplink: End) -> None:
    senders = [edge.attach(IN, "x") for _ in range(3)]
    receivers = [edge.attach(OUT, "x") for _ in range(3)]
    edge.attach(IN, "y")
    assert proxies(edge, OUT) == ["x", "y"]
    assert proxies(edge, IN) == ["x"]
    for link in senders + receivers:
        network.settle()
        assert "x" in proxies(edge, OUT if link.direction is IN else IN)
        edge.close_link(link)
    network.settle()
    assert (proxies(edge, OUT), proxies(edge, IN)) == (["y"], [])


def test_no_proxies_for_other_classes(edge: Router, uplink: End) -> None:
    edge.core.register("$management", InProcessConsumer(lambda payload, link: None), mobile=True)
    edge.attach(IN, None)
    edge.attach(IN, "_topo/0/A/temp.1")
    edge.attach(IN, "$management")
    edge.attach(OUT, "_local/x")
    assert (proxies(edge, OUT), proxies(edge, IN)) == ([], [])


def test_credit_follows_consumers_anywhere(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    far_edge = network.add("F", edge=True)
    network.connect(far_edge, interior)
    network.settle()
    sender = edge.attach(IN, "x")
    network.settle()
    assert not credit(edge, sender)
    for place in (interior, far_edge, edge):
        consumer = place.attach(OUT, "x")
        network.settle()
        assert credit(edge, sender)
        place.close_link(consumer)
        network.settle()
        assert not credit(edge, sender)


def test_consumer_that_is_already_there(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    assert not credit(edge, sender)
    network.settle()
    assert credit(edge, sender)
    assert [link.proxy for link in edge.consumers("Mx")] == [True]


def test_own_consumer_is_not_reached_through_the_interior(
    network: Network, edge: Router, uplink: End
) -> None:
    edge.attach(IN, "x")
    edge.attach(OUT, "x")
    network.settle()
    assert [link.proxy for link in edge.consumers("Mx")] == [False]


def test_old_word_does_not_bind_a_new_proxy_for_good(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    first = edge.attach(IN, "x")
    network.settle()
    consumer = interior.attach(OUT, "x")  # "reachable" is under way to the edge
    edge.close_link(first)
    sender = edge.attach(IN, "x")  # detach and attach are under way to the interior
    assert uplink.other is not None
    network.step(uplink.other)
    interior.close_link(consumer)
    network.settle()
    assert not credit(edge, sender)
    assert edge.consumers("Mx") == []


def test_targeted_sender_to_another_router_follows_the_uplink(
    network: Network, edge: Router, interior: Router
) -> None:
    sender = edge.attach(IN, "amqp:/_topo/0/A/temp.1")
    assert not credit(edge, sender)
    end = network.connect(edge, interior)
    network.settle()
    assert credit(edge, sender)
    assert edge.core.target_route(sender).sinks == [edge.core.uplink]
    network.cut(end)
    network.settle()
    assert not credit(edge, sender)


def test_anonymous_deliveries_take_the_uplink(edge: Router, uplink: End) -> None:
    sender = edge.attach(IN, None)
    assert edge.core.route_for(sender, "x").sinks == [edge.core.uplink]
    consumer = edge.attach(OUT, "x")
    assert edge.core.route_for(sender, "x").sinks == [consumer]


def test_deliveries_from_the_interior_do_not_go_back(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.attach(OUT, "x")
    edge.attach(IN, "x")
    network.settle()
    downlink = next(link for link in edge.port.opened if link.type is LinkType.EDGE_DOWNLINK)
    assert edge.core.route_for(downlink, "x").kind is RouteKind.NONE
    assert edge.core.route_for(downlink, "nowhere").kind is RouteKind.NONE


def test_anonymous_multicast_reaches_here_and_the_network_once(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    edge.core.configured.default = interior.core.configured.default = Treatment.MULTICAST
    sender = edge.attach(IN, None)
    here = edge.attach(OUT, "x")
    assert edge.core.route_for(sender, "x").sinks == [here, edge.core.uplink]
    interior.attach(OUT, "x")
    targeted = edge.attach(IN, "x")
    network.settle()
    (proxy,) = (link for link in edge.consumers("Mx") if link.proxy)
    assert edge.core.route_for(sender, "x").sinks == [here, proxy]
    assert edge.core.target_route(targeted).sinks == [here, proxy]


@pytest.mark.parametrize("direction", [IN, OUT])
@pytest.mark.parametrize("address", [TRACKING_ADDRESS, "amqp:/_$qd.anything"])
def test_clients_may_not_use_reserved_addresses(
    edge: Router, uplink: End, direction: Direction, address: str
) -> None:
    link = edge.attach(direction, address)
    assert edge.port.refused[link].name == "amqp:not-allowed"
    assert proxies(edge, IN if direction is OUT else OUT) == []


def test_parked_deliveries_are_released_when_the_last_consumer_goes(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    consumer = interior.attach(OUT, "x")
    edge.attach(IN, "x")
    network.settle()
    (proxy,) = edge.consumers("Mx")
    proxy.parked.append(b"waits for credit")
    interior.close_link(consumer)
    network.settle()
    assert not proxy.parked


def test_bad_tracking_messages_are_counted_and_ignored(
    network: Network, edge: Router, uplink: End, caplog: pytest.LogCaptureFixture
) -> None:
    edge.attach(IN, "x")
    network.settle()
    assert edge.edge is not None
    proxy = edge.edge.proxy
    assert proxy.uplink is not None
    tracking = proxy.uplink.tracking
    assert tracking is not None
    assert tracking.on_delivery is not None
    for payload in (b"", b"garbage", encode_message(Message(body=["Mx"])), encode_tracking("Lx", True)):
        tracking.on_delivery(tracking, payload)
    assert proxy.messages_invalid == 4
    assert len([record for record in caplog.records if "tracking message" in record.message]) == 1
    tracking.on_delivery(tracking, encode_tracking("Munknown", True))
    assert "Munknown" not in edge.core.addresses
    assert edge.consumers("Mx") == []


def test_proxied_addresses_are_counted_in_steps(
    network: Network, interior: Router, edge: Router, uplink: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus_router.edge.uplink.PROXIES_PER_STEP", 2)
    for name in ("both", "sent", "unreached"):
        edge.attach(IN, name)
    for name in ("both", "received"):
        edge.attach(OUT, name)
    interior.attach(OUT, "sent")
    network.settle()
    assert edge.edge is not None
    found = edge.edge.proxy.uplink
    assert found is not None
    found.add_out_proxy("Msfe.records")
    assert sum(1 for _ in found.count_addresses()) == 3
    assert finished(found.count_addresses()) == (4, 1)
