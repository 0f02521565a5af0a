"""Control messages byte by byte: as other routers of the family write them, and as we do."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.messages import (
    ALL_ROUTERS_ADDRESS,
    ALL_ROUTERS_MOBILE_ADDRESS,
    HELLO_ADDRESS,
    ControlMessageError,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    RouterAdvertisement,
    UnsupportedVersionError,
    control_address,
    decode_control,
    encode_control,
    mobile_control_address,
)

# --- a second, minimal encoder: 32-bit compounds, as the C routers write them -----


def text(value):
    return b"\xa1" + bytes([len(value)]) + value.encode()


def symbol(value):
    return b"\xa3" + bytes([len(value)]) + value.encode()


def list32(*items):
    content = b"".join(items)
    return b"\xd0" + struct.pack(">II", len(content) + 4, len(items)) + content


def map32(*items):
    return b"\xd1" + list32(*items)[1:]


NULL, FALSE, LIST0 = b"\x40", b"\x42", b"\x45"


def smallint(value):
    return struct.pack(">Bb", 0x54, value)


def int32(value):
    return struct.pack(">Bi", 0x71, value)


def smalllong(value):
    return struct.pack(">Bb", 0x55, value)


ANNOTATIONS = b"\x00\x80SKPR--RA" + list32(b"\x43", NULL, text("0/RA"), list32(text("0/RA")))
HEADER = b"\x00\x53\x70" + list32(FALSE)


def router_message(opcode, to, *fields):
    """HELLO, RA, LSR, LSU: string keys, ints, six properties."""
    properties = b"\x00\x53\x73" + list32(NULL, NULL, text(to), NULL, NULL, NULL)
    application = b"\x00\x53\x74" + map32(text("opcode"), text(opcode))
    body = map32(text("id"), text("RA"), text("pv"), smallint(1), text("area"), text("0"), *fields)
    return ANNOTATIONS + HEADER + properties + application + b"\x00\x53\x77" + body


def mobile_message(opcode, to, *fields):
    """MAR and MAU: symbol keys, longs, three properties."""
    properties = b"\x00\x53\x73" + list32(NULL, NULL, text(to))
    application = b"\x00\x53\x74" + map32(symbol("opcode"), text(opcode))
    body = map32(symbol("id"), text("RA"), symbol("pv"), smalllong(2), symbol("area"), text("0"), *fields)
    return ANNOTATIONS + HEADER + properties + application + b"\x00\x53\x77" + body


INSTANCE = 1_700_000_000
EMPTY_LIST32 = list32()

FROM_OTHER_ROUTERS = [
    (
        router_message("HELLO", HELLO_ADDRESS, text("instance"), int32(INSTANCE), text("seen"), LIST0),
        Hello("RA", INSTANCE, ()),
    ),
    (
        router_message(
            "HELLO",
            HELLO_ADDRESS,
            text("instance"),
            int32(INSTANCE),
            text("seen"),
            list32(text("RB"), text("RC")),
        ),
        Hello("RA", INSTANCE, ("RB", "RC")),
    ),
    (
        router_message(
            "RA",
            ALL_ROUTERS_ADDRESS,
            *(
                text("instance"),
                int32(INSTANCE),
                text("ls_seq"),
                smallint(3),
                text("mobile_seq"),
                int32(1000),
            ),
        ),
        RouterAdvertisement("RA", INSTANCE, 3, 1000),
    ),
    (router_message("LSR", "amqp:/_topo/0/RB/qdrouter"), LinkStateRequest("RA")),
    (
        router_message(
            "LSU",
            "amqp:/_topo/0/RB/qdrouter",
            *(text("instance"), int32(INSTANCE), text("ls_seq"), smallint(2), text("ls")),
            map32(
                *(
                    text("id"),
                    text("RA"),
                    text("area"),
                    text("0"),
                    text("ls_seq"),
                    smallint(2),
                    text("peers"),
                ),
                map32(text("RB"), smallint(1), text("RC"), smallint(10)),
            ),
        ),
        LinkStateUpdate("RA", INSTANCE, LinkState("RA", 2, {"RB": 1, "RC": 10})),
    ),
    (
        mobile_message("MAR", "amqp:/_topo/0/RB/qdrouter.ma", symbol("have_seq"), smalllong(0)),
        MobileAddressRequest("RA", 0),
    ),
    (
        mobile_message(
            "MAU",
            "_topo/0/all/qdrouter.ma",
            *(symbol("mobile_seq"), smalllong(1)),
            *(symbol("add"), list32(list32(text("Mq"), smalllong(3), smalllong(0), NULL))),
            *(symbol("del"), EMPTY_LIST32),
        ),
        MobileAddressUpdate("RA", 1, absolute=False, present=(MobileAddress("Mq", Treatment.BALANCED),)),
    ),
    (
        mobile_message(
            "MAU",
            "_topo/0/all/qdrouter.ma",
            *(symbol("mobile_seq"), smalllong(2)),
            *(symbol("add"), EMPTY_LIST32, symbol("del"), list32(list32(text("Mq")))),
        ),
        MobileAddressUpdate("RA", 2, absolute=False, gone=("Mq",)),
    ),
    (
        mobile_message(
            "MAU",
            "amqp:/_topo/0/RB/qdrouter.ma",
            *(symbol("mobile_seq"), smalllong(7), symbol("exist")),
            list32(
                list32(text("Mthree"), smalllong(2), smalllong(1)),
                list32(text("HRE"), smalllong(3), smalllong(0), smalllong(10), text("abcdefghijklmno")),
            ),
        ),
        MobileAddressUpdate(
            "RA",
            7,
            absolute=True,
            present=(
                MobileAddress("Mthree", Treatment.CLOSEST, in_links=1),
                MobileAddress("HRE", Treatment.BALANCED, capacity=10, mesh_id="abcdefghijklmno"),
            ),
        ),
    ),
    (
        mobile_message(
            "MAU", "amqp:/_topo/0/RB/qdrouter.ma", symbol("mobile_seq"), smalllong(8), symbol("exist"), LIST0
        ),
        MobileAddressUpdate("RA", 8, absolute=True),
    ),
]


@pytest.mark.parametrize(("payload", "message"), FROM_OTHER_ROUTERS)
def test_messages_of_other_routers_are_read(payload, message):
    assert decode_control(payload) == message
    assert decode_control(payload.removeprefix(ANNOTATIONS)) == message


def test_hello_is_written_with_string_keys_and_ints():
    assert encode_control(Hello("RB", INSTANCE, ("RA",)), HELLO_ADDRESS) == (
        b"\x00\x53\x70\xc0\x02\x01\x42"
        b"\x00\x53\x73\xc0\x19\x03\x40\x40"
        + text("amqp:/_local/qdhello")
        + b"\x00\x53\x74\xc1\x10\x02"
        # 16 bytes: the count, the key (8) and the value (7)
        + text("opcode")
        + text("HELLO")
        + b"\x00\x53\x77\xc1\x34\x0a"
        + text("id")
        + text("RB")
        + text("pv")
        + smallint(1)
        + text("area")
        + text("0")
        + text("instance")
        + int32(INSTANCE)
        + text("seen")
        + b"\xc0\x05\x01"
        + text("RA")
    )


def test_mobile_address_request_is_written_with_symbol_keys_and_longs():
    payload = encode_control(MobileAddressRequest("RB", 300), mobile_control_address("RA"))
    assert symbol("opcode") + text("MAR") in payload
    assert payload.endswith(
        symbol("id")
        + text("RB")
        + symbol("pv")
        + smalllong(2)
        + symbol("area")
        + text("0")
        + symbol("have_seq")
        + struct.pack(">Bq", 0x81, 300)
    )


def test_absolute_update_is_written_with_one_descriptor_per_address():
    present = (
        MobileAddress("Mq", Treatment.MULTICAST, 2, 250),
        MobileAddress("HE", Treatment.BALANCED, mesh_id="m" * 15),
    )
    payload = encode_control(
        MobileAddressUpdate("RB", 1, absolute=True, present=present), mobile_control_address("RA")
    )
    first = text("Mq") + smalllong(1) + smalllong(2) + struct.pack(">Bq", 0x81, 250)
    second = text("HE") + smalllong(3) + smalllong(0) + NULL + text("m" * 15)
    assert payload.endswith(
        symbol("exist")
        + (b"\xc0" + bytes([1 + 3 + len(first) + 3 + len(second), 2]))
        + (b"\xc0" + bytes([len(first) + 1, 4]) + first)
        + (b"\xc0" + bytes([len(second) + 1, 5]) + second)
    )
    assert symbol("add") not in payload
    assert symbol("del") not in payload


ids = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
counts = st.integers(0, 2**40)
addresses = st.builds(
    MobileAddress,
    ids,
    st.sampled_from(Treatment),
    counts,
    st.none() | counts,
    st.none() | st.text(min_size=15, max_size=15),
)
messages = st.one_of(
    st.builds(Hello, ids, counts, st.lists(ids).map(tuple)),
    st.builds(RouterAdvertisement, ids, counts, counts, counts),
    st.builds(LinkStateRequest, ids),
    st.builds(
        lambda router, instance, sequence, peers: LinkStateUpdate(
            router, instance, LinkState(router, sequence, peers)
        ),
        *(ids, counts, counts, st.dictionaries(ids, st.integers(1, 10_000))),
    ),
    st.builds(MobileAddressRequest, ids, counts),
    st.builds(MobileAddressUpdate, ids, counts, st.just(True), st.lists(addresses).map(tuple)),
    st.builds(
        MobileAddressUpdate,
        *(ids, counts, st.just(False), st.lists(addresses).map(tuple), st.lists(ids).map(tuple)),
    ),
)


@given(messages)
def test_round_trip(message):
    assert decode_control(encode_control(message, "amqp:/_topo/0/all/qdrouter")) == message


def test_the_unscoped_address_of_differential_updates_and_the_others():
    assert ALL_ROUTERS_MOBILE_ADDRESS == "_topo/0/all/qdrouter.ma"
    assert control_address("RA") == "amqp:/_topo/0/RA/qdrouter"
    assert mobile_control_address("RA") == "amqp:/_topo/0/RA/qdrouter.ma"


def test_trailing_descriptor_elements_may_be_missing_or_odd():
    payload = mobile_message(
        "MAU",
        "x",
        *(symbol("mobile_seq"), smalllong(1), symbol("exist")),
        list32(list32(text("Ma")), list32(text("Mb"), smalllong(9), text("?"), text("?"), NULL, NULL)),
    )
    assert decode_control(payload).present == (
        MobileAddress("Ma", Treatment.BALANCED),
        MobileAddress("Mb", Treatment.BALANCED),
    )


def test_a_link_cost_below_one_is_taken_as_one():
    state = map32(
        text("id"), text("RA"), text("ls_seq"), smallint(1), text("peers"), map32(text("RB"), smallint(0))
    )
    payload = router_message("LSU", "x", text("instance"), smallint(1), text("ls"), state)
    assert decode_control(payload).link_state.peers == {"RB": 1}


@pytest.mark.parametrize(
    ("payload", "router"),
    [
        (router_message("LSR", "x", text("pv"), smallint(2)), "RA"),
        (mobile_message("MAR", "x", symbol("have_seq"), smalllong(0), symbol("pv"), smalllong(3)), "RA"),
        (mobile_message("MAR", "x", symbol("have_seq"), smalllong(0), symbol("pv"), smalllong(1)), "RA"),
    ],
)
def test_other_versions_are_recognised(payload, router):
    with pytest.raises(UnsupportedVersionError) as error:
        decode_control(payload)
    assert error.value.router == router


FLOAT = struct.pack(">Bd", 0x82, 1.0)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"garbage",
        HEADER,
        ANNOTATIONS + HEADER,
        router_message("FOO", "x"),
        router_message("HELLO", "x", text("instance"), smallint(1)),
        router_message("HELLO", "x", text("instance"), FLOAT, text("seen"), LIST0),
        router_message("HELLO", "x", text("instance"), smallint(1), text("seen"), map32()),
        router_message("HELLO", "x", text("instance"), smallint(-1), text("seen"), LIST0),
        router_message("LSR", "x", text("area"), text("1")),
        router_message("LSR", "x", text("id"), text("")),
        router_message("LSR", "x", text("id"), NULL),
        router_message("LSU", "x", text("instance"), smallint(1), text("ls"), LIST0),
        router_message(
            "LSU",
            "x",
            text("instance"),
            smallint(1),
            text("ls"),
            map32(text("id"), text("RB"), text("ls_seq")),
        ),
        mobile_message("MAU", "x", symbol("mobile_seq"), smalllong(1)),
        mobile_message("MAU", "x", symbol("mobile_seq"), smalllong(1), symbol("add"), LIST0),
        mobile_message("MAU", "x", symbol("mobile_seq"), smalllong(1), symbol("exist"), list32(text("Mq"))),
        mobile_message("MAU", "x", symbol("mobile_seq"), smalllong(1), symbol("exist"), list32(list32(NULL))),
        FROM_OTHER_ROUTERS[0][0][:-1],
        FROM_OTHER_ROUTERS[0][0] + b"\x40",
    ],
)
def test_what_cannot_be_used_is_refused(payload):
    with pytest.raises(ControlMessageError):
        decode_control(payload)


@given(st.sampled_from([payload for payload, _ in FROM_OTHER_ROUTERS]), st.integers(0), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(payload, where, byte):
    changed = bytearray(payload)
    changed[where % len(changed)] = byte
    with contextlib.suppress(ControlMessageError):
        decode_control(bytes(changed))
