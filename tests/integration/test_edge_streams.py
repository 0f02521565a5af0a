"""A message in the middle of streaming through an edge: it arrives whole, or its sender is told; never half of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.data import MEGA, head
from tests.integration.support.fake_interior import FakeInterior, Uplink
from tests.integration.support.links import Receiver, Sender, Sent
from tests.integration.support.routers import Router, Routers, connector, eventually
from tests.integration.support.topology import Network

START = 400 * 1024
PAYLOAD = bytes(range(256)) * (MEGA // 256)


def begun(clients: Clients, sender: Sender, receiver: Receiver) -> Sent:
    """The first part of a message is sent, and most of that has arrived."""
    sent = sender.begin(head(MEGA) + PAYLOAD[:START])
    clients.until(lambda: receiver.received and len(receiver.received[-1].data) > START // 2, "the start")
    return sent


def finish(sender: Sender) -> None:
    """Send the rest."""
    sender.more(PAYLOAD[START:])
    sender.finish()


# On a proxy link: towards an interior that has no links for streams


@pytest.fixture
def fake(clients: Clients) -> Iterator[FakeInterior]:
    """A peer in an interior's place, which knows nothing of links for streams."""
    interior = FakeInterior(clients)
    yield interior
    interior.close()


@pytest.fixture
def edge(routers: Routers, fake: FakeInterior) -> Router:
    """An edge router of that peer's."""
    return routers.start("E", connector(fake.port, "edge", name="up"), mode="edge")


def on_proxy(clients: Clients, edge: Router, fake: FakeInterior) -> tuple[Sender, Uplink, Receiver]:
    """A client's sender with credit, and the proxy on which its messages arrive."""
    uplink = fake.await_uplink()
    sender = clients.connect(edge.port).sender("stream")
    proxy = uplink.proxy("stream")
    uplink.say(["Mstream", True])
    return sender.await_credit(), uplink, proxy


def test_a_stream_outlives_the_address_being_unbound(
    clients: Clients, edge: Router, fake: FakeInterior
) -> None:
    sender, uplink, proxy = on_proxy(clients, edge, fake)
    sent = begun(clients, sender, proxy)
    last = uplink.say(["Mstream", False])
    clients.until(lambda: last.outcome == "accepted", "the edge has read that")
    assert edge.metric("edge_bound_addresses") == 0
    finish(sender)
    assert sender.outcome(sent) == "accepted"
    assert proxy.next().body == PAYLOAD


def test_a_stream_whose_sender_leaves_is_aborted_on_the_proxy(
    clients: Clients, edge: Router, fake: FakeInterior
) -> None:
    sender, _, proxy = on_proxy(clients, edge, fake)
    begun(clients, sender, proxy)
    sender.client.detach(sender.link)  # with it, the proxy has no producer any more
    clients.until(lambda: proxy.received[0].aborted, "the interior sees it aborted")


Loss = Callable[[Uplink, Receiver], None]


def proxy_detached(uplink: Uplink, proxy: Receiver) -> None:
    proxy.link.close()


def session_ended(uplink: Uplink, proxy: Receiver) -> None:
    proxy.link.session.close()


def uplink_dropped(uplink: Uplink, proxy: Receiver) -> None:
    uplink.drop()


@pytest.mark.parametrize("loss", [proxy_detached, session_ended, uplink_dropped])
def test_a_stream_whose_proxy_is_lost_is_modified(
    clients: Clients, edge: Router, fake: FakeInterior, loss: Loss
) -> None:
    sender, uplink, proxy = on_proxy(clients, edge, fake)
    sent = begun(clients, sender, proxy)
    loss(uplink, proxy)
    clients.round_trip()
    finish(sender)
    assert sender.outcome(sent) == "modified"
    assert sent.failed
    receiver = clients.connect(edge.port).receiver("stream", credit=1, accept=True)
    assert sender.await_credit().deliver("next") == "accepted"
    assert receiver.next().body == "next"


# Across a network


@pytest.fixture
def network(routers: Routers) -> Network:
    """E1 - A - B - E2."""
    network = Network(routers)
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "B")
    return network.start()


def across(clients: Clients, network: Network) -> tuple[Sender, Receiver]:
    receiver = clients.connect(network["E2"].port).receiver("far", credit=5, accept=True)
    return clients.connect(network["E1"].port).sender("far").await_credit(), receiver


def test_a_stream_goes_on_when_other_clients_of_its_address_leave(clients: Clients, network: Network) -> None:
    sender, receiver = across(clients, network)
    others = clients.connect(network["E1"].port), clients.connect(network["E2"].port)
    others[0].sender("far").await_credit()
    others[1].receiver("far")
    sent = begun(clients, sender, receiver)
    for other in others:
        other.close()
    finish(sender)
    assert sender.outcome(sent) == "accepted"
    assert receiver.next().body == PAYLOAD


def test_a_stream_whose_far_consumer_leaves_is_modified(clients: Clients, network: Network) -> None:
    sender, receiver = across(clients, network)
    sent = begun(clients, sender, receiver)
    receiver.client.detach(receiver.link)
    eventually(lambda: network["E1"].metric("edge_bound_addresses") == 0, "E1 knows that nobody is left")
    finish(sender)
    assert sender.outcome(sent) == "modified"


@pytest.mark.parametrize("victim", ["A", "B", "E1", "E2"])
def test_a_stream_through_a_router_that_is_killed_is_not_taken_for_whole(
    clients: Clients, network: Network, victim: str
) -> None:
    sender, receiver = across(clients, network)
    sent = begun(clients, sender, receiver)
    network[victim].kill()
    if victim != "E2":
        clients.until(lambda: receiver.received[0].aborted, "the receiver sees it aborted")
    if victim != "E1":
        eventually(lambda: network["E1"].metric("edge_bound_addresses") == 0, "E1 knows that nobody is left")
        finish(sender)
        assert sender.outcome(sent) == "modified"
    assert not any(item.complete and not item.aborted for item in receiver.received)
