"""Networks of interior routers: they find each other, forward across, and route around what is lost."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from proton import Message
from tests.integration.support.client import Clients, Pour, Receiver, Sender
from tests.integration.support.data import MEGA, head
from tests.integration.support.routers import Routers, address, eventually
from tests.integration.support.topology import Network, await_everyone

SIX = ("R1", "R2", "R3", "R4", "R5", "R6")
COMMON = (address("multicast", "multicast"), address("closest", "closest"))


@pytest.fixture
def network(routers: Routers) -> Network:
    """A network of one test."""
    return Network(routers, common=COMMON)


@pytest.fixture(scope="module")
def abc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """The line A - B - C, for tests that leave it as they found it."""
    routers = Routers(tmp_path_factory.mktemp("abc"))
    network = Network(routers, common=COMMON)
    network.line("A", "B", "C")
    yield network.start()
    routers.stop()


def link_pair(
    clients: Clients, network: Network, source: str, sink: str, name: str
) -> tuple[Sender, Receiver]:
    """A sender at one router and a receiver at another, with credit."""
    receiver = clients.connect(network[sink].port).receiver(name, credit=100, accept=True)
    sender = clients.connect(network[source].port).sender(name)
    clients.until(lambda: sender.credit > 0, f"credit at {source} for a consumer at {sink}")
    return sender, receiver


def assert_all_pairs(
    clients: Clients, network: Network, router_ids: tuple[str, ...], tag: str = "pair"
) -> None:
    """Messages get from every router to every other."""
    receivers = {
        sink: clients.connect(network[sink].port).receiver(f"{tag}/{sink}", credit=100, accept=True)
        for sink in router_ids
    }
    for source in router_ids:
        client = clients.connect(network[source].port)
        for sink in router_ids:
            sender = client.sender(f"{tag}/{sink}")
            clients.until(lambda s=sender: s.credit > 0, f"credit at {source} for {sink}")
            assert sender.deliver(f"from {source}") == "accepted"
    for receiver in receivers.values():
        assert sorted(receiver.bodies()) == sorted(f"from {source}" for source in router_ids)


def test_ring_of_six_with_a_router_killed(clients: Clients, network: Network) -> None:
    network.ring(*SIX)
    network.start()
    network.await_costs("R1", {"R2": 1, "R3": 2, "R4": 3, "R5": 2, "R6": 1})
    sender, receiver = link_pair(clients, network, "R1", "R3", "across")
    assert sender.deliver("the short way") == "accepted"
    network["R2"].kill()
    started = time.monotonic()
    outcomes = []
    while "accepted" not in outcomes[-1:]:
        assert time.monotonic() - started < 15, outcomes[-5:]
        clients.until(lambda: sender.credit > 0, "credit again")
        outcomes.append(sender.outcome(sender.send("the long way"), 15))
    assert set(outcomes) <= {"accepted", "released", "modified"}
    assert receiver.bodies()[-1] == "the long way"
    network.converge()
    network.await_costs("R1", {"R3": 4, "R4": 3, "R5": 2, "R6": 1})
    assert network.neighbours("R4") == {"R3", "R5"}
    assert_all_pairs(clients, network, ("R1", "R3", "R4", "R5", "R6"), "line")
    network["R2"].start()
    network.converge()
    for at, router_id in enumerate(SIX):
        around = {other: min((there - at) % 6, (at - there) % 6) for there, other in enumerate(SIX)}
        network.await_costs(router_id, {other: cost for other, cost in around.items() if cost})
    assert_all_pairs(clients, network, SIX)


def test_line_of_six(clients: Clients, network: Network) -> None:
    network.line(*SIX)
    network.start()
    for at, router_id in enumerate(SIX):
        costs = {other: abs(there - at) for there, other in enumerate(SIX) if there != at}
        network.await_costs(router_id, costs)
    assert_all_pairs(clients, network, SIX)


def test_mesh_of_six(clients: Clients, network: Network) -> None:
    network.mesh(*SIX)
    network.start()
    for router_id in SIX:
        network.await_costs(router_id, {other: 1 for other in SIX if other != router_id})
    assert_all_pairs(clients, network, SIX)
    # Every copy of a multicast arrives once, however many ways there are.
    consumers = [
        clients.connect(network[router_id].port).receiver("multicast/mesh", credit=50, accept=True)
        for router_id in SIX
    ]
    sender = clients.connect(network["R1"].port).sender("multicast/mesh").await_credit()
    await_everyone(sender, consumers)
    sent = [sender.await_credit().send(str(number)) for number in range(20)]
    clients.until(lambda: all(item.outcome == "accepted" for item in sent), "all outcomes")
    for consumer in consumers:
        assert consumer.bodies() == [str(number) for number in range(20)]


def test_costs_decide(clients: Clients, network: Network) -> None:
    """The way over two cheap links is taken, until the direct one becomes cheap or is all there is."""
    network.interior("A", "B", "C")
    network.join("A", "B", cost=5)
    network.join("A", "C", cost=2)
    network.join("C", "B", cost=2)
    network.start()
    network.await_costs("A", {"B": 4, "C": 2})
    sender, receiver = link_pair(clients, network, "A", "B", "closest/x")
    # C may hear of the consumer, and of new paths, a moment after A; until then it does not carry A's messages.
    eventually(lambda: sender.deliver("over C") == "accepted", "C carries them")
    receiver.received.clear()
    for number in range(10):
        assert sender.deliver(str(number)) == "accepted"
    assert len(receiver.received) == 10
    transit = next(row for row in network["C"].status()["addresses"] if row["name"] == "closest/x")
    assert transit["remote"] == 1
    nodes = {row["id"]: row["nextHop"] for row in network["A"].status()["nodes"]}
    assert nodes["B"] == "C"
    network.set_cost("A", "B", 1)
    network.await_costs("A", {"B": 1, "C": 2})
    assert sender.deliver("directly") == "accepted"
    network.set_cost("A", "B", 5)
    network.await_costs("A", {"B": 4, "C": 2})
    eventually(lambda: sender.deliver("over C again") == "accepted", "C carries them")
    network["C"].kill()
    network.converge()
    network.await_costs("A", {"B": 5})
    clients.until(lambda: sender.credit > 0, "credit over the direct link")


def test_closest_prefers_the_nearer_consumer(clients: Clients, abc: Network) -> None:
    far = clients.connect(abc["C"].port).receiver("closest/near", credit=50, accept=True)
    sender = clients.connect(abc["A"].port).sender("closest/near")
    clients.until(lambda: sender.credit > 0, "credit")
    assert sender.deliver("1") == "accepted"
    near_client = clients.connect(abc["A"].port)
    near = near_client.receiver("closest/near", credit=50, accept=True)
    for _ in range(5):
        assert sender.deliver("2") == "accepted"
    assert (len(near.received), len(far.received)) == (5, 1)
    near_client.close()
    clients.until(lambda: sender.credit > 0, "credit")
    assert sender.deliver("3") == "accepted"
    assert far.bodies() == ["1", "3"]


def test_balanced_spills_over_to_another_router(clients: Clients, abc: Network) -> None:
    """Consumers that hold on to messages at the near router: the far one takes its part."""
    near = clients.connect(abc["A"].port).receiver("balanced", credit=1000)
    far = clients.connect(abc["B"].port).receiver("balanced", credit=1000)
    sender = clients.connect(abc["A"].port).sender("balanced")
    abc["A"].await_status(
        lambda s: any(r["name"] == "balanced" and r["remote"] for r in s["addresses"]), "the far consumer"
    )
    sent = [sender.await_credit().send(str(number)) for number in range(200)]
    clients.until(lambda: len(near.received) + len(far.received) == 200, "all messages")
    assert abs(len(near.received) - len(far.received)) <= 2
    for receiver in (near, far):
        for item in receiver.received:
            item.settle()
    clients.until(lambda: all(item.outcome == "accepted" for item in sent), "all outcomes")


def test_credit_follows_consumers_at_other_routers(clients: Clients, abc: Network) -> None:
    sender = clients.connect(abc["A"].port).sender("far")
    clients.round_trip()
    assert sender.credit == 0
    consumer = clients.connect(abc["C"].port)
    consumer.receiver("far", credit=5, accept=True)
    clients.until(lambda: sender.credit == 250, "credit for the far consumer")
    assert sender.deliver("x") == "accepted"
    consumer.close()
    clients.until(lambda: sender.credit == 0, "credit is drained")
    assert clients.connect(abc["A"].port).sender(None).deliver(Message(address="far")) == "released"


def test_outcomes_across(clients: Clients, abc: Network) -> None:
    consumer = clients.connect(abc["C"].port)
    receiver = consumer.receiver("outcomes", credit=5)
    sender = clients.connect(abc["A"].port).sender("outcomes")
    clients.until(lambda: sender.credit > 0, "credit")
    sent = [sender.send(str(number)) for number in range(7)]
    first, second, third, fourth, _ = receiver.expect(5)
    first.settle()
    second.reject("acme:no", "no thanks", {"code": 7})
    third.modify(failed=False, undeliverable=True, annotations={"x-opt-a": "b"})
    fourth.settle(None)
    assert [sender.outcome(item) for item in sent[:4]] == ["accepted", "rejected", "modified", "none"]
    assert sent[1].condition is not None
    assert (sent[1].condition.name, sent[1].condition.info) == ("acme:no", {"code": 7})
    assert (sent[2].failed, sent[2].undeliverable, sent[2].annotations) == (True, True, {"x-opt-a": "b"})
    consumer.drop()
    assert [sender.outcome(item, 15) for item in sent[4:]] == ["modified", "released", "released"]


def test_drains_across(clients: Clients, abc: Network) -> None:
    """A receiver gets what is there and the rest of its credit back, however far away the senders are."""
    receiver = clients.connect(abc["C"].port).receiver("drains")
    senders = [clients.connect(abc[name].port).sender("drains") for name in "ABC"]
    clients.until(lambda: all(sender.credit > 0 for sender in senders), "credit")
    receiver.drain(10)
    clients.until(lambda: receiver.link.credit == 0, "nothing is there")
    assert receiver.received == []
    before = abc["C"].metric("deliveries_total", 'direction="in"')
    sent = [sender.send("x") for sender in senders]
    clients.until(
        lambda: abc["C"].metric("deliveries_total", 'direction="in"') >= before + 3, "all are there"
    )
    clients.round_trip()
    receiver.drain(10)
    clients.until(lambda: receiver.link.credit == 0, "the rest is given back")
    assert len(receiver.received) == 3
    receiver.link.drain_mode = False
    receiver.grant(5)
    for item in receiver.arrived():
        item.settle()
    outcomes = [sender.outcome(item) for sender, item in zip(senders, sent, strict=True)]
    assert outcomes == ["accepted"] * 3
    senders[0].send("late")
    receiver.expect(4)


def test_presettled_across(clients: Clients, abc: Network) -> None:
    sender, receiver = link_pair(clients, abc, "A", "B", "presettled")
    receiver.grant(400)
    for number in range(400):
        sender.await_credit().send(str(number), settled=True)
        if number % 100 == 99:
            receiver.expect(number + 1)  # more than fit into a link's capacity may be dropped
    assert all(item.presettled for item in receiver.received)
    assert receiver.bodies() == [str(number) for number in range(400)]


@pytest.mark.parametrize(("first", "second"), [("A", "B"), ("E", "A"), ("A", "E")])
def test_messages_of_many_clients_cross_at_once(
    clients: Clients, network: Network, first: str, second: str
) -> None:
    """Not only as many as one of them may have under way, while the next router is busy with something else."""
    network.line("A", "B")
    network.edge("E", "A")
    network.start()
    each = 250
    clients.connect(network[second].port).receiver("many", credit=10 * each)
    senders = [clients.connect(network[first].port).sender("many").await_credit(each) for _ in range(4)]
    before = network[first].metric("deliveries_total", 'direction="out"')
    os.kill(network[second].pid, signal.SIGSTOP)
    try:
        for sender in senders:
            for number in range(each):
                sender.send(str(number))
        clients.until(
            lambda: network[first].metric("deliveries_total", 'direction="out"') >= before + 4 * each,
            "all",
            10,
        )
    finally:
        os.kill(network[second].pid, signal.SIGCONT)


def test_router_lost_with_deliveries_under_way(clients: Clients, network: Network) -> None:
    network.line("A", "B")
    network.start()
    receiver = clients.connect(network["B"].port).receiver("under-way", credit=10)
    sender = clients.connect(network["A"].port).sender("under-way")
    clients.until(lambda: sender.credit > 0, "credit")
    sent = [sender.send(str(number)) for number in range(3)]
    receiver.expect(3)
    network["B"].kill()
    assert [sender.outcome(item, 15) for item in sent] == ["modified"] * 3


def test_request_and_reply_across(clients: Clients, abc: Network) -> None:
    client, server = clients.connect(abc["A"].port), clients.connect(abc["C"].port)
    replies = client.receiver(None, dynamic=True, credit=100, accept=True)
    service = server.receiver("service", credit=100)
    requests = client.sender("service")
    clients.until(lambda: requests.credit > 0, "credit")
    answers = server.sender(None).await_credit()
    for number in range(50):
        requests.send(Message(body=number, reply_to=replies.address, correlation_id=number))
        asked = service.next()
        asked.settle()
        answer = Message(address=asked.message.reply_to, body=asked.body * 2, correlation_id=number)
        assert answers.deliver(answer) == "accepted"
        assert replies.next().body == number * 2


def test_multicast_across(clients: Clients, network: Network) -> None:
    network.ring("A", "B", "C", "D")
    network.start()
    consumers = [
        clients.connect(network[router_id].port).receiver("multicast/x", credit=500, accept=True)
        for router_id in ("A", "B", "C", "D", "C")
    ]
    senders = [clients.connect(network[r].port).sender("multicast/x").await_credit() for r in "ABCD"]
    for sender in senders:
        await_everyone(sender, consumers)
    for number, sender in itertools.product(range(10), senders):
        assert sender.deliver(str(number)) == "accepted"
    for consumer in consumers:
        assert sorted(consumer.bodies()) == sorted([str(number) for number in range(10)] * 4)


@pytest.mark.parametrize("size", [100_000, 1_000_000, 5_000_000])
def test_large_messages_across(clients: Clients, abc: Network, size: int) -> None:
    sender, receiver = link_pair(clients, abc, "A", "C", f"large/{size}")
    payload = os.urandom(size)
    for _ in range(3):
        assert sender.deliver(Message(body=payload)) == "accepted"
        assert receiver.next().body == payload


def test_stream_across_is_cut_through_and_does_not_block(clients: Clients, abc: Network) -> None:
    """The consumer sees the start before the end is sent; small messages overtake on the way."""
    sender, receiver = link_pair(clients, abc, "A", "C", "stream")
    other, other_receiver = link_pair(clients, abc, "A", "C", "other")
    start = head(4 * MEGA)
    sent = sender.begin(start + bytes(MEGA))
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > MEGA // 2, "the start")
    for _ in range(10):
        assert other.deliver("overtakes") == "accepted"
    assert len(other_receiver.received) == 10
    assert not receiver.received[0].complete
    sender.more(bytes(3 * MEGA))
    sender.finish()
    assert sender.outcome(sent, 20) == "accepted"
    assert len(receiver.received[0].data) == 4 * MEGA + len(start)
    assert (
        sender.await_credit().deliver(start + bytes(4 * MEGA)) == "accepted"
    )  # on the other data connection
    receiver.received.clear()
    # Aborted on the way; and as before, the links of those are used again.
    links = abc["A"].status()["counters"]["linkCount"]
    second = sender.begin(start + bytes(MEGA))
    clients.until(lambda: receiver.received, "the start")
    sender.abort(second)
    clients.until(lambda: receiver.received[0].aborted, "the abort")
    third = sender.await_credit().send(start + bytes(4 * MEGA))
    assert sender.outcome(third, 20) == "accepted"
    assert abc["A"].status()["counters"]["linkCount"] == links


def test_stream_to_a_stuck_consumer_does_not_block_the_network(clients: Clients, abc: Network) -> None:
    sender, receiver = link_pair(clients, abc, "A", "C", "stuck")
    other, _ = link_pair(clients, abc, "A", "C", "free")
    receiver.client.reading = False
    size = 40 * MEGA
    before = {router_id: abc[router_id].memory() for router_id in "ABC"}
    pour = Pour(sender, head(size) + bytes(size))
    clients.standstill(lambda: pour.given, lambda: other.deliver("x"))
    for _ in range(20):
        assert other.deliver("x") == "accepted"
    growth = {router_id: abc[router_id].memory() - before[router_id] for router_id in "ABC"}
    receiver.client.reading = True
    assert sender.outcome(pour.sent, 60) == "accepted"
    assert len(receiver.received[0].data) == size + 8
    assert all(grown < 200 * MEGA for grown in growth.values()), growth


def test_reconnect_after_a_restart(clients: Clients, network: Network) -> None:
    """The connector tries again by itself, however often it fails."""
    network.line("A", "B")
    network.start()
    network["B"].stop()
    network["A"].await_status(
        lambda s: s["connectors"][0]["state"] == "failed" and "refused" in s["connectors"][0]["message"],
        "nobody answers the connector",
    )
    with socket.create_server(("localhost", network.inter_router_ports["B"])) as stranger:
        stranger.settimeout(20)
        for _ in range(2):
            stranger.accept()[0].close()
    network["B"].start()
    network.converge()
    sender, receiver = link_pair(clients, network, "A", "B", "again")
    assert sender.deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]


def test_partition_and_healing(clients: Clients, network: Network) -> None:
    """A-B-C-D loses B: two halves that work; afterwards one network again, without leftovers."""
    network.line("A", "B", "C", "D")
    network.start()
    sender, _ = link_pair(clients, network, "A", "D", "parted")
    inner, _ = link_pair(clients, network, "C", "D", "inner")
    network["B"].kill()
    clients.until(lambda: sender.credit == 0, "no way to D any more")
    assert inner.deliver("x") == "accepted"
    assert clients.connect(network["A"].port).sender(None).deliver(Message(address="parted")) == "released"
    network["B"].start()
    network.converge()
    clients.until(lambda: sender.credit > 0, "credit again")
    assert sender.deliver("x") == "accepted"


def test_hundreds_of_addresses_across(clients: Clients, network: Network) -> None:
    """Many mobile addresses: announced, used, and withdrawn with their consumer."""
    network.line("A", "B")
    network.start()
    consumer = clients.connect(network["B"].port)
    links = [consumer.receiver(f"many/{number}", credit=1, accept=True, wait=False) for number in range(2000)]
    for receiver in links:
        consumer.attached(receiver.link)
    network["A"].await_status(
        lambda s: s["addressesTotal"] >= 2000, "all addresses are known at the other router", 20
    )
    sender = clients.connect(network["A"].port).sender(None).await_credit()
    for number in (0, 999, 1999):
        assert sender.deliver(Message(address=f"many/{number}", body=number)) == "accepted"
    assert links[1999].bodies() == [1999]
    # A router that joins late gets them all at once, in one large message.
    network.interior("C")
    network.join("C", "A")
    network["C"].start()
    network["C"].await_status(lambda s: s["addressesTotal"] >= 2000, "the newcomer knows them all", 20)
    late = clients.connect(network["C"].port).sender(None).await_credit()
    assert late.deliver(Message(address="many/7", body=7)) == "accepted"
    consumer.close()
    network["A"].await_status(lambda s: s["addressesTotal"] < 100, "all addresses are withdrawn", 20)


def test_load_of_an_aborted_stream_is_forgotten(clients: Clients, abc: Network) -> None:
    """Balancing counts what is under way towards another router, and an aborted stream no longer is."""
    near = clients.connect(abc["A"].port).receiver("load", credit=1000)
    far = clients.connect(abc["B"].port).receiver("load", credit=1000)
    sender = clients.connect(abc["A"].port).sender("load")
    abc["A"].await_status(
        lambda s: any(r["name"] == "load" and r["remote"] for r in s["addresses"]), "the far consumer"
    )
    for _ in range(40):
        sender.await_credit().send("x")
    clients.until(lambda: len(near.received) + len(far.received) == 40, "all messages")
    for item in far.received:
        item.settle()
    clients.until(
        lambda: sum(item.outcome is not None for item in sender.sent.values()) == len(far.received),
        "the router at the near end knows that they are settled",
    )
    busy, before = len(near.received), len(far.received)
    start = head(MEGA) + bytes(200_000)
    for turn in range(1, busy):
        sent = sender.await_credit().begin(start)
        clients.until(lambda n=before + turn: len(far.received) == n, "the start")  # type: ignore[misc]
        sender.abort(sent)
        clients.until(lambda: far.received[-1].aborted, "the abort")
    assert len(near.received) == busy
    far.received.clear()
    for _ in range(busy - 3):
        sender.await_credit().send("y")
    clients.until(lambda: len(far.received) == busy - 3, "the idle consumer gets them")
    assert len(near.received) == busy
