"""Address tracking on the interior, and what edges attach: which attaches are taken, and what edges are told."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from tests.unit.edge.network import Network, Router

from isthmus_router.core import reachability
from isthmus_router.core.model import MOST_UNREAD_BYTES, Connection, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Direction, Terminus
from isthmus_router.core.treatment import Treatment
from isthmus_router.edge import tracking as tracking_module
from isthmus_router.edge.messages import (
    MESH_DISCOVERY_ADDRESS,
    TRACKING_ADDRESS,
    EdgeMessageError,
    decode_mesh_announcement,
    decode_tracking,
    encode_mesh_announcement,
    encode_tracking,
)
from isthmus_router.edge.namesakes import MOVING_SECONDS
from isthmus_router.message.control import Message, encode_message

IN, OUT = Direction.IN, Direction.OUT


class Told:
    """An interior with one edge connection driven by hand, and the tracking messages sent on it."""

    def __init__(self) -> None:
        self.network = Network()
        self.router = self.network.add("A", edge=False)
        self.connection = self.connect("E")
        self.sent: list[tuple[str, bool]] = []
        self.router.port.send = self._send  # type: ignore[method-assign]

    def connect(
        self,
        container: str,
        role: Role = Role.EDGE,
        *,
        user: str | None = None,
        proven_mesh_id: str | None = None,
    ) -> Connection:
        connection = Connection(
            next(self.network.numbers),
            role,
            incoming=True,
            name=container,
            container=container,
            user=user,
            proven_mesh_id=proven_mesh_id,
        )
        self.router.core.connection_opened(connection)
        return connection

    def _send(self, link: Link, payload: bytes, *, settled: bool) -> None:
        assert not settled
        assert link.source.address == TRACKING_ADDRESS
        self.sent.append(decode_tracking(payload))

    def track(self, connection: Connection | None = None, direction: Direction = OUT) -> Link:
        link = self.router.attach(direction, TRACKING_ADDRESS, connection or self.connection)
        self.network.settle()
        return link

    def produce(self, address: str, connection: Connection | None = None) -> Link:
        return self.router.attach(IN, address, connection or self.connection)

    def take(self) -> list[tuple[str, bool]]:
        sent, self.sent = self.sent, []
        return sent

    @property
    def endpoints(self) -> dict[Connection, object]:
        assert self.router.interior is not None
        return dict(self.router.interior.tracking.endpoints)


@pytest.fixture
def told() -> Told:
    return Told()


def test_told_at_attach_when_reachable_and_on_every_change(told: Told) -> None:
    told.track()
    told.produce("x")
    assert told.take() == []
    first = told.router.attach(OUT, "x")
    assert told.take() == [("Mx", True)]
    second = told.router.attach(OUT, "x")
    told.router.close_link(first)
    assert told.take() == []
    told.router.close_link(second)
    assert told.take() == [("Mx", False)]
    told.router.attach(OUT, "y")
    told.produce("y")
    assert told.take() == [("My", True)]


def test_edge_is_told_of_many_addresses_in_steps_with_what_changes_meanwhile(told: Told) -> None:
    receivers = [told.router.attach(OUT, f"x{number}") for number in range(5)]
    for number in range(5):
        told.produce(f"x{number}")
    told.router.attach(OUT, TRACKING_ADDRESS, told.connection)
    assert told.take() == []
    told.network.work_on()
    assert told.take() == [("Mx0", True)]
    told.router.close_link(receivers[0])
    told.router.close_link(receivers[1])
    told.router.attach(OUT, "x1")
    assert told.take() == [("Mx0", False), ("Mx1", True)]
    told.network.settle()
    assert told.take() == [("Mx2", True), ("Mx3", True), ("Mx4", True)]


def test_a_tracking_link_that_ends_or_follows_another_is_told_what_it_has_to_be(told: Told) -> None:
    for number in range(3):
        told.router.attach(OUT, f"x{number}")
        told.produce(f"x{number}")
    first = told.router.attach(OUT, TRACKING_ADDRESS, told.connection)
    told.network.work_on()
    told.router.close_link(first)
    assert told.take() == [("Mx0", True)]
    told.network.settle()
    assert told.take() == []
    told.track()
    assert told.take() == [("Mx0", True), ("Mx1", True), ("Mx2", True)]


def test_address_forms_name_one_key(told: Told) -> None:
    told.track()
    told.produce("amqp://host/x/")
    told.router.attach(OUT, "/x")
    assert told.take() == [("Mx", True)]


def test_remote_consumers_count(told: Told) -> None:
    core = told.router.core
    told.track()
    told.produce("x")
    node = core.remotes.node("B")
    core.remotes.add(node, "Mx", core.configured.default)
    assert told.take() == []  # no path to B yet
    node.hop = Hop(1, told.connect("B", Role.INTER_ROUTER))
    core.remotes.paths_changed()
    assert told.take() == [("Mx", True)]
    core.remotes.remove_node("B")
    assert told.take() == [("Mx", False)]


def test_own_consumer_does_not_count(told: Told) -> None:
    told.track()
    own = told.router.attach(OUT, "x", told.connection)
    told.produce("x")
    assert told.take() == []
    other = told.connect("F")
    far = told.router.attach(OUT, "x", other)
    assert told.take() == [("Mx", True)]
    told.router.close_link(far)
    assert told.take() == [("Mx", False)]
    told.router.close_link(own)
    assert told.take() == []


def test_other_connection_of_the_same_mesh_does_not_count(told: Told) -> None:
    core = told.router.core
    told.track()
    told.produce("x")
    sibling = told.connect("F")
    told.router.attach(OUT, "x", sibling)
    assert told.take() == [("Mx", True)]
    core.set_mesh_id(told.connection, "meshmeshmeshmes")
    core.set_mesh_id(sibling, "meshmeshmeshmes")
    assert told.take() == [("Mx", False)]
    core.set_mesh_id(sibling, "anothermeshmesh")
    assert told.take() == [("Mx", True)]


def test_nothing_for_other_links_and_classes(told: Told) -> None:
    told.track()
    told.router.attach(IN, "x")
    told.router.attach(IN, None, told.connection)
    told.produce("_topo/0/B/temp.1")
    told.produce("_edge/F/temp.1")
    told.router.attach(OUT, "x")
    told.router.attach(OUT, "z", told.connection)
    assert told.take() == []


def test_references_are_counted_per_connection(told: Told) -> None:
    told.track()
    links = [told.produce("x"), told.produce("y"), told.produce("y")]
    other = told.connect("F")
    told.produce("x", other)
    assert told.router.interior is not None
    endpoints = told.router.interior.tracking.endpoints

    def references(connection: Connection) -> int:
        return sum(tracked.links for tracked in endpoints[connection].addresses.values())

    assert references(told.connection) == 3
    assert references(other) == 1
    for expected, link in zip((2, 1, 0), links, strict=True):
        told.router.close_link(link)
        assert references(told.connection) == expected


@pytest.mark.parametrize("tracking_first", [True, False])
def test_state_ends_with_its_links_in_any_order(told: Told, tracking_first: bool) -> None:
    tracking = told.track()
    producer = told.produce("x")
    for link in (tracking, producer) if tracking_first else (producer, tracking):
        assert told.connection in told.endpoints
        told.router.close_link(link)
    assert told.endpoints == {}


def test_state_ends_with_its_connection(told: Told) -> None:
    told.track()
    told.produce("x")
    told.router.close_connection(told.connection)
    told.router.network.settle()
    assert told.endpoints == {}
    assert told.take() == []
    told.router.attach(OUT, "x")
    assert told.take() == []


def test_tracking_link_alone_lost_and_attached_again(told: Told) -> None:
    tracking = told.track()
    told.produce("x")
    told.produce("y")
    told.router.attach(OUT, "x")
    told.router.close_link(tracking)
    told.router.attach(OUT, "y")
    told.take()
    told.track()
    assert sorted(told.take()) == [("Mx", True), ("My", True)]


def test_links_before_the_tracking_link_are_told_when_it_comes(told: Told) -> None:
    told.produce("x")
    told.router.attach(OUT, "x")
    assert told.take() == []
    told.track()
    assert told.take() == [("Mx", True)]


def test_each_new_proxy_is_told(told: Told) -> None:
    told.track()
    told.router.attach(OUT, "x")
    told.router.close_link(told.produce("x"))
    told.produce("x")
    assert told.take() == [("Mx", True), ("Mx", True)]


def test_second_proxy_beside_the_first_is_told_too(told: Told) -> None:
    told.track()
    told.router.attach(OUT, "x")
    first = told.produce("x")
    told.produce("x")
    assert told.take() == [("Mx", True), ("Mx", True)]
    told.router.close_link(first)
    assert told.take() == []


def test_unreachable_is_said_to_a_new_proxy_that_an_older_word_may_reach(told: Told) -> None:
    tracking = told.track()
    consumer = told.router.attach(OUT, "x")
    proxy = told.produce("x")
    tracking.unsettled[1] = "true, not yet read by the edge"
    told.router.close_link(proxy)
    told.router.close_link(consumer)
    told.take()
    told.produce("x")
    assert told.take() == [("Mx", False)]


def test_nothing_is_said_to_a_new_proxy_when_all_words_were_read(told: Told) -> None:
    told.track()
    consumer = told.router.attach(OUT, "x")
    told.router.close_link(told.produce("x"))
    told.router.close_link(consumer)
    told.take()
    told.produce("x")
    assert told.take() == []


@pytest.mark.parametrize("role", [Role.NORMAL, Role.ROUTE_CONTAINER, Role.INTER_ROUTER])
@pytest.mark.parametrize("direction", [IN, OUT])
def test_tracking_refused_elsewhere(told: Told, role: Role, direction: Direction) -> None:
    link = told.track(told.connect("client", role), direction)
    condition = told.router.port.refused[link]
    assert condition.name == "qd:connection-role"
    assert condition.description == "Connection does not support address tracking"
    assert told.endpoints == {}


def test_tracking_refused_from_the_edge(told: Told) -> None:
    link = told.track(direction=IN)
    assert told.router.port.refused[link].name == "amqp:not-implemented"


def test_second_tracking_link_refused(told: Told) -> None:
    told.track()
    second = told.track()
    assert told.router.port.refused[second].name == "amqp:not-allowed"
    told.produce("x")
    told.router.attach(OUT, "x")
    assert told.take() == [("Mx", True)]


def test_edge_that_does_not_read_is_told_afresh_later(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking_module, "UNREAD_ALLOWANCE", 3)
    link = told.track()
    told.produce("x")
    unread = iter(range(100))
    monkeypatch.setattr(
        told.router.port, "send", lambda link, payload, settled: link.parked.append(next(unread))
    )
    consumer = told.router.attach(OUT, "x")
    for _ in range(5):
        told.router.close_link(consumer)
        consumer = told.router.attach(OUT, "x")
    assert link not in told.connection.links
    assert len(link.parked) == 0
    monkeypatch.setattr(told.router.port, "send", told._send)
    told.track()
    assert told.take() == [("Mx", True)]


def test_edge_that_always_leaves_one_message_unread(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking_module, "UNREAD_ALLOWANCE", 3)
    link = told.track()
    link.parked.append("unread")
    for number in range(4):
        told.router.attach(OUT, f"x{number}")
        told.router.close_link(told.produce(f"x{number}"))
    assert link in told.connection.links
    told.router.attach(OUT, "y")
    told.produce("y")
    assert link not in told.connection.links
    told.take()
    told.track()
    assert told.take() == [("My", True)]


def test_edge_that_leaves_many_bytes_unread(told: Told) -> None:
    link = told.track()
    link.parked_bytes = MOST_UNREAD_BYTES
    told.produce("x")
    told.router.attach(OUT, "x")
    assert link in told.connection.links
    link.parked_bytes += 1
    told.produce("y")
    told.router.attach(OUT, "y")
    assert link not in told.connection.links


# What else an edge attaches


def _downlink(router: Router, connection: Connection, edge_id: str | None) -> Link:
    capabilities = frozenset((CAPABILITY_EDGE_DOWNLINK,))
    link = router.network.link(
        connection, OUT, Terminus(edge_id, capabilities=capabilities), Terminus(capabilities=capabilities)
    )
    router.core.link_attached(link)
    return link


def test_downlink_consumes_for_the_edge_and_is_advertised(told: Told) -> None:
    advertised: list[str] = []
    told.router.core.advertised = lambda address: advertised.append(address.key)
    link = _downlink(told.router, told.connection, "E")
    assert told.router.consumers("HE") == [link]
    assert advertised == ["HE"]
    told.router.close_link(link)
    assert told.router.consumers("HE") == []
    assert advertised == ["HE", "HE"]


def test_downlink_needs_an_edge_id(told: Told) -> None:
    link = _downlink(told.router, told.connection, None)
    assert told.router.port.refused[link].name == "qd:no-route-to-dest"


@pytest.mark.parametrize("address", ["_edge/E/temp.1", "_topo/0/B/temp.1"])
def test_nobody_may_consume_what_is_meant_for_another_router(told: Told, address: str) -> None:
    link = told.router.attach(OUT, address)
    assert told.router.port.refused[link].name == "qd:no-route-to-dest"


def test_mesh_announcement(told: Told) -> None:
    link = told.router.attach(IN, MESH_DISCOVERY_ADDRESS, told.connection)
    assert link.capacity == 3
    assert link.on_delivery is not None
    link.on_delivery(link, encode_message(Message(body=None)))
    assert told.connection.mesh_id is None
    link.on_delivery(link, encode_mesh_announcement("abcdefghijklmno"))
    assert told.connection.mesh_id == "abcdefghijklmno"
    assert told.router.interior is not None
    assert told.router.interior.downlinks.invalid_announcements == 1


def test_two_edges_of_one_id_are_noticed(told: Told) -> None:
    assert told.router.interior is not None
    namesakes = told.router.interior.namesakes

    def attach(mesh_id: str) -> None:
        connection = told.connect("E")
        _downlink(told.router, connection, "E")
        link = told.router.attach(IN, MESH_DISCOVERY_ADDRESS, connection)
        assert link.on_delivery is not None
        link.on_delivery(link, encode_mesh_announcement(mesh_id))

    attach("abcdefghijklmno")
    attach("abcdefghijklmno")
    assert namesakes.duplicate_ids == 0
    attach("anotheredge0001")
    assert namesakes.duplicate_ids == 1


def test_an_edge_of_the_same_id_on_another_interior_is_noticed(told: Told) -> None:
    assert told.router.interior is not None
    namesakes, core = told.router.interior.namesakes, told.router.core
    elsewhere = core.remotes.node("B")
    core.remotes.add(elsewhere, "HE", Treatment.BALANCED)
    _downlink(told.router, told.connection, "E")
    told.network.advance(MOVING_SECONDS / 2)
    core.remotes.remove(elsewhere, "HE")
    told.network.advance(MOVING_SECONDS)
    assert namesakes.duplicate_ids == 0, "it had only moved"
    core.remotes.add(elsewhere, "HE", Treatment.BALANCED)
    _downlink(told.router, told.connect("E"), "E")
    told.network.advance(MOVING_SECONDS)
    assert namesakes.duplicate_ids == 1


def test_a_namesake_is_told_of_once_whatever_it_announces(told: Told) -> None:
    assert told.router.interior is not None
    namesakes = told.router.interior.namesakes
    _downlink(told.router, told.connection, "E")
    told.router.core.set_mesh_id(told.connection, "abcdefghijklmno")
    connection = told.connect("E")
    link = told.router.attach(IN, MESH_DISCOVERY_ADDRESS, connection)
    assert link.on_delivery is not None
    link.on_delivery(link, encode_mesh_announcement("anotheredge0001"))
    assert namesakes.duplicate_ids == 0, "it has no downlink yet"
    _downlink(told.router, connection, "E")
    assert namesakes.duplicate_ids == 1
    for number in range(10):
        link.on_delivery(link, encode_mesh_announcement(f"anotheredge000{number}"))
        _downlink(told.router, connection, "E")
    told.network.advance(2 * MOVING_SECONDS)
    assert namesakes.duplicate_ids == 1


def test_a_namesake_that_announces_no_mesh_is_noticed_later(told: Told) -> None:
    assert told.router.interior is not None
    namesakes = told.router.interior.namesakes
    _downlink(told.router, told.connection, "E")
    told.router.core.set_mesh_id(told.connection, "abcdefghijklmno")
    told.network.advance(MOVING_SECONDS)
    _downlink(told.router, told.connect("E"), "E")
    told.network.advance(MOVING_SECONDS / 2)
    assert namesakes.duplicate_ids == 0, "its announcement may be under way"
    told.network.advance(MOVING_SECONDS)
    assert namesakes.duplicate_ids == 1


def test_mesh_announcement_refused_from_clients(told: Told) -> None:
    link = told.router.attach(IN, MESH_DISCOVERY_ADDRESS)
    assert told.router.port.refused[link].name == "qd:connection-role"


# Messages


def test_tracking_message_bytes() -> None:
    # header list [durable false]; amqp-value list [str "Mx", true]
    assert encode_tracking("Mx", True) == bytes.fromhex("005370c0020142005377c00602a1024d7841")


@pytest.mark.parametrize("reachable", [True, False])
def test_tracking_message_round_trip(reachable: bool) -> None:
    assert decode_tracking(encode_tracking("Maddress/ü", reachable)) == ("Maddress/ü", reachable)


@pytest.mark.parametrize(
    "body",
    [
        None,
        "Mx",
        [],
        ["Mx"],
        ["Mx", True, 1],
        [1, True],
        ["Mx", 1],
        ["Mx", None],
        ["Lx", True],
        ["M", True],
        {},
    ],
)
def test_tracking_message_refused(body: object) -> None:
    with pytest.raises(EdgeMessageError):
        decode_tracking(encode_message(Message(body=body)))


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x00\x53\x77\xff", b"garbage"])
def test_not_a_message(payload: bytes) -> None:
    with pytest.raises(EdgeMessageError):
        decode_tracking(payload)
    with pytest.raises(EdgeMessageError):
        decode_mesh_announcement(payload)


@pytest.mark.parametrize("mesh_id", ["", "short", "a" * 16, 5, None])
def test_mesh_announcement_refused(mesh_id: object) -> None:
    payload = encode_message(Message(application_properties={"meshid": mesh_id}))
    with pytest.raises(EdgeMessageError):
        decode_mesh_announcement(payload)


@pytest.fixture
def in_steps() -> Iterator[None]:
    """Producers are looked at in steps."""
    with patch.object(reachability, "AT_ONCE", 0):
        yield


@pytest.mark.usefixtures("in_steps")
def test_what_a_link_was_told_that_is_gone_is_put_right(told: Told) -> None:
    told.track()
    told.produce("x")
    consumer = told.router.attach(OUT, "x")
    second = told.produce("x")
    assert told.take() == [("Mx", True)]
    told.router.close_link(consumer)
    told.router.close_link(second)
    told.network.settle()
    assert told.take() == [("Mx", False)]


@pytest.mark.usefixtures("in_steps")
def test_a_link_that_comes_before_the_turn_of_the_one_before_it(told: Told) -> None:
    told.track()
    told.produce("x")
    consumer = told.router.attach(OUT, "x")
    told.network.settle()
    assert told.take() == [("Mx", True)]
    told.router.close_link(consumer)
    told.produce("x")
    told.network.settle()
    assert told.take() == [("Mx", False)]
