"""Link routes: links of clients go, end to end, to a container somewhere in the network."""

from __future__ import annotations

from proton import Delivery, Endpoint, Message
from tests.integration.support.client import Clients
from tests.integration.support.link_routes import NO_ROUTE, Shore, await_containers
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, connector, listener


def test_a_sender_is_attached_to_the_container(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port, container="buyer")
    sender = client.sender("b2.orders", name="mine")
    got = container.gets("b2.orders")
    assert got.link.name == "mine@buyer"
    sender.await_credit(100)
    assert sender.credit == 100
    assert sender.deliver(Message(body="one")) == "accepted"
    assert got.bodies() == ["one"]
    client.detach(sender.link)
    clients.until(lambda: not container.receivers, "the container sees the link closed")


def test_a_receiver_is_attached_to_the_container(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port, container="buyer")
    receiver = client.receiver("b2.orders", credit=7)
    gives = container.gives("b2.orders")
    gives.await_credit(7)
    clients.round_trip()
    assert gives.credit == 7
    sent = gives.send("one")
    receiver.expect(1)
    assert receiver.received[0].delivery.tag == "1"
    receiver.received[0].settle(Delivery.RELEASED)
    clients.until(lambda: sent.settled, "the container learns")
    assert sent.outcome == "released"
    assert gives.credit == 6


def test_there_is_no_route_without_a_container(clients: Clients, shore: Shore) -> None:
    client = clients.connect(shore["A"].port)
    for link in (client.sender("b2.x", wait=False).link, client.receiver("b2/x", wait=False).link):
        condition = client.refusal(link)
        assert condition.name == "qd:no-route-to-dest"
        assert "'b2" in condition.description
    sender = client.sender("b2x")
    assert sender.link.state & Endpoint.REMOTE_ACTIVE


def test_two_routers_that_are_containers_of_each_other(clients: Clients, routers: Routers) -> None:
    """An attach that no container takes comes back refused, and nothing is left of it."""
    ports = {router_id: free_port() for router_id in "XY"}
    for router_id, other in ("XY", "YX"):
        routers.add(
            router_id,
            listener(ports[router_id], "route-container", name="containers"),
            connector(ports[other], "route-container", name="other"),
            ("linkRoute", {"prefix": "b2", "direction": "both", "connection": "other"}),
        )
    routers.start_all()
    pair = list(routers.all.values())
    for router in pair:
        await_containers(router, 1, 0)
    client = clients.connect(pair[0].port)
    for link in (client.sender("b2.x", wait=False).link, client.receiver("b2.x", wait=False).link):
        assert client.refusal(link).name == NO_ROUTE
        link.close()
    clients.round_trip()
    for router in pair:
        router.await_status(lambda status: not status["linkRoutes"][0]["links"], "no link is routed")
