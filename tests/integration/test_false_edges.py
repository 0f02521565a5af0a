"""Edges that are none, or say nonsense, too much or nothing to an interior: nobody else is harmed by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Endpoint, Message, int32, symbol
from tests.integration.support.client import Clients
from tests.integration.support.fake_interior import DISCOVERY, TRACKING
from tests.integration.support.management import Manager
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    DETACH,
    FLOW,
    OPEN,
    TRANSFER,
    RawConnection,
    frame,
    list_of_nulls,
    value_section,
)
from tests.integration.support.routers import Router, Routers, connector, eventually
from tests.integration.support.topology import Network

from isthmus_router.edge.downlinks import MOST_MESHES
from isthmus_router.message.types import Described, UInt, ULong, encode

MEGA = 1024 * 1024
DOWNLINK = "qd.router-edge-downlink"
NAMESAKE = "\"two edges have the same id: each gets part of the other's messages; "


@pytest.fixture
def network(routers: Routers) -> Network:
    """Interior A with edge F, whose clients nothing must disturb."""
    network = Network(routers)
    network.interior("A")
    for kind, section in network["A"].sections:
        if kind == "listener":
            section["idleTimeoutSeconds"] = 0  # peers by hand, and clients beside them, send no heartbeats
    network.edge("F", "A")
    network.start()
    await_edge(network["A"], "F")
    return network


def await_edge(interior: Router, *edge_ids: str) -> None:
    """Wait until an interior knows these edges, and no others."""

    def known(status: dict[str, Any]) -> bool:
        return {row["name"] for row in status["addresses"] if row["class"] == "H"} == set(edge_ids)

    interior.await_status(known, f"edges {edge_ids} are attached")


def assert_undisturbed(network: Network, clients: Clients, name: str = "fine") -> None:
    """Messages pass between clients of A and of its edge F, and replies find F."""
    at_interior, at_edge = (clients.connect(network[router_id].port) for router_id in "AF")
    requests = at_interior.receiver(name, credit=1)
    replies = at_edge.receiver(None, dynamic=True, credit=10, accept=True)
    sender = at_edge.sender(name).await_credit()
    sender.send(Message(body="ask", reply_to=replies.address))
    asked = requests.next()
    asked.settle()
    answers = at_interior.sender(None).await_credit()
    assert answers.deliver(Message(address=asked.message.reply_to, body="answer")) == "accepted"
    assert replies.next().body == "answer"
    for client in (at_interior, at_edge):
        client.close()


WINDOW = UInt(2**31 - 1)
BEGIN_FRAME = frame(BEGIN, [None, UInt(0), WINDOW, WINDOW])


def as_edge(network: Network) -> RawConnection:
    """Frames by hand at the listener for edges, in a session."""
    raw = RawConnection(network.edge_ports["A"])
    raw.send(AMQP_HEADER, frame(OPEN, ["no edge"]), BEGIN_FRAME)
    raw.collect(BEGIN)
    return raw


def condition(detach: tuple[list[Any], bytes]) -> str:
    """Name of the error in a detach."""
    return str(detach[0][2].value[0])


def credit_for(handle: int, credit: int) -> bytes:
    """Credit for a link, before anything has arrived in the session."""
    return frame(FLOW, [UInt(0), WINDOW, UInt(0), WINDOW, UInt(handle), UInt(0), UInt(credit)])


def attach(name: str, handle: int, *, source: str | None = None, target: str | None = None) -> bytes:
    """A link to receive from `source`, or to send to `target`."""
    termini = [Described(ULong(0x28), [source]), Described(ULong(0x29), [target])]
    return frame(ATTACH, [name, UInt(handle), source is not None, None, None, *termini, None, None, UInt(0)])


def announcement(mesh_id: object) -> Message:
    """What an edge says of its mesh."""
    return Message(properties={"meshid": mesh_id})


def test_nobody_reads_the_key_of_an_edges_mesh(network: Network, clients: Clients) -> None:
    """A client with the key could take over the edge's consumers."""
    manager = Manager(clients.connect(network["A"].port).await_open())
    (edge,) = [row for row in manager.query("connection") if row["container"] == "F"]
    assert edge["meshId"]
    assert "mesh-key" not in str(edge)


# Namesakes


def namesakes(interior: Router) -> tuple[float, int]:
    """Edges whose id another one has: how many were counted, and how many lines the log has."""
    return interior.metric("duplicate_edge_ids_total"), interior.log.count(NAMESAKE)


@pytest.fixture
def others(routers: Routers) -> Iterator[Routers]:
    """Routers whose ids those of the test may have too."""
    (routers.folder / "others").mkdir()
    others = Routers(routers.folder / "others")
    yield others
    others.stop()


def test_namesakes_that_do_not_meet_at_once(routers: Routers, clients: Clients, others: Routers) -> None:
    """E is at both interiors; somebody takes what is meant for F, and does not say of which mesh it is."""
    network = Network(routers)
    network.line("A", "B")
    network.edge("F", "A")
    network.edge("E", "A")
    network.start()
    others.start("E", connector(network.edge_ports["B"], "edge"), mode="edge")
    for router_id in "AB":
        await_edge(network[router_id], "E", "F")
    thief = clients.connect(network.edge_ports["A"], container="F")
    thief.receiver("F", capability=DOWNLINK)
    clients.until(lambda: namesakes(network["B"]) == (1, 1), "B tells of E", 45)
    clients.until(lambda: namesakes(network["A"]) == (2, 2), "A tells of E and of F")
    assert '"other_routers":["A"]' in network["B"].await_log(NAMESAKE, '"id":"E"')
    assert '"other_routers":["B"]' in network["A"].await_log(NAMESAKE, '"id":"E"')
    network["A"].await_log(NAMESAKE, '"id":"F"')
    thief.close()
    assert_undisturbed(network, clients)


def test_two_edges_of_one_id(network: Network, clients: Clients, others: Routers) -> None:
    interior = network["A"]
    network.edge("E", "A").start()
    await_edge(interior, "E", "F")
    assert namesakes(interior) == (0, 0)
    others.start("E", connector(network.edge_ports["A"], "edge"), mode="edge")
    line = interior.await_log(NAMESAKE)
    assert '"level":"error"' in line
    assert '"id":"E"' in line
    assert namesakes(interior) == (1, 1)
    assert_undisturbed(network, clients)


def test_an_edge_named_like_its_interior(network: Network, clients: Clients, others: Routers) -> None:
    interior = network["A"]
    namesake = others.start("A", connector(network.edge_ports["A"], "edge", name="c"), mode="edge")
    line = interior.await_log("an edge has the id of an interior router")
    assert '"level":"error"' in line
    assert '"id":"A"' in line
    assert interior.metric("duplicate_edge_ids_total") == 1
    problem = "the peer has the same router id as this router: A"
    eventually(lambda: namesake.connector_state("c") == ("failed", problem), "the connector tells")
    assert_undisturbed(network, clients)


def test_a_namesake_that_speaks_before_it_listens(network: Network, clients: Clients) -> None:
    interior = network["A"]
    edge = clients.connect(network.edge_ports["A"], container="F")
    sender = edge.sender(DISCOVERY).await_credit()
    assert sender.deliver(announcement("another-mesh-id")) == "accepted"
    assert namesakes(interior) == (0, 0)
    edge.receiver("F", capability=DOWNLINK)
    interior.await_log(NAMESAKE, '"id":"F"')
    assert namesakes(interior) == (1, 1)


# Edges that are none


def test_tracking_is_for_edges_alone(network: Network, clients: Clients) -> None:
    edge = clients.connect(network.edge_ports["A"])
    edge.receiver(TRACKING)
    for form in ("{}", "/{}", "{}/", "amqp:/{}", "amqp:{}", "amqp://somewhere/{}"):
        tracking, discovery = form.format(TRACKING), form.format(DISCOVERY)
        for router_id, expected in (("A", "qd:connection-role"), ("F", "amqp:not-allowed")):
            client = clients.connect(network[router_id].port)
            for link in (client.receiver(tracking), client.sender(tracking), client.sender(discovery)):
                assert client.refusal(link.link).name == expected
            client.close()
        assert edge.refusal(edge.receiver(tracking).link).name == "amqp:not-allowed", "one is enough"
        assert edge.refusal(edge.sender(tracking).link).name == "amqp:not-implemented"
    assert network["A"].metric("tracked_edges") == 2
    assert_undisturbed(network, clients)


@pytest.mark.parametrize("credit", [0, 1_000_000], ids=["without credit", "never settling"])
def test_an_edge_that_does_not_read_its_tracking_messages(
    network: Network, clients: Clients, credit: int
) -> None:
    interior = network["A"]
    assert_undisturbed(network, clients, "before")
    memory = interior.memory()
    with as_edge(network) as hostile, RawConnection(interior.port) as fickle:
        hostile.send(attach("proxy", 0, target="news"), attach("steady", 1001, target="olds"))
        clients.connect(interior.port).receiver("olds")
        for number in range(1, 1001):
            hostile.send(attach(f"{number}", number, source=TRACKING))
        assert len(hostile.collect(DETACH, 999)) == 999
        for number in range(1, 1001):
            hostile.send(frame(DETACH, [UInt(number), True]))
        hostile.collect(DETACH)
        for number in range(1, 1001):
            hostile.send(attach(f"{number}", 1, source=TRACKING), frame(DETACH, [UInt(1), True]))
        hostile.collect(DETACH, 1000)
        assert interior.metric("tracked_edges") == 2

        fickle.send(AMQP_HEADER, frame(OPEN, ["fickle"]), BEGIN_FRAME)
        held = []
        for handle in (1, 2):  # it does not answer that the first one is closed
            hostile.send(attach(f"unread {handle}", handle, source=TRACKING), credit_for(handle, credit))
            for number in range(5500):
                fickle.send(attach(f"{number}", 0, source="news"), frame(DETACH, [UInt(0), True]))
            assert condition(hostile.collect(DETACH)[0]) == "amqp:resource-limit-exceeded"
            fickle.collect(DETACH, 5500)
            assert interior.log.count('"edge does not read tracking messages"') == handle
            held.append(interior.memory() - memory)
        assert held[0] < 25 * MEGA
        assert held[1] - held[0] < 3 * MEGA
        assert_undisturbed(network, clients, "meanwhile")

        # On a new link it is told how things are by now.
        clients.connect(interior.port).receiver("news")
        hostile.send(frame(DETACH, [UInt(1), True]), attach("new", 1, source=TRACKING), credit_for(1, 9))
        told = b""
        while any(encode([key, True]) not in told for key in ("Mnews", "Molds")):
            told += b"".join(payload for _, payload in hostile.collect(TRANSFER))
    eventually(lambda: interior.metric("tracked_edges") == 1, "nothing of it is left")
    assert_undisturbed(network, clients, "after")


INTERIOR_PROPERTIES = {
    symbol("qd.inter-router-role"): int32(1),
    symbol("qd.inter-router-cost"): int32(1),
    symbol("qd.annotations-version"): int32(2),
}


def test_an_edge_cannot_pass_for_an_interior(network: Network, clients: Clients) -> None:
    interior = network["A"]
    computed = interior.log.count('"paths computed"')
    client = clients.connect(network.edge_ports["A"], container="X", properties=INTERIOR_PROPERTIES)
    for capability in ("qd.router", "qd.router-data", "qd.router-inter-edge"):
        for link in (
            client.sender(None, capability=capability),
            client.sender("_local/qdhello", capability=capability),
            client.receiver(None, capability=capability),
            client.receiver("_topo/0/all/qdrouter", capability=capability),
        ):
            assert client.refusal(link.link).name == "qd:forbidden"
    # Its anonymous sender is a way for control messages as little.
    sender = client.sender(None).await_credit()
    for to in ("_local/qdhello", "_topo/0/all/qdrouter", "_topo/0/A/qdrouter", "_topo/0/A/qdhello"):
        for opcode in ("HELLO", "RA", "LSU", "MAU"):
            body = {"id": "X", "pv": 1, "area": "0", "instance": 1, "seen": ["A"], "ls_seq": 1}
            message = Message(address=to, properties={"opcode": opcode}, body=body)
            assert sender.deliver(message) == "released"
    assert client.opened
    assert not client.connection.state & Endpoint.REMOTE_CLOSED
    status = interior.status()
    assert (status["neighbors"], status["nodes"]) == ([], [])
    assert interior.log.count('"paths computed"') == computed
    assert_undisturbed(network, clients)


# Mesh announcements


NO_ANNOUNCEMENTS = [
    b"",
    b"no message at all",
    value_section(b"\x40"),
    value_section(list_of_nulls(10 * MEGA)),
    b"\x00\x53\x74" + list_of_nulls(10 * MEGA).replace(b"\xd0", b"\xd1", 1),
    Message(body=["meshid", "123456789012345"]),
    announcement(None),
    announcement(""),
    announcement("x" * 14),
    announcement("x" * 16),
    announcement("x" * 10 * MEGA),
    announcement(b"x" * 15),
    announcement(["x"] * 15),
    announcement({"meshid": "x" * 15}),
    announcement(int32(15)),
]


def test_mesh_announcements_without_sense_or_end(network: Network, clients: Clients) -> None:
    interior = network["A"]
    edge = clients.connect(network.edge_ports["A"], container="F")
    edge.receiver("F", capability=DOWNLINK)
    sender = edge.sender(DISCOVERY)
    before = interior.cpu()
    for message in NO_ANNOUNCEMENTS:
        assert sender.deliver(message) == "accepted"
    assert interior.metric("invalid_mesh_announcements_total") == len(NO_ANNOUNCEMENTS)
    assert interior.log.count('"mesh announcement ignored"') == 1
    assert interior.cpu() - before < 2
    assert namesakes(interior) == (0, 0)

    for number in range(1000):
        for message in (announcement(number), announcement(f"{number % 2:015}")):
            assert sender.deliver(message) == "accepted"
    # After so many changes, every second announcement names another mesh than the one in force.
    late = (1000 - MOST_MESHES) // 2
    assert interior.metric("invalid_mesh_announcements_total") == len(NO_ANNOUNCEMENTS) + 1000 + late
    assert interior.log.count('"mesh announcement ignored"') == 1
    assert namesakes(interior) == (1, 1)
    edge.close()
    assert_undisturbed(network, clients)


# Downlinks


def test_downlinks_of_any_id(routers: Routers, clients: Clients) -> None:
    network = Network(routers)
    network.line("A", "B")
    network.edge("F", "A")
    network.start()
    edge = clients.connect(network.edge_ports["A"])
    for nothing in (None, ""):
        assert edge.refusal(edge.receiver(nothing, capability=DOWNLINK).link).name == "qd:no-route-to-dest"
    odd = [
        "x" * 4_000,
        "a/b",
        "/",
        "//",
        "F/",
        "_topo",
        "_topo/0/A",
        "_topo/0/B",
        "_edge/F",
        "amqp:/F",
        "all",
        "*",
        "#",
        "$management",
        "M",
        "\u20ac" * 1000,
        "\U0001f600",
        " ",
    ]
    assert edge.refusal(edge.receiver("another", capability=DOWNLINK).link).name == "amqp:not-allowed"
    edges = [clients.connect(network.edge_ports["A"], container=name) for name in ["A", "B", "0/A", *odd]]
    links = [
        item.receiver(item.connection.container, credit=10, name="downlink", capability=DOWNLINK)
        for item in edges
    ]
    await_edge(network["B"], "A", "B", "0/A", "F", *odd)
    # Routers' own addresses lead to themselves.
    for at, about in (("A", "A"), ("A", "B"), ("B", "A"), ("B", "B")):
        client = clients.connect(network[at].port)
        replies = client.receiver(None, dynamic=True, credit=1, accept=True)
        asked = Message(
            address=f"_topo/0/{about}/$management",
            reply_to=replies.address,
            correlation_id=1,
            properties={"operation": "QUERY", "entityType": "router"},
            body={"attributeNames": ["id"]},
        )
        assert client.sender(None).await_credit().deliver(asked) == "accepted"
        assert replies.next().body["results"] == [[about]]
    assert [link.received for link in links] == [[]] * len(links)
    assert_undisturbed(network, clients)
    for item in (edge, *edges):
        item.close()
    for router_id in "AB":
        await_edge(network[router_id], "F")
