"""Names of links: attached once per direction and container, stolen by whoever attaches them anew."""

from __future__ import annotations

import pytest
from proton import Delivery, Endpoint
from tests.integration.support.client import Client, Clients
from tests.integration.support.routers import Router


def other_place(clients: Clients, router: Router, client: Client, where: str) -> tuple[Client, object]:
    """Another session, or another connection of the same container."""
    if where == "session":
        return client, client.new_session()
    other = clients.connect(router.port, container=client.connection.container)
    return other, other.session


@pytest.mark.parametrize("where", ["session", "connection"])
def test_a_receiver_is_stolen(clients: Clients, router: Router, where: str) -> None:
    """What the earlier one has unsettled comes back; from then on the later one gets the messages."""
    client = clients.connect(router.port, container=f"thief-{where}")
    first = client.receiver("names/stolen", name="one", credit=10)
    sender = clients.connect(router.port).sender("names/stolen").await_credit()
    lost = sender.send("lost")
    first.expect(1)
    thief, session = other_place(clients, router, client, where)
    second = thief.receiver("names/stolen", name="one", credit=10, accept=True, session=session)
    assert client.refusal(first.link).name == "amqp:link:stolen"
    router.await_log("link stolen", f"thief-{where}")
    assert sender.outcome(lost) == "modified"
    assert sender.credit > 0, "there was a consumer all the time"
    assert sender.deliver("next") == "accepted"
    assert second.bodies() == ["next"]


@pytest.mark.parametrize("where", ["session", "connection"])
def test_a_sender_is_stolen(clients: Clients, router: Router, where: str) -> None:
    receiver = clients.connect(router.port).receiver("names/sender", credit=10)
    client = clients.connect(router.port, container=f"sender-{where}")
    first = client.sender("names/sender", name="one").await_credit()
    delivery = first.send("under way").delivery
    assert delivery is not None
    receiver.expect(1)
    thief, session = other_place(clients, router, client, where)
    second = thief.sender("names/sender", name="one", session=session).await_credit()
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
    """The same name in the other direction, or from another container, is another link."""
    client = clients.connect(router.port, container="mine")
    receiver = client.receiver("names/both", name="one", credit=10, accept=True)
    sender = client.sender("names/both", name="one").await_credit()
    other = clients.connect(router.port, container="other").sender("names/both", name="one").await_credit()
    assert [sender.deliver("x"), other.deliver("y")] == ["accepted"] * 2
    clients.round_trip()
    assert not any(link.state & Endpoint.REMOTE_CLOSED for link in (receiver.link, sender.link, other.link))


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
