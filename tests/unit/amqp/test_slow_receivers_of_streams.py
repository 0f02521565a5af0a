"""Multicast messages that are passed on while they arrive, and receivers that do not take them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from proton import Delivery, Endpoint
from tests.unit.amqp.rig import Peer, Rig
from tests.unit.amqp.test_stalled_streams import got, receiver, sender

from isthmus_router.amqp.kernel.slow import AT_ONCE, LEAST_BYTES, MOST_ROUTERS, ROUTER_SECONDS, SlowReceivers
from isthmus_router.amqp.kernel.stream import Streams
from isthmus_router.core.roles import Role
from isthmus_router.message.sections import RouterAnnotations, decode_annotations

SECONDS = 5
SIZE = 600_000
AT_EDGE = 1_200_000
"""Messages from edges are passed on while they arrive once so much of them is here."""
WINDOW = 32 * 1024
ADDRESS = "multicast/some"


@pytest.fixture(autouse=True)
def limit(rig: Rig) -> None:
    rig.driver.forwarder.slow.seconds = SECONDS


def quiet(rig: Rig) -> None:
    """Carry out all that is to be done."""
    rig.work_off()
    while rig.driver.under_way:
        rig.work_off()


def let_pass(rig: Rig, seconds: int) -> None:
    """Have the router examine its streams each second."""
    for _ in range(seconds):
        rig.seconds_pass(1)
        rig.driver.work(rig.driver.forwarder.slow.examine())
        quiet(rig)


def send(rig: Rig, link: Any, *, settled: bool = False, size: int = SIZE) -> Any:
    """Send a large message."""
    delivery = link.delivery("large")
    link.send(b"\x00\x53\x75\xb0" + size.to_bytes(4) + bytes(size))
    link.advance()
    if settled:
        delivery.settle()
    rig.settle_down()
    quiet(rig)
    return delivery


class Slow:
    """A receiver with a small window, which reads only on demand."""

    def __init__(self, rig: Rig, *, credit: int = 10) -> None:
        self.rig = rig
        self.peer = rig.connect(Role.NORMAL)
        self.peer.session.incoming_capacity = WINDOW
        self.peer._read = lambda link: None  # type: ignore[method-assign]
        self.link = receiver(rig, ADDRESS, credit, peer=self.peer)
        self.read = 0

    def take(self, size: int) -> None:
        self.read += len(self.link.recv(size) or b"")
        self.rig.settle_down()

    @property
    def is_aborted(self) -> bool:
        """After all that has arrived before is read."""
        while self.link.current is not None and not self.link.current.aborted and self.link.current.pending:
            self.take(self.link.current.pending)
        return self.link.current is not None and self.link.current.aborted


def of(link: Any, peer: Peer) -> int:
    """Whole messages that have arrived on a link."""
    return len(peer.deliveries.get(link.name, ()))


def honest(rig: Rig) -> tuple[Any, Peer]:
    peer = rig.connect(Role.NORMAL)
    return receiver(rig, ADDRESS, peer=peer), peer


def accept(rig: Rig, peer: Peer) -> None:
    for found in peer.deliveries.values():
        for delivery in found:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
    rig.settle_down()


@pytest.mark.parametrize("settled", [False, True])
def test_a_receiver_without_credit_is_left_out(rig: Rig, settled: bool) -> None:
    slow = receiver(rig, ADDRESS, 0)
    link, peer = honest(rig)
    source = sender(rig, ADDRESS)
    sent = send(rig, source, settled=settled)
    let_pass(rig, SECONDS)
    assert len(peer.heard) < SIZE
    let_pass(rig, 2)
    assert len(peer.heard) > SIZE
    if settled:
        links = [one for connection in rig.core.connections.values() for one in connection.links]
        assert sum(one.dropped_presettled for one in links) == 1
        return
    assert not sent.settled
    accept(rig, peer)
    assert sent.remote_state == Delivery.ACCEPTED
    slow.flow(5)
    rig.settle_down()
    again = send(rig, source)
    assert (of(link, peer), got(rig, slow)) == (2, 1)
    assert not again.settled


def test_a_receiver_that_does_not_read_is_left_out(rig: Rig) -> None:
    slow = Slow(rig)
    link, peer = honest(rig)
    sent = send(rig, sender(rig, ADDRESS))
    let_pass(rig, SECONDS)
    assert of(link, peer) == 0
    let_pass(rig, 2)
    assert of(link, peer) == 1
    accept(rig, peer)
    assert sent.remote_state == Delivery.ACCEPTED
    assert slow.is_aborted
    assert slow.link.state & Endpoint.REMOTE_ACTIVE


def test_a_receiver_that_only_gets_on_slowly_is_not_left_out(rig: Rig) -> None:
    slow = Slow(rig)
    link, peer = honest(rig)
    send(rig, sender(rig, ADDRESS), size=300_000)
    seconds = 0
    while slow.read < 300_000:
        let_pass(rig, SECONDS - 1)
        slow.take(WINDOW)
        seconds += SECONDS - 1
        assert seconds < 300_000 // LEAST_BYTES * SECONDS
    let_pass(rig, 1)
    assert not slow.is_aborted
    assert of(link, peer) == 1
    assert slow.read == 300_008


def test_a_receiver_that_takes_too_little_is_left_out(rig: Rig) -> None:
    slow = Slow(rig)
    link, peer = honest(rig)
    send(rig, sender(rig, ADDRESS))
    for _ in range(SECONDS + 1):
        let_pass(rig, 1)
        slow.take(1000)
    assert of(link, peer) == 1
    assert slow.is_aborted


def test_the_sender_waits_while_all_receivers_are_slow(rig: Rig) -> None:
    receivers = [receiver(rig, ADDRESS, 0) for _ in range(3)]
    sent = send(rig, sender(rig, ADDRESS))
    let_pass(rig, 3 * SECONDS)
    for link in receivers:
        link.flow(1)
    rig.settle_down()
    assert [got(rig, link) for link in receivers] == [1] * 3
    assert not sent.settled


def test_a_message_that_waits_for_another_one(rig: Rig) -> None:
    """Nobody holds that one up but its sender."""
    link = receiver(rig, ADDRESS)
    also = receiver(rig, ADDRESS)
    pausing, source = sender(rig, ADDRESS), sender(rig, ADDRESS)
    pausing.delivery("begun")
    pausing.send(b"\x00\x53\x75\xb0\x00\x04\x00\x00" + bytes(100_000))
    rig.settle_down()
    late = receiver(rig, ADDRESS)  # it gets only the second message
    send(rig, source)
    let_pass(rig, 3 * SECONDS)
    pausing.send(bytes(0x40000 - 100_000))
    pausing.advance()
    rig.settle_down()
    assert [got(rig, each) for each in (link, also, late)] == [2, 2, 1]


def test_others_wait_less_for_a_receiver_that_was_left_out(rig: Rig) -> None:
    receiver(rig, ADDRESS, 0)
    link, peer = honest(rig)
    source = sender(rig, ADDRESS)
    send(rig, source)
    let_pass(rig, SECONDS + 1)
    for number in range(2, 5):
        send(rig, source)
        assert of(link, peer) == number - 1
        let_pass(rig, 2)
        assert of(link, peer) == number


def many(rig: Rig, *, without_credit: int) -> list[Peer]:
    """Receivers of 10 clients, of which the first ones give no credit."""
    peers = [rig.connect(Role.NORMAL) for _ in range(10)]
    for number in range(100):
        link = peers[number % 10].session.receiver(f"r{number}")
        link.source.address = ADDRESS
        link.open()
        if number >= without_credit:
            link.flow(10)
    rig.settle_down()
    return peers


def test_many_receivers(rig: Rig) -> None:
    peers = many(rig, without_credit=10)
    slow = Slow(rig)
    sent = send(rig, sender(rig, ADDRESS))
    let_pass(rig, SECONDS)
    assert not any(peer.deliveries for peer in peers)
    let_pass(rig, SECONDS + 4)  # for those without credit, and then for the one that does not read
    assert [len(found) for peer in peers for found in peer.deliveries.values()] == [1] * 90
    for peer in peers:
        accept(rig, peer)
    assert sent.remote_state == Delivery.ACCEPTED
    assert slow.is_aborted


def test_many_receivers_of_a_sender_that_has_left(rig: Rig) -> None:
    peers = many(rig, without_credit=1)
    source = sender(rig, ADDRESS)
    source.delivery("large")
    source.send(b"\x00\x53\x75\xb0" + (150_000).to_bytes(4) + bytes(100_000))
    rig.settle_down()
    source.send(bytes(50_000))
    source.advance()
    rig.settle_down()
    source.close()
    rig.settle_down()
    quiet(rig)
    let_pass(rig, SECONDS)
    assert not any(peer.deliveries for peer in peers)
    let_pass(rig, 2)
    assert sum(len(peer.deliveries) for peer in peers) == 99


def test_another_router_has_more_time(rig: Rig) -> None:
    """In which it leaves out its own receivers."""
    edge = rig.connect(Role.EDGE)
    receiver(rig, ADDRESS, 0, peer=edge)
    link, peer = honest(rig)
    send(rig, sender(rig, ADDRESS))
    let_pass(rig, SECONDS + ROUTER_SECONDS)
    assert of(link, peer) == 0
    let_pass(rig, 2)
    assert of(link, peer) == 1


def test_each_router_on_the_way_waits_longer_than_the_next_one(rig: Rig) -> None:
    slow = rig.driver.forwarder.slow
    waits = []
    for passed in range(1, MOST_ROUTERS):
        trace = tuple(f"0/{number}" for number in range(passed - 1))
        prefix = rig.core.planner.prefix(None, RouterAnnotations(to_override=ADDRESS, trace=trace))
        assert len(decode_annotations(prefix).trace) == passed
        waits.append(slow.patience_with_routers(prefix, MOST_ROUTERS))
    assert all(first - second == ROUTER_SECONDS for first, second in itertools.pairwise(waits))
    assert waits[-1] > SECONDS


def begin_at_edge(rig: Rig) -> tuple[Any, Any]:
    """A message that begins to arrive from an edge router."""
    edge = sender(rig, ADDRESS, Role.EDGE)
    delivery = edge.delivery("first")
    edge.send(b"\x00\x53\x75\xb0" + (2 * AT_EDGE).to_bytes(4) + bytes(AT_EDGE))
    rig.settle_down()
    return edge, delivery


def test_the_only_receiver_of_messages_from_another_router(rig: Rig) -> None:
    """Others may wait there. Once that router has aborted a message for which it has waited, no other one waits."""
    link = receiver(rig, ADDRESS, 0)
    edge, first = begin_at_edge(rig)
    let_pass(rig, 3 * SECONDS)
    assert not first.remote_state
    first.abort()
    rig.settle_down()
    let_pass(rig, 1)
    second = send(rig, edge, size=AT_EDGE)
    let_pass(rig, 3)
    assert second.remote_state == Delivery.RELEASED
    link.flow(1)
    rig.settle_down()
    send(rig, edge)
    assert got(rig, link) == 1


def test_a_message_from_another_router_waits_no_longer_than_others_may_wait_for_it(rig: Rig) -> None:
    rig.driver.forwarder.stalled.seconds = 3 * SECONDS
    receiver(rig, ADDRESS, 0)
    edge, first = begin_at_edge(rig)
    let_pass(rig, 3 * SECONDS)
    edge.send(bytes(AT_EDGE))
    edge.advance()
    rig.settle_down()
    assert not first.remote_state
    let_pass(rig, 2)
    assert first.remote_state == Delivery.RELEASED


def test_receivers_of_many_messages_are_examined_and_left_out_in_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message has few, so that it is examined at once."""
    messages, few, done = 6, 40, [0]
    slow = rig.connect(Role.NORMAL)
    for number in range(messages):
        for of_message in range(few):
            link = slow.session.receiver(f"{number} {of_message}")
            link.source.address = f"multicast/{number}"
            link.open()
        receiver(rig, f"multicast/{number}")
        send(rig, sender(rig, f"multicast/{number}"))

    def counted(usual: Any) -> Any:
        def call(*those: Any) -> Any:
            done[-1] += 1
            return usual(*those)

        return call

    monkeypatch.setattr(Streams, "drop", counted(Streams.drop))
    monkeypatch.setattr(SlowReceivers, "_is_late", counted(SlowReceivers._is_late))
    for _ in range(SECONDS + 1):
        rig.seconds_pass(1)
        for _ in rig.driver.forwarder.slow.examine():
            done.append(0)
        rig.driver.flush()
    assert sum(done) == (SECONDS + 2) * messages * few, "each is left out once"
    assert max(done) <= AT_ONCE + 2 * few
