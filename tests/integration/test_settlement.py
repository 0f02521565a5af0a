"""Who settles first: settlement modes of both ends, in all combinations, through any number of routers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proton import Delivery, Link, Message
from tests.integration.support.client import Clients, Received, Receiver, Sender, Sent
from tests.integration.support.routers import Router, Routers, address
from tests.integration.support.topology import Network, await_everyone

FIRST, SECOND = Link.RCV_FIRST, Link.RCV_SECOND


@pytest.fixture(scope="module")
def ends(either_kernel: Callable[[], Routers]) -> dict[str, tuple[Router, Router]]:
    """Where sender and receiver are: at one router, or one or three hops apart."""
    network = Network(either_kernel(), common=[address("multicast", "multicast")])
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "B")
    network.start()
    return {
        "one router": (network["A"], network["A"]),
        "one hop": (network["A"], network["B"]),
        "edge to edge": (network["E1"], network["E2"]),
    }


def pair(
    clients: Clients, ends: tuple[Router, Router], address: str, sends: int = FIRST, receives: int = FIRST
) -> tuple[Sender, Receiver]:
    receiver = clients.connect(ends[1].port).receiver(address, credit=10, second=receives == SECOND)
    sender = clients.connect(ends[0].port).sender(address, second=sends == SECOND)
    assert (sender.link.remote_rcv_settle_mode, receiver.link.remote_rcv_settle_mode) == (sends, receives)
    return sender.await_credit(), receiver


def tell(received: Received, state: int) -> None:
    """An outcome without settlement."""
    if state == Delivery.REJECTED:
        received.delivery.local.condition = None
    received.delivery.update(state)


def heard(sent: Sent) -> tuple[int, bool]:
    """State and settlement as the sender sees them."""
    assert sent.delivery is not None
    return sent.delivery.remote_state, sent.delivery.settled


@pytest.mark.parametrize("where", ["one router", "one hop", "edge to edge"])
@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED])
def test_second_phase_from_end_to_end(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str, state: int
) -> None:
    """Outcome forward, settlement of the sender back, and only then that of the receiver: exactly once."""
    sender, receiver = pair(clients, ends[where], f"second/{where}/{state}", SECOND, SECOND)
    sent = sender.send("x")
    received = receiver.next()
    tell(received, state)
    clients.until(lambda: heard(sent)[0] == state, "the outcome")
    clients.round_trip()
    assert not heard(sent)[1], "the receiver has not settled yet"
    assert not received.delivery.settled, "the sender has not settled yet"
    assert sent.delivery is not None
    sent.delivery.settle()
    clients.until(lambda: received.delivery.settled, "the settlement of the sender")
    received.delivery.settle()
    assert sender.deliver_second("again", receiver) == Delivery.ACCEPTED


def test_second_phase_during_a_stream(clients: Clients, ends: dict[str, tuple[Router, Router]]) -> None:
    """The sender settles a delivery while a large one is under way on the same link."""
    sender, receiver = pair(clients, ends["one router"], "second/stream", SECOND, SECOND)
    sent = sender.send("x")
    received = receiver.next()
    tell(received, Delivery.ACCEPTED)
    clients.until(lambda: heard(sent)[0] == Delivery.ACCEPTED, "the outcome")
    stream = sender.begin(Message(body=b"x" * 300_000).encode())
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > 100_000, "the stream")
    assert sent.delivery is not None
    sent.delivery.settle()
    clients.until(lambda: received.delivery.settled, "the settlement of the sender")
    sender.finish()
    receiver.next().settle()
    clients.until(lambda: heard(stream)[0] == Delivery.ACCEPTED, "the outcome of the stream")


@pytest.mark.parametrize("where", ["one router", "one hop", "edge to edge"])
def test_receiver_waits_for_a_sender_that_does_not(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str
) -> None:
    """A sender in the usual mode hears the outcome together with its settlement; the receiver then settles."""
    sender, receiver = pair(clients, ends[where], f"receiver-second/{where}", FIRST, SECOND)
    sent = sender.send("x")
    received = receiver.next()
    tell(received, Delivery.ACCEPTED)
    assert sender.outcome(sent) == "accepted"
    clients.until(lambda: received.delivery.settled, "the router has settled")


@pytest.mark.parametrize("where", ["one router", "one hop", "edge to edge"])
def test_sender_waits_for_a_receiver_that_does_not(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str
) -> None:
    """The receiver settles at once; the router still waits for the sender, as the mode of their link says."""
    sender, receiver = pair(clients, ends[where], f"sender-second/{where}", SECOND, FIRST)
    sent = sender.send("x")
    receiver.next().settle(Delivery.ACCEPTED)
    clients.until(lambda: heard(sent)[0] == Delivery.ACCEPTED, "the outcome")
    clients.round_trip()
    assert not heard(sent)[1]
    before = sender.credit
    assert sent.delivery is not None
    sent.delivery.settle()
    for _ in range(100):
        assert sender.deliver_second("more", receiver) == Delivery.ACCEPTED
    clients.until(lambda: sender.credit > before - 100, "credit comes back with the settlement of the sender")


def test_multicast_waits_for_its_sender_too(clients: Clients, ends: dict[str, tuple[Router, Router]]) -> None:
    """Receivers are done when they say so; the one outcome of all goes to the sender, who settles it."""
    near, far = ends["one hop"]
    receivers = [
        clients.connect(router.port).receiver("multicast/second", credit=10, second=second)
        for router, second in ((near, True), (near, False), (far, True))
    ]
    sender = clients.connect(near.port).sender("multicast/second", second=True).await_credit()
    near.await_status(
        lambda status: any(
            row["name"] == "multicast/second" and (row["local"], row["remote"]) == (2, 1)
            for row in status["addresses"]
        ),
        "all receivers are known",
    )
    sent = sender.send("x")
    for receiver in receivers:
        item = receiver.next()
        if receiver.link.rcv_settle_mode == SECOND:
            tell(item, Delivery.ACCEPTED)
            clients.until(lambda item=item: item.delivery.settled, "the router settles")  # type: ignore[misc]
        else:
            item.settle(Delivery.RELEASED)
    clients.until(lambda: heard(sent)[0] == Delivery.ACCEPTED, "the outcome")
    clients.round_trip()
    assert not heard(sent)[1]
    assert sent.delivery is not None
    sent.delivery.settle()
    clients.round_trip()
    assert not sender.client.finished


def test_what_the_router_answers_itself_waits_for_the_sender_as_well(
    clients: Clients, ends: dict[str, tuple[Router, Router]]
) -> None:
    sender = clients.connect(ends["one router"][0].port).sender(None, second=True).await_credit()
    sent = sender.send("no address")
    clients.until(lambda: heard(sent)[0] == Delivery.REJECTED, "the outcome")
    clients.round_trip()
    assert not heard(sent)[1]


@pytest.mark.parametrize("where", ["one router", "one hop"])
@pytest.mark.parametrize("lost", ["sender", "receiver"])
def test_loss_between_the_phases(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str, lost: str
) -> None:
    """Whoever is left may settle, and what was told stays."""
    sender, receiver = pair(clients, ends[where], f"second-lost/{where}/{lost}", SECOND, SECOND)
    sent = sender.send("x")
    received = receiver.next()
    tell(received, Delivery.ACCEPTED)
    clients.until(lambda: heard(sent)[0] == Delivery.ACCEPTED, "the outcome")
    if lost == "sender":
        sender.client.drop()
        clients.until(lambda: received.delivery.settled, "nobody is left to settle it")
        return
    receiver.client.drop()
    clients.round_trip()
    assert heard(sent)[0] == Delivery.ACCEPTED
    assert sent.delivery is not None
    sent.delivery.settle()
    clients.round_trip()


@pytest.mark.parametrize("mode", [Link.SND_SETTLED, Link.SND_UNSETTLED, Link.SND_MIXED])
@pytest.mark.parametrize("where", ["one router", "one hop"])
def test_modes_of_senders(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str, mode: int
) -> None:
    """The answer is what was asked for, and settled deliveries arrive settled, others not."""
    address = f"sender-mode/{where}/{mode}"
    receiver = clients.connect(ends[where][1].port).receiver(address, credit=10)
    sender = clients.connect(ends[where][0].port).sender(address, settle_mode=mode).await_credit()
    assert sender.link.remote_snd_settle_mode == mode
    sends = {Link.SND_SETTLED: [True], Link.SND_UNSETTLED: [False], Link.SND_MIXED: [True, False, True]}[mode]
    sent = [sender.send(str(number), settled=settled) for number, settled in enumerate(sends)]
    arrived = receiver.expect(len(sends))
    assert [item.presettled for item in arrived] == sends
    for item, one in zip(arrived, sent, strict=True):
        if not item.presettled:
            item.settle()
            assert sender.outcome(one) == "accepted"


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("mode", [Link.SND_SETTLED, Link.SND_UNSETTLED, Link.SND_MIXED])
@pytest.mark.parametrize("waits", [False, True])
def test_modes_of_receivers(
    clients: Clients,
    ends: dict[str, tuple[Router, Router]],
    size: int,
    settled: bool,
    mode: int,
    waits: bool,
) -> None:
    """They get deliveries settled or not as they asked for, however they were sent; mixed is as they were sent."""
    near, far = ends["one hop"]
    source = f"receiver-mode/{size}/{settled}/{mode}/{waits}"
    receiver = clients.connect(far.port).receiver(source, credit=0 if waits else 10, settle_mode=mode)
    assert receiver.link.remote_snd_settle_mode == mode
    sender = clients.connect(near.port).sender(source).await_credit()
    data = b"\0Su\xb0" + size.to_bytes(4) + bytes(size)
    sent = [sender.send(data, settled=settled) for _ in range(2)]
    if waits:
        clients.round_trip()
        receiver.grant(10)
    arrived = receiver.expect(2)
    expected = {Link.SND_SETTLED: True, Link.SND_UNSETTLED: False, Link.SND_MIXED: settled}[mode]
    clients.round_trip()
    assert [item.delivery.settled for item in arrived] == [expected] * 2
    if not expected:
        for item in arrived:
            item.settle(Delivery.ACCEPTED)
    if not settled:
        assert [sender.outcome(item) for item in sent] == ["accepted"] * 2
    receiver.received.clear()
    sender.send("again")
    assert receiver.next().body == "again"


@pytest.mark.parametrize("where", ["one router", "one hop"])
def test_a_state_of_an_extension_goes_through(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str
) -> None:
    sender, receiver = pair(clients, ends[where], f"extension/{where}")
    sent = sender.send("x")
    received = receiver.next()
    received.delivery.local.data = [b"some transaction"]
    received.delivery.update(0x34)
    clients.until(lambda: heard(sent)[0] == 0x34, "the state")
    assert sent.delivery is not None
    assert sent.delivery.remote.data == [b"some transaction"]
    assert not sent.delivery.settled
    received.settle(Delivery.ACCEPTED)
    assert sender.outcome(sent) == "accepted"


@pytest.mark.parametrize("where", ["one router", "one hop", "edge to edge"])
def test_how_far_the_receiver_is(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str
) -> None:
    sender, receiver = pair(clients, ends[where], f"received/{where}")
    sent = sender.send("x")
    received = receiver.next()
    received.delivery.local.section_number, received.delivery.local.section_offset = 5, 1 << 40
    received.delivery.update(Delivery.RECEIVED)
    clients.until(lambda: heard(sent) == (Delivery.RECEIVED, False), "the state")
    assert sent.delivery is not None
    assert (sent.delivery.remote.section_number, sent.delivery.remote.section_offset) == (5, 1 << 40)
    received.settle(Delivery.RELEASED)
    assert sender.outcome(sent) == "released"


def send_with_state(sender: Sender, body: str, state: int, data: list[object]) -> Sent:
    """A delivery whose transfer carries a state of an extension."""
    sent = sender.begin()
    assert sent.delivery is not None
    sent.delivery.local.data = data
    sent.delivery.update(state)
    sender.more(Message(body=body).encode())
    sender.finish()
    return sent


@pytest.mark.parametrize("where", ["one router", "one hop", "edge to edge"])
@pytest.mark.parametrize("size", [1, 100, 70_000, 3_000_000])
def test_extensions_talk_to_each_other(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str, size: int
) -> None:
    """A state with the message, another in answer, and the end when the sender has seen that."""
    sender, receiver = pair(clients, ends[where], f"talk/{where}/{size}")
    sent = send_with_state(sender, "x" * size, 0x777, ["from", "here"])
    received = receiver.next()
    assert (received.delivery.remote_state, received.delivery.remote.data) == (0x777, ["from", "here"])
    assert received.body == "x" * size
    received.delivery.local.data = ["back"]
    received.delivery.update(0x778)
    clients.until(lambda: heard(sent) == (0x778, False), "the answer")
    assert sent.delivery is not None
    assert sent.delivery.remote.data == ["back"]
    assert not received.delivery.settled
    sent.delivery.settle()
    clients.until(lambda: received.delivery.settled, "the end")
    received.delivery.settle()
    assert sender.deliver_second("again", receiver) == Delivery.ACCEPTED


@pytest.mark.parametrize("where", ["one router", "one hop"])
def test_every_receiver_of_a_multicast_sees_the_state(
    clients: Clients, ends: dict[str, tuple[Router, Router]], where: str
) -> None:
    address = f"multicast/states/{where}"
    near, far = ends[where]
    receivers = [clients.connect(far.port).receiver(address, credit=10, accept=True) for _ in range(3)]
    sender = clients.connect(near.port).sender(address).await_credit()
    await_everyone(sender, receivers)
    sent = send_with_state(sender, "x", 0x777, [1])
    for receiver in receivers:
        delivery = receiver.next().delivery
        assert (delivery.remote_state, delivery.remote.data) == (0x777, [1])
    assert sender.outcome(sent) == "accepted"


def test_an_outcome_after_a_state(clients: Clients, ends: dict[str, tuple[Router, Router]]) -> None:
    """Every way in which a delivery may go on after its sender was told of a state: it ends everywhere, once."""
    sender, receiver = pair(clients, ends["one hop"], "after-a-state")
    for end in ("settled", "unsettled", "lost"):
        sent = sender.await_credit().send("x")
        received = receiver.next()
        received.delivery.update(0x778)
        clients.until(lambda: heard(sent)[0] == 0x778, "the state")  # noqa: B023
        if end == "settled":
            received.settle(Delivery.REJECTED)
        elif end == "unsettled":
            tell(received, Delivery.REJECTED)
        else:
            receiver.client.drop()
        assert sender.outcome(sent) == ("modified" if end == "lost" else "rejected")
        if end == "unsettled":
            clients.until(lambda: received.delivery.settled, "the router has settled")  # noqa: B023
            received.delivery.settle()
