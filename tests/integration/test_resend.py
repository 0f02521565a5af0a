"""A sender may ask that what one receiver releases is sent to the next, anywhere in the network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proton import Delivery
from tests.integration.support.client import Client, Clients, Receiver, Sender
from tests.integration.support.routers import Router, Routers, Section, address
from tests.integration.support.topology import Network

RESEND = "qd.resend-released"
Nodes = dict[str, Router]


@pytest.fixture(scope="module")
def nodes(either_kernel: Callable[[], Routers]) -> Nodes:
    """An edge and two interior routers in a line: E - A - B."""
    again: Section = ("address", {"prefix": "again", "resendReleased": True})
    routers = either_kernel()
    network = Network(routers, common=[address("closest", "closest"), again])
    network.line("A", "B")
    network.edge("E", "A")
    network.start()
    return dict(routers.all)


class Consumers:
    """Receivers of one address that release or accept, each in its own way."""

    def __init__(self, clients: Clients, source: str) -> None:
        self.clients, self.source = clients, source
        self.all: list[Receiver] = []

    def add(self, router: Router, *, accepts: bool) -> Receiver:
        receiver = self.clients.connect(router.port).receiver(self.source, credit=100)
        receiver.state = Delivery.ACCEPTED if accepts else Delivery.RELEASED  # type: ignore[attr-defined]
        self.all.append(receiver)
        return receiver

    def settle(self) -> bool:
        """Give everything that has arrived its outcome."""
        for receiver in self.all:
            for item in receiver.arrived():
                if not item.delivery.settled and item.delivery.local_state == 0:
                    item.settle(receiver.state)  # type: ignore[attr-defined]
        return False


def sender(clients: Clients, router: Router, target: str | None, consumers: Consumers) -> Sender:
    clients.background.append(consumers.settle)
    return clients.connect(router.port).sender(target, capability=RESEND).await_credit()


@pytest.mark.parametrize("distribution", ["balanced", "closest"])
@pytest.mark.parametrize("anonymous", [False, True])
def test_the_next_one_gets_it(clients: Clients, nodes: Nodes, distribution: str, anonymous: bool) -> None:
    source = f"{distribution}/resend/{anonymous}"
    consumers = Consumers(clients, source)
    refuses = [consumers.add(nodes["A"], accepts=False) for _ in range(3)]
    accepts = consumers.add(nodes["A"], accepts=True)
    link = sender(clients, nodes["A"], None if anonymous else source, consumers)
    message = _message(source)
    assert [link.deliver(message) for _ in range(8)] == ["accepted"] * 8
    assert len(accepts.arrived()) == 8
    assert all(receiver.arrived() for receiver in refuses), "each has had its chance"
    assert {bytes(item.data) for item in accepts.arrived()} == {bytes(_message(source))}


def _message(to: str) -> bytes:
    return (
        b"\0Ss\xc0" + bytes([len(to) + 5, 3]) + b"\x40\x40\xa1" + bytes([len(to)]) + to.encode() + b"\0Sw\x45"
    )


def test_across_the_network(clients: Clients, nodes: Nodes) -> None:
    """Wherever a receiver is left that has not been asked; each gets a message once."""
    consumers = Consumers(clients, "resend/network")
    refuses = [consumers.add(nodes[name], accepts=False) for name in ("E", "A", "B", "B")]
    accepts = consumers.add(nodes["B"], accepts=True)
    link = sender(clients, nodes["E"], "resend/network", consumers)
    clients.until(lambda: link.deliver("x") == "accepted", "the edge and A are told of the consumers at B")
    asked = [len(receiver.arrived()) for receiver in refuses]
    for _ in range(5):
        assert link.deliver("x") == "accepted"
    assert len(accepts.arrived()) == 6
    assert all(len(receiver.arrived()) <= before + 5 for receiver, before in zip(refuses, asked, strict=True))


@pytest.mark.parametrize("anonymous", [False, True])
def test_an_address_for_which_it_goes_without_saying(clients: Clients, nodes: Nodes, anonymous: bool) -> None:
    """The configuration of the address asks for it, not the sender."""
    source = f"again/{anonymous}"
    consumers = Consumers(clients, source)
    refuses = [consumers.add(nodes[name], accepts=False) for name in ("A", "A", "B")]
    accepts = consumers.add(nodes["B"], accepts=True)
    clients.background.append(consumers.settle)
    client = clients.connect(nodes["E"].port)
    link = client.sender(None if anonymous else source).await_credit()
    clients.until(lambda: _known_remotely(nodes["A"], source), "the consumers at B are known")
    outcomes = [link.deliver(_message(source)) for _ in range(6)]
    assert outcomes == ["accepted"] * 6
    assert len(accepts.arrived()) == 6
    assert any(receiver.arrived() for receiver in refuses)


@pytest.mark.parametrize("anonymous", [False, True])
@pytest.mark.parametrize("start", ["E", "A", "B"])
@pytest.mark.parametrize("distribution", ["closest", "balanced"])
def test_the_nearest_have_it_first_and_the_others_after_them(
    clients: Clients, nodes: Nodes, start: str, anonymous: bool, distribution: str
) -> None:
    source = f"{distribution}/farther/{start}/{anonymous}"
    consumers = Consumers(clients, source)
    others = {name: [consumers.add(nodes[name], accepts=False) for _ in range(2)] for name in ("E", "A", "B")}
    link = sender(clients, nodes[start], None if anonymous else source, consumers)
    message = _message(source)

    def asked() -> list[int]:
        return [len(one.arrived()) for receivers in others.values() for one in receivers]

    def how_often_asked() -> list[int]:
        before = asked()
        assert link.deliver(message) == "released"
        return [now - then for now, then in zip(asked(), before, strict=True)]

    clients.until(lambda: how_often_asked() == [1] * 6, "every router is told of all of them")
    assert [how_often_asked() for _ in range(3)] == [[1] * 6] * 3, "each has had each"
    before = asked()
    far = "E" if start == "B" else "B"
    accepts = consumers.add(nodes[far], accepts=True)
    assert [link.deliver(message) for _ in range(6)] == ["accepted"] * 6
    assert len(accepts.arrived()) == 6
    if distribution == "closest":
        here = list(others).index(start) * 2
        nearest = [now - then for now, then in zip(asked(), before, strict=True)][here : here + 2]
        assert nearest == [6] * 2, "those there before any other"


def _known_remotely(router: Router, source: str) -> bool:
    return any(row["name"] == source and row["remote"] > 0 for row in router.status()["addresses"])


def test_released_by_all(clients: Clients, nodes: Nodes) -> None:
    """Then it comes back, after each has had it once."""
    consumers = Consumers(clients, "resend/all")
    refuses = [consumers.add(nodes["A"], accepts=False) for _ in range(3)]
    link = sender(clients, nodes["A"], "resend/all", consumers)
    assert [link.deliver("x") for _ in range(4)] == ["released"] * 4
    assert [len(receiver.arrived()) for receiver in refuses] == [4] * 3


def test_other_outcomes_come_back_at_once(clients: Clients, nodes: Nodes) -> None:
    """So does a message whose consumer is lost, since it may have been processed."""
    first, second = (clients.connect(nodes["A"].port) for _ in range(2))
    receivers = [client.receiver("resend/others", credit=10) for client in (first, second)]
    link = clients.connect(nodes["A"].port).sender("resend/others", capability=RESEND).await_credit()
    sent = [link.send(str(number)) for number in range(4)]
    for receiver in receivers:
        receiver.expect(2)
    one, two = receivers[0].arrived()
    one.reject("acme:no", "never")
    two.modify(failed=True, undeliverable=False)
    second.drop()
    outcomes = sorted(link.outcome(item) for item in sent)
    assert outcomes == ["modified", "modified", "modified", "rejected"]


def test_what_waits_for_a_consumer_that_leaves_goes_to_another(clients: Clients, nodes: Nodes) -> None:
    client: Client = clients.connect(nodes["A"].port)
    client.receiver("resend/waits", credit=0)
    link = clients.connect(nodes["A"].port).sender("resend/waits", capability=RESEND).await_credit()
    sent = [link.send(str(number)) for number in range(5)]
    clients.round_trip()
    other = clients.connect(nodes["A"].port).receiver("resend/waits", credit=10, accept=True)
    client.close()
    assert [link.outcome(item) for item in sent] == ["accepted"] * 5
    assert sorted(other.bodies()) == [str(number) for number in range(5)]


def test_what_is_kept_is_bounded(clients: Clients, nodes: Nodes) -> None:
    """Beyond a megabyte of one sender's messages a released one comes back as usual."""
    stopped = clients.connect(nodes["A"].port).receiver("resend/bounded", credit=250)
    link = clients.connect(nodes["A"].port).sender("resend/bounded", capability=RESEND).await_credit()
    message = b"\0Su\xb0" + (50_000).to_bytes(4) + bytes(50_000)
    kept = 1024 * 1024 // len(message)
    sent = [link.send(message) for _ in range(60)]
    stopped.expect(60)
    other = clients.connect(nodes["A"].port).receiver("resend/bounded", credit=250, accept=True)
    for item in stopped.arrived():
        item.settle(Delivery.RELEASED)
    outcomes = [link.outcome(item) for item in sent]
    assert outcomes == ["accepted"] * kept + ["released"] * (60 - kept)
    assert len(other.arrived()) == kept
    clients.background.append(lambda: _release_all(stopped))
    again = [link.send(message) for _ in range(kept)]
    assert {link.outcome(item) for item in again} <= {"accepted"}, "nothing was left over"


def _release_all(receiver: Receiver) -> bool:
    for item in receiver.arrived():
        if not item.delivery.settled and item.delivery.local_state == 0:
            item.settle(Delivery.RELEASED)
    return False


def test_without_the_capability_it_comes_back(clients: Clients, nodes: Nodes) -> None:
    consumers = Consumers(clients, "resend/not")
    refuses = consumers.add(nodes["A"], accepts=False)
    accepts = consumers.add(nodes["A"], accepts=True)
    clients.background.append(consumers.settle)
    link = clients.connect(nodes["A"].port).sender("resend/not").await_credit()
    outcomes = [link.deliver("x") for _ in range(4)]
    assert outcomes.count("released") == len(refuses.arrived()) > 0
    assert outcomes.count("accepted") == len(accepts.arrived()) > 0
