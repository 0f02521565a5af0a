"""A rotation while the old connection is slow: what is sent on the new one waits, so that the order is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.links import Receiver, Sender, Sent
from tests.integration.support.management import Manager
from tests.integration.support.relay import Relay, Relayed, Way
from tests.integration.support.rotation import RotatingNetwork
from tests.integration.support.routers import Routers, eventually

BATCH = 20
NARROW = {"maxFrameSize": 16384, "maxSessionFrames": 20}
"""Little of what is sent finds room on the way to a router that does not read."""


@dataclass
class Crossing:
    """Numbered messages from one router to the other, over a connector of A whose connections are relayed."""

    network: RotatingNetwork
    clients: Clients
    relay: Relay
    sender: Sender
    receiver: Receiver
    role: str
    """Of the connector: A is an interior router or an edge."""
    forth: bool
    """From A to B."""
    manager: Manager
    """Of the router where the messages start."""
    sent: list[Sent]

    def send(self, count: int = BATCH, size: int = 0) -> None:
        """Send more messages and let the router have them; every second one is pre-settled, unless they are large."""
        for number in range(len(self.sent), len(self.sent) + count):
            self.sent.append(self.sender.send(f"{number}:{'x' * size}", settled=number % 2 == 1 and not size))
        self.clients.round_trip()

    @property
    def arrived(self) -> list[int]:
        """The numbers of what has arrived."""
        return [int(body.partition(":")[0]) for body in self.receiver.bodies()]

    def outcomes(self, start: int, end: int) -> list[str | None]:
        """Of the unsettled ones among these."""
        return [sent.outcome for sent in self.sent[start:end:2]]

    def await_all(self, start: int = 0) -> None:
        """All from number `start` on arrive once and in order, and are accepted."""
        self.clients.until(lambda: len(self.arrived) >= len(self.sent) - start, "everything arrives")
        self.clients.until(lambda: None not in self.outcomes(0, len(self.sent)), "every outcome")
        assert self.arrived == list(range(start, len(self.sent)))
        assert set(self.outcomes(start, len(self.sent))) == {"accepted"}

    def rotate(self, ordinal: int) -> Relayed:
        """A connection of that ordinal takes over; that connection."""
        count = len(self.relay.connections)
        self.network.rotate("A", ordinal)
        self.network.await_rotated("A", ordinal)
        if self.role == "edge":
            eventually(self._proxied_on_newest, "messages take the new connection")
        return self.relay.connections[count]

    def _proxied_on_newest(self) -> bool:
        """Whether the router where the messages start has a way for them on the last connection that was opened."""
        rows = [row for row in self.manager.query("connection") if row["role"] == self.role]
        newest = max((row["identity"] for row in rows), key=int)
        return any(
            (row["connectionId"], row["linkDir"], row["owningAddr"]) == (newest, "out", "Mcrossing")
            for row in self.manager.query("router.link", "connectionId", "linkDir", "owningAddr")
        )

    def controls(self, status: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
        """The control connections, or an edge's only ones, to the other router."""
        return [row for row in status["connections"] if row["role"] == self.role]

    def stop(self, connection: Relayed) -> Way:
        """Nothing arrives any more on this connection, in the direction of the messages."""
        way = connection.there if self.forth else connection.back
        self.relay.stop(way)
        return way

    def assert_nothing_arrives(self) -> None:
        """Although both routers have had many occasions."""
        self.clients.standstill(lambda: len(self.receiver.received), self.clients.round_trip)
        assert self.arrived == []


WAYS = {
    f"{role}-{'there' if forth else 'back'}": (role, forth)
    for role in ("inter-router", "edge")
    for forth in (True, False)
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def crossing(
    request: pytest.FixtureRequest, routers: Routers, clients: Clients, tmp_path: Path
) -> Iterator[Crossing]:
    role, forth = request.param
    network = RotatingNetwork(routers, clients, tmp_path)
    if role == "edge":
        network.interior("B")
        network.edge("A", "B")
        port = network.edge_ports["B"]
    else:
        network.line("A", "B")
        port = network.inter_router_ports["B"]
    network.secure("A", "B")
    with Relay(port) as relay:
        for router_id in "AB":
            for _, section in network[router_id].sections:
                if section.get("role") == role:
                    section.update(NARROW)
                if section.get("name") == "to-B":
                    section["port"] = relay.port
        network["B"].start()  # first, so that the first connection is the one that counts
        network.start()
        network.await_ordinal("A", 1)
        start, end = ("A", "B") if forth else ("B", "A")
        receiver = clients.connect(network[end].port).receiver("crossing", accept=True)
        client = clients.connect(network[start].port)
        sender = client.sender("crossing").await_credit(200)
        yield Crossing(network, clients, relay, sender, receiver, role, forth, Manager(client), [])


def test_what_is_new_waits_for_what_was_sent_before(crossing: Crossing) -> None:
    crossing.receiver.grant(100)
    way = crossing.stop(crossing.relay.connections[0])
    crossing.send()
    crossing.rotate(2)
    crossing.send()
    crossing.assert_nothing_arrives()
    crossing.relay.go_on(way)
    crossing.await_all()


def test_what_is_new_waits_for_what_could_not_be_sent_yet(crossing: Crossing) -> None:
    """More than the connection takes in while it is stopped: the rest is in the engine, or waits for it."""
    crossing.receiver.grant(500)
    way = crossing.stop(crossing.relay.connections[0])
    crossing.send(60, size=50_000)
    crossing.rotate(2)
    crossing.send()
    crossing.assert_nothing_arrives()
    crossing.relay.go_on(way)
    crossing.await_all()


def test_rotations_while_the_first_is_not_yet_handed_over(crossing: Crossing) -> None:
    crossing.receiver.grant(200)
    way = crossing.stop(crossing.relay.connections[0])
    crossing.send()
    for ordinal in (2, 3, 4):
        crossing.rotate(ordinal)
        crossing.send()
    crossing.assert_nothing_arrives()
    crossing.relay.go_on(way)
    crossing.await_all()


def test_a_connection_is_lost_to_which_nothing_was_handed_over_yet(crossing: Crossing) -> None:
    """What has passed it by still waits for the connection before it."""
    crossing.receiver.grant(200)
    way = crossing.stop(crossing.relay.connections[0])
    crossing.send()
    second = crossing.rotate(2)
    crossing.send()
    crossing.rotate(3)
    crossing.send()
    second.cut()
    for router_id in "AB":
        crossing.network.await_status(
            router_id, lambda status: len(crossing.controls(status)) == 2, "one is lost"
        )
    crossing.assert_nothing_arrives()
    crossing.relay.go_on(way)
    crossing.await_all()


def test_the_old_connection_is_lost_before_all_has_arrived(crossing: Crossing) -> None:
    """What was under way is lost with it, as its sender learns; what had not been sent yet arrives."""
    crossing.receiver.grant(100)
    crossing.stop(crossing.relay.connections[0])
    crossing.send()
    crossing.rotate(2)
    crossing.send()
    crossing.relay.connections[0].cut()
    crossing.await_all(start=BATCH)
    assert set(crossing.outcomes(0, BATCH)) == {"modified"}


def test_a_slow_consumer(crossing: Crossing) -> None:
    """The other router cannot read on; what it has not read on the old connection comes first all the same."""
    crossing.send(25, size=50_000)  # more than is read while none is consumed, but all of it is on its way
    crossing.rotate(2)
    crossing.send(60, size=50_000)
    crossing.rotate(3)
    crossing.send(60, size=50_000)
    crossing.assert_nothing_arrives()
    crossing.receiver.grant(500)
    crossing.await_all()


def test_a_large_message_that_came_on_the_link_of_all_others(crossing: Crossing) -> None:
    """Nobody takes it yet: it is not read, and what is behind it has arrived but cannot be read before it.

    Large ones have links of their own, but for those that a router has whole when it first looks at them: here
    because it could not read on.
    """
    crossing.receiver.replenish = False
    crossing.receiver.grant(60)
    way = crossing.stop(crossing.relay.connections[0])
    crossing.send(60, size=50_000)
    crossing.send(1, size=200_000)
    crossing.send()
    crossing.relay.go_on(way)
    crossing.receiver.expect(60)
    crossing.clients.standstill(lambda: len(crossing.receiver.received), crossing.clients.round_trip)
    crossing.rotate(2)
    crossing.send()
    crossing.clients.standstill(lambda: len(crossing.receiver.received), crossing.clients.round_trip)
    assert len(crossing.arrived) == 60
    crossing.receiver.grant(100)
    crossing.await_all()
