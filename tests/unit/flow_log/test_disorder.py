"""Whatever is lost, doubled or overtaken on the way, the rows are what the router knows, each once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.flow_log.network import Network

from isthmus_flowlog.collector import columns
from isthmus_router.flows.records import Attr, Record, RecordType

CALM_SECONDS = 150
"""Long enough for two FLUSHes a minute apart, and all answers."""


WHAT = ("connect", "link", "link", *["summary"] * 4, "event", "end", "close")


class Router:
    """Does what routers do, at random, and knows the truth."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.network = network
        self.chance = chance
        self.records: list[Record] = []
        self.summaries: dict[str, tuple[Record, int, int]] = {}
        """(link, sequence, deliveries) by identity."""
        self.events: dict[str, str] = {}
        self.open: dict[Record, list[int]] = {}
        """Links with how many summaries they have had."""
        network.site("Paris")
        self.listener = network.listener()
        self.connections: list[Record] = []

    def step(self) -> None:
        """Something happens."""
        what = self.chance.choice(WHAT)
        network, chance = self.network, self.chance
        if what == "connect" or not self.connections:
            self.connections.append(network.connection(self.listener, f"container-{len(self.records)}"))
            self.records.append(self.connections[-1])
        elif what == "link" or not self.open:
            link = network.link(chance.choice(self.connections), f"address-{chance.randrange(3)}")
            self.records.append(link)
            self.open[link] = [0]
        elif what == "summary":
            link = chance.choice(list(self.open))
            self.open[link][0] += 1
            deliveries = chance.randrange(1, 1000)
            network.source.update(link, {Attr.DELIVERIES: deliveries})
            identity = network.summary(link, self.open[link][0], deliveries)
            self.summaries[identity] = (link, self.open[link][0], deliveries)
        elif what == "event":
            subject = f"router-{chance.randrange(5)}"
            values = {Attr.EVENT: "neighbour-up", Attr.SUBJECT: subject}
            before = len(network.source.ended)
            network.source.event(RecordType.TOPOLOGY_EVENT, network.now, values)
            if len(network.source.ended) > before:
                self.events[network.source.ended[-1].identity] = subject
        elif what == "end":
            self.end(chance.choice(list(self.open)))
        else:
            connection = self.connections.pop(chance.randrange(len(self.connections)))
            for link in [link for link in self.open if link.attributes[Attr.PARENT] == connection.identity]:
                self.end(link)
            network.source.end(connection, network.now)

    def end(self, link: Record) -> None:
        del self.open[link]
        self.network.source.end(link, self.network.now)


def check(network: Network, router: Router) -> None:
    """All rows against what the router knows."""
    by_identity = {record.identity: record for record in router.records}
    deliveries = network.rows["deliveries"]
    assert len(deliveries) == len({row["identity"] for row in deliveries}), "each once"
    found = {row["identity"]: row for row in deliveries}
    assert found.keys() == router.summaries.keys()
    for identity, (link, sequence, count) in router.summaries.items():
        connection = by_identity[str(link.attributes[Attr.PARENT])]
        row = found[identity]
        assert (row["sequence"], row["deliveries"], row["octets"]) == (sequence, count, 100 * count)
        assert row["sizes"] == [(40, count)]
        assert (row["link"], row["connection"]) == (link.identity, connection.identity)
        assert row["container"] == connection.attributes[Attr.CONTAINER]
        assert (row["address"], row["endpoint"]) == (link.attributes[Attr.VAN_ADDRESS], "clients")
        assert (row["site"], row["router"], row["router_mode"]) == ("Paris", "east", "interior")
    events = network.of("events", type="TOPOLOGY_EVENT")
    assert len(events) == len(router.events)
    assert {row["identity"]: row["subject"] for row in events} == router.events
    assert {row["router"] for row in events} <= {"east"}
    names = columns.OF_RECORDS
    for record in router.records:
        row = network.latest(record.identity)
        for name in ("parent", "start_time", "end_time", "name", "container", "user", "address"):
            attribute = names[name]
            assert not isinstance(attribute, tuple)
            assert row[name] == record.attributes.get(attribute), (record.identity, name)
    assert network.assembly.counts.malformed == 0


@given(
    st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.0, 0.2]), st.integers(0, 8)
)
@example(seed=45, loss=0.3, doubled=0.0, delay=1)  # the first answer to FLUSH is lost
@settings(max_examples=25)
def test_any_loss_doubling_and_order(seed: int, loss: float, doubled: float, delay: int) -> None:
    chance = random.Random(seed)
    bad = True

    def fate() -> list[int]:
        if not bad:
            return [0]
        copies = 0 if chance.random() < loss else 2 if chance.random() < doubled else 1
        return [chance.randint(0, delay) for _ in range(copies)]

    network = Network(fate)
    router = Router(network, chance)
    for _ in range(chance.randrange(20, 120)):
        for _ in range(chance.randrange(3)):
            router.step()
        network.tick()
    bad = False
    network.seconds(CALM_SECONDS)
    check(network, router)


@pytest.mark.parametrize("away", [0.4, 5, 30])
def test_a_connection_that_is_lost_for_a_while(away: float) -> None:
    chance = random.Random(away)
    network = Network()
    router = Router(network, chance)
    for _ in range(50):
        router.step()
        network.tick()
    network.session.disconnected()
    network.consumed.clear()
    network.under_way.clear()
    for _ in range(round(away * 5)):
        router.step()
        network.tick()
    network._do(network.session.connected(network.now))
    network.seconds(30)
    check(network, router)
    assert not network.of("records", lost=True)


def test_a_collector_that_comes_back_hears_everything_again() -> None:
    """What another one has written is written again, with the same identities."""
    chance = random.Random(1)
    first = Network()
    router = Router(first, chance)
    for _ in range(100):
        router.step()
        first.tick()
    second: Any = Network()
    second.source, second.sources, second.now = first.source, first.sources, first.now
    second.seconds(30)
    second.rows = {
        table: [
            *rows,
            *(row for row in first.rows[table] if row["identity"] not in {r["identity"] for r in rows}),
        ]
        for table, rows in second.rows.items()
    }
    check(second, router)
