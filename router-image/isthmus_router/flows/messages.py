"""The messages that carry flow records, and the one that asks for them.

As the vanflow messages of the skupper-router family, with message ids and keys of types that AMQP allows: ids are
ulong, keys of application properties strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isthmus_router.flows.records import Attr, Record, Value
from isthmus_router.message.control import Message, Properties, decode_message, encode_message
from isthmus_router.message.types import DecodeError, UInt, ULong

BEACONS = "mc/sfe.all"
VERSION = 1
FLUSH = "FLUSH"
LONGEST_COMMAND = 4096


def records_address(source: str) -> str:
    """Where heartbeats and all records but delivery summaries go."""
    return f"mc/sfe.{source}"


def summaries_address(source: str) -> str:
    """Where delivery summaries go."""
    return f"mc/sfe.{source}.flows"


def commands_address(source: str) -> str:
    """Where the router listens to its collectors."""
    return f"sfe.{source}"


def beacon(number: int, source: str) -> bytes:
    """The router says that it has records, and where."""
    return _message(
        number,
        BEACONS,
        "BEACON",
        {
            "v": UInt(VERSION),
            "sourceType": "ROUTER",
            "id": source,
            "address": records_address(source),
            "direct": commands_address(source),
        },
    )


def heartbeat(number: int, source: str, now: int) -> bytes:
    """The router is there; `now` is its time in microseconds since the epoch."""
    properties = {"v": UInt(VERSION), "now": ULong(now), "id": source}
    return _message(number, records_address(source), "HEARTBEAT", properties)


def records_message(number: int, to: str, records: Iterable[Record]) -> bytes:
    """What has changed about some records."""
    return _message(number, to, "RECORD", {}, [_changes(record) for record in records])


def is_flush(payload: bytes) -> bool:
    """Whether a collector asks for every record; False for anything else that may arrive."""
    if len(payload) > LONGEST_COMMAND:
        return False
    try:
        return decode_message(payload).properties.subject == FLUSH
    except DecodeError:
        return False


def _message(
    number: int, to: str, subject: str, properties: Mapping[str, object], body: object = None
) -> bytes:
    return encode_message(
        Message(
            properties=Properties(message_id=ULong(number), to=to, subject=subject),
            application_properties=properties,
            body=body,
        )
    )


def _changes(record: Record) -> dict[UInt, object]:
    values: dict[UInt, object] = {
        UInt(Attr.TYPE): UInt(record.type),
        UInt(Attr.IDENTITY): record.identity,
    }
    for attribute in sorted(record.changed):
        values[UInt(attribute)] = _encodable(record.attributes[attribute])
    return values


def _encodable(value: Value) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return ULong(value)
    return {UInt(bucket): ULong(count) for bucket, count in sorted(value.items())}
