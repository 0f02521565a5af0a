"""Receivers that stop reading: their senders are held back, memory stays bounded, and the others go on."""

from __future__ import annotations

import hashlib
import os
import time

from tests.integration.support.client import Client, Clients, Pour
from tests.integration.support.data import KILO, MEGA, head
from tests.integration.support.raw import AMQP_HEADER, ATTACH, BEGIN, FLOW, OPEN, RawConnection, frame
from tests.integration.support.routers import Router, Routers

from isthmus_router.message.types import Described, UInt, ULong


class SlowReceiver:
    """A receiver that does not read from its socket, and another pair of links whose traffic must go on."""

    def __init__(self, clients: Clients, router: Router, name: str) -> None:
        self.clients = clients
        self.stuck: Client = clients.connect(router.port)
        self.receiver = self.stuck.receiver(name, credit=1000)
        self.sender = clients.connect(router.port).sender(name).await_credit()
        self.other_receiver = clients.connect(router.port).receiver(f"{name}/other", credit=10, accept=True)
        self.other = clients.connect(router.port).sender(f"{name}/other").await_credit()
        self.stuck.reading = False

    def others_flow(self) -> None:
        """Other traffic is not held up."""
        started = time.monotonic()
        for _ in range(20):
            assert self.other.deliver("x") == "accepted"
        assert time.monotonic() - started < 5


def test_stream_of_100_megabytes_to_a_receiver_that_stops_reading(clients: Clients, router: Router) -> None:
    scene = SlowReceiver(clients, router, "stream/stuck")
    size = 100 * MEGA
    before = router.memory()
    pour = Pour(scene.sender, head(size) + bytes(size))
    given = clients.standstill(lambda: pour.given, clients.round_trip)
    assert given < 60 * MEGA, "the sender is held back"
    assert router.memory() - before < 40 * MEGA
    scene.others_flow()
    assert pour.given == given, "and stays so"
    scene.stuck.reading = True
    scene.receiver.auto_accept = True
    assert scene.sender.outcome(pour.sent, 60) == "accepted"
    assert len(scene.receiver.received[0].data) == size + len(head(size))
    assert router.memory() - before < 60 * MEGA


def test_whole_messages_to_a_receiver_that_stops_reading(clients: Clients, router: Router) -> None:
    scene = SlowReceiver(clients, router, "stream/stuck-whole")
    before = router.memory()
    body = b"\x00\x53\x75\xb0" + (500 * KILO).to_bytes(4, "big") + bytes(500 * KILO)
    sent = [scene.sender.send(body) for _ in range(100)]
    session = scene.sender.client.session
    assert clients.standstill(lambda: session.outgoing_bytes, clients.round_trip) > 20 * MEGA
    assert router.memory() - before < 40 * MEGA
    scene.others_flow()
    scene.stuck.reading = True
    scene.receiver.auto_accept = True
    clients.until(lambda: all(item.outcome == "accepted" for item in sent), "all messages")
    assert len(scene.receiver.arrived()) == 100


def test_a_receiver_that_neither_reads_nor_says_anything_is_given_up(
    clients: Clients, routers: Routers
) -> None:
    """Its idle timeout expires although there is much to write to it; its messages go to another one."""
    router = routers.start("A", idleTimeoutSeconds=2)
    stuck = clients.connect(router.port)
    receiver = stuck.receiver("stuck/silent", credit=1000)
    sender = clients.connect(router.port).sender("stuck/silent").await_credit()
    stuck.reading = False
    body = head(MEGA) + bytes(MEGA)
    sent = [sender.send(body) for _ in range(40)]
    clients.standstill(lambda: sender.client.session.outgoing_bytes, clients.round_trip)
    assert not any(item.outcome for item in sent)
    stuck.muted = True
    clients.until(lambda: all(item.outcome for item in sent[:3]), "the connection is given up")
    router.await_log("idle-timeout")
    assert not receiver.arrived()


def test_many_small_messages_to_a_receiver_that_stops_reading(clients: Clients, router: Router) -> None:
    """Messages that could not be written must leave once the receiver reads again, without any new credit."""
    scene = SlowReceiver(clients, router, "stream/stuck-small")
    body = head(60 * KILO) + bytes(60 * KILO)
    for _ in range(240):
        scene.sender.await_credit().send(body)
    session = scene.sender.client.session
    clients.standstill(lambda: session.outgoing_bytes, clients.round_trip)
    neighbour = scene.stuck.receiver("stream/stuck-neighbour", credit=50, wait=False)
    another = clients.connect(router.port).sender("stream/stuck-neighbour").await_credit()
    for _ in range(50):
        another.send(body)
    clients.round_trip()
    scene.others_flow()
    scene.stuck.muted = True  # no frame of any kind may be needed to wake the router up
    scene.stuck.reading = True
    scene.receiver.expect(240)
    neighbour.expect(50)


def test_stream_goes_on_once_its_receiver_reads_again(clients: Clients, router: Router) -> None:
    scene = SlowReceiver(clients, router, "stream/goes-on")
    size = 40 * MEGA
    pour = Pour(scene.sender, head(size) + bytes(size))
    assert clients.standstill(lambda: pour.given, clients.round_trip) < size
    scene.stuck.muted = True  # no frame of any kind may be needed to wake the router up
    scene.stuck.reading = True
    assert len(scene.receiver.next(30).data) == size + len(head(size))


def test_messages_that_wait_hold_their_sender_back(clients: Clients, routers: Routers) -> None:
    """However much credit there is, one sender's waiting messages take a bounded amount of memory.

    They wait for credit first, then for a receiver that has given credit and reads nothing.
    """
    router = routers.start("A", linkCapacity=3000)
    receiver = clients.connect(router.port).receiver("x")
    sender = clients.connect(router.port).sender("x").await_credit(2000)
    before = router.memory()
    body = head(60 * KILO) + bytes(60 * KILO)
    for _ in range(2000):
        sender.send(body)
    session = sender.client.session
    assert clients.standstill(lambda: session.outgoing_bytes, clients.round_trip) > 60 * MEGA
    assert router.memory() - before < 30 * MEGA
    receiver.auto_accept = True
    receiver.client.reading = False
    receiver.grant(2000)
    assert clients.standstill(lambda: session.outgoing_bytes, clients.round_trip) > 40 * MEGA
    assert router.memory() - before < 40 * MEGA
    receiver.client.reading = True
    clients.until(
        lambda: all(item.outcome == "accepted" for item in sender.sent.values()), "all outcomes", 30
    )


def test_multicast_stream_runs_at_the_pace_of_the_slowest(clients: Clients, router: Router) -> None:
    slow = clients.connect(router.port)
    fast = clients.connect(router.port)
    receivers = [client.receiver("multicast/pace", credit=1) for client in (slow, fast)]
    sender = clients.connect(router.port).sender("multicast/pace").await_credit()
    size = 16 * MEGA
    before = router.memory()
    slow.reading = False
    pour = Pour(sender, head(size) + bytes(size))
    assert clients.standstill(lambda: pour.given, clients.round_trip) < size
    assert router.memory() - before < 40 * MEGA
    assert not receivers[1].received[0].complete
    slow.reading = True
    for receiver in receivers:
        receiver.next(30).settle()
    assert sender.outcome(pour.sent) == "accepted"


def test_contents_survive_stalls(clients: Clients, router: Router) -> None:
    """Random bytes through a receiver that stops and goes on several times."""
    consumer = clients.connect(router.port)
    receiver = consumer.receiver("stream/stalls", credit=1, accept=True)
    sender = clients.connect(router.port).sender("stream/stalls").await_credit()
    payload = os.urandom(12 * MEGA)
    pour = Pour(sender, head(len(payload)) + payload)
    for turn in range(1, 6):
        clients.until(
            lambda n=turn: receiver.received and len(receiver.received[0].data) > n * MEGA,  # type: ignore[misc]
            "some more",
        )
        consumer.reading = False
        clients.standstill(lambda: pour.given, clients.round_trip)
        consumer.reading = True
    item = receiver.next(30)
    assert hashlib.sha256(item.data).digest() == hashlib.sha256(head(len(payload)) + payload).digest()
    assert sender.outcome(pour.sent) == "accepted"


def test_a_consumer_that_has_stopped_reading_costs_little_memory(router: Router, clients: Clients) -> None:
    """It has given credit and a large window, and its socket takes no more: its sender is held back by bytes."""
    with RawConnection(router.port) as stopped:
        most = UInt(2**31 - 1)
        source, target = Described(ULong(0x28), ["stopped"]), Described(ULong(0x29), [None])
        link = ["stopped", UInt(0), True, None, None, source, target, None, None, UInt(0)]
        stopped.send(AMQP_HEADER, frame(OPEN, ["stopped"]), frame(BEGIN, [None, UInt(0), most, most]))
        stopped.send(frame(ATTACH, link))
        stopped.send(frame(FLOW, [UInt(0), most, UInt(0), most, UInt(0), UInt(0), UInt(1000)]))
        sender = clients.connect(router.port).sender("stopped").await_credit(60)
        before = router.memory()
        for _ in range(60):
            sender.send("x" * 1_000_000)
        clients.let_time_pass(3.0)
        assert router.memory() - before < 30 * 1024 * 1024
