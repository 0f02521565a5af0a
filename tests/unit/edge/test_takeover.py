"""One uplink takes over from another, or comes back: what moves, in which order, and what stays until it is done."""

from __future__ import annotations

from tests.unit.edge.network import End, Network, Router, credit, proxies

from isthmus_router.core.model import Link
from isthmus_router.core.terms import Direction
from isthmus_router.edge.address_proxy import GIVE_WAY_SECONDS
from isthmus_router.edge.messages import encode_tracking

IN, OUT = Direction.IN, Direction.OUT


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
