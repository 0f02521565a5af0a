"""The edge's side: which links it opens, when they are bound, and what its clients get."""

from __future__ import annotations

import pytest
from tests.unit.edge.network import End, Network, Router

from isthmus_router.core.address import InProcessConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.routes import RouteKind
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Condition, Direction, LinkType
from isthmus_router.core.treatment import Treatment
from isthmus_router.edge.address_proxy import FIRST_REPAIR_SECONDS, GIVE_WAY_SECONDS
from isthmus_router.edge.connection_manager import PROVEN_SECONDS
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, TRACKING_ADDRESS, encode_tracking
from isthmus_router.edge.uplink import ANSWER_SECONDS, TOLD_REFUSALS
from isthmus_router.message.control import Message, encode_message

IN, OUT = Direction.IN, Direction.OUT


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def interior(network: Network) -> Router:
    return network.add("A", edge=False)


@pytest.fixture
def edge(network: Network, interior: Router) -> Router:
    return network.add("E", edge=True)


@pytest.fixture
def uplink(network: Network, interior: Router, edge: Router) -> End:
    end = network.connect(edge, interior)
    network.settle()
    return end


def proxies(router: Router, direction: Direction) -> list[str]:
    """Addresses of the proxy links that exist on all of a router's uplinks."""
    links = [
        link
        for connection in router.ends
        for link in connection.links
        if link.direction is direction and link.type is LinkType.ENDPOINT
    ]
    names = [(link.source if direction is IN else link.target).address for link in links]
    return sorted(name for name in names if name is not None and not name.startswith("_$qd."))


def credit(router: Router, link: Link) -> bool:
    return router.port.credit[link] > 0


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


def test_uplink_lost_and_back(network: Network, interior: Router, edge: Router, uplink: End) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    edge.attach(OUT, "y")
    network.settle()
    network.cut(uplink)
    network.settle()
    assert not credit(edge, sender)
    assert edge.core.uplink is None
    assert "My" not in interior.core.addresses
    network.connect(edge, interior)
    network.settle()
    assert credit(edge, sender)
    assert (proxies(edge, OUT), proxies(edge, IN)) == (["x"], ["y"])


def test_takeover_moves_links_without_a_gap_in_credit(
    network: Network, interior: Router, edge: Router
) -> None:
    old = network.connect(edge, interior, 1)
    network.settle()
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    edge.attach(OUT, "y")
    network.settle()
    drained: list[Link] = []
    drain = edge.port.drain

    def recording(link: Link) -> None:
        drained.append(link)
        drain(link)

    edge.port.drain = recording  # type: ignore[method-assign]
    new = network.connect(edge, interior, 2)
    network.settle()
    assert [link for link in drained if not link.proxy] == []
    network.advance(1)
    network.settle()
    assert credit(edge, sender)
    assert (old.connection.active, new.connection.active) == (False, True)
    assert old.connection.links == set()
    assert (proxies(edge, OUT), proxies(edge, IN)) == (["x"], ["y"])
    assert [link.connection for link in edge.consumers("Mx")] == [new.connection]
    assert edge.core.uplink is not None
    assert edge.core.uplink.connection is new.connection
    assert len(interior.consumers("My")) == len(interior.consumers("HE")) == 1


def test_takeover_opens_the_new_before_it_detaches_the_old(
    network: Network, interior: Router, edge: Router
) -> None:
    network.connect(edge, interior, 1)
    network.settle()
    edge.attach(OUT, "y")
    network.settle()
    opened_at_detach: list[int] = []
    detach = edge.port.detach_link
    before = len(edge.port.opened)

    def recording(link: Link, condition: object = None) -> None:
        opened_at_detach.append(len(edge.port.opened) - before)
        detach(link)

    edge.port.detach_link = recording  # type: ignore[method-assign]
    network.connect(edge, interior, 2)
    network.settle()
    network.advance(1)
    # Tracking, announcement, anonymous, downlink and in-proxy of the old, each after all five of the new.
    assert opened_at_detach == [5] * 5


def test_takeover_leaves_streams_and_what_is_under_way(
    network: Network, interior: Router, edge: Router
) -> None:
    old = network.connect(edge, interior, 1)
    network.settle()
    stream = network.link(old.connection, OUT, edge.port.opened[1].source, edge.port.opened[1].target)
    stream.streaming = True
    old.connection.links.add(stream)
    anonymous = edge.core.uplink
    assert anonymous is not None
    anonymous.unsettled["delivery"] = "unsettled"
    network.connect(edge, interior, 2)
    network.settle()
    assert edge.core.uplink is not anonymous
    assert anonymous in old.connection.links
    network.advance(5)
    assert anonymous in old.connection.links
    anonymous.unsettled.clear()
    network.advance(1)
    assert anonymous not in old.connection.links
    assert stream in old.connection.links


def test_takeover_lets_deliveries_to_local_consumers_finish(
    network: Network, interior: Router, edge: Router
) -> None:
    old = network.connect(edge, interior, 1)
    network.settle()
    edge.attach(OUT, "y")
    network.settle()
    (in_proxy,) = (link for link in edge.port.opened if link.source.address == "y")
    in_proxy.unsettled["delivery"] = "at the consumer"
    network.connect(edge, interior, 2)
    network.settle()
    network.advance(60)
    assert in_proxy in old.connection.links
    assert not edge.port.has_credit(in_proxy)
    in_proxy.unsettled.clear()
    network.advance(1)
    network.settle()
    assert in_proxy not in old.connection.links
    assert len(interior.consumers("My")) == 1


def test_what_waits_on_a_link_that_is_given_up_has_a_limit_and_what_is_unsettled_has_none(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    network.settle()
    (proxy,) = edge.consumers("Mx")
    proxy.unsettled["delivery"] = "its receiver takes long"
    proxy.parked.append("waits for credit")
    edge.close_link(sender)
    assert edge.consumers("Mx") == []
    network.advance(60)
    assert proxy in uplink.connection.links
    del proxy.unsettled["delivery"]
    network.advance(1)
    assert proxy not in uplink.connection.links


def test_takeover_ends_proxies_nobody_speaks_of(network: Network, interior: Router, edge: Router) -> None:
    old = network.connect(edge, interior, 1)
    network.settle()
    consumer = interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    network.settle()
    interior.close_link(consumer)
    network.connect(edge, interior, 2)  # the old tracking link goes before it can say that x is gone
    network.step(next(end for end in network.ends if end.other is not None and end.inbox))
    network.settle()
    network.advance(GIVE_WAY_SECONDS)
    network.settle()
    assert not credit(edge, sender)
    assert old.connection.links == set()
    assert proxies(edge, OUT) == ["x"]


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


def test_tracking_link_taken_away(network: Network, interior: Router, edge: Router, uplink: End) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    network.settle()
    assert interior.interior is not None
    (endpoint,) = interior.interior.tracking.endpoints.values()
    assert endpoint.link is not None
    interior.port.detach_link(endpoint.link)
    network.settle()
    assert not credit(edge, sender)  # nobody would say if the consumer went
    network.advance(6)
    network.settle()
    assert credit(edge, sender)


def test_refused_proxy_is_tried_again_ever_more_slowly(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.core.configured.default = Treatment.UNAVAILABLE
    edge.attach(IN, "x")
    network.settle()
    attempts = []
    for _ in range(300):
        opened = len(edge.port.opened)
        network.advance(1)
        network.settle()
        if len(edge.port.opened) > opened:
            attempts.append(network.now)
    assert attempts == [5, 15, 35, 75, 135, 195, 255]
    interior.core.configured.default = Treatment.BALANCED
    network.advance(60)
    network.settle()
    assert proxies(edge, OUT) == ["x"]


def test_a_link_lost_long_after_the_last_repair_comes_back_soon(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    network.settle()
    assert interior.interior is not None
    waits = []
    for quiet in (0, 0, 59, 61, 0):
        network.advance(quiet)
        network.settle()
        assert credit(edge, sender)
        (endpoint,) = interior.interior.tracking.endpoints.values()
        assert endpoint.link is not None
        interior.port.detach_link(endpoint.link)
        network.settle()
        waited = 0
        while not credit(edge, sender):
            network.advance(1)
            network.settle()
            waited += 1
        waits.append(waited)
    assert waits == [5, 10, 20, 5, 10]


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


def test_message_on_a_tracking_link_of_former_days(network: Network, interior: Router, edge: Router) -> None:
    network.connect(edge, interior, 1)
    network.settle()
    assert edge.edge is not None
    assert edge.edge.proxy.uplink is not None
    former = edge.edge.proxy.uplink.tracking
    assert former is not None
    assert former.on_delivery is not None
    sender = edge.attach(IN, "x")
    network.connect(edge, interior, 2)
    network.settle()
    former.on_delivery(former, encode_tracking("Mx", True))
    assert not credit(edge, sender)


def opened(network: Network, edge: Router, interior: Router) -> End:
    """A connection that is open, of which the interior has said no more yet."""
    end = network.connect(edge, interior)
    assert end.other is not None
    network.step(end.other)
    network.step(end)
    assert end.connection in edge.ends
    return end


def test_an_interior_that_does_not_answer_gives_way_to_a_standby(
    network: Network, interior: Router, edge: Router, caplog: pytest.LogCaptureFixture
) -> None:
    silent = opened(network, edge, interior)
    other = network.add("B", edge=False)
    standby = opened(network, edge, other)
    assert (silent.connection.active, standby.connection.active) == (True, False)
    network.advance(ANSWER_SECONDS + 0.1)
    assert silent.connection.problem == "the peer A does not answer the attach of an edge's links"
    network.advance(PROVEN_SECONDS + 0.1)
    assert (silent.connection.active, standby.connection.active) == (False, True)
    assert "interior does not answer" in caplog.text


def test_links_do_not_pile_up_on_a_connection_that_is_activated_again_and_again(
    network: Network, interior: Router, edge: Router
) -> None:
    first, second = network.connect(edge, interior, 1), network.connect(edge, interior, 1)
    network.settle()
    standing = len(first.connection.links)
    for cost in range(2, 12):
        active = edge.edge.connections.active
        assert active is not None
        active.cost = cost
        edge.edge.connections.preference_changed()
        network.advance(2 * PROVEN_SECONDS)
        network.settle()
        network.advance(2 * PROVEN_SECONDS)
        network.settle()
        assert edge.edge.connections.active is not active
        assert sorted(len(end.connection.links) for end in (first, second)) == [0, standing]


def test_a_link_attached_again_has_its_own_time_to_be_answered(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    network.settle()
    assert interior.interior is not None
    network.advance(ANSWER_SECONDS - FIRST_REPAIR_SECONDS - 1)
    (endpoint,) = interior.interior.tracking.endpoints.values()
    assert endpoint.link is not None
    interior.port.detach_link(endpoint.link)
    network.settle()
    network.advance(FIRST_REPAIR_SECONDS)
    network.advance(ANSWER_SECONDS - 1)  # it was ten seconds after the others were attached in between
    assert uplink.connection.problem is None
    network.advance(1.1)
    assert uplink.connection.problem is not None


def test_a_late_answer_makes_an_uplink_fit_again(network: Network, interior: Router, edge: Router) -> None:
    late = opened(network, edge, interior)
    network.advance(ANSWER_SECONDS + 0.1)
    assert late.connection.problem is not None
    network.settle()
    assert late.connection.problem is None
    network.advance(10 * ANSWER_SECONDS)
    assert late.connection.problem is None


def test_a_stream_on_a_proxy_outlives_the_limit(network: Network, interior: Router, edge: Router) -> None:
    old = network.connect(edge, interior, 1)
    network.settle()
    interior.attach(OUT, "x")
    edge.attach(IN, "x")
    network.settle()
    (proxy,) = edge.consumers("Mx")
    proxy.stream = "a stream"
    network.connect(edge, interior, 2)
    network.settle()
    network.advance(100)
    assert proxy in old.connection.links
    proxy.stream = None
    network.advance(1)
    assert proxy not in old.connection.links


def test_refusals_of_ever_new_kinds_fill_neither_log_nor_memory(
    edge: Router, uplink: End, caplog: pytest.LogCaptureFixture
) -> None:
    assert edge.edge is not None
    active = edge.edge.proxy.uplink
    assert active is not None
    assert active.anonymous is not None
    assert active.anonymous.on_refused is not None
    for number in range(TOLD_REFUSALS + 100):
        active.anonymous.on_refused(active.anonymous, Condition(f"made:up-{number}"))
    assert caplog.text.count("interior closed a link of this edge") == TOLD_REFUSALS
    assert uplink.connection.problem is None
    active.anonymous.on_refused(active.anonymous, Condition("qd:forbidden"))
    assert uplink.connection.problem is not None, "what matters is not overlooked for that"
