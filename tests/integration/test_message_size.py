"""What is larger than a link may carry: refused from senders, and never sent to receivers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.client import Clients, Sender
from tests.integration.support.routers import Router, Routers, address
from tests.integration.support.topology import Network

MOST = 100_000


@pytest.fixture(scope="module")
def limited(either_kernel: Callable[[], Routers]) -> Router:
    """A router whose clients may send messages of 100 kB."""
    router = either_kernel().add("A", maxMessageSize=MOST)
    return router.start()


def message(size: int) -> bytes:
    """An encoded message of that many bytes."""
    data = b"\0Su\xb0" + (size - 8).to_bytes(4) + bytes(size - 8)
    assert len(data) == size
    return data


def assert_ends_with_size_exceeded(clients: Clients, sender: Sender) -> None:
    condition = sender.client.refusal(sender.link)
    assert condition.name == "amqp:link:message-size-exceeded"
    assert str(MOST) in condition.description
    sender.link.close()


def test_the_limit_is_told_and_messages_up_to_it_pass(clients: Clients, limited: Router) -> None:
    receiver = clients.connect(limited.port).receiver("size/fits", credit=10, accept=True)
    sender = clients.connect(limited.port).sender("size/fits").await_credit()
    assert sender.link.remote_max_message_size == MOST
    assert sender.deliver(message(MOST)) == "accepted"
    assert len(receiver.arrived()[0].data) == MOST


@pytest.mark.parametrize("target", ["size/exceeded", None])
@pytest.mark.parametrize("size", [MOST + 1, 60 * MOST])
def test_a_larger_message_ends_its_link_only(
    clients: Clients, limited: Router, target: str | None, size: int
) -> None:
    receiver = clients.connect(limited.port).receiver("size/exceeded", credit=10, accept=True)
    client = clients.connect(limited.port)
    other = client.sender("size/exceeded").await_credit()
    sender = client.sender(target).await_credit()
    sent = sender.send(message(size))
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "amqp:link:message-size-exceeded"
    assert_ends_with_size_exceeded(clients, sender)
    assert other.deliver(message(100)) == "accepted"
    assert [len(item.data) for item in receiver.arrived()] == [100]


def test_presettled_too_large(clients: Clients, limited: Router) -> None:
    receiver = clients.connect(limited.port).receiver("size/settled", credit=10, accept=True)
    sender = clients.connect(limited.port).sender("size/settled").await_credit()
    sender.send(message(2 * MOST), settled=True)
    assert_ends_with_size_exceeded(clients, sender)
    assert receiver.arrived() == []


def test_a_stream_is_broken_off_at_the_limit(clients: Clients, limited: Router) -> None:
    """The receiver sees what began to arrive as aborted; what the sender had under way may have arrived."""
    receiver = clients.connect(limited.port).receiver("size/stream", credit=10)
    sender = clients.connect(limited.port).sender("size/stream").await_credit()
    earlier = sender.send(message(10))
    receiver.expect(1)
    data = message(2 * MOST)
    sent = sender.begin(data[: MOST - 1000])
    clients.until(lambda: len(receiver.received) == 2, "the stream has begun")
    sender.more(data[MOST - 1000 :])
    clients.until(lambda: receiver.received[1].aborted, "aborted")
    assert_ends_with_size_exceeded(clients, sender)
    assert sender.outcome(sent) == "rejected"
    assert sender.outcome(earlier) == "modified"


@pytest.fixture(scope="module")
def ends(either_kernel: Callable[[], Routers]) -> dict[str, tuple[Router, Router]]:
    """Where sender and receiver are: at one router, or two hops apart."""
    network = Network(either_kernel(), common=[address("multicast", "multicast")])
    network.line("A", "B")
    network.edge("E", "A")
    network.start()
    return {"one router": (network["A"], network["A"]), "two hops": (network["E"], network["B"])}


@pytest.mark.parametrize("where", ["one router", "two hops"])
@pytest.mark.parametrize("size", [1001, 70_000, 3_000_000])
def test_a_receiver_never_gets_more_than_it_takes(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str, size: int
) -> None:
    """The sender gets back what nobody takes, and both links go on."""
    source, far = f"small/{where}/{size}", ends[where][1]
    receiver = clients.connect(far.port).receiver(source, credit=10, accept=True, max_message_size=1000)
    sender = clients.connect(ends[where][0].port).sender(source).await_credit()
    assert sender.deliver(message(1000)) == "accepted"
    sent = sender.send(message(size))
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "amqp:link:message-size-exceeded"
    assert sender.deliver(message(999)) == "accepted"
    assert [len(item.data) for item in receiver.arrived()] == [1000, 999]


@pytest.mark.parametrize("where", ["one router", "two hops"])
def test_a_receiver_that_takes_it_gets_it(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str
) -> None:
    source, far = f"choice/{where}", ends[where][1]
    small = clients.connect(far.port).receiver(source, credit=100, accept=True, max_message_size=1000)
    large = clients.connect(far.port).receiver(source, credit=100, accept=True)
    sender = clients.connect(ends[where][0].port).sender(source).await_credit()
    sizes = [2000, 100] * 5 + [1_500_000]
    assert {sender.deliver(message(size)) for size in sizes} == {"accepted"}
    assert {len(item.data) for item in small.arrived()} <= {100}
    assert sum(len(item.data) > 1000 for item in large.arrived()) == 6
    sender.send(message(5000), settled=True)
    large.expect(len(large.arrived()) + 1)


@pytest.mark.parametrize("size", [5000, 1_500_000])
def test_multicast_to_receivers_of_different_sizes(
    clients: Clients, ends: dict[str, tuple[Router, Router]], size: int
) -> None:
    """Those that take it have it; the sender hears that some do not."""
    near = ends["one router"][0]
    source = f"multicast/{size}"
    small = clients.connect(near.port).receiver(source, credit=10, accept=True, max_message_size=1000)
    large = clients.connect(near.port).receiver(source, credit=10, accept=True)
    sender = clients.connect(near.port).sender(source).await_credit()
    sent = sender.send(message(size))
    assert sender.outcome(sent) == "rejected"
    assert [len(item.data) for item in large.arrived()] == [size]
    assert small.arrived() == []


def test_a_stream_that_outgrows_its_receiver(
    clients: Clients, ends: dict[str, tuple[Router, Router]]
) -> None:
    """It has begun to arrive when it turns out to be too large: aborted there, rejected in the end."""
    near, far = ends["two hops"]
    receiver = clients.connect(far.port).receiver("outgrows", credit=10, max_message_size=500_000)
    sender = clients.connect(near.port).sender("outgrows").await_credit()
    data = message(900_000)
    sent = sender.begin(data[:300_000])
    clients.until(lambda: receiver.received, "the stream has begun")
    sender.more(data[300_000:])
    clients.until(lambda: receiver.received[0].aborted, "aborted")
    sender.finish()
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "amqp:link:message-size-exceeded"
    receiver.auto_accept = True
    assert sender.deliver(message(100)) == "accepted"


def test_what_still_comes_of_larger_messages_takes_no_room_in_their_session(
    clients: Clients, limited: Router
) -> None:
    """What is on its way when the link is closed would fill the session's window otherwise, message by message."""
    receiver = clients.connect(limited.port).receiver("size/room", credit=10, accept=True)
    client = clients.connect(limited.port)
    other = client.sender("size/room").await_credit()
    for number in range(4):
        sender = client.sender("size/room").await_credit()
        sender.send(message(6_000_000))
        assert_ends_with_size_exceeded(clients, sender)
        assert other.deliver(f"after {number}") == "accepted"
    assert len(receiver.arrived()) == 4
