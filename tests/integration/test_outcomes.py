"""Outcomes travel from the receiver to the sender unchanged; what is lost comes back as released or modified."""

from __future__ import annotations

import pytest
from proton import Delivery, Link
from tests.integration.support.client import Client, Clients, Receiver, Sender
from tests.integration.support.routers import Router


def pair(clients: Clients, router: Router, address: str, credit: int = 100) -> tuple[Sender, Receiver]:
    """A receiver and a sender, each on its own connection."""
    receiver = clients.connect(router.port).receiver(address, credit=credit)
    sender = clients.connect(router.port).sender(address)
    return sender.await_credit(), receiver


@pytest.mark.parametrize(
    ("state", "name"),
    [(Delivery.ACCEPTED, "accepted"), (Delivery.RELEASED, "released"), (None, "none")],
)
def test_plain_outcome(clients: Clients, router: Router, state: int | None, name: str) -> None:
    sender, receiver = pair(clients, router, f"outcome/{name}")
    sent = sender.send("x")
    delivery = receiver.next()
    assert delivery.body == "x"
    clients.round_trip()
    assert sent.outcome is None, "the router settles only after the receiver"
    delivery.settle(state)
    assert sender.outcome(sent) == name


def test_rejected_carries_the_whole_error(clients: Clients, router: Router) -> None:
    sender, receiver = pair(clients, router, "outcome/rejected")
    sent = sender.send("x")
    receiver.next().reject("acme:no-thanks", "not today", {"retry-after": 5, "why": ["a", "b"]})
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "acme:no-thanks"
    assert sent.condition.description == "not today"
    assert sent.condition.info == {"retry-after": 5, "why": ["a", "b"]}


def test_rejected_without_an_error(clients: Clients, router: Router) -> None:
    sender, receiver = pair(clients, router, "outcome/rejected-bare")
    sent = sender.send("x")
    receiver.next().settle(Delivery.REJECTED)
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is None


@pytest.mark.parametrize("undeliverable", [True, False])
def test_modified_keeps_flags_and_annotations(clients: Clients, router: Router, undeliverable: bool) -> None:
    sender, receiver = pair(clients, router, f"outcome/modified-{undeliverable}")
    sent = sender.send("x")
    receiver.next().modify(failed=False, undeliverable=undeliverable, annotations={"x-opt-tried": 3})
    assert sender.outcome(sent) == "modified"
    assert sent.failed, "a delivery that reached a receiver and came back has failed"
    assert sent.undeliverable is undeliverable
    assert sent.annotations == {"x-opt-tried": 3}


def test_outcomes_in_any_order(clients: Clients, router: Router) -> None:
    sender, receiver = pair(clients, router, "outcome/order")
    sent = [sender.send(str(number)) for number in range(5)]
    received = receiver.expect(5)
    assert receiver.bodies() == ["0", "1", "2", "3", "4"]
    for at, state in ((3, Delivery.RELEASED), (0, Delivery.ACCEPTED), (4, Delivery.ACCEPTED)):
        received[at].settle(state)
    received[1].reject("acme:one", "")
    received[2].settle(None)
    outcomes = [sender.outcome(item) for item in sent]
    assert outcomes == ["accepted", "rejected", "none", "released", "accepted"]


def test_presettled_stays_presettled(clients: Clients, router: Router) -> None:
    sender, receiver = pair(clients, router, "outcome/presettled")
    sender.send("x", settled=True)
    delivery = receiver.next()
    assert delivery.presettled
    assert delivery.body == "x"


@pytest.mark.parametrize("waits", [False, True])
def test_receiver_that_wants_settled_deliveries(clients: Clients, router: Router, waits: bool) -> None:
    address = f"outcome/settle-mode-{waits}"
    receiver = clients.connect(router.port).receiver(
        address, credit=0 if waits else 10, settle_mode=Link.SND_SETTLED
    )
    sender = clients.connect(router.port).sender(address).await_credit()
    sent = sender.send("x")
    if waits:
        clients.round_trip()
        assert sent.outcome is None
        receiver.grant(1)
    assert receiver.next().presettled
    assert sender.outcome(sent) == "accepted"


def test_two_phase_receiver(clients: Clients, router: Router) -> None:
    """An outcome without settlement is passed on too (rcv-settle-mode second settles after the sender)."""
    sender, receiver = pair(clients, router, "outcome/two-phase")
    sent = sender.send("x")
    delivery = receiver.next()
    delivery.delivery.update(Delivery.ACCEPTED)
    assert sender.outcome(sent) == "accepted"
    clients.until(lambda: delivery.delivery.settled, "the router settles")


def test_sender_settles_early(clients: Clients, router: Router) -> None:
    """A sender may lose interest before there is an outcome; the link goes on as before, with all its credit."""
    sender, receiver = pair(clients, router, "outcome/early", credit=1000)
    for _ in range(sender.credit):
        sender.send("x")
    first = receiver.expect(len(sender.sent))
    assert sender.credit == 0
    for sent in sender.sent.values():
        assert sent.delivery is not None
        sent.delivery.settle()
    sender.await_credit()
    for delivery in first:
        delivery.settle()
    receiver.received.clear()
    assert_link_works(sender, receiver)


def assert_link_works(sender: Sender, receiver: Receiver) -> None:
    """One more message gets through and is accepted."""
    sent = sender.await_credit().send("again")
    delivery = receiver.next()
    assert delivery.body == "again"
    delivery.settle()
    assert sender.outcome(sent) == "accepted"


def lose(client: Client, receiver: Receiver, how: str) -> None:
    """End a receiver in one of the ways there are."""
    if how == "detach":
        client.detach(receiver.link)
    elif how == "session":
        client.session.close()
        client.clients.until(lambda: client.session.state & Link.REMOTE_CLOSED, "the session is closed")
    elif how == "close":
        client.close()
    else:
        client.drop()


@pytest.mark.parametrize("how", ["detach", "session", "close", "drop"])
def test_loss_of_the_receiver(clients: Clients, router: Router, how: str) -> None:
    """Sent and unsettled comes back modified (delivery-failed), queued comes back released."""
    client = clients.connect(router.port)
    receiver = client.receiver(f"outcome/lost-{how}", credit=2)
    sender = clients.connect(router.port).sender(f"outcome/lost-{how}").await_credit()
    sent = [sender.send(str(number)) for number in range(5)]
    receiver.expect(2)
    clients.round_trip()
    lose(client, receiver, how)
    assert [sender.outcome(item) for item in sent] == ["modified"] * 2 + ["released"] * 3
    assert all(item.failed for item in sent[:2])
    clients.until(lambda: sender.credit == 0, "credit is drained when nobody is left")
    second = clients.connect(router.port).receiver(f"outcome/lost-{how}", credit=10)
    assert_link_works(sender, second)


@pytest.mark.parametrize("how", ["detach", "drop"])
def test_loss_of_the_sender(clients: Clients, router: Router, how: str) -> None:
    """What a lost sender has sent is still delivered, and its late outcome hurts nobody.

    One that closes its link is told that the outcome is not known: a router passes that on to its client.
    """
    address = f"outcome/sender-lost-{how}"
    receiver = clients.connect(router.port).receiver(address, credit=1)
    client = clients.connect(router.port)
    sender = client.sender(address).await_credit()
    sent = [sender.send(str(number)) for number in range(3)]
    first = receiver.next()
    clients.round_trip()
    if how == "detach":
        client.detach(sender.link)
        assert [(sender.outcome(item), item.failed) for item in sent] == [("modified", True)] * 3
    else:
        client.drop()
    clients.round_trip()
    first.settle()
    receiver.grant(10)
    for delivery in receiver.expect(2):
        delivery.settle()
    assert receiver.bodies() == ["1", "2"]
    receiver.received.clear()
    assert_link_works(clients.connect(router.port).sender(address), receiver)


def test_rejected_by_the_router_when_malformed(clients: Clients, router: Router) -> None:
    """An anonymous sender's message must have sections that can be read."""
    sender = clients.connect(router.port).sender(None).await_credit()
    sent = sender.send(b"\x01garbage that is no section at all")
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "amqp:decode-error"
