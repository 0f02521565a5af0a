"""Credit on routed links is the receiver's, to the number, and so are drains."""

from __future__ import annotations

import pytest
from tests.integration.support.by_hand import credit_frame
from tests.integration.support.link_routes import Chain, Shore, Wire
from tests.integration.support.links import Sender

LARGEST = 2**31 - 1


def await_credit(sender: Sender, credit: int) -> None:
    """Wait until the sender has this credit, no more and no less."""
    sender.client.clients.until(lambda: sender.credit == credit, f"credit of {credit}, not {sender.credit}")


def keep_credit(sender: Sender) -> None:
    """The sender does not answer drains by itself."""
    sender.answer_drain = lambda: None  # type: ignore[method-assign]


def test_nobody_grants_credit_but_the_receiver(chain: Chain) -> None:
    links = chain.both_ways()
    chain.round_trip()
    assert [sender.credit for sender, _ in links] == [0, 0]
    for sender, receiver in links:
        for granted, in_all in ((7, 7), (1, 8), (1000, 1008)):
            receiver.grant(granted)
            await_credit(sender, in_all)
    chain.round_trip()
    assert [sender.credit for sender, _ in links] == [1008, 1008]


def test_each_delivery_uses_one(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(10)
        await_credit(sender, 10)
        for number in range(4):
            sender.send(str(number), settled=number == 1)
        assert [item.body for item in receiver.expect(4)] == ["0", "1", "2", "3"]
        assert (sender.credit, receiver.link.credit) == (6, 6)
        receiver.grant(2)
        await_credit(sender, 8)
        for number in range(8):
            sender.send(str(number))
        receiver.expect(12)
        receiver.grant(1)
        await_credit(sender, 1)


def test_a_receiver_takes_credit_back(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(10)
        await_credit(sender, 10)
        receiver.grant(-4)
        await_credit(sender, 6)
        receiver.grant(-6)
        await_credit(sender, 0)
        receiver.grant(2)
        await_credit(sender, 2)
        sender.send("one")
        sender.send("two")
        receiver.expect(2)


def test_what_was_sent_before_the_sender_knew_waits_for_credit(chain: Chain) -> None:
    sender, receiver = chain.to_container()
    other = chain.clients.connect(chain.shore["A"].port, container="other")
    receiver.grant(5)
    await_credit(sender, 5)
    chain.client.reading = False
    receiver.grant(-5)
    # Another link comes the same way, after the flow.
    address = chain.address()
    other.sender(address)
    chain.container.gets(address).grant(1)
    await_credit(next(iter(other.senders.values())), 1)
    for number in range(3):
        sender.send(str(number))
    other.clients.round_trip()
    assert not receiver.received
    chain.client.reading = True
    receiver.grant(2)
    receiver.expect(2)
    chain.round_trip()
    assert len(receiver.received) == 2
    receiver.grant(6)
    receiver.expect(3)
    await_credit(sender, 5)
    assert receiver.link.credit == 5
    for item in receiver.received:
        item.settle()
    assert [sender.outcome(sent) for sent in sender.sent.values()] == ["accepted"] * 3


def test_a_drain_without_messages_gives_the_credit_back(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(5)
        await_credit(sender, 5)
        for _ in range(5):
            receiver.drain(3)
            chain.clients.until(lambda r=receiver: not r.link.credit, "the credit is back")  # type: ignore[misc]
            chain.clients.until(lambda s=sender: not s.credit, "the sender has none")  # type: ignore[misc]
        receiver.link.drain_mode = False
        receiver.grant(2)
        await_credit(sender, 2)
        chain.clients.until(lambda s=sender: not s.link.drain_mode, "no drain")  # type: ignore[misc]
        sender.send("one")
        receiver.expect(1)


def test_a_drain_has_the_messages_that_there_are(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        keep_credit(sender)
        receiver.drain(10)
        chain.clients.until(lambda s=sender: s.link.drain_mode and s.credit == 10, "drain")  # type: ignore[misc]
        for number in range(4):
            sender.send(str(number))
        receiver.expect(4)
        chain.round_trip()
        assert (sender.credit, receiver.link.credit) == (6, 6), "the router gives nothing back by itself"
        sender.link.drained()
        chain.clients.until(lambda r=receiver: not r.link.credit, "the rest is back")  # type: ignore[misc]
        assert len(receiver.received) == 4
        receiver.drain(4)
        chain.clients.until(lambda s=sender: s.credit == 4, "another drain")  # type: ignore[misc]
        for number in range(4):
            sender.send(str(number))
        receiver.expect(8)
        chain.round_trip()
        assert (sender.credit, receiver.link.credit) == (0, 0)


def test_a_drain_is_called_off(chain: Chain) -> None:
    """With more credit: the engine sends no flow for the end of a drain alone."""
    for sender, receiver in chain.both_ways():
        keep_credit(sender)
        receiver.drain(10)
        chain.clients.until(lambda s=sender: s.link.drain_mode and s.credit == 10, "drain")  # type: ignore[misc]
        receiver.link.drain_mode = False
        receiver.grant(2)
        chain.clients.until(lambda s=sender: not s.link.drain_mode, "no drain")  # type: ignore[misc]
        await_credit(sender, 12)
        sender.send("one")
        receiver.expect(1)
        chain.round_trip()
        assert (sender.credit, receiver.link.credit) == (11, 11)


@pytest.mark.parametrize("to_container", [True, False])
@pytest.mark.parametrize(
    ("granted", "told"), [(LARGEST, LARGEST), (LARGEST + 1, LARGEST), (2**32 - 1, LARGEST)]
)
def test_the_largest_credit(either_shore: Shore, to_container: bool, granted: int, told: int) -> None:
    """Credit beyond what the engine counts is told as the most that it counts."""
    wire = Wire(either_shore["A"], either_shore.ports["A"], to_container=to_container)
    wire.receiver.send(credit_frame(0, granted))
    assert wire.credit() == told
    wire.receiver.send(credit_frame(0, 3))
    assert wire.credit() == 3
    wire.close()
