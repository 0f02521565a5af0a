"""What happens in the router, as records: connections, links, addresses, summaries of deliveries, events.

Follows the core as an observer. Deliveries it does not see: what they add up to it is told by `reading`, link by
link, once in an interval. There are never more records of a kind than the limits here; what is beyond counts with
what it is part of (a link with its connection, a connection with the router).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from isthmus_router.config.model import ConnectorConfig, ListenerConfig
from isthmus_router.core.address import Address, normalise
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.sums import LINKS_PER_STEP, sums_of
from isthmus_router.core.terms import COORDINATOR, LinkType, Terminus
from isthmus_router.flows.processes import Processes
from isthmus_router.flows.records import Attr, Record, RecordType, Value
from isthmus_router.flows.source import FlowSource
from isthmus_router.flows.summary import LinkCounts, Reading, Standing, Summary

MOST_CONNECTIONS = 2000
MOST_LINKS = 5000
MOST_ADDRESSES = 5000
ROUTES_LOOKED_AT = 1000
"""Of a link on which messages name their destinations: as many addresses are found by it in an interval."""
DYNAMIC = "(dynamic)"
"""In place of names that the router has made up."""
_BETWEEN_ROUTERS = (Role.INTER_ROUTER, Role.EDGE)
_COLLECTORS = ("mc/sfe.", "sfe.")
_INTERNAL = ("_", "$", "temp.", "qdrouter", "qdhello", *_COLLECTORS)


@dataclass(slots=True)
class Subject:
    """What deliveries are summed up for: a link's record, or one direction of a connection's or of the router's."""

    record: Record
    direction: str
    address: str | None
    summary: Summary
    sequence: int = 0


@dataclass(slots=True)
class Endpoint:
    """A connector or a listener."""

    record: Record
    connections: int = 0


class Recorder:
    """An observer of the core. `now` is the time in microseconds since the epoch."""

    def __init__(
        self,
        core: RouterCore,
        source: FlowSource,
        now: Callable[[], int],
        read: Callable[[Link], Reading | None],
        standing: Callable[[Link], Standing],
    ) -> None:
        """`read` takes what the kernel has counted of a link; `standing` says how it is at the end of an interval."""
        self._core = core
        self._source = source
        self._now = now
        self._read = read
        self._standing = standing
        self._processes = Processes(source, now)
        self._endpoints: dict[str, Endpoint] = {}
        self._connections: dict[Connection, Record] = {}
        self._links: dict[Link, Record] = {}
        self._counts: dict[Link, LinkCounts] = {}
        self._addresses: dict[str, tuple[Address, Record]] = {}
        self._subjects: dict[tuple[Record, str], Subject] = {}
        self._not_recorded = 0
        self._interval_start = now()
        core.observers.append(self)

    # Connectors and listeners

    def configure(self, connectors: Iterable[ConnectorConfig], listeners: Iterable[ListenerConfig]) -> None:
        """These are there now."""
        wanted = {f"connector/{item.name}": item for item in connectors}
        access = {f"listener/{item.name}": item for item in listeners if not item.http}
        for name in [name for name in self._endpoints if name not in wanted and name not in access]:
            self._source.end(self._endpoints.pop(name).record, self._now())
        for name, connector in wanted.items():
            kind = RecordType.LINK if connector.role in _BETWEEN_ROUTERS else RecordType.CONNECTOR
            self._endpoint(name, kind, connector, {Attr.LINK_COST: connector.cost, Attr.OPER_STATUS: "down"})
        for name, listener in access.items():
            kind = RecordType.ROUTER_ACCESS if listener.role in _BETWEEN_ROUTERS else RecordType.LISTENER
            self._endpoint(name, kind, listener, {Attr.LINK_COUNT: 0})

    def _endpoint(
        self,
        name: str,
        kind: RecordType,
        config: ConnectorConfig | ListenerConfig,
        first: Mapping[Attr, Value | None],
    ) -> None:
        values: dict[Attr, Value | None] = {
            Attr.NAME: config.name,
            Attr.ROLE: config.role.label,
            Attr.PROTOCOL: "amqps" if config.ssl_profile else "amqp",
            Attr.DEST_HOST: config.host,
            Attr.DEST_PORT: str(config.port),
            Attr.SSL_PROFILE: config.ssl_profile,
        }
        known = self._endpoints.get(name)
        if known is None:
            record = self._source.begin(kind, self._source.router, self._now(), {**values, **first})
            self._endpoints[name] = Endpoint(record)
        else:
            self._source.update(known.record, values)

    def connector_failed(self, name: str, reason: str) -> None:
        """Why a connector has no connection, as far as is known."""
        endpoint = self._endpoints.get(f"connector/{name}")
        if endpoint is not None:
            self._source.update(endpoint.record, {Attr.REASON: reason})

    def _endpoint_of(self, connection: Connection) -> Endpoint | None:
        return self._endpoints.get(
            f"{'listener' if connection.incoming else 'connector'}/{connection.endpoint}"
        )

    # Connections

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface."""
        endpoint = self._endpoint_of(connection)
        if endpoint is not None:
            endpoint.connections += 1
            self._connected(endpoint, connection)
        if len(self._connections) >= MOST_CONNECTIONS:
            self._leave_out()
            return
        host, port = _place(connection)
        process = None
        if not connection.role.is_between_routers:
            process = self._processes.connected(host, connection.container)
        near, far = (Attr.SOURCE_HOST, Attr.SOURCE_PORT), (Attr.DEST_HOST, Attr.DEST_PORT)
        host_attribute, port_attribute = near if connection.incoming else far
        self._connections[connection] = self._source.begin(
            RecordType.CONNECTION,
            endpoint.record if endpoint is not None else self._source.router,
            self._now(),
            {
                Attr.ROLE: connection.role.label,
                Attr.DIRECTION: "incoming" if connection.incoming else "outgoing",
                Attr.CONTAINER: connection.container,
                Attr.USER: connection.user,
                host_attribute: host,
                port_attribute: port,
                Attr.ACTIVE_TLS_ORDINAL: connection.tls_ordinal,
                Attr.PROCESS: process.identity if process is not None else None,
            },
        )

    def _connected(self, endpoint: Endpoint, connection: Connection) -> None:
        values: dict[Attr, Value | None] = {Attr.ACTIVE_TLS_ORDINAL: connection.tls_ordinal}
        if connection.incoming:
            values[Attr.LINK_COUNT] = endpoint.connections
        else:
            values |= {Attr.LINK_COST: connection.cost, Attr.CONTAINER: connection.container}
            if endpoint.connections == 1:
                values |= {Attr.OPER_STATUS: "up", Attr.UP_TIME: self._now()}
        self._source.update(endpoint.record, values)

    def connection_closed(self, connection: Connection) -> None:
        """Observer interface: all of its links were unbound before."""
        endpoint = self._endpoint_of(connection)
        if endpoint is not None:
            endpoint.connections -= 1
            self._disconnected(endpoint, connection)
        record = self._connections.pop(connection, None)
        if record is not None:
            for direction in ("in", "out"):
                self._cut(self._subjects.pop((record, direction), None))
            self._source.end(record, self._now())
            if Attr.PROCESS in record.attributes:
                self._processes.disconnected(_place(connection)[0], connection.container)

    def _disconnected(self, endpoint: Endpoint, connection: Connection) -> None:
        values: dict[Attr, Value | None] = {}
        if connection.incoming:
            values[Attr.LINK_COUNT] = endpoint.connections
        elif endpoint.connections == 0:
            before = endpoint.record.attributes.get(Attr.DOWN_COUNT, 0)
            assert isinstance(before, int)
            down = {Attr.DOWN_TIME: self._now(), Attr.DOWN_COUNT: before + 1}
            values |= {Attr.OPER_STATUS: "down", **down}
        self._source.update(endpoint.record, values)

    def took_over(self, connection: Connection, replaced: Connection) -> None:
        """A connection between routers carries from now on what another one has carried."""
        endpoint = self._endpoint_of(connection)
        if endpoint is not None:
            self._source.update(endpoint.record, {Attr.ACTIVE_TLS_ORDINAL: connection.tls_ordinal})
        self._source.event(
            RecordType.UPGRADE_EVENT,
            self._now(),
            {
                Attr.EVENT: "connection-upgraded",
                Attr.NAME: connection.endpoint,
                Attr.ROLE: connection.role.label,
                Attr.SUBJECT: connection.container,
                Attr.ACTIVE_TLS_ORDINAL: connection.group_ordinal or connection.tls_ordinal,
                Attr.ORDINAL_BEFORE: replaced.group_ordinal or replaced.tls_ordinal,
            },
        )

    # Links

    def link_bound(self, link: Link) -> None:
        """Observer interface."""
        if not link.connection.role.is_between_routers:
            self._link(link)

    def link_unbound(self, link: Link) -> None:
        """Observer interface: the link is gone."""
        self.reading(link, self._read(link))
        self._counts.pop(link, None)
        record = self._links.pop(link, None)
        if record is not None:
            self._cut(self._subjects.pop((record, _direction(link)), None))
            self._source.end(record, self._now())

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to record."""

    def _link(self, link: Link) -> Record | None:
        """The record of a client's link; of one without an address, made when it has deliveries."""
        record = self._links.get(link)
        if record is not None:
            return record
        parent = self._connections.get(link.connection)
        address = _address_name(link)
        if parent is None or (address is not None and address.startswith(_COLLECTORS)):
            return None
        if len(self._links) >= MOST_LINKS:
            self._leave_out()
            return None
        values: dict[Attr, Value | None] = {
            Attr.NAME: link.name,
            Attr.DIRECTION: _direction(link),
            Attr.VAN_ADDRESS: address,
        }
        record = self._links[link] = self._source.begin(RecordType.AMQP_LINK, parent, self._now(), values)
        return record

    def _leave_out(self) -> None:
        self._not_recorded += 1
        self._source.update(self._source.router, {Attr.NOT_RECORDED: self._not_recorded})

    # Deliveries

    def reading(self, link: Link, reading: Reading | None) -> None:
        """What a link has carried since the last time, as the kernel has counted."""
        if _is_internal(link):
            return
        counts = self._counts.get(link)
        if counts is None:
            if not link.deliveries and reading is None:
                return
            counts = self._counts[link] = LinkCounts()
        if reading is not None:
            counts.octets += reading.octets
        grown = counts.growth(link)
        if not grown and reading is None:
            return
        between = link.connection.role.is_between_routers
        record = None if between else self._link(link)
        self._subject(link, record).summary.add(grown, reading)
        if record is not None:
            self._source.update(record, counts.totals)
        for address in _addresses_of(link):
            self._address(address)

    def _subject(self, link: Link, record: Record | None) -> Subject:
        address = None if record is None else _address_name(link)
        record = record or self._connections.get(link.connection) or self._source.router
        subject = self._subjects.get((record, _direction(link)))
        if subject is None:
            begun = record.attributes[Attr.START_TIME]
            assert isinstance(begun, int)
            start = max(begun, self._interval_start)
            subject = Subject(record, _direction(link), address, Summary(start))
            self._subjects[record, subject.direction] = subject
        return subject

    def _address(self, address: Address) -> None:
        known = self._addresses.get(address.key)
        if known is not None and known[0] is address:
            return
        if known is not None:
            self._source.end(known[1], self._now())
        elif len(self._addresses) >= MOST_ADDRESSES:
            self._leave_out()
            return
        values = {Attr.VAN_ADDRESS: address.name, Attr.DISTRIBUTION: address.treatment.name.lower()}
        record = self._source.begin(RecordType.ADDRESS, self._source.router, self._now(), values)
        self._addresses[address.key] = (address, record)

    def intervals_end(self) -> Iterator[None]:
        """Tell of what was carried in the interval, a piece at a time."""
        yield from self._standings()
        self._interval_start = self._now()
        for subject in list(self._subjects.values()):
            self._cut(subject)
            yield
        for key, known in list(self._addresses.items()):
            address, record = known
            sums = yield from sums_of(address)
            values: dict[Attr, Value | None] = {
                Attr.DELIVERIES_IN: sums.ingress,
                Attr.DELIVERIES_OUT: sums.egress,
                Attr.DELIVERIES_TRANSIT: sums.transit,
            }
            if self._addresses.get(key) is not known:
                continue  # the record has ended meanwhile
            if self._core.addresses.get(key) is address:
                self._source.update(record, values)
            else:
                del self._addresses[key]
                self._source.end(record, self._now(), values)
            yield

    def unheard_interval_ends(self) -> Iterator[None]:
        """Nobody wants to know what was carried: forget the addresses that are gone, a piece at a time."""
        for at, (key, known) in enumerate(list(self._addresses.items()), 1):
            if self._core.addresses.get(key) is not known[0] and self._addresses.get(key) is known:
                del self._addresses[key]
                self._source.end(known[1], self._now())
            if at % LINKS_PER_STEP == 0:
                yield

    def _standings(self) -> Iterator[None]:
        """Look at links that wait: those of clients, and those for messages to other routers that have had any."""
        for link in list(self._links):
            if link in self._links:
                self._stands(link, self._links[link])
            yield
        for connection in list(self._core.connections.values()):
            if connection.role.is_between_routers:
                for at, link in enumerate(list(connection.links), 1):
                    if link.deliveries and link in connection.links and not _is_internal(link):
                        self._stands(link, None)
                    if at % LINKS_PER_STEP == 0:
                        yield
                yield

    def _stands(self, link: Link, record: Record | None) -> None:
        standing = self._standing(link)
        if not standing.well:
            self._subject(link, record).summary.ends(self._now(), standing)

    def _cut(self, subject: Subject | None) -> None:
        """The interval of a subject ends, if anything has happened in it, and the next one begins."""
        if subject is None:
            return
        summary, now = subject.summary, self._now()
        subject.summary = Summary(now)
        if summary.empty:
            return
        subject.sequence += 1
        self._source.past(
            RecordType.DELIVERY_SUMMARY,
            subject.record,
            summary.start,
            now,
            {
                Attr.DIRECTION: subject.direction,
                Attr.VAN_ADDRESS: subject.address,
                Attr.SEQUENCE: subject.sequence,
                **summary.values(),
            },
        )

    # Events

    def topology(self, event: str, router: str | None, values: Mapping[Attr, Value | None]) -> None:
        """The network has changed, as far as this router sees."""
        self._source.event(
            RecordType.TOPOLOGY_EVENT, self._now(), {Attr.EVENT: event, Attr.SUBJECT: router, **values}
        )

    def ordinal_raised(self, profile: str, ordinal: int, before: int) -> None:
        """There are new credentials."""
        self._source.event(
            RecordType.UPGRADE_EVENT,
            self._now(),
            {
                Attr.EVENT: "ordinal-raised",
                Attr.NAME: profile,
                Attr.ACTIVE_TLS_ORDINAL: ordinal,
                Attr.ORDINAL_BEFORE: before,
            },
        )


def _place(connection: Connection) -> tuple[str, str]:
    """Host and port of the peer."""
    host, _, port = connection.name.rpartition(":")
    return host.strip("[]"), port


def _direction(link: Link) -> str:
    return "in" if link.incoming else "out"


def _terminus(link: Link) -> Terminus:
    return link.target if link.incoming else link.source


def _address_name(link: Link) -> str | None:
    """What a client's link is about; None for a sender that names a destination in every message."""
    if _terminus(link).dynamic:
        return DYNAMIC
    if link.routed:
        return normalise(_terminus(link).address or COORDINATOR)
    return link.address.name if link.address is not None else None


def _is_internal(link: Link) -> bool:
    """Whether a link carries what routers have to say to each other, or to collectors."""
    if link.type is LinkType.CONTROL or link.on_delivery is not None:
        return True
    address = (link.source.address or link.target.address or "").removeprefix("amqp:/")
    return address.startswith("_$qd." if link.connection.role.is_between_routers else _COLLECTORS)


def _addresses_of(link: Link) -> Iterable[Address]:
    """The addresses of clients that a link's deliveries were for, as far as that is known."""
    if link.address is not None:
        found = [link.address]
    else:
        routes = list(link.routes.values())[:ROUTES_LOOKED_AT]
        found = [route.address for route in routes if route.address is not None]
    return [item for item in found if item.is_mobile and not item.name.startswith(_INTERNAL)]
