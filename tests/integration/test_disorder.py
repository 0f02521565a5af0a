"""Clients that do everything at random: no router may fall over, and no delivery may be forgotten."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from proton import Delivery, Message
from tests.integration.support.client import Client, Clients, Receiver, Sender, Sent
from tests.integration.support.routers import Routers, address
from tests.integration.support.topology import Network

NAMES = ("closest/a", "balanced/b", "multicast/c", "balanced/d")
SECONDS = 6.0


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """E - A - B."""
    routers = Routers(tmp_path_factory.mktemp("disorder"))
    network = Network(routers, common=(address("multicast", "multicast"), address("closest", "closest")))
    network.line("A", "B")
    network.edge("E", "A")
    yield network.start()
    routers.stop()


class Disorder:
    """Random steps; everything that was sent unsettled is remembered with its sender."""

    def __init__(self, clients: Clients, network: Network, seed: int) -> None:
        self.clients = clients
        self.ports = [network[router_id].port for router_id in ("A", "B", "E")]
        self.random = random.Random(seed)
        self.receivers: list[Receiver] = []
        self.senders: list[Sender] = []
        self.open: dict[Sender, Sent] = {}
        """Deliveries begun and not finished."""
        self.sent: list[tuple[Sender, Sent]] = []

    def client(self) -> Client:
        """One of the clients that are connected, or a new one."""
        alive = [client for client in self.clients.all if not client.finished]
        if len(alive) < 12 or self.random.random() < 0.1:
            return self.clients.connect(self.random.choice(self.ports))
        return self.random.choice(alive)

    def step(self) -> None:
        """Do something."""
        steps = {
            self.attach_receiver: 6,
            self.attach_sender: 6,
            self.send: 40,
            self.stream: 6,
            self.go_on: 20,
            self.settle: 40,
            self.grant: 20,
            self.pause: 3,
            self.detach: 5,
            self.drop: 1,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()
        if self.random.random() < 0.2:
            for _ in range(self.random.choice((1, 2, 10))):
                self.clients.step()

    def attach_receiver(self) -> None:
        credit = self.random.choice((0, 1, 5, 100))
        name = self.random.choice(NAMES)
        self.receivers.append(self.client().receiver(name, credit=credit, wait=False))

    def attach_sender(self) -> None:
        name = self.random.choice((*NAMES, None))
        self.senders.append(self.client().sender(name, wait=False))

    def sender(self) -> Sender | None:
        """A sender that may begin a delivery."""
        self.senders = [sender for sender in self.senders if not sender.client.finished]
        able = [sender for sender in self.senders if sender.credit > 0 and sender not in self.open]
        return self.random.choice(able) if able else None

    def send(self) -> None:
        sender = self.sender()
        if sender is None:
            return
        for _ in range(min(sender.credit, self.random.choice((1, 5, 20)))):
            size = self.random.choice((10, 1000, 20_000))
            message = Message(address=self.random.choice(NAMES), body=b"x" * size)
            settled = self.random.random() < 0.1
            sent = sender.send(message, settled=settled)
            if not settled:
                self.sent.append((sender, sent))

    def stream(self) -> None:
        sender = self.sender()
        if sender is not None:
            data = Message(address=self.random.choice(NAMES)).encode()
            sent = sender.begin(data + b"\x00\x53\x75\xb0" + (5_000_000).to_bytes(4, "big"))
            self.open[sender] = sent

    def go_on(self) -> None:
        self.open = {sender: sent for sender, sent in self.open.items() if not sender.client.finished}
        if not self.open:
            return
        sender, sent = self.random.choice(list(self.open.items()))
        what = self.random.random()
        if what < 0.7:
            if sender.client.session.outgoing_bytes < 1_000_000:
                sender.more(bytes(self.random.choice((1000, 50_000, 200_000))))
            return
        del self.open[sender]
        if what < 0.9:
            sender.finish()
            self.sent.append((sender, sent))
        else:
            sender.abort(sent)

    def settle(self) -> None:
        self.receivers = [receiver for receiver in self.receivers if not receiver.client.finished]
        if not self.receivers:
            return
        receiver = self.random.choice(self.receivers)
        for item in [item for item in receiver.received if item.complete][:20]:
            receiver.received.remove(item)
            if item.aborted:
                continue
            state = self.random.choice(
                (Delivery.ACCEPTED, Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED)
            )
            item.settle(None if self.random.random() < 0.05 else state)

    def grant(self) -> None:
        if self.receivers:
            self.random.choice(self.receivers).grant(self.random.choice((1, 10, 50)))

    def pause(self) -> None:
        client = self.client()
        client.reading = not client.reading

    def detach(self) -> None:
        links = [link for link in (*self.receivers, *self.senders) if not link.client.finished]
        if links:
            link = self.random.choice(links)
            self.forget(link)
            link.link.close()

    def drop(self) -> None:
        client = self.client()
        for link in [*client.receivers.values(), *client.senders.values()]:
            self.forget(link)
        client.drop()

    def forget(self, link: Sender | Receiver) -> None:
        """The link's deliveries will have no outcome."""
        if isinstance(link, Receiver):
            if link in self.receivers:
                self.receivers.remove(link)
            return
        if link in self.senders:
            self.senders.remove(link)
        self.open.pop(link, None)
        self.sent = [(sender, sent) for sender, sent in self.sent if sender is not link]

    def end(self) -> Counter[str | None]:
        """Finish or abort what is open, drop every receiver's client, and wait for all outcomes."""
        for client in self.clients.all:
            client.reading = True
        for sender, sent in self.open.items():
            if not sender.client.finished:
                sender.finish()
                self.sent.append((sender, sent))
        self.open = {}
        self.clients.round_trip()
        for receiver in self.receivers:
            if not receiver.client.finished:
                receiver.link.close()
        self.clients.until(
            lambda: all(sent.outcome is not None for sender, sent in self.sent if not sender.client.finished),
            "every delivery has an outcome",
            30,
        )
        return Counter(sent.outcome for _, sent in self.sent)


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_at_random(clients: Clients, network: Network, seed: int) -> None:
    disorder = Disorder(clients, network, seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        disorder.step()
    outcomes = disorder.end()
    assert outcomes["accepted"] > 0
    assert outcomes["released"] > 0
    # And afterwards everything is as usual.
    receiver = clients.connect(network["B"].port).receiver(f"after/{seed}", credit=10, accept=True)
    sender = clients.connect(network["E"].port).sender(f"after/{seed}")
    clients.until(lambda: sender.credit > 0, "credit")
    assert sender.deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]
