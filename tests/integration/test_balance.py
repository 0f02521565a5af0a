"""Consumers of a balanced address: who has least to do gets the next message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proton import Message
from tests.integration.support.client import Clients, Received, Receiver, Sender
from tests.integration.support.routers import Router

ANSWERS: dict[str, Callable[[Received], None]] = {
    "accepted": Received.settle,
    "rejected": lambda received: received.reject("amqp:decode-error", "no"),
    "modified": lambda received: received.modify(failed=True, undeliverable=True),
    "no state": lambda received: received.settle(None),
}
EACH = 2


def workers(clients: Clients, router: Router, name: str, count: int = 5) -> tuple[Sender, list[Receiver]]:
    """A sender, and consumers with two messages each that they have not answered."""
    consumers = [clients.connect(router.port).receiver(name, credit=100) for _ in range(count)]
    sender = clients.connect(router.port).sender(name).await_credit(EACH * count + 10)
    for number in range(EACH * count):
        sender.send(f"work {number}")
    clients.until(lambda: sum(len(one.received) for one in consumers) == EACH * count, "all messages")
    assert {len(one.received) for one in consumers} == {EACH}
    # The next one shows to the router that all have the same.
    sender.send("one more")
    clients.until(lambda: sum(len(one.received) for one in consumers) == EACH * count + 1, "one more")
    return sender, [one for one in consumers if len(one.received) == EACH]


@pytest.mark.parametrize("answer", ANSWERS)
def test_who_has_answered_gets_the_next(clients: Clients, router: Router, answer: str) -> None:
    sender, consumers = workers(clients, router, f"balance/{answer}")
    for consumer in (consumers[2], consumers[0], consumers[3]):
        for _ in range(EACH):
            ANSWERS[answer](consumer.next())
        clients.until(
            lambda: sum(sent.outcome is not None for sent in sender.sent.values()) >= EACH, "outcomes"
        )
        sender.sent = {tag: sent for tag, sent in sender.sent.items() if sent.outcome is None}
        for number in range(EACH):
            sender.send(f"next {number}")
        assert [received.body for received in consumer.expect(EACH)] == ["next 0", "next 1"]


def test_who_takes_messages_again_gets_the_next(clients: Clients, router: Router) -> None:
    """One that let messages wait for its credit has as much as it takes, until it gives more."""
    name = "balance/credit"
    slow = clients.connect(router.port).receiver(name, credit=1)
    busy = clients.connect(router.port).receiver(name, credit=100)
    sender = clients.connect(router.port).sender(name).await_credit(20)
    for number in range(4):
        sender.send(f"work {number}")
    clients.until(lambda: len(busy.received) >= 2 and len(slow.received) == 1, "all that there is credit for")
    before = len(busy.received)
    sender.send("for the one with credit")
    clients.until(lambda: len(busy.received) == before + 1, "the next one")
    slow.grant(100)
    waited = slow.expect(4 - before)
    for received in waited:
        received.settle()
    clients.until(
        lambda: sum(sent.outcome is not None for sent in sender.sent.values()) == len(waited), "outcomes"
    )
    sender.send("for the free one")
    assert [received.body for received in slow.expect(len(waited) + 1)][-1] == "for the free one"


def test_a_large_message_counts_as_well(clients: Clients, router: Router) -> None:
    sender, consumers = workers(clients, router, "balance/large")
    consumer = consumers[1]
    for _ in range(EACH):
        consumer.next().settle()
    clients.until(lambda: sum(sent.outcome is not None for sent in sender.sent.values()) == EACH, "outcomes")
    sender.send(bytes(Message(body=b"x" * 300_000).encode()))
    assert len(consumer.next(30).data) > 300_000
