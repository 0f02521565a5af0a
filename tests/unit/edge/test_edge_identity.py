"""An edge has the id of its container, and an id stays with the user that holds it."""

from __future__ import annotations

import pytest
from tests.unit.edge.test_tracking import Told

from isthmus_router.core.mesh import MOST_CONNECTIONS, mesh_id_of, new_mesh_key, proven_mesh_id
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Direction, Terminus
from isthmus_router.edge.downlinks import MOST_DOWNLINKS, MOST_MESHES
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, encode_mesh_announcement

CAPABILITIES = frozenset((CAPABILITY_EDGE_DOWNLINK,))
MESHES = ("a" * 15, "b" * 15)


@pytest.fixture
def told() -> Told:
    return Told()


def connected(told: Told, container: str, user: str | None) -> Connection:
    connection = told.connect(container)
    connection.user = user
    return connection


def opened(told: Told, key: object, user: str) -> Connection:
    """A connection of the edge E that shows this key of its mesh."""
    return told.connect("E", user=user, proven_mesh_id=proven_mesh_id(key))


def downlink(told: Told, connection: Connection, edge_id: str) -> Link:
    source = Terminus(edge_id, capabilities=CAPABILITIES)
    link = told.router.network.link(connection, Direction.OUT, source, Terminus(capabilities=CAPABILITIES))
    told.router.core.link_attached(link)
    return link


def announce(told: Told, connection: Connection, mesh_id: str) -> None:
    link = told.router.attach(Direction.IN, MESH_DISCOVERY_ADDRESS, connection)
    assert link.on_delivery is not None
    link.on_delivery(link, encode_mesh_announcement(mesh_id))


@pytest.mark.parametrize("edge_id", ["F", "amqp:/E", "E/", ""])
def test_an_edge_has_no_id_but_that_of_its_container(told: Told, edge_id: str) -> None:
    edge = connected(told, "E", "one")
    link = downlink(told, edge, edge_id)
    assert link in told.router.port.refused
    assert told.router.consumers(f"H{edge_id}") == []


def test_another_user_gets_nothing_by_the_id_of_an_edge_while_it_is_there(told: Told) -> None:
    victim, thief = connected(told, "E", "edge"), connected(told, "E", "payments-app")
    holder = downlink(told, victim, "E")
    announce(told, victim, MESHES[0])
    waiting = downlink(told, thief, "E")
    assert told.router.consumers("HE") == [holder]
    assert "another user" in (thief.problem or "")
    announce(told, thief, MESHES[1])
    assert told.router.consumers("HE") == [holder]
    told.router.core.connection_closed(victim)
    assert told.router.consumers("HE") == [waiting]
    assert thief.problem is None


def test_one_edge_may_have_another_user_on_its_next_connection(told: Told) -> None:
    """As after a rotation, with users made from fingerprints of certificates."""
    key = new_mesh_key()
    before, after = (opened(told, key, user) for user in ("fingerprint-1", "fingerprint-2"))
    downlink(told, before, "E")
    old = told.router.attach(Direction.OUT, "x", before)
    link = downlink(told, after, "E")
    assert link in told.router.consumers("HE")
    assert after.problem is None
    # What it attaches takes over at once: nothing is sent on both connections.
    new = told.router.attach(Direction.OUT, "x", after)
    assert told.router.consumers("Mx") == [new]
    assert (old, new) in told.router.port.handed_over


@pytest.mark.parametrize("proves", [True, False])
def test_another_user_who_has_read_the_mesh_id_takes_nothing_over(told: Told, proves: bool) -> None:
    key = new_mesh_key()
    victim = opened(told, key if proves else None, "edge")
    holder = downlink(told, victim, "E")
    consumer = told.router.attach(Direction.OUT, "x", victim)
    announce(told, victim, mesh_id_of(key))
    thief = opened(told, new_mesh_key(), "payments-app")
    waiting = downlink(told, thief, "E")
    stolen = told.router.attach(Direction.OUT, "x", thief)
    announce(told, thief, mesh_id_of(key))
    assert told.router.consumers("HE") == [holder]
    assert set(told.router.consumers("Mx")) == {consumer, stolen}
    assert told.router.port.handed_over == []
    told.router.core.connection_closed(victim)
    assert told.router.consumers("HE") == [waiting]


def test_who_has_read_the_mesh_id_takes_nothing_over_from_an_edge_of_the_same_user(told: Told) -> None:
    key = new_mesh_key()
    victim, thief = opened(told, key, "edge"), opened(told, None, "edge")
    consumer = told.router.attach(Direction.OUT, "x", victim)
    announce(told, thief, mesh_id_of(key))
    stolen = told.router.attach(Direction.OUT, "x", thief)
    assert set(told.router.consumers("Mx")) == {consumer, stolen}


@pytest.mark.parametrize("key", [None, 5, "", "a" * 42, "a" * 44, ["a"] * 43])
def test_what_is_no_key_of_a_mesh_proves_nothing(told: Told, key: object) -> None:
    assert opened(told, key, "edge").mesh_id is None


def test_a_downlink_that_waits_may_go(told: Told) -> None:
    victim, thief = connected(told, "E", "edge"), connected(told, "E", "payments-app")
    holder = downlink(told, victim, "E")
    told.router.close_link(downlink(told, thief, "E"))
    told.router.close_link(holder)
    assert told.router.consumers("HE") == []


@pytest.mark.parametrize("user", [None, "edge"])
def test_an_edge_of_the_same_user_that_starts_again_is_served(told: Told, user: str | None) -> None:
    downlink(told, connected(told, "E", user), "E")
    again = downlink(told, connected(told, "E", user), "E")
    assert again in told.router.consumers("HE")


def test_an_edge_that_changes_its_mesh_without_end_leaves_nothing_behind(told: Told) -> None:
    side = told.router.interior
    assert side is not None
    edge = connected(told, "E", "edge")
    link = told.router.attach(Direction.IN, MESH_DISCOVERY_ADDRESS, edge)
    assert link.on_delivery is not None
    for number in range(2 * MOST_MESHES):
        link.on_delivery(link, encode_mesh_announcement(f"{number:015}"))
    assert edge.mesh_id == f"{MOST_MESHES - 1:015}"
    assert side.downlinks.invalid_announcements == MOST_MESHES
    # The one that is in force may be repeated.
    link.on_delivery(link, encode_mesh_announcement(f"{MOST_MESHES - 1:015}"))
    assert side.downlinks.invalid_announcements == MOST_MESHES
    assert len(side.downlinks.succession) == 1
    told.router.core.connection_closed(edge)
    assert len(side.downlinks.succession) == 0


@pytest.mark.parametrize("user", ["edge", "payments-app"])
def test_connections_with_one_id_are_bounded_and_leave_room(told: Told, user: str) -> None:
    """Also those that wait for another user to leave. Each new one is compared with all."""
    downlink(told, connected(told, "E", "edge"), "E")
    links = [
        downlink(told, connected(told, "E", user), "E") for _ in range(MOST_CONNECTIONS - (user == "edge"))
    ]
    assert not told.router.port.refused
    one_more = connected(told, "E", user)
    refused = downlink(told, one_more, "E")
    assert told.router.port.refused[refused].name == "amqp:resource-limit-exceeded"
    assert downlink(told, links[0].connection, "E") not in told.router.port.refused
    assert downlink(told, connected(told, "F", user), "F") not in told.router.port.refused
    told.router.core.connection_closed(links[1].connection)
    told.router.port.refused.clear()
    assert downlink(told, one_more, "E") not in told.router.port.refused


def test_downlinks_that_wait_count_toward_the_bound_of_their_connection(told: Told) -> None:
    holder, other = connected(told, "E", "edge"), connected(told, "E", "payments-app")
    downlink(told, holder, "E")
    links = [downlink(told, other, "E") for _ in range(MOST_DOWNLINKS)]
    assert not told.router.port.refused
    assert downlink(told, other, "E") in told.router.port.refused
    told.router.close_link(links[0])
    told.router.port.refused.clear()
    assert downlink(told, other, "E") not in told.router.port.refused
    for connection in (holder, other):
        told.router.core.connection_closed(connection)
    assert told.router.interior is not None
    assert not told.router.interior.downlinks._downlinks
    assert not told.router.interior.namesakes._downlinks
