"""Edges and interiors that tell each other nonsense, too much or nothing: nobody else is harmed by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Condition, Endpoint, Message, int32, symbol
from tests.integration.support.client import Clients
from tests.integration.support.fake_interior import DISCOVERY, TRACKING, FakeInterior
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
)
from tests.integration.support.routers import Router, Routers, connector, eventually
from tests.integration.support.topology import Network

from isthmus_router.message.types import Described, UInt, ULong, encode

MEGA = 1024 * 1024
DOWNLINK = "qd.router-edge-downlink"
TRACKING_MESSAGES = "edge_tracking_messages_total"
NAMESAKE = "\"two edges have the same id: each gets part of the other's messages; "


@pytest.fixture
def network(routers: Routers) -> Network:
    """Interior A with edge F, whose clients nothing must disturb."""
    network = Network(routers)
    network.interior("A")
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


def value_section(value: bytes) -> bytes:
    """A message of an amqp-value section alone."""
    return b"\x00\x53\x77" + value


def list_of_nulls(count: int) -> bytes:
    """A list that takes a byte to send, and eight to keep, for each of its elements."""
    return b"\xd0" + (count + 4).to_bytes(4) + count.to_bytes(4) + b"\x40" * count


def announcement(mesh_id: object) -> Message:
    """What an edge says of its mesh."""
    return Message(properties={"meshid": mesh_id})


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
    thief = clients.connect(network.edge_ports["A"])
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
    edge = clients.connect(network.edge_ports["A"])
    sender = edge.sender(DISCOVERY).await_credit()
    assert sender.deliver(announcement("another-mesh-id")) == "accepted"
    assert namesakes(interior) == (0, 0)
    edge.receiver("F", capability=DOWNLINK)
    interior.await_log(NAMESAKE, '"id":"F"')
    assert namesakes(interior) == (1, 1)


# An interior that is none


@pytest.fixture
def fake(clients: Clients) -> Iterator[FakeInterior]:
    """A peer in an interior's place."""
    interior = FakeInterior(clients)
    yield interior
    interior.close()


def edge_of(routers: Routers, interior: FakeInterior) -> Router:
    """An edge with an uplink there."""
    return routers.start("E", connector(interior.port, "edge", name=interior.name), mode="edge")


NO_TRACKING_MESSAGES = [
    b"",
    b"no message at all",
    b"\x00\x53\x77",
    value_section(b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff"),
    value_section(b"\xc0\x02\x01" * 300 + b"\x40"),
    "Mnews",
    {"Mnews": True},
    [],
    ["Mnews"],
    ["Mnews", True, True],
    [["Mnews", True], ["Mnews", True]],
    [True, "Mnews"],
    ["Mnews", 1],
    ["Mnews", None],
    [b"Mnews", True],
    ["", True],
    ["M", True],
    ["Lnews", True],
    ["RA", True],
    ["HE", True],
    value_section(b"\xc0\x08\x02\xa1\x04M\xff\xff\xff\x41"),
    value_section(list_of_nulls(2)),
    value_section(list_of_nulls(10 * MEGA)),
    ["M" + "x" * MEGA, True, None],
]
"""What an interior may say on a tracking link that says nothing about an address."""

OF_NO_USE = [
    ["Munknown", True],
    ["Munknown", True],
    ["Mneverheard", False],
    ["M" + "x" * 10_000, True],
    ["M_$qd.edge_addr_tracking", True],
    ["M$management", True],
]
"""What is right and proper, of addresses to which nobody at the edge sends."""


def test_nonsense_on_the_tracking_link(routers: Routers, clients: Clients, fake: FakeInterior) -> None:
    edge = edge_of(routers, fake)
    uplink = fake.await_uplink()
    sender = clients.connect(edge.port).sender("news")
    proxy = uplink.proxy("news")
    before = edge.cpu()
    nonsense = [uplink.say(body) for _ in range(5) for body in NO_TRACKING_MESSAGES]
    useless = [uplink.say(body) for body in OF_NO_USE]
    assert uplink.tracking is not None
    for size in (1, 200_000):
        for _ in range(50):
            begun = uplink.tracking.begin(bytes(size))
            clients.step()
            uplink.tracking.abort(begun)
    assert len(nonsense) > 100
    clients.until(
        lambda: all(sent.outcome == "accepted" for sent in (*nonsense, *useless)), "all is accepted", 60
    )
    assert edge.cpu() - before < 3
    assert edge.metric(TRACKING_MESSAGES, 'result="invalid"') == len(nonsense)
    assert edge.metric(TRACKING_MESSAGES, 'result="valid"') == len(useless)
    assert edge.log.count('"tracking message ignored"') == 1
    assert sender.credit == 0

    for _ in range(2):
        for _ in range(2):  # what is said twice counts once
            uplink.say(["Mnews", True])
        sender.await_credit()
        assert sender.deliver("read all about it") == "accepted"
        for _ in range(2):
            uplink.say(["Mnews", False])
        clients.until(lambda: sender.credit == 0, "credit is taken back")
    assert proxy.bodies() == ["read all about it"] * 2
    assert len(fake.uplinks) == len(fake.subscriptions) == 1
    assert edge.connector_state("fake") == ("open", "")


def test_an_interior_that_does_not_answer_gives_way(
    routers: Routers, clients: Clients, fake: FakeInterior
) -> None:
    silent = FakeInterior(clients, "silent", answers_tracking=False)
    edge = edge_of(routers, silent)
    silent.await_uplink()
    edge.sections.append(connector(fake.port, "edge", name="fake", cost=2))
    edge.configure()
    sender = clients.connect(edge.port).sender("news")
    clients.until(lambda: fake.uplinks and fake.uplink.opened, "the other one is in reserve")
    problem = ("failed", "the peer silent does not answer the attach of an edge's links")
    clients.until(lambda: edge.connector_state("silent") == problem, "the connector tells", 20)
    told = edge.await_log("interior does not answer")
    assert '"level":"warning"' in told
    assert problem[1] in told
    assert edge.connector_state("fake") == ("open", "")
    fake.await_uplink().say(["Mnews", True])
    fake.uplink.proxy("news")
    assert sender.await_credit().deliver("by the other way") == "accepted"
    assert len(silent.subscriptions) == 1
    assert edge.log.count('"interior does not answer"') == 1
    silent.close()


def test_an_interior_that_takes_the_tracking_link_away(
    routers: Routers, clients: Clients, fake: FakeInterior
) -> None:
    edge = edge_of(routers, fake)
    uplink = fake.await_uplink()
    client = clients.connect(edge.port)
    sender = client.sender("news")
    uplink.proxy("news")
    uplink.say(["Mnews", True])
    sender.await_credit()
    before = edge.cpu()
    fake.refusal = Condition("amqp:internal-error", "not today")
    assert uplink.tracking is not None
    taken = time.monotonic()
    uplink.tracking.link.condition = fake.refusal
    uplink.tracking.link.close()
    clients.until(lambda: sender.credit == 0, "nobody says any more what can be reached")
    late = client.sender("news")
    clients.until(lambda: len(fake.subscriptions) == 3, "it is tried again, and again", 25)
    assert (sender.credit, late.credit) == (0, 0)
    _, second, third = fake.subscriptions
    assert (second - taken > 4.5, third - second > 9.5) == (True, True)
    assert edge.cpu() - before < 1
    assert len(fake.uplinks) == 1
    assert edge.log.count('"interior closed a link of this edge"') == 1


def test_an_interior_that_attaches_links_of_its_own(
    routers: Routers, clients: Clients, fake: FakeInterior
) -> None:
    edge = edge_of(routers, fake)
    uplink = fake.await_uplink()
    client = clients.connect(edge.port)
    receiver = client.receiver("news", credit=10, accept=True)
    for capability in ("qd.router", "qd.router-data", "qd.router-inter-edge"):
        for address in (None, "news", "_topo/0/all/qdrouter"):
            for link in (
                uplink.sender(address, capability=capability),
                uplink.receiver(address, capability=capability),
            ):
                assert uplink.refusal(link.link).name == "qd:forbidden"
    for address in (TRACKING, f"amqp:/{DISCOVERY}"):
        for link in (uplink.sender(address), uplink.receiver(address)):
            assert uplink.refusal(link.link).name == "amqp:not-allowed"
    for nowhere in ("_edge/F/x", "_topo/0/A/x"):
        assert uplink.refusal(uplink.receiver(nowhere).link).name == "qd:no-route-to-dest"
    mine = [uplink.sender("news").await_credit(), uplink.receiver("news", credit=1)]
    for link in mine:
        uplink.detach(link.link)
    sender = client.sender("news").await_credit()
    assert sender.deliver("still") == "accepted"
    assert receiver.bodies() == ["still"]
    assert edge.connector_state("fake") == ("open", "")
    assert len(fake.uplinks) == len(fake.subscriptions) == 1


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
        told = b"".join(payload for _, payload in hostile.collect(TRANSFER, 2))
        assert encode(["Mnews", True]) in told
        assert encode(["Molds", True]) in told
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
    edge = clients.connect(network.edge_ports["A"])
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
    assert interior.metric("invalid_mesh_announcements_total") == len(NO_ANNOUNCEMENTS) + 1000
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
        "x" * 10_000,
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
    links = [edge.receiver(name, credit=10, capability=DOWNLINK) for name in ["A", "B", "0/A", *odd]]
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
    edge.close()
    for router_id in "AB":
        await_edge(network[router_id], "F")
