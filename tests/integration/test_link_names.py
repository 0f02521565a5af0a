"""Names of links: attached once per direction and connection, stolen by whoever attaches them anew."""

from __future__ import annotations

from proton import Delivery, Endpoint
from tests.integration.support.client import Clients
from tests.integration.support.routers import Router


def test_a_receiver_is_stolen(clients: Clients, router: Router) -> None:
    """What the earlier one has unsettled comes back; from then on the later one gets the messages."""
    client = clients.connect(router.port, container="thief")
    first = client.receiver("names/stolen", name="one", credit=10)
    sender = clients.connect(router.port).sender("names/stolen").await_credit()
    lost = sender.send("lost")
    first.expect(1)
    second = client.receiver("names/stolen", name="one", credit=10, accept=True, session=client.new_session())
    assert client.refusal(first.link).name == "amqp:link:stolen"
    router.await_log("link stolen", "thief")
    assert sender.outcome(lost) == "modified"
    assert sender.credit > 0, "there was a consumer all the time"
    assert sender.deliver("next") == "accepted"
    assert second.bodies() == ["next"]


def test_a_sender_is_stolen(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("names/sender", credit=10)
    client = clients.connect(router.port)
    first = client.sender("names/sender", name="one").await_credit()
    delivery = first.send("under way").delivery
    assert delivery is not None
    receiver.expect(1)
    second = client.sender("names/sender", name="one", session=client.new_session()).await_credit()
    assert client.refusal(first.link).name == "amqp:link:stolen"
    clients.until(lambda: delivery.remote_state == Delivery.MODIFIED, "what was under way comes back")
    receiver.auto_accept = True
    assert second.deliver("next") == "accepted"


def test_stolen_back_and_forth(clients: Clients, router: Router) -> None:
    """A link that was stolen can be attached again, and steals in turn."""
    client = clients.connect(router.port, container="ping-pong")
    links = [client.receiver("names/back", name="one", session=client.new_session()).link for _ in range(3)]
    for link in links[:2]:
        assert client.refusal(link).name == "amqp:link:stolen"
        link.close()
    clients.round_trip()
    assert not links[2].state & Endpoint.REMOTE_CLOSED
    client.detach(links[2])
    assert not client.receiver("names/back", name="one").link.state & Endpoint.REMOTE_CLOSED


def test_what_is_no_theft(clients: Clients, router: Router) -> None:
    """The same name in the other direction, or on another connection even of the same container, is another link."""
    client = clients.connect(router.port, container="mine")
    receiver = client.receiver("names/both", name="one", credit=10, accept=True)
    senders = [client.sender("names/both", name="one").await_credit()]
    for container in ("mine", "other"):
        other = clients.connect(router.port, container=container)
        senders.append(other.sender("names/both", name="one").await_credit())
    assert [sender.deliver("x") for sender in senders] == ["accepted"] * 3
    clients.round_trip()
    assert not any(link.link.state & Endpoint.REMOTE_CLOSED for link in (receiver, *senders))


def test_a_refused_attach_steals_nothing(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port, container="refused")
    sender = client.sender("names/kept", name="one")
    refused = client.sender("nobody/here", name="one", session=client.new_session())
    assert client.refusal(refused.link).name == "amqp:not-found"
    clients.round_trip()
    assert not sender.link.state & Endpoint.REMOTE_CLOSED


def test_detach_and_attach_again(clients: Clients, router: Router) -> None:
    """Nothing is kept of a link that is detached: what was under way is settled, and the name is free."""
    client = clients.connect(router.port)
    receiver = client.receiver("names/again", name="receives", credit=10)
    sender = client.sender("names/again", name="sends").await_credit()
    under_way = sender.send("under way")
    receiver.expect(1)
    receiver.link.detach()
    assert sender.outcome(under_way) == "modified"
    clients.until(lambda: sender.credit == 0, "nobody is left")
    receiver = client.receiver("names/again", name="receives", credit=10)
    sender.await_credit()
    under_way = sender.send("under way")
    receiver.expect(1)
    sender.link.detach()
    assert sender.outcome(under_way) == "modified"
    sender = client.sender("names/again", name="sends").await_credit()
    receiver.auto_accept = True
    assert sender.deliver("works") == "accepted"
    assert not client.connection.state & Endpoint.REMOTE_CLOSED
