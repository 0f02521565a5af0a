"""Which attribute of a record becomes which column: another column is one more line here.

Columns that are in none of these tables are what a row has from its record's parents (`CONTEXT`, `WHERE`), or
what the collector adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, RELAYED, Kind, Table
from isthmus_router.flows.records import Attr, RecordType

OF_DELIVERIES: Mapping[str, Attr] = {
    "start_time": Attr.START_TIME,
    "end_time": Attr.END_TIME,
    "sequence": Attr.SEQUENCE,
    "direction": Attr.DIRECTION,
    "address": Attr.VAN_ADDRESS,
    "deliveries": Attr.DELIVERIES,
    "octets": Attr.OCTETS,
    "accepted": Attr.ACCEPTED,
    "rejected": Attr.REJECTED,
    "released": Attr.RELEASED,
    "modified": Attr.MODIFIED,
    "presettled": Attr.PRESETTLED,
    "dropped": Attr.DROPPED,
    "delayed_1_second": Attr.LATE_1_SECOND,
    "delayed_10_seconds": Attr.LATE_10_SECONDS,
    "unsettled": Attr.UNSETTLED,
    "oldest_unsettled_us": Attr.OLDEST_UNSETTLED,
    "no_credit_us": Attr.NO_CREDIT,
    "sizes": Attr.SIZES,
    "latencies": Attr.LATENCIES,
}

OF_RELAYED: Mapping[str, Attr] = {
    "start_time": Attr.START_TIME,
    "end_time": Attr.END_TIME,
    "sequence": Attr.SEQUENCE,
    "relay_group": Attr.RELAY_GROUP,
    "relay_site": Attr.RELAY_SITE,
    "remote_site": Attr.SUBJECT,
    "state": Attr.OPER_STATUS,
    "relays": Attr.RELAYS,
    "sent": Attr.SENT,
    "replayed": Attr.REPLAYED,
    "received": Attr.RECEIVED,
    "duplicates": Attr.DUPLICATES,
    "dropped": Attr.DROPPED,
    "gaps": Attr.GAPS,
    "held_back_us": Attr.HELD_BACK,
    "lag_messages": Attr.LAG_MESSAGES,
    "lag_bytes": Attr.LAG_BYTES,
    "lag_us": Attr.LAG,
    "round_trip_us": Attr.ROUND_TRIP,
}

OF_EVENTS: Mapping[str, Attr] = {
    "time": Attr.START_TIME,
    "event": Attr.EVENT,
    "subject": Attr.SUBJECT,
    "name": Attr.NAME,
    "role": Attr.ROLE,
    "reason": Attr.REASON,
    "count": Attr.LINK_COUNT,
    "ordinal_before": Attr.ORDINAL_BEFORE,
    "tls_ordinal": Attr.ACTIVE_TLS_ORDINAL,
    "relay_group": Attr.RELAY_GROUP,
    "relay_site": Attr.RELAY_SITE,
}

OF_RECORDS: Mapping[str, Attr | tuple[Attr, Attr]] = {
    "parent": Attr.PARENT,
    "start_time": Attr.START_TIME,
    "end_time": Attr.END_TIME,
    "name": Attr.NAME,
    "namespace": Attr.NAMESPACE,
    "hostname": Attr.HOSTNAME,
    "version": Attr.BUILD_VERSION,
    "role": Attr.ROLE,
    "protocol": Attr.PROTOCOL,
    "host": (Attr.SOURCE_HOST, Attr.DEST_HOST),
    "port": (Attr.SOURCE_PORT, Attr.DEST_PORT),
    "direction": Attr.DIRECTION,
    "container": Attr.CONTAINER,
    "user": Attr.USER,
    "process": Attr.PROCESS,
    "tls_ordinal": Attr.ACTIVE_TLS_ORDINAL,
    "cost": Attr.LINK_COST,
    "status": Attr.OPER_STATUS,
    "up_time": Attr.UP_TIME,
    "down_time": Attr.DOWN_TIME,
    "down_count": Attr.DOWN_COUNT,
    "reason": Attr.REASON,
    "count": Attr.LINK_COUNT,
    "address": Attr.VAN_ADDRESS,
    "distribution": Attr.DISTRIBUTION,
    "octets": Attr.OCTETS,
    "deliveries": Attr.DELIVERIES,
    "accepted": Attr.ACCEPTED,
    "rejected": Attr.REJECTED,
    "released": Attr.RELEASED,
    "modified": Attr.MODIFIED,
    "presettled": Attr.PRESETTLED,
    "dropped": Attr.DROPPED,
    "ingress": Attr.DELIVERIES_IN,
    "egress": Attr.DELIVERIES_OUT,
    "transit": Attr.DELIVERIES_TRANSIT,
    "not_recorded": Attr.NOT_RECORDED,
    "records_lost": Attr.RECORDS_LOST,
    "relay_group": Attr.RELAY_GROUP,
    "relay_site": Attr.RELAY_SITE,
    "coordinator": Attr.COORDINATOR,
    "ssl_profile": Attr.SSL_PROFILE,
}

ATTRIBUTES: Mapping[Attr, Kind] = {
    Attr.TYPE: Kind.LONG,
    Attr.IDENTITY: Kind.STRING,
    Attr.MODE: Kind.STRING,
} | {
    attribute: table.column(name).kind
    for table, columns in (
        (DELIVERIES, OF_DELIVERIES),
        (RELAYED, OF_RELAYED),
        (EVENTS, OF_EVENTS),
        (RECORDS, OF_RECORDS),
    )
    for name, wanted in columns.items()
    for attribute in (wanted if isinstance(wanted, tuple) else (wanted,))
}
"""All that is kept of records, and what each is."""

COUNTERS = frozenset(
    {
        Attr.OCTETS,
        Attr.OCTETS_REVERSE,
        Attr.DELIVERIES,
        Attr.ACCEPTED,
        Attr.REJECTED,
        Attr.RELEASED,
        Attr.MODIFIED,
        Attr.PRESETTLED,
        Attr.DROPPED,
        Attr.LATE_1_SECOND,
        Attr.LATE_10_SECONDS,
        Attr.DELIVERIES_IN,
        Attr.DELIVERIES_OUT,
        Attr.DELIVERIES_TRANSIT,
        Attr.NOT_RECORDED,
        Attr.RECORDS_LOST,
    }
)
"""That one of these has grown is no reason for another row in `records`."""

RECORD_TYPES = frozenset(
    {
        RecordType.SITE,
        RecordType.ROUTER,
        RecordType.LINK,
        RecordType.LISTENER,
        RecordType.CONNECTOR,
        RecordType.PROCESS,
        RecordType.ROUTER_ACCESS,
        RecordType.CONNECTION,
        RecordType.AMQP_LINK,
        RecordType.ADDRESS,
        RecordType.RELAY_MEMBER,
    }
)
"""Of what is there for a while."""

ONCE: Mapping[int, Table] = {
    int(RecordType.DELIVERY_SUMMARY): DELIVERIES,
    int(RecordType.RELAY_SUMMARY): RELAYED,
    int(RecordType.TOPOLOGY_EVENT): EVENTS,
    int(RecordType.UPGRADE_EVENT): EVENTS,
    int(RecordType.RELAY_EVENT): EVENTS,
}
"""The table of what is told once, and is over then."""

WHERE = ("site", "router", "router_mode")
"""Of every row."""
CONTEXT = (
    *WHERE,
    "role",
    "endpoint",
    "connection",
    "link",
    "link_name",
    "container",
    "user",
    "host",
    "tls_ordinal",
)
"""Of a row in `deliveries`."""

Row = tuple[Any, ...]
"""Values in the order of a `Layout`."""


class Layout:
    """In what order the values of a table's rows are while they are on their way to a file."""

    def __init__(
        self,
        table: Table,
        attributes: Mapping[str, Attr | tuple[Attr, Attr]],
        around: tuple[str, ...],
        made: tuple[str, ...],
    ) -> None:
        self.table = table
        self.names = (*attributes, *around, *made)
        required = {column.name: column for column in table.columns if column.required}
        self._absent: dict[int, object] = {}
        """Of each attribute the value of a row without it."""
        self._instead: list[tuple[int, int]] = []
        """Attributes that have others in their place, where they are absent."""
        for name, wanted in attributes.items():
            attribute, *others = map(int, wanted if isinstance(wanted, tuple) else (wanted,))
            self._instead += [(attribute, other) for other in others]
            is_count = name in required and required[name].kind in {Kind.LONG, Kind.FLAG}
            self._absent[attribute] = 0 if is_count else None
        self._values = itemgetter(*self._absent)
        self.needed = frozenset(
            attribute
            for (name, _), attribute in zip(attributes.items(), self._absent, strict=True)
            if name in required and self._absent[attribute] is None
        )
        """Attributes without which there is no row."""

    def row(self, attributes: Mapping[int, Any], around: Row, made: Row) -> Row:
        """A row. What is absent is null, or 0 in counts."""
        values = {**self._absent, **attributes}
        for attribute, other in self._instead:
            if values[attribute] is None:
                values[attribute] = attributes.get(other)
        found: Row = self._values(values)
        return found + around + made


LAYOUTS: Mapping[str, Layout] = {
    layout.table.name: layout
    for layout in (
        Layout(DELIVERIES, OF_DELIVERIES, CONTEXT, ("identity", "source", "heard_at")),
        Layout(RELAYED, OF_RELAYED, WHERE, ("identity", "source", "heard_at")),
        Layout(EVENTS, OF_EVENTS, WHERE, ("identity", "source", "heard_at", "type")),
        Layout(
            RECORDS, OF_RECORDS, WHERE, ("identity", "source", "heard_at", "type", "lost", "records_missed")
        ),
    )
}
"""By the name of the table."""
