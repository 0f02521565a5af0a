"""A member of a group, another router and an edge: whoever sends wherever, every receiver gets it once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message
from tests.integration.support.client import Clients, Receiver
from tests.integration.support.routers import Routers
from tests.integration.support.topology import Network

MESSAGES = 400


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A - B with edges E1 and E2 of A, where A is the member."""
    routers = Routers(tmp_path)
    network = Network(routers)
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "A")
    for router in routers.all.values():
        router.module = "tests.integration.sites.member"
    network.start()
    yield network
    routers.stop()


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients()
    yield clients
    clients.close()


def bodies(receiver: Receiver) -> list[str]:
    return receiver.bodies()


@pytest.mark.parametrize("settled", [False, True])
def test_all_receivers_get_what_all_senders_send(network: Network, clients: Clients, settled: bool) -> None:
    receivers = [
        clients.connect(network[router].port).receiver("relay/trades", credit=10_000, accept=True)
        for router in ("A", "A", "E1", "E1", "E2")
    ]
    senders = {
        router: clients.connect(network[router].port).sender("relay/trades")
        for router in ("A", "B", "E1", "E2")
    }
    for sender in senders.values():
        sender.await_credit()
    for router in ("A", "E1", "E2"):
        (row,) = [row for row in network[router].status()["addresses"] if row["name"] == "relay/trades"]
        assert row["distribution"] == "relayed"
    # Edges tell the member of their receivers by a link of their own, which may take a moment.
    clients.until(
        lambda: senders["A"].send("trial", settled=True) and all(bodies(receiver) for receiver in receivers),
        "a trial message for each",
    )
    for number in range(MESSAGES):
        for router, sender in senders.items():
            sender.await_credit()
            sender.send(f"{router} {number}", settled=settled)
    if not settled:
        for sender in senders.values():
            last = list(sender.sent.values())[-1]
            assert sender.outcome(last) == "accepted"
    total = len(senders) * MESSAGES
    for receiver in receivers:
        clients.until(
            lambda r=receiver: sum(body != "trial" for body in bodies(r)) >= total,  # type: ignore[misc]
            "all messages",
        )
    clients.round_trip()
    for receiver in receivers:
        found = [body for body in bodies(receiver) if body != "trial"]
        for router in senders:
            mine = [body for body in found if body.startswith(router)]
            assert mine == [f"{router} {number}" for number in range(MESSAGES)]


def test_request_and_reply_from_edge_to_edge(network: Network, clients: Clients) -> None:
    server = clients.connect(network["E1"].port)
    requests = server.receiver("relay/trades/A", credit=10, accept=True)
    client = clients.connect(network["E2"].port)
    replies = client.receiver(None, dynamic=True, credit=10, accept=True)
    sender = client.sender("relay/trades/nyc/A").await_credit()
    clients.until(
        lambda: (
            sender.send(Message(body="ask", reply_to=replies.link.remote_source.address))
            and requests.received
        ),
        "a request",
    )
    request = requests.received[0].message
    assert request.reply_to == replies.link.remote_source.address
    direct = f"relay/trades/~/{b'A'.hex() * 16}/{request.reply_to}"  # as another site would be told
    answers = server.sender(direct).await_credit()
    assert answers.deliver("answer") == "accepted"
    clients.until(lambda: replies.received, "the answer")
    assert replies.received[0].body == "answer"


def test_a_slow_receiver_at_an_edge_is_told_and_others_go_on(network: Network, clients: Clients) -> None:
    quick = clients.connect(network["E1"].port).receiver("relay/trades", credit=20_000, accept=True)
    slow = clients.connect(network["E1"].port).receiver("relay/trades", credit=0)
    sender = clients.connect(network["A"].port).sender("relay/trades").await_credit()
    clients.until(lambda: sender.send("trial", settled=True) and quick.received, "the edge is served")
    filler = "x" * 80_000
    number = 0

    def has_them() -> bool:
        return sum(each.complete and len(each.data) > len(filler) for each in quick.received) == number

    while slow.link.remote_condition is None and number < 3_000:
        for _ in range(50):
            sender.await_credit()
            sender.send(f"{number} {filler}", settled=True)
            number += 1
        clients.until(has_them, "the quick one has them")
    assert slow.link.remote_condition.name == "amqp:resource-limit-exceeded"
    found = [body.partition(" ")[0] for body in bodies(quick) if body != "trial"]
    assert found == [f"{n}" for n in range(number)]


def test_receivers_of_an_edge_are_told_when_messages_may_be_missing(
    network: Network, clients: Clients
) -> None:
    receiver = clients.connect(network["E1"].port).receiver("relay/trades", credit=1000, accept=True)
    sender = clients.connect(network["A"].port).sender("relay/trades").await_credit()
    clients.until(lambda: sender.send("trial", settled=True) and receiver.received, "the edge is served")
    network["A"].kill()
    network["A"].start()
    sender = clients.connect(network["A"].port).sender("relay/trades").await_credit()
    before = len(receiver.received)
    clients.until(
        lambda: sender.send("next", settled=True) and receiver.link.remote_condition, "the receiver is told"
    )
    assert receiver.link.remote_condition.name == "amqp:link:detach-forced"
    assert len(receiver.received) == before
    again = clients.connect(network["E1"].port).receiver("relay/trades", credit=1000, accept=True)
    clients.until(lambda: sender.send("more", settled=True) and len(again.received) > 3, "it is served again")
    assert again.link.remote_condition is None
