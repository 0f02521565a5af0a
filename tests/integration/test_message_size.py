"""What is larger than a link may carry: refused from senders, and never sent to receivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.support.client import Clients, Sender
from tests.integration.support.routers import Router, Routers

MOST = 100_000


@pytest.fixture(scope="module", params=["compiled", "python"])
def limited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router whose clients may send messages of 100 kB."""
    started = Routers(tmp_path_factory.mktemp("limited"))
    router = started.add("A", maxMessageSize=MOST)
    router.environment["ISTHMUS_KERNEL"] = request.param
    yield router.start()
    started.stop()


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
