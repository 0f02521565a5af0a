"""An edge: its clients' messages to a relayed address leave it, those that come are for every receiver."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.core.router_in_memory import RecordingPort, RouterInMemory

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import SessionClass
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Direction, LinkType, Outcome, Terminus
from isthmus_router.sites.edge import EdgeReceivers

NAME = "relay/trades"


class Port(RecordingPort):
    """Takes deliveries, and detaches."""

    def __init__(self, router: RouterInMemory) -> None:
        super().__init__()
        self.router = router
        self.delivered: dict[Link, list[bytes]] = {}
        self.settled: list[object] = []
        self.detached: dict[Link, Condition | None] = {}

    def deliver(self, link: Link, payloads: Sequence[bytes], annotations: bytes) -> bool:
        self.delivered.setdefault(link, []).extend(payloads)
        return True

    def settle(
        self, deliveries: Sequence[object], outcome: Outcome, condition: Condition | None = None
    ) -> None:
        assert outcome is Outcome.ACCEPTED
        self.settled += deliveries

    def detach_link(self, link: Link, condition: Condition | None = None) -> None:
        self.detached[link] = condition
        self.router.core.link_closed(link)


class Edge(RouterInMemory):
    """With an uplink, on which a test puts what the interior sends."""

    def __init__(self) -> None:
        super().__init__(edge=True)
        self.port: Port = Port(self)
        self.core.attach_port(self.port)
        self.relayed = EdgeReceivers(self.core, lambda _, callback: callback())
        self.uplink = self.connection(Role.EDGE)

    def proxy(self, direction: Direction, connection: Connection | None = None) -> Link:
        terminus = Terminus(address=NAME)
        incoming = direction is Direction.IN
        link = self.port.open_link(
            connection or self.uplink,
            direction,
            link_type=LinkType.ENDPOINT,
            source=terminus if incoming else Terminus(),
            target=Terminus() if incoming else terminus,
            session=SessionClass.PROXY,
        )
        link.proxy = True
        return link

    def route(self, link: Link) -> Route:
        return self.core.route_for(link, NAME)

    def arrives(self, way: Link, text: bytes) -> None:
        route = self.route(way)
        assert route.kind is RouteKind.IN_PROCESS
        assert route.handler is not None
        route.handler.take(text, way, "delivery")  # type: ignore[union-attr]


@pytest.fixture
def edge() -> Edge:
    return Edge()


def test_what_comes_is_for_every_receiver(edge: Edge) -> None:
    receivers = [edge.receiver(NAME), edge.receiver(NAME)]
    way = edge.proxy(Direction.IN)
    edge.arrives(way, b"one")
    edge.arrives(way, b"two")
    assert edge.port.delivered == {receiver: [b"one", b"two"] for receiver in receivers}
    assert edge.port.settled == ["delivery", "delivery"]


def test_what_comes_for_nobody_any_more_is_settled(edge: Edge) -> None:
    edge.arrives(edge.proxy(Direction.IN), b"one")
    assert edge.port.settled == ["delivery"]


def test_what_clients_send_goes_to_the_interior_only(edge: Edge) -> None:
    edge.receiver(NAME)
    sender = edge.sender(NAME)
    assert sender.route is not None
    assert sender.route.kind is RouteKind.NONE
    out = edge.proxy(Direction.OUT)
    edge.core.bind_consumer(out, edge.core.addresses["M" + NAME])
    assert sender.route.link is out
    assert edge.port.credit[sender]
    edge.core.unbind_consumer(out)  # the interior has nobody any more, whoever receives here
    assert sender.route.kind is RouteKind.NONE
    assert not edge.port.credit[sender]


def test_an_anonymous_senders_messages_take_the_uplink(edge: Edge) -> None:
    edge.receiver(NAME)
    anonymous = edge.proxy(Direction.OUT)
    edge.core.set_uplink(anonymous)
    assert edge.route(edge.sender(None)).link is anonymous
    assert edge.core.route_for(edge.sender(None), "relay/other").link is anonymous


def test_receivers_are_told_when_the_way_changes(edge: Edge) -> None:
    receiver = edge.receiver(NAME)
    first = edge.proxy(Direction.IN)
    edge.arrives(first, b"one")
    second = edge.proxy(Direction.IN)
    late = edge.receiver(NAME)
    edge.arrives(second, b"two")
    edge.arrives(first, b"late")
    assert edge.port.delivered == {receiver: [b"one"], late: [b"two"]}
    condition = edge.port.detached[receiver]
    assert condition is not None
    assert condition.name == "amqp:link:detach-forced"
    assert NAME in condition.description
    assert edge.relayed.receivers.counters.detached == 1


def test_a_way_that_is_lost_before_its_first_message(edge: Edge) -> None:
    receiver = edge.receiver(NAME)
    first = edge.proxy(Direction.IN)
    edge.core.link_closed(first)
    edge.arrives(edge.proxy(Direction.IN), b"two")
    assert list(edge.port.detached) == [receiver]


def test_ways_are_forgotten_with_the_last_receiver(edge: Edge) -> None:
    receiver = edge.receiver(NAME)
    first = edge.proxy(Direction.IN)
    edge.arrives(first, b"one")
    edge.core.link_closed(receiver)
    edge.core.link_closed(first)
    again = edge.receiver(NAME)
    edge.arrives(edge.proxy(Direction.IN), b"two")
    assert edge.port.delivered[again] == [b"two"]
    assert not edge.port.detached
