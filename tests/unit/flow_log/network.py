"""A real source of flow records and the collector's state machines, with an unreliable network between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from isthmus_flowlog.collector import session as does
from isthmus_flowlog.collector import wire
from isthmus_flowlog.collector.assembly import Assembly
from isthmus_flowlog.collector.columns import LAYOUTS
from isthmus_flowlog.collector.session import Session
from isthmus_router.flows.records import Attr, Record, RecordType
from isthmus_router.flows.source import FlowSource

START = 1_795_424_400_000_000 + 60_000_000  # 2026-11-23T09:01:00Z
TICK_US = 200_000
ROUTER = {
    Attr.START_TIME: START,
    Attr.NAME: "0/east",
    Attr.MODE: "interior",
    Attr.HOSTNAME: "pod-0",
    Attr.BUILD_VERSION: "1",
}

Fate = Callable[[], list[int]]
"""Of a message: after how many ticks its copies arrive."""


def at_once() -> list[int]:
    """A reliable network."""
    return [0]


class Network:
    """Time goes by in ticks of a fifth of a second."""

    def __init__(self, fate: Fate = at_once, *, wanted: Callable[[str], bool] | None = None) -> None:
        self.now = START
        self.fate = fate
        self.source = self.a_source("abcde:0")
        self.sources = {self.source.name: self.source}
        self.session = Session()
        self.assembly = Assembly(wanted)
        self.consumed: set[str] = set()
        self.under_way: list[tuple[int, int, str, bytes]] = []
        self.ticks = 0
        self.sent = 0
        self.flushes = 0
        self.actions: list[does.Action] = []
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in LAYOUTS}
        self._do(self.session.connected(self.now))

    def a_source(self, name: str, **changes: Any) -> FlowSource:
        """Another run of a router."""
        values = {
            **ROUTER,
            Attr.START_TIME: self.now,
            **{Attr[key.upper()]: value for key, value in changes.items()},
        }
        return FlowSource(name, values)

    def tick(self, count: int = 1) -> None:
        """Time goes by."""
        for _ in range(count):
            self.ticks += 1
            self.now += TICK_US
            for source in self.sources.values():
                for message in source.on_tick(self.now, self.consumed.__contains__):
                    for delay in self.fate():
                        self.sent += 1
                        self.under_way.append((self.ticks + delay, self.sent, message.to, message.payload))
            due = sorted(item for item in self.under_way if item[0] <= self.ticks)
            self.under_way = [item for item in self.under_way if item[0] > self.ticks]
            for _, _, address, payload in due:
                self.now += 1
                self.arrive(address, payload)
            self._do(self.session.tick(self.now))
            self.assembly.tick(self.now)
            for name in self.assembly.to_ask:
                self.session.ask_again(name)
            self.assembly.to_ask.clear()
            self._take()

    def seconds(self, seconds: float) -> None:
        """Time goes by."""
        self.tick(round(seconds * 5))

    def arrive(self, address: str, payload: bytes) -> None:
        """A message has come."""
        message = wire.read(payload)
        if isinstance(message, wire.Beacon):
            self._do(self.session.beacon(message, self.now))
            return
        source = self.session.source_of(address)
        if source is None or message is None:
            return
        self.session.heard(source, message.number, self.now)
        records = message.records if isinstance(message, wire.Records) else None
        self.assembly.heard(source.name, self.now, records, source.missed)
        while self.assembly.unwanted:
            self._do(self.session.unwanted(self.assembly.unwanted.pop()))

    def _do(self, actions: list[does.Action]) -> None:
        for action in actions:
            self.actions.append(action)
            match action:
                case does.Receive(address):
                    self.consumed.add(address)
                case does.Release(addresses, _):
                    self.consumed.difference_update(addresses)
                case does.Flush(source, _):
                    self.flushes += 1
                    arrives = bool(self.fate()) and source in self.sources
                    if arrives:
                        self.sources[source].on_command(FLUSH)
                    self.session.flushed(source, arrives)
                case does.Lost(source):
                    self.assembly.lost(source, self.now)
                case does.Forgotten(source):
                    self.assembly.forgotten(source)

    def _take(self) -> None:
        for table, rows in self.assembly.take().items():
            names = LAYOUTS[table].names
            self.rows[table] += [dict(zip(names, row, strict=True)) for row in rows]

    def close(self) -> None:
        """The collector ends."""
        self.assembly.close()
        self._take()

    def of(self, table: str, **wanted: Any) -> list[dict[str, Any]]:
        """Rows with these values."""
        return [row for row in self.rows[table] if all(row[name] == value for name, value in wanted.items())]

    def latest(self, identity: str) -> dict[str, Any]:
        """How a record was last, by its rows."""
        return max(self.of("records", identity=identity), key=lambda row: row["heard_at"])

    # What the router does

    def site(self, name: str) -> Record:
        """The router is in a site."""
        record = self.source.begin(RecordType.SITE, None, self.now, {Attr.NAME: name})
        self.source.update(self.source.router, {Attr.PARENT: record.identity})
        return record

    def listener(self, name: str = "clients") -> Record:
        """A listener opens."""
        return self.source.begin(RecordType.LISTENER, self.source.router, self.now, {Attr.NAME: name})

    def connection(self, parent: Record, container: str = "shop") -> Record:
        """A client connects."""
        values = {
            Attr.ROLE: "normal",
            Attr.CONTAINER: container,
            Attr.USER: "anna",
            Attr.SOURCE_HOST: "10.1.2.3",
            Attr.SOURCE_PORT: "4711",
            Attr.ACTIVE_TLS_ORDINAL: 3,
        }
        return self.source.begin(RecordType.CONNECTION, parent, self.now, values)

    def link(self, connection: Record, address: str | None = "orders", name: str = "sender") -> Record:
        """It attaches a link."""
        values = {Attr.NAME: name, Attr.DIRECTION: "in", Attr.VAN_ADDRESS: address}
        return self.source.begin(RecordType.AMQP_LINK, connection, self.now, values)

    def summary(self, parent: Record, sequence: int, deliveries: int, **more: Any) -> str:
        """An interval ends; the identity of its record."""
        values: Mapping[Attr, Any] = {
            Attr.DIRECTION: "in",
            Attr.VAN_ADDRESS: parent.attributes.get(Attr.VAN_ADDRESS),
            Attr.SEQUENCE: sequence,
            Attr.DELIVERIES: deliveries,
            Attr.OCTETS: 100 * deliveries,
            Attr.SIZES: {40: deliveries},
            **{Attr[key.upper()]: value for key, value in more.items()},
        }
        self.source.past(RecordType.DELIVERY_SUMMARY, parent, self.now - 1_000_000, self.now, values)
        return self.source.ended[-1].identity


FLUSH = b"\x00\x53\x73\xc0\x0b\x04\x40\x40\x40\xa1\x05FLUSH"  # properties with a subject only
