"""The tables of a flow log and their columns; ``docs/flow-schema.md`` is written from this.

A flow log is a folder. Below it each table has a folder of its own, with Parquet files by date and hour (UTC) of the
table's time column: ``deliveries/date=2026-11-23/hour=08/<name>.parquet``. Names that begin with ``.`` or ``_`` are
no part of it.

Nothing here needs a library, so that whoever reads or writes a flow log can use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

SCHEMA_VERSION = 1
"""Raised when a column changes its meaning or goes; further columns do not raise it."""
VERSION_KEY = "isthmus.schemaVersion"
"""Of the metadata of each file."""
LARGEST = 2**53
"""Numbers of a log are at most that: every one is exact as a double, and a few of them are less than a long holds."""
LARGEST_COUNT = 2**40
"""Counts of one interval (`deliveries`, `relayed`) are at most that: a tebibyte."""
LARGEST_BUCKET = 239
"""Of a sketch; that of 2^32 - 1."""
LONGEST_TEXT = 4000
"""Bytes of a string. Collectors cut those of records after 300 characters."""
FIRST_TIME, LAST_TIME = 0, LARGEST
"""Microseconds since the epoch: from 1970 to 2255."""
LONGEST_INTERVAL = 400 * 86_400_000_000
"""Microseconds."""
MERGED_KEY = "isthmus.merged"
"""Of the metadata of a file that was made of others: JSON, the list of their names."""


class Kind(Enum):
    """What a column holds."""

    STRING = "string"
    LONG = "long"
    TIME = "time"
    """Microseconds, UTC."""
    FLAG = "flag"
    SKETCH = "sketch"
    """A map from bucket (int) to how many numbers are in it (long); ``docs/flow-records.md#sketches``."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; one that is not `required` may be null."""

    name: str
    kind: Kind
    text: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its folder's name, and the column whose hour says in which partition a row is."""

    name: str
    text: str
    time: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)

    def largest(self, column: Column) -> int:
        """The largest number that a column of longs holds."""
        of_interval = self.name in OF_INTERVALS and column.name != "sequence"
        return LARGEST_COUNT if of_interval else LARGEST


def partition(moment: datetime) -> str:
    """The folder, below a table's, of rows of that time: `date=2026-11-23/hour=08`."""
    utc = moment.astimezone(UTC)
    return f"date={utc:%Y-%m-%d}/hour={utc:%H}"


def _text(name: str, text: str, required: bool = False) -> Column:
    return Column(name, Kind.STRING, text, required)


def _long(name: str, text: str, required: bool = False) -> Column:
    return Column(name, Kind.LONG, text, required)


def _time(name: str, text: str, required: bool = False) -> Column:
    return Column(name, Kind.TIME, text, required)


def _count(name: str, text: str) -> Column:
    return Column(name, Kind.LONG, text, required=True)


_WHO = (
    _text("identity", "Of the record; rows that are the same one told again have the same.", required=True),
    _text(
        "source",
        "Run of a router, the identity of its ROUTER record; another one after a restart.",
        required=True,
    ),
)
_WHERE = (
    _text("site", "Name of the router's site; absent: it is in none."),
    _text("router", "Id of the router. Absent here and below: the collector had not heard it yet."),
    _text("router_mode", "`interior` or `edge`."),
)
_HEARD = _time("heard_at", "When the collector heard it, by its own clock.", required=True)

DELIVERIES = Table(
    "deliveries",
    "What flowed: one row for each interval of each link of a client, and of each direction of each connection "
    "between routers.",
    "end_time",
    (
        *_WHO,
        _time("start_time", "Beginning of the interval, by the router's clock.", required=True),
        _time("end_time", "Its end.", required=True),
        _long("sequence", "Of the link's rows, from 1; one that is missing was lost.", required=True),
        *_WHERE,
        _text("direction", "`in` (into the router: a client sends) or `out`.", required=True),
        _text(
            "address",
            "What the link is about. Absent between routers, and for links whose messages name their destinations.",
        ),
        _text("role", "Of the connection: `normal` (a client), `route-container`, `edge` or `inter-router`."),
        _text("endpoint", "Name of the router's listener or connector."),
        _text("connection", "Identity of the CONNECTION record; absent: it is beyond the router's limits."),
        _text("link", "Identity of the AMQP_LINK record; absent between routers."),
        _text("link_name", "As the client has named its link."),
        _text("container", "Container id of the peer."),
        _text("user", "As authenticated."),
        _text("host", "Address of the peer: who connected, or who the router connected to."),
        _long("tls_ordinal", "Of the credentials the connection was made with; absent without TLS."),
        _count("deliveries", "That began in the interval."),
        _count("octets", "Bytes of whole messages, as they came."),
        _count("accepted", "Outcomes within the interval, of deliveries that may have begun earlier."),
        _count("rejected", ""),
        _count("released", ""),
        _count("modified", ""),
        _count("presettled", "Deliveries that have no outcome."),
        _count("dropped", "Pre-settled ones that the router gave up."),
        _count("delayed_1_second", "Took from 1 to 10 s to be settled."),
        _count("delayed_10_seconds", "Took longer."),
        _count("unsettled", "Without an outcome at the end of the interval."),
        _count("oldest_unsettled_us", "Age of the oldest of these, microseconds; 0: there is none."),
        _count(
            "no_credit_us",
            "Microseconds of the interval in which nothing could be sent for lack of credit, in whole seconds. Of a "
            "receiver (`out`) only while messages waited for it.",
        ),
        Column("sizes", Kind.SKETCH, "Bytes of messages."),
        Column(
            "latencies",
            Kind.SKETCH,
            "Microseconds from arrival to outcome; docs/flow-records.md says what is in it.",
        ),
        _HEARD,
    ),
)

RELAYED = Table(
    "relayed",
    "What went from one relay site to another: one row for each interval of each other site, told by the members "
    "that carry or keep it.",
    "end_time",
    (
        *_WHO,
        _time("start_time", "Beginning of the interval, by the router's clock.", required=True),
        _time("end_time", "Its end.", required=True),
        _long("sequence", "Of the member's rows about that site, from 1.", required=True),
        *_WHERE,
        _text("relay_group", "", required=True),
        _text("relay_site", "Site of the member.", required=True),
        _text("remote_site", "The other one.", required=True),
        _text("state", "`up`, `suspect`, `unreachable`, `left` or `unknown`, at the end.", required=True),
        Column("relays", Kind.FLAG, "The member carries messages to other sites, at the end.", required=True),
        _count("sent", "Messages sent to the other site."),
        _count("replayed", "Of these, after a session began: the other site may have had them."),
        _count("received", "Messages from the other site."),
        _count("duplicates", "Of these, here before."),
        _count("dropped", "From the buffer, not acknowledged: the other site will never have them."),
        _count("gaps", "Messages of the other site that never came."),
        _count("held_back_us", "Microseconds in which senders waited for the other site to acknowledge."),
        _count("lag_messages", "Not acknowledged by the other site, at the end."),
        _count("lag_bytes", "Of these."),
        _count("lag_us", "Age of the oldest of these, microseconds."),
        _long("round_trip_us", "To the relay of the other site and back; absent: there is no session."),
        _HEARD,
    ),
)

EVENTS = Table(
    "events",
    "What happened: changes of the network, of certificates, of relay sites.",
    "time",
    (
        *_WHO,
        _time("time", "By the router's clock.", required=True),
        *_WHERE,
        _text(
            "type", "`TOPOLOGY_EVENT`, `UPGRADE_EVENT`, `RELAY_EVENT` or `COLLECTOR_EVENT`.", required=True
        ),
        _text(
            "event",
            "What; docs/flow-records.md lists them, docs/flow-log.md that of collectors.",
            required=True,
        ),
        _text("subject", "About whom: the other router, the other site."),
        _text("name", "Of the connector, listener or sslProfile."),
        _text("role", "Of the connection."),
        _text("reason", "Why, in words."),
        _long("count", "How many: routers that can be reached, members, messages."),
        _long("ordinal_before", ""),
        _long("tls_ordinal", "The ordinal from now on."),
        _text("relay_group", ""),
        _text("relay_site", "Site of the member that tells."),
        _HEARD,
    ),
)

RECORDS = Table(
    "records",
    "What there was: routers, connectors, connections, links, addresses. A row for each time that something became "
    "known of one, and for each at the beginning of every hour, so that every hour can be read alone; for a ROUTER "
    "every minute. All rows of one have the same `identity`; the latest `heard_at` is how it was last.",
    "heard_at",
    (
        *_WHO,
        _text(
            "type",
            "`SITE`, `ROUTER`, `LINK` (connector to a router), `LISTENER`, `CONNECTOR`, `ROUTER_ACCESS` (listener for "
            "routers), `PROCESS`, `CONNECTION`, `AMQP_LINK`, `ADDRESS`, `RELAY_MEMBER`.",
            required=True,
        ),
        _text("parent", "Identity of what it belongs to."),
        _time("start_time", "By the router's clock."),
        _time("end_time", "Absent while it is there, and for ever if its router crashed."),
        Column(
            "lost",
            Kind.FLAG,
            "Of a ROUTER: it is not heard any more, and has not said that it ends. `heard_at` is when it was heard "
            "last; what it had is over as well.",
            required=True,
        ),
        *_WHERE,
        _text("name", "Of site, router, connector, listener, link, process."),
        _text("namespace", ""),
        _text("hostname", "Of the machine or pod."),
        _text("version", "Of the software."),
        _text("role", "Of connector, listener, connection."),
        _text("protocol", "`amqp` or `amqps`."),
        _text("host", "Of the peer or of the port."),
        _text("port", ""),
        _text("direction", "`incoming` or `outgoing` connection; link `in` (the client sends) or `out`."),
        _text("container", "Container id of the peer."),
        _text("user", "As authenticated."),
        _text("process", "Identity of the PROCESS record of a connection."),
        _long("tls_ordinal", "Of the credentials in use."),
        _text(
            "ssl_profile",
            "Of connector or listener: name of the `sslProfile` section it has its credentials from.",
        ),
        _long("cost", ""),
        _text("status", "Of a connector: `up` or `down`."),
        _time("up_time", "Came up last."),
        _time("down_time", "Went down last."),
        _long("down_count", "How often."),
        _text("reason", "Of the last failure."),
        _long("count", "Connections of a listener or process; members of a relay site."),
        _text("address", "Of a link or address."),
        _text("distribution", "`multicast`, `closest` or `balanced`."),
        _long("octets", "Of a link, since it was attached; so are the following."),
        _long("deliveries", ""),
        _long("accepted", ""),
        _long("rejected", ""),
        _long("released", ""),
        _long("modified", ""),
        _long("presettled", ""),
        _long("dropped", ""),
        _long("ingress", "Deliveries to an address from clients and edges, since it was known."),
        _long("egress", "To clients and edges."),
        _long("transit", "To other interior routers."),
        _long("not_recorded", "Of a router: connections, links and addresses beyond its limits."),
        _long("records_lost", "Of a router: given up before anybody heard of them."),
        _long("records_missed", "Of a router: messages with records that the collector never had."),
        _text("relay_group", "Of a member."),
        _text("relay_site", ""),
        Column("coordinator", Kind.FLAG, "The member coordinates its site."),
        _HEARD,
    ),
)

OF_INTERVALS = frozenset({DELIVERIES.name, RELAYED.name})
"""Tables whose rows count within an interval."""

TABLES = (DELIVERIES, RECORDS, EVENTS, RELAYED)


def table(name: str) -> Table:
    """The table of that name."""
    return next(item for item in TABLES if item.name == name)
