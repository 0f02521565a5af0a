"""Whole messages: round trip, agreement with proton, and what is refused."""

import uuid

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.message.control import (
    BodyKind,
    Header,
    Message,
    Properties,
    decode_message,
    encode_message,
)
from isthmus_router.message.sections import encode_annotations
from isthmus_router.message.types import DecodeError, Described, EncodeError, Symbol, ULong, encode

ids = st.one_of(
    st.none(),
    st.text(),
    st.binary(),
    st.uuids(),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**63), 2**63 - 1),
)
texts = st.none() | st.text()
symbols = st.none() | st.text(st.characters(max_codepoint=127))
uints = st.none() | st.integers(0, 2**32 - 1)
times = st.none() | st.integers(0, 2**62)
headers = st.builds(
    Header,
    st.none() | st.booleans(),
    st.none() | st.integers(0, 255),
    uints,
    st.none() | st.booleans(),
    uints,
)
properties = st.builds(
    Properties,
    *(ids, st.none() | st.binary(), texts, texts, texts, ids),
    *(symbols, symbols, times, times, texts, uints, texts),
)
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary()
bodies = st.one_of(
    st.tuples(st.just(BodyKind.VALUE), values | st.dictionaries(st.text(), values)),
    st.tuples(st.just(BodyKind.SEQUENCE), st.lists(values)),
    st.tuples(st.just(BodyKind.DATA), st.binary()),
    st.tuples(st.just(BodyKind.NONE), st.none()),
)


@st.composite
def whole_messages(draw):
    annotations = st.dictionaries(st.text(st.characters(max_codepoint=127)).map(Symbol), values, max_size=3)
    kind, body = draw(bodies)
    return Message(
        header=draw(st.none() | headers),
        delivery_annotations=draw(annotations),
        message_annotations=draw(annotations),
        properties=draw(properties),
        application_properties=draw(st.dictionaries(st.text(), values, max_size=3)),
        body=body,
        body_kind=kind,
        footer=draw(annotations),
    )


@given(whole_messages())
def test_round_trip(message):
    assert decode_message(encode_message(message)) == message


@given(whole_messages())
def test_a_router_annotation_section_in_front_is_skipped(message):
    prefix = encode_annotations(0, "to", "0/A", ["0/A", "0/B"])
    assert decode_message(prefix + encode_message(message)) == message


@given(st.binary(max_size=100))
def test_garbage_is_refused_or_read_but_never_breaks(data):
    try:
        message = decode_message(data)
    except DecodeError:
        return
    assert isinstance(message, Message)


@pytest.mark.parametrize(
    "correlation_id", [7, ULong(7), "seven", b"seven", uuid.UUID(int=7), Symbol("seven"), True]
)
def test_correlation_ids_keep_their_type(correlation_id):
    """A long is no legal message id, yet some peers send it."""
    message = decode_message(
        encode_message(Message(properties=Properties(correlation_id=correlation_id)))
    ).properties
    assert type(message.correlation_id) is type(correlation_id)
    assert message.correlation_id == correlation_id


def test_what_proton_writes_is_read():
    theirs = proton.Message(
        id=proton.ulong(3),
        user_id=b"guest",
        address="amqp:/_topo/0/R1/$management",
        subject="s",
        reply_to="temp.1",
        correlation_id=uuid.UUID(int=5),
        content_type=proton.symbol("text/plain"),
        expiry_time=3,
        creation_time=2,
        group_id="g",
        group_sequence=9,
        reply_to_group_id="h",
        durable=True,
        priority=7,
        ttl=2.5,
        delivery_count=1,
        properties={"operation": "QUERY", "count": proton.int32(500)},
        annotations={proton.symbol("x-opt-a"): 1},
        instructions={proton.symbol("x-opt-b"): 2},
        body={"attributeNames": ["id", "cost"]},
    )
    message = decode_message(theirs.encode())
    assert message.header == Header(durable=True, priority=7, ttl=2500, delivery_count=1)
    assert message.properties == Properties(
        message_id=3,
        user_id=b"guest",
        to="amqp:/_topo/0/R1/$management",
        subject="s",
        reply_to="temp.1",
        correlation_id=uuid.UUID(int=5),
        content_type="text/plain",
        absolute_expiry_time=3000,
        creation_time=2000,
        group_id="g",
        group_sequence=9,
        reply_to_group_id="h",
    )
    assert message.application_properties == {"operation": "QUERY", "count": 500}
    assert message.message_annotations == {"x-opt-a": 1}
    assert message.delivery_annotations == {"x-opt-b": 2}
    assert message.body == {"attributeNames": ["id", "cost"]}
    assert message.body_kind is BodyKind.VALUE


def test_what_we_write_proton_reads():
    theirs = proton.Message()
    theirs.decode(
        encode_message(
            Message(
                header=Header(durable=True, priority=3),
                properties=Properties(to="x", correlation_id=ULong(8), content_type="text/plain"),
                application_properties={"statusCode": 200},
                message_annotations={Symbol("x-opt-a"): "b"},
                body={"a": [1, None]},
            )
        )
    )
    assert (theirs.durable, theirs.priority, theirs.address) == (True, 3, "x")
    assert theirs.correlation_id == 8
    assert theirs.content_type == "text/plain"
    assert theirs.properties == {"statusCode": 200}
    assert theirs.annotations == {"x-opt-a": "b"}
    assert theirs.body == {"a": [1, None]}


def test_data_and_sequence_sections_are_joined():
    data = encode(Described(ULong(0x75), b"one")) + encode(Described(ULong(0x75), b"two"))
    assert decode_message(data) == Message(body=b"onetwo", body_kind=BodyKind.DATA)
    lists = encode(Described(ULong(0x76), [1])) + encode(Described(ULong(0x76), [2]))
    assert decode_message(lists) == Message(body=[1, 2], body_kind=BodyKind.SEQUENCE)


def test_sections_may_be_named_by_symbol():
    section = Described(Symbol("amqp:properties:list"), [None, None, "x"])
    assert decode_message(encode(section)).properties.to == "x"


@pytest.mark.parametrize(
    "sections",
    [
        ["not described"],
        [Described(ULong(0x99), [])],
        [Described(Symbol("amqp:nothing:list"), [])],
        [Described(ULong(0x70), {})],
        [Described(ULong(0x70), ["durable"])],
        [Described(ULong(0x73), [None] * 14)],
        [Described(ULong(0x73), [None, None, 5])],
        [Described(ULong(0x74), [])],
        [Described(ULong(0x74), {1: 2})],
        [Described(ULong(0x75), "text")],
        [Described(ULong(0x76), {})],
        [Described(ULong(0x77), 1), Described(ULong(0x77), 2)],
        [Described(ULong(0x77), 1), Described(ULong(0x75), b"2")],
        [Described(ULong(0x77), 1), Described(ULong(int.from_bytes(b"SKPR--RA")), [])],
    ],
)
def test_what_is_not_a_message_is_refused(sections):
    with pytest.raises(DecodeError):
        decode_message(b"".join(encode(section) for section in sections))


@pytest.mark.parametrize("message", [Message(body=object()), Message(application_properties={"a": 2**64})])
def test_what_amqp_cannot_carry_is_refused(message):
    with pytest.raises(EncodeError):
        encode_message(message)


def test_header_values_out_of_range_are_refused():
    with pytest.raises(EncodeError, match="out of range"):
        encode_message(Message(header=Header(priority=256)))
