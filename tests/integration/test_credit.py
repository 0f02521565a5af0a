"""Credit follows consumers: none without one, taken back with the last, and bounded by the receiver."""

from __future__ import annotations

import pytest
from proton import Message
from tests.integration.support.by_hand import ByHand, begin_frame, receive_from
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.raw import FLOW, TRANSFER, frame
from tests.integration.support.relay import Relay
from tests.integration.support.routers import Router, Routers, eventually
from tests.integration.support.topology import Network

from isthmus_router.message.types import UInt

LINK_CAPACITY = 250


def test_targeted_sender_waits_for_a_consumer(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender("credit/appears")
    clients.round_trip()
    assert sender.credit == 0
    receiver = clients.connect(router.port).receiver("credit/appears", credit=1)
    sender.await_credit(LINK_CAPACITY)
    sent = sender.send("x")
    receiver.next().settle()
    assert sender.outcome(sent) == "accepted"


def test_credit_is_drained_when_the_last_consumer_leaves(clients: Clients, router: Router) -> None:
    first, second = (clients.connect(router.port) for _ in range(2))
    first.receiver("credit/leaves", credit=1)
    second.receiver("credit/leaves", credit=1)
    sender = clients.connect(router.port).sender("credit/leaves").await_credit(LINK_CAPACITY)
    first.close()
    clients.round_trip()
    assert sender.credit == LINK_CAPACITY, "a consumer is left"
    second.close()
    clients.until(lambda: sender.credit == 0, "credit is drained")
    clients.connect(router.port).receiver("credit/leaves", credit=1)
    sender.await_credit(LINK_CAPACITY)


def test_consumer_back_before_the_sender_has_answered_the_drain(clients: Clients, router: Router) -> None:
    consumer = clients.connect(router.port)
    first = consumer.receiver("credit/race", credit=1)
    apart = Clients()
    try:
        client = apart.connect(router.port)
        sender = client.sender("credit/race").await_credit(LINK_CAPACITY)
        consumer.detach(first.link)
        # The drain arrives and is answered, but the answer stays here.
        eventually(lambda: client.read() or sender.credit == 0, "the drain")
        consumer.receiver("credit/race", credit=1)
        sender.await_credit(LINK_CAPACITY)
    finally:
        apart.close()


def test_drain_answered_after_it_was_called_off_costs_no_credit(clients: Clients, router: Router) -> None:
    """What was granted meanwhile counted the credit that the answer takes away; the few left would be the last."""
    consumer = clients.connect(router.port)
    first = consumer.receiver("credit/called-off", credit=1, accept=True)
    apart = Clients()
    try:
        client = apart.connect(router.port)
        sender = client.sender("credit/called-off").await_credit(LINK_CAPACITY)
        sent = [sender.send("x") for _ in range(3)]
        client.write()
        eventually(lambda: clients.step() or client.read() or all(item.settled for item in sent), "outcomes")
        consumer.detach(first.link)
        eventually(lambda: client.read() or sender.credit == 0, "the drain")
        consumer.receiver("credit/called-off", credit=1)
        sender.await_credit(LINK_CAPACITY)
        apart.round_trip()
        assert sender.credit == LINK_CAPACITY
    finally:
        apart.close()


def test_messages_that_cross_the_drain_are_released(clients: Clients, router: Router) -> None:
    """Transfers under way when the last consumer leaves come back, and no credit comes with them."""
    consumer = clients.connect(router.port)
    consumer.receiver("credit/crossing", credit=1)
    sender = clients.connect(router.port).sender("credit/crossing").await_credit(LINK_CAPACITY)
    consumer.drop()
    sent = [sender.send("x") for _ in range(LINK_CAPACITY)]
    assert {sender.outcome(item) for item in sent} <= {"released", "modified"}
    clients.round_trip()
    assert sender.credit == 0


def test_sender_never_has_more_than_the_link_capacity_under_way(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("credit/window")
    sender = clients.connect(router.port).sender("credit/window").await_credit(LINK_CAPACITY)
    sent = [sender.send(str(number)) for number in range(LINK_CAPACITY)]
    clients.round_trip()
    assert sender.credit == 0, "unsettled deliveries hold credit"
    assert receiver.received == []
    receiver.grant(LINK_CAPACITY)
    for delivery in receiver.expect(LINK_CAPACITY):
        delivery.settle()
    assert receiver.bodies() == [str(number) for number in range(LINK_CAPACITY)]
    assert {sender.outcome(item) for item in sent} == {"accepted"}
    clients.until(lambda: sender.credit > LINK_CAPACITY * 3 // 4, "credit comes back with settlement")
    clients.round_trip()
    assert sender.credit <= LINK_CAPACITY


def test_link_capacity_is_configurable(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", linkCapacity=10)
    clients.connect(router.port).receiver("x", credit=1)
    sender = clients.connect(router.port).sender("x").await_credit(10)
    clients.round_trip()
    assert sender.credit == 10
    assert clients.connect(router.port).sender(None).await_credit().credit == 10


def test_receiver_gets_no_more_than_it_asked_for(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("credit/receiver", credit=3)
    sender = clients.connect(router.port).sender("credit/receiver").await_credit()
    for number in range(10):
        sender.send(str(number))
    receiver.expect(3)
    clients.round_trip()
    assert len(receiver.received) == 3
    receiver.grant(2)
    receiver.expect(5)
    clients.round_trip()
    assert receiver.bodies() == ["0", "1", "2", "3", "4"]


def test_credit_taken_back_for_messages_on_their_way_is_no_boundless_credit(
    clients: Clients, router: Router
) -> None:
    """The receiver then has less than none, as the router counts, and 2^31 and more would look the same."""
    client = clients.connect(router.port)
    receiver = client.receiver("credit/taken-back", credit=10)
    sender = clients.connect(router.port).sender("credit/taken-back").await_credit(LINK_CAPACITY)
    client.reading = False
    for number in range(10):
        sender.send(str(number))
    router_has_sent = Manager(clients.connect(router.port))

    def sent() -> bool:
        rows = router_has_sent.query("router.link", "linkDir", "owningAddr", "deliveryCount")
        return [
            row["deliveryCount"]
            for row in rows
            if row["owningAddr"] == "Mcredit/taken-back" and row["linkDir"] == "out"
        ] == [10]

    clients.until(sent, "all is on its way")
    receiver.link.flow(-10)
    clients.round_trip()
    for number in range(10, 20):
        sender.send(str(number))
    clients.round_trip()
    client.reading = True
    receiver.expect(10)
    clients.round_trip()
    assert len(receiver.received) == 10
    receiver.link.flow(13)  # three more than the ten that came without
    receiver.expect(13)
    clients.round_trip()
    assert len(receiver.received) == 13


def test_receiver_drains(clients: Clients, router: Router) -> None:
    """What is available comes, the rest of the credit goes back."""
    receiver = clients.connect(router.port).receiver("credit/drain")
    sender = clients.connect(router.port).sender("credit/drain").await_credit()
    for number in range(3):
        sender.send(str(number))
    clients.round_trip()
    receiver.drain(10)
    clients.until(lambda: receiver.link.credit == 0, "the drain is answered")
    assert receiver.bodies() == ["0", "1", "2"]
    sender.send("late")
    clients.round_trip()
    assert len(receiver.received) == 3, "credit that was drained is gone"
    receiver.link.drain_mode = False
    receiver.grant(1)
    receiver.expect(4)


def test_anonymous_sender_has_credit_at_once(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender(None).await_credit(LINK_CAPACITY)
    assert sender.deliver(Message(address="credit/nobody", body="x")) == "released"


def test_presettled_overflow_drops_the_oldest(clients: Clients, router: Router) -> None:
    """A consumer without credit: of the pre-settled messages the newest wait, as many as the capacity."""
    receiver = clients.connect(router.port).receiver("credit/overflow")
    sender = clients.connect(router.port).sender("credit/overflow")
    for number in range(600):
        sender.await_credit().send(str(number), settled=True)
    clients.round_trip()
    receiver.grant(1000)
    clients.until(lambda: receiver.received and receiver.received[-1].body == "599", "the last")
    assert receiver.bodies() == [str(number) for number in range(600 - LINK_CAPACITY, 600)]


def test_unsettled_are_never_dropped_for_presettled(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("credit/mixed")
    sender = clients.connect(router.port).sender("credit/mixed").await_credit()
    kept = [sender.send(f"kept {number}") for number in range(20)]
    for number in range(400):
        sender.await_credit().send(str(number), settled=True)
    clients.round_trip()
    receiver.auto_accept = True
    receiver.grant(1000)
    assert {sender.outcome(item) for item in kept} == {"accepted"}
    assert [body for body in receiver.bodies() if body.startswith("kept")] == [f"kept {n}" for n in range(20)]


def test_ten_thousand_messages_in_order(clients: Clients, router: Router) -> None:
    receiver = clients.connect(router.port).receiver("credit/many", credit=100, accept=True)
    sender = clients.connect(router.port).sender("credit/many")
    for number in range(10_000):
        if sender.credit == 0:
            sender.await_credit()
        sender.send(str(number))
    clients.until(lambda: len(receiver.received) == 10_000, "all messages")
    assert [int(body) for body in receiver.bodies()] == list(range(10_000))
    clients.until(lambda: all(item.outcome == "accepted" for item in sender.sent.values()), "all outcomes")


def test_credit_on_a_session_that_the_other_router_has_not_been_heard_to_begin(
    clients: Clients, routers: Routers
) -> None:
    """A window that is told again before then would let it send more than the session takes."""
    network = Network(routers)
    network.interior("B")
    edge = network.edge("A", "B")
    with Relay(network.edge_ports["B"]) as relay:
        for router_id, name in (("A", "to-B"), ("B", "edges")):
            section = next(s for _, s in network[router_id].sections if s.get("name") == name)
            section.update({"maxFrameSize": 16384, "maxSessionFrames": 20})
            if name == "to-B":
                section["port"] = relay.port
        network.start()
        edge.await_log("edge uplink established")
        (connection,) = relay.connections
        relay.stop(connection.back)
        client, far = clients.connect(edge.port), clients.connect(network["B"].port)
        first = client.receiver("window/first", credit=100)
        sender = far.sender("window/first").await_credit()
        for number in range(60):
            sender.send(str(number))
        second = client.receiver("window/second", credit=100)
        far.sender("window/second").await_credit().send("here too")
        clients.round_trip()
        relay.go_on(connection.back)
        first.expect(60)
        assert first.bodies() == [str(number) for number in range(60)]
        second.expect(1)
        assert len(relay.connections) == 1


def test_few_credits_are_renewed_one_by_one(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", linkCapacity=20)
    receiver = clients.connect(router.port).receiver("few")
    sender = clients.connect(router.port).sender("few").await_credit(20)
    for number in range(20):
        sender.send(str(number))
    for renewed in range(1, 6):
        receiver.grant(1)
        receiver.next().settle()
        clients.until(lambda renewed=renewed: sender.credit == renewed, "one more")  # type: ignore[misc]


def test_drain_is_answered_after_messages_that_wait_for_the_window(clients: Clients, router: Router) -> None:
    """The engine leaves the answer out while the last message waits."""

    def flow(window: int, arrived: int, *link: object) -> bytes:
        return frame(FLOW, [UInt(arrived), UInt(window), UInt(0), UInt(100), *link])

    with ByHand(router.port, begun=begin_frame(incoming=0)) as receiver:
        receiver.attach(receive_from("drain/shut"))
        receiver.send(flow(0, 0, UInt(0), UInt(0), UInt(10)))
        sender = clients.connect(router.port).sender("drain/shut").await_credit()
        for _ in range(2):
            sender.send("waits")
        clients.round_trip()
        receiver.send(flow(0, 0, UInt(0), UInt(0), UInt(10), None, True))
        receiver.round_trip()
        receiver.send(flow(100, 0))
        receiver.expect(TRANSFER, 2)
        while (answer := receiver.expect(FLOW)[0]).field(6) != 0:
            pass
        assert answer.field(5) == 10


@pytest.mark.parametrize(
    ("near", "far", "size"),
    [(near, far, size) for near, far in ("AB", "EA", "AE") for size in (40_000, 100_000, 300_000)],
)
def test_receiver_without_credit_holds_up_nobody_else(
    clients: Clients, routers: Routers, near: str, far: str, size: int
) -> None:
    """What waits for it at another router came on the way of all others.

    Of the larger messages, some are whole at the first router and arrive at the other one in parts.
    """
    network = Network(routers)
    network.line("A", "B")
    network.edge("E", "A")
    network.start()
    slow = clients.connect(network[far].port).receiver("credit/slow")
    clients.connect(network[far].port).receiver("credit/other", credit=10, accept=True)
    other = clients.connect(network[near].port).sender("credit/other").await_credit()
    assert other.deliver("first") == "accepted"
    sent = []
    for _ in range(4 if size <= 100_000 else 1):  # less than what the other router releases
        sender = clients.connect(network[near].port).sender("credit/slow").await_credit(LINK_CAPACITY)
        sent += [(sender, sender.send("x" * size)) for _ in range(LINK_CAPACITY)]
    clients.round_trip()
    assert other.deliver("second") == "accepted"
    assert other.deliver("x" * 300_000) == "accepted"
    slow.auto_accept = slow.replenish = True
    slow.grant(10)
    assert {sender.outcome(item) for sender, item in sent} == {"accepted"}
