"""In one turn many connections are read and written: one that cannot be dealt with costs the others nothing."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from proton import Message
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp import driver, events
from isthmus_router.amqp.kernel.parking import CONTROL_PARKED_MOST
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Condition, LinkType

CONSUMERS = 3
SENDERS = 4
"""Whose credit is more than a session holds."""


def send(sender: Any, text: str) -> None:
    """A pre-settled message."""
    sender.delivery(text)
    sender.send(Message(body=text).encode())
    sender.current.settle()


def multicast(rig: Rig) -> tuple[list[Peer], Any]:
    """Consumers that get every message, and its sender."""
    consumers = [rig.connect(Role.NORMAL) for _ in range(CONSUMERS)]
    for consumer in consumers:
        receiver = consumer.session.receiver("r")
        receiver.source.address = "multicast/all"
        receiver.open()
        receiver.flow(100)
    rig.settle_down()
    sender = rig.connect(Role.NORMAL).session.sender("s")
    sender.target.address = "multicast/all"
    sender.open()
    rig.settle_down()
    return consumers, sender


@pytest.mark.parametrize("broken", range(CONSUMERS))
def test_an_error_after_writing(rig: Rig, broken: int, caplog: pytest.LogCaptureFixture) -> None:
    consumers, sender = multicast(rig)
    told: list[int] = []

    def take_note(number: int) -> bool:
        told.append(number)
        if number == broken:
            raise RuntimeError("broken")
        return False

    for number, consumer in enumerate(consumers):
        side = consumer.router_side
        side.after_write = True
        patch.object(side.markers, "send", lambda number=number: take_note(number)).start()
    send(sender, "one")
    rig.settle_down()
    assert set(told) == set(range(CONSUMERS)), "each is told that it has been written"
    send(sender, "two")
    rig.settle_down()
    heard = [bytes(consumer.heard).count(b"\xa1\x03two") for consumer in consumers]
    assert heard == [int(number != broken) for number in range(CONSUMERS)]
    assert b"amqp:internal-error" in consumers[broken].heard
    assert consumers[broken].router_side.closed
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2, "one of the message, one of the close frame"


def test_an_error_at_a_full_socket(rig: Rig) -> None:
    """What is watched for cannot be changed: that connection is gone, the others get what is theirs."""
    consumers, sender = multicast(rig)
    side = consumers[0].router_side
    watch = rig.driver.poller.watch
    refused: list[Any] = []

    class Poller:
        """The real one, out of memory for one connection."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def watch(self, connection: Any, *, reading: bool, writing: bool) -> None:
            if connection is side and not refused:
                refused.append(connection)
                raise OSError(12, "Cannot allocate memory")
            watch(connection, reading=reading, writing=writing)

    real, rig.driver.poller = rig.driver.poller, Poller()  # type: ignore[assignment]
    consumers[0].socket.close()
    consumers[0].dropped = True
    send(sender, "one")
    rig.settle_down()
    rig.driver.turn()
    assert refused
    assert side.core is None
    assert [bytes(consumer.heard).count(b"\xa1\x03one") for consumer in consumers[1:]] == [1, 1]


def test_an_error_of_a_link_that_goes_on(rig: Rig) -> None:
    """It is another's turn when it shows."""
    consumers, sender = multicast(rig)
    broken = next(iter(consumers[1].router_side.links.values()))
    forwarder = rig.driver.forwarder
    unpark = forwarder.parking.unpark

    def fail(link: Any) -> None:
        if link is broken:
            raise RuntimeError("broken")
        unpark(link)

    with patch.object(forwarder.parking, "unpark", fail):
        forwarder.go_on(broken)
        send(sender, "one")
        rig.settle_down()
    assert b"amqp:internal-error" in consumers[1].heard
    assert not any(b"amqp:internal-error" in peer.heard for peer in rig.peers if peer is not consumers[1])
    heard = [bytes(consumer.heard).count(b"\xa1\x03one") for consumer in consumers]
    assert (heard[0], heard[2]) == (1, 1)


def test_a_link_that_is_detached_while_its_socket_is_full(rig: Rig) -> None:
    """Once the peer has answered, the engine frees the link: nothing may look at it afterwards."""
    consumer = rig.connect(Role.NORMAL)
    receiver = consumer.session.receiver("r")
    receiver.source.address = "closest/c"
    receiver.open()
    receiver.flow(1000)
    producer = rig.connect(Role.NORMAL)
    senders = [producer.session.sender(f"s{number}") for number in range(SENDERS)]
    for sender in senders:
        sender.target.address = "closest/c"
        sender.open()
    rig.settle_down()
    side = consumer.router_side
    side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    rig.peers.remove(consumer)  # it reads no more
    (link,) = side.links.values()
    message = Message(body=b"x" * 15_000).encode()
    for sender in senders:
        for number in range(sender.credit):
            sender.delivery(str(number))
            sender.send(message)
            sender.advance()
            rig.settle_down()
    assert side.write_blocked
    assert link in side.stalled
    seen: list[Any] = []
    unpark = rig.driver.forwarder.parking.unpark
    rig.driver.detach_link(link, Condition("amqp:link:detach-forced", "test"))
    with patch.object(rig.driver.forwarder.parking, "unpark", lambda out: (seen.append(out), unpark(out))):
        rig.peers.append(consumer)
        rig.driver.flush()
        while consumer.turn() or side.write_blocked:
            rig.driver.turn()
    assert b"detach-forced" in consumer.heard
    assert link not in seen


@pytest.mark.parametrize(("size", "count"), [(1, CONTROL_PARKED_MOST), (1 << 20, 66)])
def test_a_neighbour_that_does_not_read_about_routing_is_left(rig: Rig, size: int, count: int) -> None:
    """Messages about routing are not dropped, so they would wait without bound."""
    peer = rig.connect(Role.NORMAL)
    receiver = peer.session.receiver("r")
    receiver.source.address = "closest/r"
    receiver.open()
    rig.settle_down()
    (link,) = (link for link in peer.router_side.links.values() if not link.incoming)
    link.type = LinkType.CONTROL
    for _ in range(count - 1):
        rig.driver.send(link, bytes(size), settled=True)
    rig.driver.flush()
    if size == 1:
        assert peer.router_side.core is not None
    for _ in range(2):
        rig.driver.send(link, bytes(size), settled=True)
    rig.driver.flush()
    assert peer.router_side.core is None
    rig.settle_down()
    assert "about routing" in peer.router_side.close_reason


def test_messages_that_the_kernel_leaves_to_python_count_for_the_slice(rig: Rig) -> None:
    """Each to another address that nobody has: of those that arrive together, some wait for the next turn."""
    sender = rig.connect(Role.NORMAL).session.sender("s")
    sender.open()
    rig.settle_down()
    forwarder = rig.driver.forwarder
    rig.driver.turn_seconds = driver.TURN_SECONDS
    now, looked_at, turns = 0.0, 0, []
    find, resume = forwarder.lookup.find, forwarder.resume

    def find_slowly(*args: Any, **options: Any) -> Any:
        nonlocal now, looked_at
        now += 0.001
        looked_at += 1
        return find(*args, **options)

    def resume_and_note() -> None:
        nonlocal looked_at
        turns.append(looked_at)
        looked_at = 0
        resume()

    messages = sender.credit
    assert messages > 20
    for number in range(messages):
        sender.delivery(str(number))
        sender.send(Message(address=f"nobody/{number}").encode())
        sender.advance()
    with (
        patch.object(events, "monotonic", lambda: now),
        patch.object(driver.time, "monotonic", lambda: now),
        patch.object(forwarder.lookup, "find", find_slowly),
        patch.object(forwarder, "resume", resume_and_note),
    ):
        while sum(turns) < messages:
            rig.settle_down()
            rig.driver.turn()
    assert max(turns) <= 5


MESSAGES = 40
"""No more than a sender has credit for."""
MOST_AT_ONCE = 10
"""Events of common deliveries that a slice without any time has."""


def test_a_burst_of_common_events_waits_for_further_slices(rig: Rig) -> None:
    """Messages, and one disposition of all of them: each is dealt with once, in order, some in each slice."""
    consumer = rig.connect(Role.NORMAL)
    receiver = consumer.session.receiver("r")
    receiver.source.address = "closest/c"
    receiver.open()
    receiver.flow(MESSAGES)
    sender = rig.connect(Role.NORMAL).session.sender("s")
    sender.target.address = "closest/c"
    sender.open()
    rig.settle_down()
    (link,) = (link for link in consumer.router_side.links.values() if not link.incoming)
    counts: list[int] = []
    rig.driver.turn_seconds = 0.0
    rig.driver._slice_seconds = 0.0
    resume = rig.driver.forwarder.resume

    def resume_and_count() -> None:
        counts.append(link.deliveries + link.accepted)
        resume()

    for number in range(MESSAGES):
        sender.delivery(str(number))
        sender.send(Message(body=f"m{number:03}").encode())
        sender.advance()
    with (
        patch.object(driver, "LEAST_SLICE_SECONDS", 0.0),
        patch.object(rig.driver.forwarder, "resume", resume_and_count),
    ):
        rig.settle_down()
        bodies = re.findall(rb"\xa1\x04(m\d{3})", bytes(consumer.heard))
        assert bodies == [b"m%03d" % number for number in range(MESSAGES)]
        for delivery in consumer.deliveries["r"]:
            delivery.update(delivery.ACCEPTED)
            delivery.settle()
        rig.settle_down()
    assert link.accepted == link.deliveries == MESSAGES
    assert not any(side.unfinished for side in rig.driver.connections.values())
    assert sender.unsettled == 0
    assert max(after - before for before, after in pairwise(counts)) <= MOST_AT_ONCE


ATTACHING, ATTACHES = 30, 20


def test_connections_with_many_events_share_turns_and_others_come_first(rig: Rig) -> None:
    """Thirty connections attach twenty links each; then another one attaches one."""
    now, attached, longest = 0.0, 0, 0.0

    def receive(peer: Peer, name: str) -> None:
        receiver = peer.session.receiver(name)
        receiver.source.address = f"closest/{name}"
        receiver.open()

    attach = rig.core.link_attached

    def attach_slowly(*args: Any) -> None:
        nonlocal now, attached
        now += 0.001
        attached += 1
        attach(*args)

    busy = [rig.connect(Role.NORMAL) for _ in range(ATTACHING)]
    other = rig.connect(Role.NORMAL)
    rig.settle_down()
    for peer in busy:
        for number in range(ATTACHES):
            receive(peer, str(number))
        peer._say()
    rig.driver.turn_seconds = driver.TURN_SECONDS
    with (
        patch.object(events, "monotonic", lambda: now),
        patch.object(driver.time, "monotonic", lambda: now),
        patch.object(rig.core, "link_attached", attach_slowly),
    ):
        while not all(peer.router_side.links for peer in busy):
            some = attached
            rig.driver.turn()
            assert attached > some
        assert all(peer.router_side.unfinished for peer in busy)
        receive(other, "other")
        other._say()
        before = now
        rig.driver.turn()
        assert len(other.router_side.links) == 1
        assert now - before <= driver.TURN_SECONDS + 0.002
        while attached < ATTACHING * ATTACHES + 1:
            before, some = now, attached
            rig.driver.turn()
            assert attached > some
            longest = max(longest, now - before)
    assert longest <= driver.TURN_SECONDS + 0.001
    rig.settle_down()
    assert not any(peer.router_side.unfinished for peer in busy)


def test_those_that_a_turn_does_not_reach_have_the_next_one(rig: Rig) -> None:
    """Even if those that had their turn ask for no other one, and no socket is ready."""
    served: list[int] = []

    class Waiting:
        """A connection whose events, all of them, take longer than a turn."""

        costly = 0
        core = None

        def __init__(self, number: int) -> None:
            self.id = number

        def go_on(self) -> None:
            served.append(self.id)

    rig.driver.turn_seconds = 0.01
    with patch.object(driver, "time", SimpleNamespace(monotonic=lambda: float(len(served)))):
        for number in range(5):
            rig.driver.postpone(Waiting(number))  # type: ignore[arg-type]
        for _ in range(10):
            rig.loop.run_until_complete(asyncio.sleep(0))
    assert served == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("costly", [0, 1])
def test_a_client_with_many_connections_that_wait_leaves_turns_to_others(rig: Rig, costly: int) -> None:
    """Each turn deals with one connection, or with a usual and a costly one."""
    served: list[str] = []

    class Waiting:
        """A connection of a client whose events take a whole turn."""

        def __init__(self, client: str, costly: int) -> None:
            self.core = SimpleNamespace(client=client, role=Role.NORMAL)
            self.costly = costly

        def go_on(self) -> None:
            served.append(self.core.client)

    rig.driver.turn_seconds = driver.LEAST_SLICE_SECONDS
    with (
        patch.object(driver, "time", SimpleNamespace(monotonic=lambda: float(len(served)))),
        patch.object(rig.driver, "_charges", SimpleNamespace(begin_round=int, charge=lambda *_: None)),
    ):
        for _ in range(30):
            rig.driver.postpone(Waiting("a", costly))  # type: ignore[arg-type]
        rig.driver.postpone(Waiting("b", 0))  # type: ignore[arg-type]
        for _ in range(40):
            rig.loop.run_until_complete(asyncio.sleep(0))
    assert len(served) == 31
    assert "b" in served[:3]
