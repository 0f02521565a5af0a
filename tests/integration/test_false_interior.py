"""An interior that is none: an edge survives nonsense, silence and the loss of its links, and finds another way."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from proton import Condition
from tests.integration.support.client import Clients
from tests.integration.support.fake_interior import DISCOVERY, TRACKING, FakeInterior
from tests.integration.support.raw import list_of_nulls, value_section
from tests.integration.support.routers import Router, Routers, connector

TRACKING_MESSAGES = "edge_tracking_messages_total"
MEGA = 1024 * 1024


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
    clients.until(lambda: edge.connector_state("silent") == problem, "the connector tells")
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
