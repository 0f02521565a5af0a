"""What happens in a router as records: nothing twice, nothing lost beyond the limits, names that are bounded."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.config.loader import parse
from isthmus_router.core import sums
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.flows import processes
from isthmus_router.flows import recorder as limits
from isthmus_router.flows.recorder import DYNAMIC, Recorder
from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.flows.source import FlowSource
from isthmus_router.flows.summary import Reading, Standing

CONFIGURATION = json.dumps(
    [
        ("router", {"mode": "interior", "id": "ME"}),
        ("listener", {"name": "clients", "port": 5672}),
        ("listener", {"name": "routers", "role": "inter-router", "port": 5673}),
        ("listener", {"name": "health", "http": True, "port": 8080}),
        ("sslProfile", {"name": "net", "caCertFile": "ca.crt"}),
        (
            "connector",
            {
                "name": "east",
                "role": "inter-router",
                "host": "b",
                "port": 5673,
                "cost": 4,
                "sslProfile": "net",
            },
        ),
        ("connector", {"name": "broker", "role": "route-container", "host": "q", "port": 5672}),
    ]
)


class Recorded:
    """A router in memory with a recorder, and what the recorder has said."""

    def __init__(self) -> None:
        self.router = RouterInMemory()
        self.now = 1_000_000
        self.unread: dict[Link, Reading] = {}
        self.source = FlowSource("abcde:0", {Attr.START_TIME: self.now})
        self.standing: dict[Link, Standing] = {}
        self.recorder = Recorder(
            self.router.core,
            self.source,
            lambda: self.now,
            lambda link: self.unread.pop(link, None),
            lambda link: self.standing.get(link, Standing()),
        )

    def of(self, record_type: RecordType) -> list[dict[Attr, Any]]:
        records = [*self.source.records.values(), *self.source.ended]
        return [record.attributes for record in records if record.type is record_type]

    def deliver(self, link: Link, count: int, size: int = 100) -> None:
        """What the kernel would have done."""
        link.deliveries += count
        link.accepted += count
        before = self.unread.get(link, Reading(0, {}, {}))
        self.unread[link] = Reading(
            before.octets + count * size, {size: before.sizes.get(size, 0) + count}, {}
        )

    def interval(self) -> None:
        """The counters are read, and summaries made."""
        self.now += 1_000_000
        for link in list(self.unread):
            self.recorder.reading(link, self.unread.pop(link))
        for _ in self.recorder.intervals_end():
            pass

    def close(self, connection: Connection) -> None:
        for link in list(connection.links):
            self.router.core.link_closed(link)
        self.router.core.connection_closed(connection)

    def summed(self, attribute: Attr = Attr.DELIVERIES) -> int:
        return sum(summary[attribute] for summary in self.of(RecordType.DELIVERY_SUMMARY))


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_connectors_and_listeners(recorded: Recorded) -> None:
    configuration = parse(CONFIGURATION, "f")
    for _ in range(2):
        recorded.recorder.configure(configuration.connectors, configuration.listeners)
    (link,) = recorded.of(RecordType.LINK)
    assert (link[Attr.NAME], link[Attr.LINK_COST], link[Attr.OPER_STATUS]) == ("east", 4, "down")
    assert (link[Attr.PROTOCOL], link[Attr.SSL_PROFILE]) == ("amqps", "net")
    assert [record[Attr.NAME] for record in recorded.of(RecordType.CONNECTOR)] == ["broker"]
    assert [record[Attr.NAME] for record in recorded.of(RecordType.LISTENER)] == ["clients"]
    assert [record[Attr.NAME] for record in recorded.of(RecordType.ROUTER_ACCESS)] == ["routers"]
    core = recorded.router.core
    for down_count in (1, 2):
        connection = Connection(
            7, Role.INTER_ROUTER, incoming=False, name="b:5673", endpoint="east", container="B"
        )
        core.connection_opened(connection)
        assert (link[Attr.OPER_STATUS], link[Attr.CONTAINER]) == ("up", "B")
        core.connection_closed(connection)
        assert (link[Attr.OPER_STATUS], link[Attr.DOWN_COUNT]) == ("down", down_count)
    recorded.recorder.configure((), ())
    assert all(Attr.END_TIME in record for record in recorded.of(RecordType.LINK))
    assert set(recorded.source.records) == {"abcde:0"}


def test_a_link_has_summaries_of_its_intervals_and_totals(recorded: Recorded) -> None:
    recorded.router.receiver("q")
    sender = recorded.router.sender("q")
    started = recorded.now
    for count in (3, 4):
        recorded.deliver(sender, count)
        recorded.interval()
    recorded.interval()
    recorded.deliver(sender, 5)
    recorded.close(sender.connection)
    summaries = recorded.of(RecordType.DELIVERY_SUMMARY)
    assert [summary[Attr.DELIVERIES] for summary in summaries] == [3, 4, 5]
    assert [summary[Attr.OCTETS] for summary in summaries] == [300, 400, 500]
    assert [summary[Attr.SEQUENCE] for summary in summaries] == [1, 2, 3]
    assert [summary[Attr.SIZES] for summary in summaries] == [{100: 3}, {100: 4}, {100: 5}]
    ends = [(summary[Attr.START_TIME] - started, summary[Attr.END_TIME] - started) for summary in summaries]
    assert ends == [(0, 1_000_000), (1_000_000, 2_000_000), (3_000_000, 3_000_000)]
    (link,) = [record for record in recorded.of(RecordType.AMQP_LINK) if record[Attr.DIRECTION] == "in"]
    assert (link[Attr.DELIVERIES], link[Attr.OCTETS], link[Attr.VAN_ADDRESS]) == (12, 1200, "q")
    assert link[Attr.END_TIME] == recorded.now


def test_while_nobody_listens_the_interval_goes_on(recorded: Recorded) -> None:
    recorded.router.receiver("q")
    sender = recorded.router.sender("q")
    started = recorded.now
    for count in (3, 4):
        recorded.deliver(sender, count)
        recorded.recorder.reading(sender, recorded.unread.pop(sender))
    recorded.interval()
    (summary,) = recorded.of(RecordType.DELIVERY_SUMMARY)
    assert (summary[Attr.DELIVERIES], summary[Attr.START_TIME]) == (7, started)


def test_what_is_beyond_the_limits_counts_with_what_it_is_part_of(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_LINKS", 2)
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 3)
    router = recorded.router
    router.receiver("q")
    first = router.connection()
    links = [router.sender("q", first) for _ in range(3)] + [router.sender("q") for _ in range(3)]
    for link in links:
        recorded.deliver(link, 10)
    recorded.interval()
    parents = [summary[Attr.PARENT] for summary in recorded.of(RecordType.DELIVERY_SUMMARY)]
    assert len(set(parents)) == len(parents)
    assert "abcde:0" in parents
    assert recorded.summed() == 60
    assert len(recorded.of(RecordType.CONNECTION)) == 3
    assert len(recorded.of(RecordType.AMQP_LINK)) == 2
    assert recorded.source.router.attributes[Attr.NOT_RECORDED] >= 2
    for link in links:
        recorded.deliver(link, 1)
    for connection in {link.connection for link in links}:
        recorded.close(connection)
    recorded.interval()
    assert recorded.summed() == 66


def test_links_between_routers_are_summed_up_by_connection(recorded: Recorded) -> None:
    connection = recorded.router.connection(Role.INTER_ROUTER)
    links = [
        Link(number, connection, Direction.IN, "x", source=Terminus(), target=Terminus()) for number in (1, 2)
    ]
    connection.links.update(links)
    for link in links:
        recorded.deliver(link, 5)
    recorded.interval()
    (summary,) = recorded.of(RecordType.DELIVERY_SUMMARY)
    (record,) = recorded.of(RecordType.CONNECTION)
    assert (summary[Attr.DELIVERIES], summary[Attr.DIRECTION]) == (10, "in")
    assert summary[Attr.PARENT] == next(
        identity for identity, item in recorded.source.records.items() if item.attributes is record
    )
    assert recorded.of(RecordType.AMQP_LINK) == []


def test_made_up_names_are_not_recorded(recorded: Recorded) -> None:
    link = recorded.router.attach(None, Direction.OUT, Terminus(dynamic=True), Terminus())
    recorded.deliver(link, 1)
    recorded.interval()
    (record,) = recorded.of(RecordType.AMQP_LINK)
    assert record[Attr.VAN_ADDRESS] == DYNAMIC
    assert recorded.of(RecordType.ADDRESS) == []


def test_what_collectors_are_told_is_no_traffic(recorded: Recorded) -> None:
    recorded.deliver(recorded.router.receiver("mc/sfe.all"), 7)
    recorded.deliver(recorded.router.sender("sfe.abcde:0"), 1)
    recorded.interval()
    assert recorded.of(RecordType.DELIVERY_SUMMARY) == []
    assert recorded.of(RecordType.AMQP_LINK) == []


def test_addresses_come_with_deliveries_and_end(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ADDRESSES", 2)
    receivers = [recorded.router.receiver(f"q{number}") for number in range(3)]
    for receiver in receivers:
        recorded.deliver(receiver, 2)
    recorded.interval()
    assert [record[Attr.VAN_ADDRESS] for record in recorded.of(RecordType.ADDRESS)] == ["q0", "q1"]
    assert all(record[Attr.DELIVERIES_OUT] == 2 for record in recorded.of(RecordType.ADDRESS))
    for receiver in receivers:
        recorded.close(receiver.connection)
    recorded.interval()
    assert all(Attr.END_TIME in record for record in recorded.of(RecordType.ADDRESS))


def test_addresses_that_are_gone_make_room_without_a_collector(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_ADDRESSES", 2)
    for names in (["a", "b"], ["c", "d"]):
        receivers = [recorded.router.receiver(name) for name in names]
        for receiver in receivers:
            recorded.deliver(receiver, 1)
            recorded.recorder.reading(receiver, recorded.unread.pop(receiver))
        list(recorded.recorder.unheard_interval_ends())
        of_clients = [record for record in recorded.of(RecordType.ADDRESS) if Attr.END_TIME not in record]
        assert [record[Attr.VAN_ADDRESS] for record in of_clients] == names
        for receiver in receivers:
            recorded.close(receiver.connection)
        list(recorded.recorder.unheard_interval_ends())
    assert all(Attr.END_TIME in record for record in recorded.of(RecordType.ADDRESS))


@pytest.mark.parametrize("step", range(6))
def test_an_address_that_ends_while_its_deliveries_are_added_up(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """And comes again: the record of the new one stays."""
    monkeypatch.setattr(sums, "LINKS_PER_STEP", 1)
    receivers = [recorded.router.receiver("q") for _ in range(4)]
    recorded.deliver(receivers[0], 2)
    recorded.recorder.reading(receivers[0], recorded.unread.pop(receivers[0]))
    steps = recorded.recorder.intervals_end()
    found = sum(1 for _ in islice(steps, 4 + 1 + step))  # a step for each link, and for their summary
    assert found == 5 + min(step, 4)
    for receiver in receivers:
        recorded.close(receiver.connection)
    receiver = recorded.router.receiver("q")
    recorded.deliver(receiver, 1)
    recorded.recorder.reading(receiver, recorded.unread.pop(receiver))
    list(steps)
    recorded.interval()
    records = recorded.of(RecordType.ADDRESS)
    assert sorted(Attr.END_TIME in record for record in records) == [False, True]
    (present,) = (record for record in records if Attr.END_TIME not in record)
    assert present[Attr.DELIVERIES_OUT] == 1


def test_what_waits_is_told_though_nothing_flows(recorded: Recorded) -> None:
    recorded.router.receiver("q")
    sender = recorded.router.sender("q")
    started = recorded.now
    recorded.standing[sender] = Standing(3, 700_000, 0)
    recorded.interval()
    recorded.standing[sender] = Standing(0, 0, 600_000)
    recorded.interval()
    del recorded.standing[sender]
    recorded.interval()
    told = recorded.of(RecordType.DELIVERY_SUMMARY)
    attributes = (Attr.UNSETTLED, Attr.OLDEST_UNSETTLED, Attr.NO_CREDIT, Attr.DELIVERIES)
    assert [tuple(summary[attribute] for attribute in attributes) for summary in told] == [
        (3, 700_000, 0, 0),
        (0, 0, 600_000, 0),
    ]
    assert told[0][Attr.START_TIME] == started
    assert told[1][Attr.START_TIME] == told[0][Attr.END_TIME]


def test_no_interval_is_longer_without_credit_than_it_is(recorded: Recorded) -> None:
    link = recorded.router.receiver("q")
    recorded.interval()
    recorded.standing[link] = Standing(0, 0, 77_000_000)
    recorded.interval()
    (summary,) = recorded.of(RecordType.DELIVERY_SUMMARY)
    assert summary[Attr.NO_CREDIT] == summary[Attr.END_TIME] - summary[Attr.START_TIME] == 1_000_000


def test_links_between_routers_are_as_the_worst_of_them(recorded: Recorded) -> None:
    connection = recorded.router.connection(Role.INTER_ROUTER)
    links = [
        Link(number, connection, Direction.OUT, "x", source=Terminus(), target=Terminus())
        for number in range(3)
    ]
    connection.links.update(links)
    for link in links:
        recorded.standing[link] = Standing(2, 100 + link.id, 200 + link.id)
    for link in links[1:]:  # the first one has never had a delivery
        link.deliveries = 1
    recorded.interval()
    (summary,) = recorded.of(RecordType.DELIVERY_SUMMARY)
    assert (summary[Attr.UNSETTLED], summary[Attr.OLDEST_UNSETTLED], summary[Attr.NO_CREDIT]) == (4, 102, 202)


def client(number: int, host: str, container: str, role: Role = Role.NORMAL) -> Connection:
    return Connection(number, role, incoming=True, name=f"{host}:{number}", container=container)


def test_processes_are_hosts_with_a_container_id(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_PROCESSES", 2)
    connections = [
        client(1, "10.0.0.1", "billing"),
        client(2, "10.0.0.1", "billing"),
        client(3, "[fd00::1]", "billing"),
        client(4, "10.0.0.3", "one too many"),
        client(5, "10.0.0.4", "B", Role.INTER_ROUTER),
    ]
    for connection in connections:
        recorded.router.core.connection_opened(connection)
    first, second = recorded.of(RecordType.PROCESS)
    assert (first[Attr.NAME], first[Attr.SOURCE_HOST], first[Attr.LINK_COUNT]) == ("billing", "10.0.0.1", 2)
    assert (second[Attr.SOURCE_HOST], second[Attr.LINK_COUNT]) == ("fd00::1", 1)
    mentioned = [record.get(Attr.PROCESS) for record in recorded.of(RecordType.CONNECTION)]
    assert mentioned[0] == mentioned[1] != mentioned[2]
    assert mentioned[3:] == [None, None]
    recorded.router.core.connection_closed(connections[0])
    assert (first[Attr.LINK_COUNT], Attr.END_TIME in first) == (1, False)
    for connection in connections[1:]:
        recorded.router.core.connection_closed(connection)
    assert (first[Attr.LINK_COUNT], first[Attr.END_TIME]) == (0, recorded.now)
    assert Attr.END_TIME in second
    recorded.router.core.connection_opened(client(6, "10.0.0.3", "now there is room"))
    assert len(recorded.of(RecordType.PROCESS)) == 3
