"""Messages of sources are read as the general decoder reads them, of whatever encoding; what is none is refused."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_flowlog.collector import columns, wire
from isthmus_flowlog.schema import LARGEST, LARGEST_COUNT, Kind
from isthmus_router.flows import messages
from isthmus_router.flows.records import Attr, Record, RecordType
from isthmus_router.flows.sketch import BUCKETS
from isthmus_router.message.control import BodyKind, Message, Properties, decode_message, encode_message
from isthmus_router.message.types import Symbol, UInt, ULong

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
OF_KIND: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.STRING: st.text(max_size=300),
    Kind.SKETCH: st.dictionaries(st.integers(0, BUCKETS - 1), NUMBERS, max_size=40),
}
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        attribute: OF_KIND.get(kind, NUMBERS)
        for attribute, kind in columns.ATTRIBUTES.items()
        if attribute not in {Attr.TYPE, Attr.IDENTITY, Attr.PARENT}
    },
)


def records_of(attributes: list[dict[Attr, Any]]) -> list[Record]:
    found = []
    for number, values in enumerate(attributes):
        record = Record(RecordType.DELIVERY_SUMMARY, f"abcde:{number}")
        record.update(values)
        found.append(record)
    return found


def plain(value: object) -> object:
    """As the general decoder has it, without its types, and not above what the log holds."""
    if isinstance(value, dict):
        return [(int(bucket), min(int(count), LARGEST_COUNT)) for bucket, count in value.items()]
    return min(int(value), LARGEST) if isinstance(value, int) else value


@given(st.lists(ATTRIBUTES, max_size=5), st.integers(1, 2**63))
def test_records_are_read_as_the_general_decoder_reads_them(
    attributes: list[dict[Attr, Any]], number: int
) -> None:
    payload = messages.records_message(number, "mc/sfe.abcde:0", records_of(attributes))
    body: Any = decode_message(payload).body
    wanted = [{int(key): plain(value) for key, value in record.items()} for record in body]
    assert wire.read(payload) == wire.Records(number, wanted)


def test_beacons_and_heartbeats() -> None:
    beacon = wire.read(messages.beacon(7, "abcde:0"))
    assert beacon == wire.Beacon(7, "abcde:0")
    assert wire.read(messages.heartbeat(9, "abcde:0", 1)) == wire.Heartbeat(9)


def test_what_skupper_routers_send() -> None:
    """Message ids are long, keys of application properties symbols; there is a header and a null of the body."""
    payload = b"\x00\x53\x70\xc0\x02\x01\x41" + encode_message(
        Message(
            properties=Properties(message_id=12, to="mc/sfe.all", subject="BEACON"),
            application_properties={
                Symbol("v"): UInt(1),
                Symbol("sourceType"): "ROUTER",
                Symbol("address"): "mc/sfe.xyz:0",
                Symbol("direct"): "sfe.xyz:0",
            },
        )
    )
    assert wire.read(payload) == wire.Beacon(12, "xyz:0")
    body = [{UInt(0): UInt(1), UInt(1): "xyz:0", UInt(30): Symbol("0/A"), UInt(33): UInt(1000), UInt(5): 4}]
    records = encode_message(
        Message(properties=Properties(message_id=ULong(3), to="x", subject="RECORD"), body=body)
    )
    assert wire.read(records) == wire.Records(3, [{0: 1, 1: "xyz:0", 30: "0/A", 33: 1000}])


def test_other_subjects_are_none_of_ours() -> None:
    assert (
        wire.read(encode_message(Message(properties=Properties(message_id=ULong(1), subject="LOG")))) is None
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"garbage",
        encode_message(Message(properties=Properties(message_id=ULong(1)))),
        encode_message(Message(properties=Properties(message_id="x", subject="RECORD"), body=[])),
        encode_message(Message(properties=Properties(message_id=ULong(1), subject="RECORD"), body=5)),
        encode_message(Message(properties=Properties(message_id=ULong(1), subject="RECORD"), body=[5])),
        encode_message(
            Message(properties=Properties(message_id=ULong(1), subject="RECORD"), body=[{"a": 5}])
        ),
        encode_message(Message(properties=Properties(message_id=ULong(1), subject="BEACON"))),
    ],
)
def test_what_is_no_message_of_a_source_is_refused(payload: bytes) -> None:
    with pytest.raises(wire.MalformedError):
        wire.read(payload)


def a_beacon(**properties: object) -> bytes:
    given = {"id": "abcde:0", "address": "mc/sfe.abcde:0", "direct": "sfe.abcde:0", **properties}
    return encode_message(
        Message(
            properties=Properties(message_id=ULong(1), subject="BEACON"),
            application_properties={key: value for key, value in given.items() if value is not None},
        )
    )


@pytest.mark.parametrize(
    "properties",
    [
        {"address": "payments/in"},
        {"direct": "payments/in"},
        {"address": "mc/sfe.other:0"},
        {"direct": "_$management"},
        {"id": "other:0"},
        {"id": "all", "address": "mc/sfe.all", "direct": "sfe.all"},
        {"id": "a.flows", "address": "mc/sfe.a.flows", "direct": "sfe.a.flows"},
        {"id": "a\n", "address": "mc/sfe.a\n", "direct": "sfe.a\n"},
        {"id": "x" * 65, "address": "mc/sfe." + "x" * 65, "direct": "sfe." + "x" * 65},
        {"id": "#", "address": "mc/sfe.#", "direct": "sfe.#"},
        {"id": None, "address": "mc/sfe.x/y", "direct": "sfe.x/y"},
    ],
)
def test_a_beacon_names_no_address_but_those_of_its_source(properties: dict[str, object]) -> None:
    with pytest.raises(wire.ForgedError):
        wire.read(a_beacon(**properties))
    assert wire.read(a_beacon()) == wire.Beacon(1, "abcde:0")


def a_record(**changes: object) -> bytes:
    values = {
        0: UInt(1003),
        1: "abcde:5",
        **{int(key.removeprefix("_")): value for key, value in changes.items()},
    }
    body = [{UInt(key): value for key, value in values.items() if value is not None}]
    return encode_message(Message(properties=Properties(message_id=ULong(1), subject="RECORD"), body=body))


@pytest.mark.parametrize(
    "changes",
    [
        {"_0": None},
        {"_1": None},
        {"_0": "1003"},
        {"_1": ULong(5)},
        {"_1": ""},
        {"_1": "x" * 129},
        {"_2": "x" * 129},
        {"_23": "many"},
        {"_23": -1},
        {"_30": ULong(5)},
        {"_23": [ULong(1)]},
        {"_23": 1.5},
        {"_1010": ULong(5)},
        {"_1010": {UInt(BUCKETS): ULong(1)}},
        {"_1010": {UInt(1): -5}},
        {"_30": "x" * 20_000},
        {f"_{key}": ULong(1) for key in range(5000, 5300)},
    ],
)
def test_a_record_with_values_that_none_has_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(wire.MalformedError):
        wire.read(a_record(**changes))


def test_numbers_and_strings_that_are_too_large_are_made_smaller() -> None:
    message = wire.read(
        a_record(_23=ULong(2**63), _1012=ULong(2**54), _30="x" * 5000, _1010={UInt(3): ULong(2**62)})
    )
    assert isinstance(message, wire.Records)
    assert message.records == [
        {0: 1003, 1: "abcde:5", 23: LARGEST, 1012: LARGEST, 30: "x" * 300, 1010: [(3, LARGEST_COUNT)]}
    ]


def test_attributes_that_the_log_has_no_columns_for_are_skipped_at_little_cost() -> None:
    """Whatever they are: each that was decoded took several times as long as others."""
    unknown: dict[int, object] = {10_000 + number: ULong(number) for number in range(100)} | {
        9_000: [[{}]],
        9_001: None,
    }
    known = {int(attribute): ULong(7) for attribute, kind in columns.ATTRIBUTES.items() if kind is Kind.LONG}
    costs = []
    for values in (known, unknown):
        record = {UInt(0): UInt(RecordType.LINK), UInt(1): "abcde:1"}
        record |= {UInt(key): value for key, value in values.items()}  # type: ignore[misc]
        record[UInt(0)] = UInt(RecordType.LINK)
        properties = Properties(message_id=ULong(1), subject="RECORD")
        payload = encode_message(Message(properties=properties, body=[record] * 500))
        begun = time.thread_time()
        found = wire.read(payload)
        costs.append((time.thread_time() - begun) / len(values))
        assert isinstance(found, wire.Records)
        assert len(found.records) == 500
    assert found.records[0] == {0: RecordType.LINK, 1: "abcde:1"}
    assert costs[1] < 2 * costs[0]


def test_a_message_id_has_to_count() -> None:
    for number in (-1, "5", None):
        with pytest.raises(wire.MalformedError):
            wire.read(
                encode_message(Message(properties=Properties(message_id=number, subject="RECORD"), body=[]))
            )


def test_a_value_that_reaches_beyond_its_record_is_refused() -> None:
    beyond = b"\xc1\x0a\x04\x43\x52\x05\x52\x01\xa1\x07ab" + b"xxxxx"
    head = encode_message(
        Message(properties=Properties(message_id=ULong(1), subject="RECORD"), body_kind=BodyKind.NONE)
    )
    assert isinstance(
        wire.read(head + b"\x00\x53\x77\xc0\x0d\x01" + beyond[:12].replace(b"\x07ab", b"\x02ab")),
        wire.Records,
    )
    with pytest.raises(wire.MalformedError):
        wire.read(head + b"\x00\x53\x77\xc0\x12\x01" + beyond)


@given(st.data())
def test_mutated_messages_are_refused_or_read_but_never_break(data: st.DataObject) -> None:
    attributes = {Attr.NAME: "a name", Attr.OCTETS: 70_000, Attr.SIZES: {3: 4, 70: 2**40}}
    payload = bytearray(messages.records_message(5, "mc/sfe.abcde:0", records_of([attributes] * 3)))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    with contextlib.suppress(wire.MalformedError):
        wire.read(cut)
