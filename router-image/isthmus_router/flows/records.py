"""Flow records: what kinds there are, and what is said of each.

Numbers below 1000 are those of the vanflow records of the skupper-router family and mean what they mean there; the
others are this router's own. ``docs/flow-records.md`` has units and meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

SCHEMA_VERSION = 1
"""Raised when an own type or attribute changes its meaning; new ones do not raise it."""
LONGEST_STRING = 300

Value = int | str | Mapping[int, int]
"""Of an attribute; a mapping is a sketch: counts by bucket."""


class RecordType(IntEnum):
    """What a record is about."""

    SITE = 0
    ROUTER = 1
    LINK = 2
    LISTENER = 4
    CONNECTOR = 5
    PROCESS = 7
    ROUTER_ACCESS = 15
    CONNECTION = 1000
    AMQP_LINK = 1001
    ADDRESS = 1002
    DELIVERY_SUMMARY = 1003
    TOPOLOGY_EVENT = 1004
    UPGRADE_EVENT = 1005
    RELAY_MEMBER = 1006
    RELAY_SUMMARY = 1007
    RELAY_EVENT = 1008


class Attr(IntEnum):
    """Attributes of records."""

    TYPE = 0
    IDENTITY = 1
    PARENT = 2
    START_TIME = 3
    END_TIME = 4
    PROCESS = 7
    LOCATION = 9
    PROVIDER = 10
    PLATFORM = 11
    NAMESPACE = 12
    MODE = 13
    SOURCE_HOST = 14
    SOURCE_PORT = 17
    DEST_HOST = 15
    PROTOCOL = 16
    DEST_PORT = 18
    VAN_ADDRESS = 19
    HOSTNAME = 22
    OCTETS = 23
    REASON = 29
    NAME = 30
    BUILD_VERSION = 32
    LINK_COST = 33
    DIRECTION = 34
    LINK_COUNT = 52
    OPER_STATUS = 53
    ROLE = 54
    UP_TIME = 55
    DOWN_TIME = 56
    DOWN_COUNT = 57
    OCTETS_REVERSE = 58
    ACTIVE_TLS_ORDINAL = 66
    SCHEMA = 1000
    CONTAINER = 1001
    USER = 1002
    DELIVERIES = 1003
    ACCEPTED = 1004
    REJECTED = 1005
    RELEASED = 1006
    MODIFIED = 1007
    PRESETTLED = 1008
    DROPPED = 1009
    SIZES = 1010
    LATENCIES = 1011
    SEQUENCE = 1012
    DISTRIBUTION = 1013
    DELIVERIES_IN = 1014
    DELIVERIES_OUT = 1015
    DELIVERIES_TRANSIT = 1016
    EVENT = 1017
    SUBJECT = 1018
    ORDINAL_BEFORE = 1019
    NOT_RECORDED = 1020
    RECORDS_LOST = 1021
    LATE_1_SECOND = 1022
    LATE_10_SECONDS = 1023
    UNSETTLED = 1024
    OLDEST_UNSETTLED = 1025
    NO_CREDIT = 1026
    RELAY_GROUP = 1027
    RELAY_SITE = 1028
    RELAYS = 1029
    SENT = 1030
    REPLAYED = 1031
    RECEIVED = 1032
    DUPLICATES = 1033
    GAPS = 1034
    HELD_BACK = 1035
    LAG_MESSAGES = 1036
    LAG_BYTES = 1037
    LAG = 1038
    ROUND_TRIP = 1039
    COORDINATOR = 1040
    SSL_PROFILE = 1041


class Record:
    """Something that is, or was; `changed` is what nobody has been told yet."""

    __slots__ = ("attributes", "changed", "identity", "sent_tick", "slot", "type")

    def __init__(self, record_type: RecordType, identity: str) -> None:
        self.type = record_type
        self.identity = identity
        self.attributes: dict[Attr, Value] = {}
        self.changed: set[Attr] = set()
        self.slot: int | None = None
        """Where it waits to be sent."""
        self.sent_tick: int | None = None

    def update(self, values: Mapping[Attr, Value | None]) -> bool:
        """Take over attributes, those that are known; whether that changes anything."""
        changed = False
        for attribute, value in values.items():
            if isinstance(value, str):
                value = value[:LONGEST_STRING]
            if value is not None and self.attributes.get(attribute) != value:
                self.attributes[attribute] = value
                self.changed.add(attribute)
                changed = True
        return changed

    @property
    def ended(self) -> bool:
        """Whether it will not change any more."""
        return Attr.END_TIME in self.attributes
