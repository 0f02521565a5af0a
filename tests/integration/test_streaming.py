"""Large deliveries: in many frames, cut through while they arrive, and aborted."""

from __future__ import annotations

import os

import pytest
from proton import Delivery, Message
from tests.integration.support.by_hand import (
    ACCEPTED,
    ByHand,
    begin_frame,
    credit_frame,
    open_frame,
    receive_from,
)
from tests.integration.support.client import Clients, Pour, Receiver, Sender
from tests.integration.support.data import KILO, MEGA, head
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DETACH, DISPOSITION, FLOW, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, connector, listener

from isthmus_router.management.waiting import LARGEST_BYTES
from isthmus_router.message.types import UInt


@pytest.mark.parametrize(
    "size", [0, 1, 100, 511, 16 * KILO, 64 * KILO, 65 * KILO, 300 * KILO, MEGA, 3 * MEGA]
)
@pytest.mark.parametrize("settled", [False, True])
def test_any_size_arrives_whole(clients: Clients, router: Router, size: int, settled: bool) -> None:
    receiver = clients.connect(router.port).receiver(f"size/{size}/{settled}", credit=5, accept=True)
    sender = clients.connect(router.port).sender(f"size/{size}/{settled}").await_credit()
    payload = os.urandom(size)
    for _ in range(3):
        sent = sender.send(head(size) + payload, settled=settled)
        received = receiver.next(30)
        assert bytes(received.data) == head(size) + payload
        assert received.presettled is settled
        if not settled:
            assert sender.outcome(sent) == "accepted"


@pytest.mark.parametrize("distribution", ["closest", "balanced", "multicast"])
@pytest.mark.parametrize("anonymous", [False, True])
def test_the_receiver_sees_the_start_before_the_sender_has_finished(
    clients: Clients, router: Router, distribution: str, anonymous: bool
) -> None:
    name = f"{distribution}/cut-through-{anonymous}"
    consumers = [clients.connect(router.port).receiver(name, credit=5) for _ in range(2)]
    sender = clients.connect(router.port).sender(None if anonymous else name).await_credit()
    sent = sender.begin(head(MEGA, name) + bytes(400 * KILO))
    clients.until(
        lambda: sum(len(item.data) for c in consumers for item in c.received) >= 400 * KILO, "the first part"
    )
    assert not any(item.complete for consumer in consumers for item in consumer.received)
    sender.more(bytes(MEGA - 400 * KILO))
    sender.finish()
    served = consumers if distribution == "multicast" else [c for c in consumers if c.received]
    assert len(served) == (2 if distribution == "multicast" else 1)
    for consumer in served:
        item = consumer.next()
        assert len(item.data) == len(head(MEGA, name)) + MEGA
        assert sent.outcome is None
        item.settle()
    assert sender.outcome(sent) == "accepted"


def test_end_that_comes_by_itself_is_passed_on_at_once(clients: Clients, router: Router) -> None:
    """Not only with the next heartbeat."""
    receiver = clients.connect(router.port).receiver("stream/end", credit=1)
    sender = clients.connect(router.port).sender("stream/end").await_credit()
    data = Message(body=b"x" * MEGA).encode()
    sent = sender.begin(data)
    clients.until(lambda: receiver.received and len(receiver.received[0].data) == len(data), "all bytes")
    sender.finish()
    receiver.expect(1, 2)[0].settle()
    assert sender.outcome(sent, 2) == "accepted"


def test_small_partial_message_waits_until_it_is_complete(clients: Clients, router: Router) -> None:
    """A small delivery that lingers must not hold the receiver's link."""
    receiver = clients.connect(router.port).receiver("stream/small", credit=5)
    lingering = clients.connect(router.port).sender("stream/small").await_credit()
    other = clients.connect(router.port).sender("stream/small").await_credit()
    sent = lingering.begin(head(2000) + bytes(1000))
    clients.round_trip()
    second = other.send("overtakes")
    item = receiver.next()
    assert item.body == "overtakes"
    item.settle()
    assert other.outcome(second) == "accepted"
    lingering.more(bytes(1000))
    lingering.finish()
    receiver.next().settle()
    assert lingering.outcome(sent) == "accepted"


def test_messages_queue_behind_a_stream_to_the_same_receiver(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("stream/queue", credit=20)
    streaming = clients.connect(router.port).sender("stream/queue").await_credit()
    other = clients.connect(router.port).sender("stream/queue").await_credit()
    stream = streaming.begin(head(MEGA) + bytes(300 * KILO))
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > 200 * KILO, "the stream")
    sent = [other.send(str(number)) for number in range(5)]
    second = clients.connect(router.port).sender("stream/queue").await_credit()
    second_stream = second.send(head(2 * MEGA) + bytes(2 * MEGA))
    clients.round_trip()
    assert len(receiver.received) == 1, "nothing may come in between"
    streaming.more(bytes(MEGA - 300 * KILO))
    streaming.finish()
    receiver.expect(7, 20)
    for item in receiver.arrived():
        item.settle()
    assert len(receiver.received[0].data) == MEGA + len(head(MEGA))
    for link, delivery in ((streaming, stream), (second, second_stream), *((other, item) for item in sent)):
        assert link.outcome(delivery) == "accepted"


def test_aborted_before_anything_was_passed_on(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("stream/abort-early", credit=5)
    sender = clients.connect(router.port).sender("stream/abort-early").await_credit()
    sent = sender.begin(head(2000) + bytes(1000))
    clients.round_trip()
    sender.abort(sent)
    clients.round_trip()
    sender.send("next")
    assert receiver.next().body == "next"
    assert receiver.received == []


@pytest.mark.parametrize("distribution", ["closest", "multicast"])
def test_aborted_while_it_is_passed_on(clients: Clients, router: Router, distribution: str) -> None:
    name = f"{distribution}/abort"
    consumers = [clients.connect(router.port).receiver(name, credit=5) for _ in range(2)]
    sender = clients.connect(router.port).sender(name).await_credit()
    sent = sender.begin(head(MEGA) + bytes(400 * KILO))
    clients.until(
        lambda: any(c.received and len(c.received[0].data) > 300 * KILO for c in consumers), "the start"
    )
    served = [consumer for consumer in consumers if consumer.received]
    sender.abort(sent)
    clients.until(lambda: all(c.received[0].aborted for c in served), "the receivers see it aborted")
    for _ in range(2):
        sender.await_credit().send("next")
    clients.until(lambda: sum(len(c.arrived()) for c in consumers) >= 2, "the links go on")


@pytest.mark.parametrize("how", ["detach", "drop"])
def test_sender_lost_in_the_middle(clients: Clients, router: Router, how: str) -> None:
    """The receiver sees the delivery aborted, not half of it."""
    receiver = clients.connect(router.port).receiver(f"stream/sender-{how}", credit=5)
    client = clients.connect(router.port)
    sender = client.sender(f"stream/sender-{how}").await_credit()
    sender.begin(head(MEGA) + bytes(400 * KILO))
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > 300 * KILO, "the start")
    if how == "detach":
        client.detach(sender.link)
    else:
        client.drop()
    clients.until(lambda: receiver.received[0].aborted, "the receiver sees it aborted")
    receiver.received.clear()
    clients.connect(router.port).sender(f"stream/sender-{how}").await_credit().send("next")
    assert receiver.next().body == "next"


@pytest.mark.parametrize("how", ["detach", "drop"])
def test_receiver_lost_in_the_middle(clients: Clients, router: Router, how: str) -> None:
    """The sender gets modified (delivery-failed) and its link goes on."""
    client = clients.connect(router.port)
    receiver = client.receiver(f"stream/receiver-{how}", credit=5)
    sender = clients.connect(router.port).sender(f"stream/receiver-{how}").await_credit()
    sent = sender.begin(head(2 * MEGA) + bytes(400 * KILO))
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > 300 * KILO, "the start")
    if how == "detach":
        client.detach(receiver.link)
    else:
        client.drop()
    clients.round_trip()
    sender.more(bytes(2 * MEGA - 400 * KILO))
    sender.finish()
    assert sender.outcome(sent) == "modified"
    assert sent.failed
    second = clients.connect(router.port).receiver(f"stream/receiver-{how}", credit=5)
    again = sender.await_credit().send("next")
    second.next().settle()
    assert sender.outcome(again) == "accepted"


@pytest.mark.parametrize("others", [1, 3])
def test_receiver_that_closes_while_the_window_of_its_session_is_closed(
    clients: Clients, router: Router, others: int
) -> None:
    """A message for another receiver of the session has waited for the room that the first one has."""
    window = UInt(4)
    size = 300 * KILO
    names = [f"shut/{others}/{number}" for number in range(others + 1)]
    with ByHand(
        router.port, opened=open_frame(None, None, UInt(4096)), begun=begin_frame(incoming=4)
    ) as receiver:
        for handle, name in enumerate(names):
            receiver.attach(receive_from(name, handle))
            receiver.send(credit_frame(handle, 10, incoming=window))
        sent = []
        for name in names:
            sender = clients.connect(router.port).sender(name).await_credit()
            sent.append((sender, sender.send(head(size) + bytes(size))))
            clients.round_trip()
        receiver.expect(TRANSFER, 4)
        for handle in range(others):
            receiver.send(frame(DETACH, [UInt(handle), True]))
        receiver.expect(DETACH, others)
        receiver.send(frame(FLOW, [window, UInt(10_000), UInt(0), UInt(10_000)]))
        arrived = b""
        while len(arrived) < size:
            (transfer,) = receiver.expect(TRANSFER)
            arrived += transfer.payload
        assert arrived == head(size) + bytes(size)
        receiver.send(frame(DISPOSITION, [True, UInt(0), UInt(10), True, ACCEPTED]))
        *closed, last = [sender.outcome(item) for sender, item in sent]
        assert last == "accepted"
        assert set(closed) <= {"modified", "released"}


def test_multicast_stream_loses_one_receiver(clients: Clients, router: Router) -> None:
    staying = clients.connect(router.port).receiver("multicast/one-lost", credit=5)
    leaving = clients.connect(router.port).receiver("multicast/one-lost", credit=5)
    sender = clients.connect(router.port).sender("multicast/one-lost").await_credit()
    sent = sender.begin(head(2 * MEGA) + bytes(400 * KILO))
    clients.until(lambda: leaving.received and len(leaving.received[0].data) > 300 * KILO, "the start")
    leaving.client.drop()
    sender.more(bytes(2 * MEGA - 400 * KILO))
    sender.finish()
    item = staying.next()
    assert len(item.data) == 2 * MEGA + len(head(0))
    item.settle()
    assert sender.outcome(sent) == "accepted", "accepted outranks modified"


def test_stream_waits_for_credit_and_for_what_was_there_before(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("stream/credit")
    other = clients.connect(router.port).sender("stream/credit").await_credit()
    sender = clients.connect(router.port).sender("stream/credit").await_credit()
    before = other.send("before")
    clients.round_trip()
    sent = sender.send(head(2 * MEGA) + bytes(2 * MEGA))
    clients.round_trip()
    assert receiver.received == []
    receiver.grant(1)
    first = receiver.next()
    assert first.body == "before"
    first.settle()
    assert other.outcome(before) == "accepted"
    receiver.grant(1)
    receiver.next().settle()
    assert sender.outcome(sent) == "accepted"


def test_waiting_stream_is_released_when_its_receiver_leaves(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("stream/never")
    sender = clients.connect(router.port).sender("stream/never").await_credit()
    sent = sender.send(head(2 * MEGA) + bytes(2 * MEGA))
    clients.round_trip()
    receiver.client.drop()
    assert sender.outcome(sent) == "released"


def test_stream_to_nobody_is_released(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender(None).await_credit()
    pour = Pour(sender, head(2 * MEGA, "stream/nobody") + bytes(2 * MEGA))
    assert sender.outcome(pour.sent) == "released"


def test_stream_that_cannot_be_read_is_rejected(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender(None).await_credit()
    sent = sender.send(b"\x01" + bytes(2 * MEGA))
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "amqp:decode-error"


@pytest.mark.parametrize("state", [Delivery.REJECTED, Delivery.RELEASED])
def test_receiver_decides_before_the_end(clients: Clients, router: Router, state: int) -> None:
    """An outcome that comes early reaches the sender at the latest with the end of the delivery."""
    receiver = clients.connect(router.port).receiver(f"stream/early-{state}", credit=5)
    sender = clients.connect(router.port).sender(f"stream/early-{state}").await_credit()
    sent = sender.begin(head(MEGA) + bytes(400 * KILO))
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > 300 * KILO, "the start")
    receiver.received[0].settle(state)
    clients.round_trip()
    if sent.outcome is None:
        sender.more(bytes(MEGA - 400 * KILO))
        sender.finish()
    assert sender.outcome(sent) == ("rejected" if state == Delivery.REJECTED else "released")


def test_many_streams_at_once_on_one_session(clients: Clients, router: Router) -> None:
    """200 links with an unfinished delivery each: more than the session window holds, and still no deadlock."""
    consumer, producer = clients.connect(router.port), clients.connect(router.port)
    links: list[tuple[Sender, Receiver]] = []
    for number in range(200):
        receiver = consumer.receiver(f"stream/parallel/{number}", credit=1, accept=True, wait=False)
        links.append((producer.sender(f"stream/parallel/{number}", wait=False), receiver))
    for sender, _ in links:
        sender.await_credit()
    size = 90 * KILO
    for sender, _ in links:
        sender.begin(head(size))
    for _ in range(6):
        for sender, _ in links:
            sender.more(bytes(size // 6))
        clients.step()
    for sender, _ in links:
        sender.finish()
    for sender, receiver in links:
        assert len(receiver.next(30).data) == size + len(head(size))
        clients.until(
            lambda s=sender: all(item.outcome == "accepted" for item in s.sent.values()), "accepted"
        )


def test_message_larger_than_the_session_window(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", maxSessionFrames=2, maxFrameSize=4096)
    receiver = clients.connect(router.port).receiver("x", credit=5, accept=True)
    sender = clients.connect(router.port).sender("x").await_credit()
    for size in (3 * KILO, 20 * KILO, 60 * KILO, 500 * KILO):
        assert sender.deliver(head(size) + bytes(size)) == "accepted"
        assert len(receiver.next().data) == size + len(head(size))


def test_waiting_stream_is_aborted(clients: Clients, router: Router) -> None:
    """A stream that waits behind another is taken back: its sender goes on at once, and so does what is behind."""
    receiver = clients.connect(router.port).receiver("stream/queued")
    elsewhere = clients.connect(router.port).receiver("stream/elsewhere", credit=5, accept=True)
    first, third = (clients.connect(router.port).sender("stream/queued").await_credit() for _ in range(2))
    second = clients.connect(router.port).sender(None).await_credit()
    one = first.send(head(MEGA) + bytes(MEGA))
    clients.round_trip()
    two = second.begin(head(MEGA, "stream/queued") + bytes(300 * KILO))
    clients.round_trip()
    three = third.send("after")
    clients.round_trip()
    second.abort(two)
    assert second.deliver(Message(address="stream/elsewhere", body="next")) == "accepted"
    assert elsewhere.bodies() == ["next"]
    receiver.auto_accept = True
    receiver.grant(5)
    assert first.outcome(one) == "accepted"
    assert third.outcome(three) == "accepted"
    assert second.deliver(Message(address="stream/queued", body="again")) == "accepted"
    assert [len(item.data) > MEGA for item in receiver.received] == [True, False, False]
    assert [item.body for item in receiver.received[1:]] == ["after", "again"]


def test_credit_is_not_multiplied_by_streams(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("stream/credit-count", credit=300, accept=True)
    sender = clients.connect(router.port).sender("stream/credit-count").await_credit(250)
    for turn in range(80):
        sent = sender.await_credit().begin(head(80 * KILO) + bytes(70 * KILO))
        if turn % 2:
            clients.until(lambda: receiver.received and not receiver.received[-1].complete, "the start")
            sender.abort(sent)
        else:
            sender.more(bytes(10 * KILO))
            sender.finish()
            assert sender.outcome(sent) == "accepted"
    clients.round_trip()
    assert 250 - 250 // 8 <= sender.credit <= 250


@pytest.mark.parametrize("size", [100 * KILO, 200 * KILO])
def test_large_message_for_the_router_itself(clients: Clients, router: Router, size: int) -> None:
    """A consumer inside the router gets its message whole, however it arrives."""
    client = clients.connect(router.port)
    replies = client.receiver(None, dynamic=True, credit=5, accept=True)
    sender = client.sender("$management").await_credit()
    request = Message(
        address="$management",
        reply_to=replies.address,
        correlation_id="large",
        properties={"operation": "READ", "type": "router", "name": "x" * size},
    )
    pour = Pour(sender, request.encode())
    assert sender.outcome(pour.sent) == "accepted"
    assert replies.next().message.correlation_id == "large"


def test_too_large_message_for_the_router_itself(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender("$management").await_credit()
    pour = Pour(sender, head(LARGEST_BYTES) + bytes(LARGEST_BYTES))
    assert sender.outcome(pour.sent, 30) == "rejected"
    assert pour.sent.condition is not None
    assert pour.sent.condition.name == "amqp:link:message-size-exceeded"
    assert f"more than {LARGEST_BYTES} bytes" in pour.sent.condition.description


@pytest.mark.parametrize("data_connections", [0, 2])
def test_a_burst_leaves_few_links_behind(clients: Clients, routers: Routers, data_connections: int) -> None:
    port = free_port()
    near = routers.add("A", listener(port, "inter-router"), mode="interior")
    far = routers.add("B", connector(port, dataConnectionCount=data_connections), mode="interior")
    routers.start_all()
    consumer, client = clients.connect(far.port), clients.connect(near.port)
    receivers = [consumer.receiver(f"burst/{number}", credit=5, accept=True) for number in range(120)]
    senders = [client.sender(f"burst/{number}", session=client.new_session()) for number in range(120)]
    sent = [sender.await_credit().begin(head(200 * KILO) + bytes(100 * KILO)) for sender in senders]
    clients.until(lambda: all(receiver.received for receiver in receivers), "all streams are under way")
    assert links_out(near) > 120
    for sender in senders:
        sender.more(bytes(100 * KILO))
        sender.finish()
    assert {sender.outcome(item) for sender, item in zip(senders, sent, strict=True)} == {"accepted"}
    clients.until(lambda: links_out(near) < 80, "links of streams are given back")
    assert senders[0].deliver(head(200 * KILO) + bytes(200 * KILO)) == "accepted"


def links_out(router: Router) -> int:
    """Links for deliveries to other routers."""
    return int(router.metric("links", 'direction="out"'))
