"""Senders that ask for every delivery to be passed on as it arrives, however small (`qd.streaming-deliveries`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from proton import Endpoint
from tests.integration.support.client import Clients, Pour, Receiver, Sender
from tests.integration.support.container import Container
from tests.integration.support.routers import Router, Routers, address
from tests.integration.support.topology import Network

STREAMING_DELIVERIES = "qd.streaming-deliveries"
STREAMING_LINKS = "qd.streaming-links"
PLACES = [("A", "A"), ("A", "B"), ("E", "F"), ("E", "E"), ("B", "E")]
SIZE = 1000
LARGE = b"\0Su\xb0" + (4 << 20).to_bytes(4) + bytes(4 << 20)


@pytest.fixture(scope="module")
def nodes(either_kernel: Callable[[], Routers]) -> Network:
    """E - A - B - F, the outer ones edges."""
    network = Network(
        either_kernel(), common=[address("closest", "closest"), address("multicast", "multicast")]
    )
    network.line("A", "B")
    network.edge("E", "A")
    network.edge("F", "B")
    network.start()
    return network


def body(number: int = 0) -> bytes:
    """A small message, its data different for each number."""
    return b"\0Su\xb0" + SIZE.to_bytes(4) + bytes([number]) * SIZE


def streaming_sender(clients: Clients, router: Router, target: str | None, **options: object) -> Sender:
    client = clients.connect(router.port, **options)
    return client.sender(target, capability=STREAMING_DELIVERIES).await_credit()


def seen(receiver: Receiver) -> int:
    """Bytes of the delivery that is arriving."""
    return len(receiver.received[0].data) if receiver.received else 0


def streams_of(consumer: Container) -> list[Receiver]:
    """The links that the router has opened towards the consumer."""
    return [
        receiver for receiver in consumer.receivers.values() if receiver.link.remote_source.address is None
    ]


@pytest.mark.parametrize("places", PLACES, ids="-".join)
@pytest.mark.parametrize("name", ["closest", "balanced", "multicast"])
def test_a_few_bytes_are_passed_on_at_once(
    clients: Clients, nodes: Network, places: tuple[str, str], name: str
) -> None:
    source = f"{name}/{places[0]}{places[1]}"
    receiver = clients.connect(nodes[places[1]].port).receiver(source, credit=5)
    sender = streaming_sender(clients, nodes[places[0]], source)
    message = body()
    sent = sender.begin()
    ends = [2, 8, 13, 500, len(message)]  # a single zero could be the beginning of annotations, too
    for start, end in itertools.pairwise([0, *ends]):
        sender.more(message[start:end])
        clients.until(lambda end=end: seen(receiver) == end, "all that was sent so far")  # type: ignore[misc]
    assert not receiver.received[0].complete
    sender.finish()
    receiver.next().settle()
    assert sender.outcome(sent) == "accepted"


def test_the_route_is_found_as_soon_as_the_address_is_there(clients: Clients, nodes: Network) -> None:
    """An anonymous sender names it in the message, which may come byte by byte."""
    receiver = clients.connect(nodes["B"].port).receiver("closest/by-to", credit=5)
    sender = streaming_sender(clients, nodes["A"], None)
    start = b"\0Ss\xc0\x12\x03\x40\x40\xa1\x0dclosest/by-to"
    sent = sender.begin()
    for byte in start[:-1]:
        sender.more(bytes([byte]))
        clients.round_trip()
    assert not receiver.received
    sender.more(start[-1:])
    clients.until(lambda: seen(receiver) == len(start), "the address is known, the rest is not")
    sender.more(body())
    sender.finish()
    assert bytes(receiver.next().data) == start + body()
    assert sent.outcome is None


@pytest.mark.parametrize("places", PLACES, ids="-".join)
def test_streams_do_not_wait_for_each_other_where_the_consumer_offers_links_for_them(
    clients: Clients, nodes: Network, places: tuple[str, str]
) -> None:
    source = f"closest/links/{places[0]}{places[1]}"
    consumer = Container(clients, nodes[places[1]].port, "consumer", offered=[STREAMING_LINKS])
    own = consumer.receiver(source, credit=5, accept=True)
    senders = [streaming_sender(clients, nodes[places[0]], source) for _ in range(3)]
    sent = [sender.begin(body(number)[:100]) for number, sender in enumerate(senders)]
    clients.until(lambda: len(streams_of(consumer)) == 3, "a link for each")
    clients.until(lambda: all(seen(link) == 100 for link in streams_of(consumer)), "the start of each")
    whole = clients.connect(nodes[places[0]].port).sender(source).await_credit()
    assert whole.deliver("not in parts") == "accepted"
    assert [item.body for item in own.received] == ["not in parts"]
    for number, sender in enumerate(senders):
        sender.more(body(number)[100:])
        sender.finish()
    assert [sender.outcome(one) for sender, one in zip(senders, sent, strict=True)] == ["accepted"] * 3
    arrived = [bytes(link.received[0].data) for link in streams_of(consumer)]
    assert sorted(arrived) == [body(number) for number in range(3)]
    again = senders[0].begin(body(7)[:50])
    clients.until(
        lambda: sum(len(link.received) for link in streams_of(consumer)) == 4,
        "one of the links is used again",
    )
    senders[0].more(body(7)[50:])
    senders[0].finish()
    assert senders[0].outcome(again) == "accepted"
    assert len(streams_of(consumer)) == 3


def test_without_such_links_streams_follow_each_other(clients: Clients, nodes: Network) -> None:
    receiver = clients.connect(nodes["B"].port).receiver("closest/no-links", credit=5, accept=True)
    first, second = (streaming_sender(clients, nodes["A"], "closest/no-links") for _ in range(2))
    one = first.begin(body(1)[:100])
    clients.until(lambda: seen(receiver) == 100, "the first")
    two = second.begin(body(2)[:100])
    clients.round_trip()
    assert len(receiver.received) == 1
    for sender, number in ((first, 1), (second, 2)):
        sender.more(body(number)[100:])
        sender.finish()
    assert (first.outcome(one), second.outcome(two)) == ("accepted", "accepted")


@pytest.mark.parametrize("places", PLACES, ids="-".join)
def test_aborted_wherever_it_is(clients: Clients, nodes: Network, places: tuple[str, str]) -> None:
    source = f"closest/abort/{places[0]}{places[1]}"
    receiver = clients.connect(nodes[places[1]].port).receiver(source, credit=5)
    sender = streaming_sender(clients, nodes[places[0]], source)
    credit = sender.credit
    for start in (0, 1, 100):
        sent = sender.begin(body()[:start])
        if start == 100:
            clients.until(lambda: seen(receiver) == start, "the start")  # noqa: B023
        else:
            clients.round_trip()
        sender.abort(sent)
        sender.send("next")
        clients.until(
            lambda: any(item.complete and not item.aborted for item in receiver.received), "the next"
        )
        receiver.arrived()[0].settle()
        receiver.received.clear()
    clients.until(lambda: sender.credit > credit - 6, "credit comes back")


@pytest.mark.parametrize("lost", ["sender", "receiver"])
def test_an_end_is_lost_in_the_middle(clients: Clients, nodes: Network, lost: str) -> None:
    consumer = clients.connect(nodes["B"].port)
    receiver = consumer.receiver("closest/lost", credit=5)
    sender = streaming_sender(clients, nodes["A"], "closest/lost")
    sent = sender.begin(body()[:100])
    clients.until(lambda: seen(receiver) == 100, "the start")
    if lost == "sender":
        sender.client.drop()
        clients.until(lambda: receiver.received[0].aborted, "it will not come")
        return
    consumer.drop()
    sender.more(body()[100:])
    sender.finish()
    assert sender.outcome(sent) == "modified"


def test_messages_that_come_at_once_are_whole_ones(clients: Clients, nodes: Network) -> None:
    consumer = Container(clients, nodes["B"].port, "consumer", offered=[STREAMING_LINKS])
    own = consumer.receiver("closest/whole", credit=100, accept=True)
    sender = streaming_sender(clients, nodes["A"], "closest/whole")
    assert [sender.deliver(str(number)) for number in range(10)] == ["accepted"] * 10
    assert own.bodies() == [str(number) for number in range(10)]
    assert not streams_of(consumer)


def test_others_keep_their_way(clients: Clients, nodes: Network) -> None:
    """The sender that does not ask has its small messages collected, also where the address is the same."""
    receiver = clients.connect(nodes["B"].port).receiver("closest/mixed", credit=5, accept=True)
    streaming = streaming_sender(clients, nodes["A"], "closest/mixed")
    assert streaming.deliver("whole") == "accepted"
    plain = clients.connect(nodes["A"].port).sender("closest/mixed").await_credit()
    assert plain.deliver("whole") == "accepted"
    receiver.received.clear()
    sent = plain.begin(body()[:500])
    clients.round_trip()
    assert not receiver.received
    plain.more(body()[500:])
    plain.finish()
    assert plain.outcome(sent) == "accepted"


@pytest.mark.parametrize(
    "section", [b"\0\x80SKPR--RA\xc0\x05\x04\x43\x40\x40\x45", b"\0\x80SKPR--RA\xc0\x01\x04"]
)
def test_annotations_of_a_client_in_parts(clients: Clients, nodes: Network, section: bytes) -> None:
    """They are taken off as they are from whole messages, wherever a frame ends."""
    receiver = clients.connect(nodes["A"].port).receiver("closest/annotated", credit=5, accept=True)
    sender = streaming_sender(clients, nodes["A"], "closest/annotated")
    sent = sender.begin()
    for byte in section:
        sender.more(bytes([byte]))
        clients.round_trip()
    sender.more(body())
    sender.finish()
    assert sender.outcome(sent) == "accepted"
    assert bytes(receiver.received[0].data) == body()


@pytest.fixture
def pair(routers: Routers) -> tuple[Router, Router]:
    """Two interior routers whose streams share one connection with all else."""
    network = Network(routers)
    network.interior("A", "B", dataConnectionCount="0")
    network.join("A", "B")
    network.start()
    return network["A"], network["B"]


def test_many_streams_to_one_consumer_follow_each_other(
    clients: Clients, pair: tuple[Router, Router]
) -> None:
    """What waits for its turn leaves room for the one whose turn it is."""
    near, far = pair
    receiver = clients.connect(far.port).receiver("many", credit=20, accept=True)
    senders = [clients.connect(near.port).sender("many").await_credit() for _ in range(12)]
    sent = [sender.send(body(number) + LARGE) for number, sender in enumerate(senders)]
    assert [sender.outcome(one) for sender, one in zip(senders, sent, strict=True)] == ["accepted"] * 12
    assert len(receiver.arrived()) == 12


def test_a_stream_that_does_not_get_on_is_in_nobodys_way(
    clients: Clients, pair: tuple[Router, Router]
) -> None:
    near, far = pair
    stuck = clients.connect(far.port)
    stuck.receiver("stuck", credit=20)
    stuck.reading = False
    held = [clients.connect(near.port).sender("stuck").await_credit() for _ in range(4)]
    pours = [Pour(sender, LARGE * 10) for sender in held]
    clients.standstill(lambda: sum(pour.given for pour in pours), clients.round_trip)
    receiver = clients.connect(far.port).receiver("free", credit=20, accept=True)
    sender = clients.connect(near.port).sender("free")
    assert [sender.deliver(body() + LARGE) for _ in range(3)] == ["accepted"] * 3
    assert len(receiver.arrived()) == 3


def test_what_a_burst_of_streams_needed_is_given_back(clients: Clients, nodes: Network) -> None:
    consumer = Container(clients, nodes["A"].port, "consumer", offered=[STREAMING_LINKS])
    consumer.receiver("closest/burst", credit=5, accept=True)
    client = clients.connect(nodes["A"].port)
    senders = [client.sender("closest/burst", capability=STREAMING_DELIVERIES) for _ in range(60)]
    sent = [sender.await_credit().begin(body()[:100]) for sender in senders]
    clients.until(lambda: len(streams_of(consumer)) == 60, "a link for each")
    assert sessions_of_the_router(consumer) == 60
    for sender in senders:
        sender.more(body()[100:])
        sender.finish()
    assert {sender.outcome(one) for sender, one in zip(senders, sent, strict=True)} == {"accepted"}
    clients.until(lambda: len(streams_of(consumer)) == 32, "some links are kept")
    clients.until(lambda: sessions_of_the_router(consumer) == 32, "so are their sessions")
    again = [sender.begin(body()[:100]) for sender in senders]
    clients.until(lambda: len(streams_of(consumer)) == 60, "a link for each, once more")
    for sender in senders:
        sender.more(body()[100:])
        sender.finish()
    assert {sender.outcome(one) for sender, one in zip(senders, again, strict=True)} == {"accepted"}


def sessions_of_the_router(consumer: Container) -> int:
    """Those that are open on the consumer's connection and that it has not begun itself."""
    session, count = consumer.connection.session_head(Endpoint.REMOTE_ACTIVE), -1
    while session is not None:
        session, count = session.next(Endpoint.REMOTE_ACTIVE), count + 1
    return count
