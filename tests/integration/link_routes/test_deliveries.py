"""Deliveries on routed links: tags, frames, aborts, sizes, and links that do not wait for each other."""

from __future__ import annotations

import os
from typing import Any

import pytest
from proton import Condition, Endpoint
from tests.integration.support.by_hand import ByHand, credit_frame, send_to, transfer_frame
from tests.integration.support.client import Pour
from tests.integration.support.data import KILO, MEGA, head
from tests.integration.support.link_routes import LOST, Chain, Shore, Wire
from tests.integration.support.links import Sender
from tests.integration.support.raw import DETACH, TRANSFER

MOST_GROWTH = 24 * MEGA
"""Of a router's memory while it passes on, or holds back, what is larger."""


def test_tags_of_every_length(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(64)
        sender.await_credit(64)
        tags = ["t" * length for length in range(1, 33)] + [f"{n:032}" for n in range(32)]
        for tag in tags:
            sender.link.delivery(tag)
            sender.link.send(b"\x00\x53\x77\x41")
            sender.link.advance()
        assert [item.delivery.tag for item in receiver.expect(64)] == tags


@pytest.mark.parametrize("to_container", [True, False])
def test_bytes_of_a_tag(either_shore: Shore, to_container: bool) -> None:
    wire = Wire(either_shore["A"], either_shore.ports["A"], to_container=to_container)
    wire.receiver.send(credit_frame(0, 5))
    wire.credit()
    for number, tag in enumerate((bytes(32), bytes(range(0xE0, 0x100)), b"\0")):
        wire.sender.send(transfer_frame(number, b"\x00\x53\x77\x41", tag=tag))
        (transfer,) = wire.receiver.expect(TRANSFER)
        assert bytes(transfer.field(2)) == tag
    wire.close()


def test_what_was_sent_before_the_detach_arrives(chain: Chain) -> None:
    """However much it is, as on a connection without routers between."""
    for sender, receiver in chain.both_ways():
        receiver.grant(800)
        sender.await_credit(800)
        receiver.client.reading = False
        for number in range(800):
            sender.send(f"{number:020000}", settled=True)
        sender.link.close()
        link = sender.link
        chain.clients.standstill(
            lambda s=link.session: s.outgoing_bytes,  # type: ignore[misc]
            chain.clients.round_trip,
        )
        receiver.client.reading = True
        chain.clients.until(lambda r=receiver: r.link.state & Endpoint.REMOTE_CLOSED, "the detach")  # type: ignore[misc]
        assert [int(body[-9:]) for body in receiver.bodies()] == list(range(800))


@pytest.mark.parametrize("size", [0, 1, 511, 512, 16 * KILO, 65 * KILO, 300 * KILO, 3 * MEGA])
@pytest.mark.parametrize("settled", [False, True])
def test_any_size_arrives_as_it_was_sent(chain: Chain, size: int, settled: bool) -> None:
    payload = os.urandom(size)
    for sender, receiver in chain.both_ways():
        receiver.grant(3)
        sender.await_credit(3)
        for _ in range(3):
            sent = sender.send(payload, settled=settled)
            item = receiver.next()
            assert bytes(item.data) == payload
            assert item.presettled is settled
            if not settled:
                item.settle()
                assert sender.outcome(sent) == "accepted"


def test_the_start_arrives_before_the_end_is_sent(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(2)
        sent = sender.await_credit(2).begin(b"a" * 200 * KILO)
        chain.clients.until(
            lambda r=receiver: r.received and len(r.received[0].data) == 200 * KILO,  # type: ignore[misc]
            "the first part",
        )
        assert not receiver.received[0].complete
        sender.more(b"b")
        chain.clients.until(
            lambda r=receiver: len(r.received[0].data) == 200 * KILO + 1,  # type: ignore[misc]
            "a little more",
        )
        sender.finish()
        receiver.next().settle()
        assert sender.outcome(sent) == "accepted"


def test_the_receiver_settles_before_the_end(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(2)
        sent = sender.await_credit(2).begin(b"a" * 100 * KILO)
        chain.clients.until(lambda r=receiver: r.received, "the first part")  # type: ignore[misc]
        receiver.received[0].settle()
        assert sent.delivery is not None
        chain.round_trip()
        sender.more(b"b" * 100 * KILO)
        sender.finish()
        assert sender.outcome(sent) == "accepted"
        receiver.received.clear()
        receiver._current = None
        sent = sender.send(b"next")
        receiver.next().settle()
        assert sender.outcome(sent) == "accepted"


def test_aborted_deliveries(chain: Chain) -> None:
    """Whether much of them was sent or nothing, and what comes after them."""
    for sender, receiver in chain.both_ways():
        receiver.grant(10)
        sender.await_credit(10)
        for size in (200 * KILO, 1, 0):
            before = len(receiver.received)
            sent = sender.begin(b"a" * size)
            if size:
                chain.clients.until(
                    lambda r=receiver, n=before: len(r.received) > n,  # type: ignore[misc]
                    "the start",
                )
            sender.abort(sent)
            follower = sender.send(f"after {size}")
            chain.clients.until(
                lambda r=receiver, s=size: bool(r.bodies()[-1:] == [f"after {s}"]),  # type: ignore[misc]
                "what comes after",
            )
            receiver.received[-1].settle()
            assert sender.outcome(follower) == "accepted"
            assert [item.aborted for item in receiver.received[before:]] == [True, False][not size :]
        chain.round_trip()
        assert sender.credit == receiver.link.credit


def test_a_large_message_needs_little_memory(chain: Chain) -> None:
    size = 20 * MEGA
    data = head(size) + bytes(size)
    for sender, receiver in chain.both_ways():
        routers = [chain.shore[router_id] for router_id in "ABC"]
        before = [router.memory() for router in routers]
        receiver.grant(1)
        pour = Pour(sender.await_credit(), data)
        item = receiver.next()
        assert len(item.data) == len(data)
        assert bytes(item.data) == data
        item.settle()
        assert sender.outcome(pour.sent) == "accepted"
        for router, memory in zip(routers, before, strict=True):
            assert router.memory() - memory < MOST_GROWTH


def test_a_receiver_that_does_not_read_holds_up_its_own_link_only(chain: Chain) -> None:
    """The sender has to wait, the routers keep little, and others pass over the same connections."""
    slow = chain.clients.connect(chain.shore["A"].port, container="slow")
    source = chain.address()
    slow.receiver(source, credit=100)
    slow.reading = False
    routers = [chain.shore[router_id] for router_id in "ABC"]
    before = [router.memory() for router in routers]
    given = chain.container.gives(source)
    size = 45 * MEGA
    pour = Pour(given.await_credit(), memoryview(bytes(size)))
    receiver, sender = chain.from_container()
    to_sender, to_receiver = chain.to_container()
    for number in range(30):
        for one, other in ((sender, receiver), (to_sender, to_receiver)):
            other.grant(1)
            sent = one.await_credit().send(f"{number}")
            other.next().settle()
            assert one.outcome(sent) == "accepted"
    stood = chain.clients.standstill(lambda: pour.given, chain.clients.round_trip)
    assert stood < size
    for router, memory in zip(routers, before, strict=True):
        assert router.memory() - memory < MOST_GROWTH
    slow.reading = True
    (blocked,) = slow.receivers.values()
    blocked.next(60).settle()
    assert given.outcome(pour.sent) == "accepted"


# One end goes in the middle of a delivery


def half_sent(chain: Chain, sender: Sender) -> None:
    """A delivery is under way and goes on."""
    Pour(sender, memoryview(bytes(40 * MEGA)))


def test_the_sender_goes_in_the_middle_of_a_delivery(chain: Chain) -> None:
    """The receiver is not left with half a message: it is aborted, or its link is gone."""
    sender, receiver = chain.to_container()
    receiver.grant(3)
    half_sent(chain, sender.await_credit())
    chain.clients.until(lambda: receiver.received and receiver.received[0].data, "the first part")
    chain.client.drop()
    chain.clients.until(lambda: receiver.link.state & Endpoint.REMOTE_CLOSED, "the link is detached")
    assert receiver.link.remote_condition.name == LOST
    assert not receiver.arrived()
    chain.shore.await_links(chain.clients)


def test_the_sender_detaches_in_the_middle_of_a_delivery(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(1)
        sender.await_credit(1)
        sender.begin(bytes(8 * KILO))
        chain.clients.until(lambda r=receiver: r.received and r.received[0].data, "the beginning arrives")
        sender.link.close()
        chain.clients.until(lambda r=receiver: r.received[0].aborted, "the receiver is told")
        receiver.link.close()
        chain.clients.until(lambda s=sender: s.link.state & Endpoint.REMOTE_CLOSED, "the sender is answered")
    chain.shore.await_links(chain.clients)


def test_the_receiver_goes_in_the_middle_of_a_delivery(chain: Chain) -> None:
    receiver, sender = chain.from_container()
    receiver.grant(3)
    half_sent(chain, sender.await_credit())
    chain.clients.until(lambda: receiver.received and receiver.received[0].data, "the first part")
    chain.client.drop()
    chain.clients.until(lambda: sender.link.state & Endpoint.REMOTE_CLOSED, "the link is detached")
    assert sender.link.remote_condition.name == LOST
    chain.shore.await_links(chain.clients)


@pytest.mark.parametrize("to_container", [True, False])
def test_the_container_detaches_in_the_middle_of_a_delivery(chain: Chain, to_container: bool) -> None:
    near: Any
    far: Any
    near, far = chain.to_container() if to_container else chain.from_container()
    sender, receiver = (near, far) if to_container else (far, near)
    receiver.grant(3)
    half_sent(chain, sender.await_credit())
    chain.clients.until(lambda: receiver.received and receiver.received[0].data, "the first part")
    chain.clients.background.clear()
    far.link.condition = Condition("acme:closed", "no more today")
    far.link.close()
    condition = chain.client.refusal(near.link)
    assert (condition.name, condition.description) == ("acme:closed", "no more today")
    near.link.close()
    chain.shore.await_links(chain.clients)
    again, there = chain.to_container()
    there.grant(1)
    sent = again.await_credit().send("on the same session")
    there.next().settle()
    assert again.outcome(sent) == "accepted"


def test_what_comes_after_the_detach_is_for_nobody(chain: Chain) -> None:
    """A client that goes on sending without an answer to the detach does no harm."""
    chain.container.credit = 1000
    client = ByHand(chain.shore["A"].port)
    client.send(send_to("b2.flood"))
    chain.clients.until(lambda: chain.container.receivers, "the container is asked")
    receiver = chain.container.gets("b2.flood")
    chain.clients.until(lambda: receiver.link.state & Endpoint.LOCAL_ACTIVE, "attached")
    chain.clients.round_trip()
    client.await_credit()
    for number in range(10):
        client.send(transfer_frame(number, b"\x00\x53\x77\x41"))
    receiver.expect(10)
    receiver.link.close()
    chain.clients.round_trip()
    client.expect(DETACH)
    for number in range(10, 500):
        client.send(transfer_frame(number, bytes(1000)))
    client.round_trip()
    chain.round_trip()
    assert len(receiver.received) == 10
    client.socket.close()
    chain.shore.await_links(chain.clients)


def test_deliveries_without_credit_end_the_link_only(chain: Chain) -> None:
    """The container does not see them, and is told as well."""
    client = ByHand(chain.shore["A"].port)
    client.send(send_to("b2.greedy"))
    receiver = chain.container.gets("b2.greedy")
    receiver.grant(2)
    chain.clients.round_trip()
    client.await_credit()
    for number in range(4):
        client.send(transfer_frame(number, b"\x00\x53\x77\x41"))
    client.expect_error(DETACH, "amqp:link:transfer-limit-exceeded")
    chain.clients.until(lambda: receiver.link.state & Endpoint.REMOTE_CLOSED, "the container is told")
    assert len(receiver.received) <= 2
    client.socket.close()
    chain.shore.await_links(chain.clients)
    chain.to_container()
