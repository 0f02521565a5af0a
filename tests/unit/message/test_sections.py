"""The hot path's scan of a message agrees with what a whole decoder would find."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.message.control import Header, Message, Properties, encode_message
from isthmus_router.message.sections import (
    ANNOTATION_DESCRIPTOR,
    DEFAULT_PRIORITY,
    IncompleteError,
    RouterAnnotations,
    SectionError,
    annotations_length,
    decode_annotations,
    encode_annotations,
    find_to,
    find_user_id,
    header_priority,
)
from isthmus_router.message.types import Symbol, encode

try:
    from isthmus_router.amqp.kernel.drain import no_user_in
except ImportError:  # no compiler
    no_user_in = None  # type: ignore[assignment]

names = st.text(min_size=1, max_size=300)
sections = st.builds(
    RouterAnnotations,
    flags=st.integers(0, 7),
    to_override=st.none() | names,
    ingress=st.none() | names,
    trace=st.lists(names, max_size=6).map(tuple),
    mesh_id=st.none() | names,
)


def encoded(annotations: RouterAnnotations) -> bytes:
    return encode_annotations(
        annotations.flags,
        annotations.to_override,
        annotations.ingress,
        annotations.trace,
        annotations.mesh_id,
    )


@given(sections, st.binary(max_size=20))
def test_annotations_come_back_as_they_were_written(annotations: RouterAnnotations, rest: bytes) -> None:
    section = encoded(annotations)
    data = memoryview(section + b"\x00\x53\x77" + rest)
    assert annotations_length(data, len(data)) == len(section)
    assert decode_annotations(section) == annotations


@given(sections, st.data())
def test_a_cut_section_is_incomplete_not_wrong(annotations: RouterAnnotations, data: st.DataObject) -> None:
    section = encoded(annotations)
    available = data.draw(st.integers(12, len(section) - 1))
    with pytest.raises(IncompleteError):
        annotations_length(section, available)


def test_the_wire_form_is_the_peers() -> None:
    """flags 0, to-override "q", ingress "0/A", trace ["0/A"], written out by hand from the field tables."""
    section = encode_annotations(0, "q", "0/A", ("0/A",))
    assert section == (b"\x00\x80SKPR--RA\xc0\x12\x04\x43\xa1\x01q\xa1\x030/A\xc0\x06\x01\xa1\x030/A")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([0, None], "four elements"),
        (["x", None, None, []], "flags"),
        ([0, Symbol("a"), None, []], "to-override"),
        ([0, None, 7, []], "ingress"),
        ([0, None, None, "x"], "trace"),
        ([0, None, None, [1]], "trace"),
        ([0, None, None, [], None], "mesh id"),
    ],
)
def test_wrong_elements_are_refused_by_name(value: list[object], complaint: str) -> None:
    with pytest.raises(SectionError, match=complaint) as refusal:
        decode_annotations(ANNOTATION_DESCRIPTOR + encode(value))
    assert refusal.value.condition == "amqp:invalid-field"


def test_a_section_that_is_not_a_list_is_refused() -> None:
    data = ANNOTATION_DESCRIPTOR + encode({"a": 1})
    with pytest.raises(SectionError):
        annotations_length(data, len(data))


symbols = st.text(st.characters(codec="ascii"), min_size=1, max_size=20).map(Symbol)
messages = st.builds(
    Message,
    header=st.none() | st.builds(Header, durable=st.booleans(), priority=st.none() | st.integers(0, 255)),
    delivery_annotations=st.dictionaries(symbols, names, max_size=2),
    message_annotations=st.dictionaries(symbols, names, max_size=2),
    properties=st.builds(
        Properties,
        message_id=st.none() | names | st.binary(max_size=40) | st.uuids(),
        user_id=st.none() | st.binary(max_size=300),
        to=st.none() | names,
        subject=st.none() | names,
    ),
    body=names,
)


@given(messages, st.binary(max_size=40))
def test_to_and_priority_are_found_in_any_message(message: Message, prefix: bytes) -> None:
    data = memoryview(prefix + encode_message(message))
    to = find_to(data, len(prefix), len(data))
    assert (to.decode() if to is not None else None) == message.properties.to
    wanted = message.header.priority if message.header else None
    assert header_priority(data, len(prefix), len(data)) == min(
        DEFAULT_PRIORITY if wanted is None else wanted, 9
    )


@given(messages, st.binary(max_size=40), st.data())
def test_the_user_id_is_found_in_any_message_however_it_is_cut(
    message: Message, prefix: bytes, data: st.DataObject
) -> None:
    whole = prefix + encode_message(message)
    assert find_user_id(whole, len(prefix), len(whole), complete=True) == message.properties.user_id
    available = data.draw(st.integers(len(prefix), len(whole) - 1))
    with contextlib.suppress(IncompleteError):
        found = find_user_id(whole, len(prefix), available, complete=False)
        assert found == message.properties.user_id


def deceives(data: bytes) -> bool:
    """The compiled scan finds no user where there is, or may be, one."""
    if no_user_in is None or not no_user_in(data):
        return False
    return find_user_id(data, 0, len(data), complete=True) is not None


@given(messages)
def test_the_compiled_scan_knows_messages_without_a_user(message: Message) -> None:
    if no_user_in is not None:
        assert no_user_in(encode_message(message)) is (message.properties.user_id is None)


@given(messages, st.integers(0, 400), st.binary(max_size=3), st.integers(0, 3))
def test_the_compiled_scan_is_not_deceived(message: Message, at: int, change: bytes, gone: int) -> None:
    whole = encode_message(message)
    at %= len(whole)
    assert not deceives(whole[:at] + change + whole[at + gone :])


@given(
    st.lists(
        st.sampled_from(
            [
                b"\0\x53\x70\x45",
                b"\0\x53\x73\xc0\x07\x02\x40\xa0\x03own",
                b"\0\x53\x74\xc1\x01\0",
                b"\0\x53\x75\xa0\x01x",
                b"\0\x53\x77\x40",
                b"\0\x53\x78\xc1\x01\0",
                b"\0\x80\0\0\0\0\0\0\0\x73\x45",
            ]
        )
    ).map(b"".join)
)
def test_the_compiled_scan_is_not_deceived_by_any_order(data: bytes) -> None:
    assert not deceives(data)


@given(messages, st.data())
def test_to_in_a_cut_message_is_right_or_incomplete(message: Message, data: st.DataObject) -> None:
    whole = encode_message(message)
    available = data.draw(st.integers(0, len(whole)))
    try:
        to = find_to(whole, 0, available)
    except IncompleteError:
        return
    # A cut between two sections looks like the end of a message without properties.
    assert to is None or to.decode() == message.properties.to


@given(st.binary(max_size=60))
def test_garbage_is_refused_cleanly(garbage: bytes) -> None:
    for scan in (
        lambda: find_to(garbage, 0, len(garbage)),
        lambda: find_user_id(garbage, 0, len(garbage), complete=True),
        lambda: annotations_length(garbage, len(garbage)),
    ):
        with contextlib.suppress(SectionError, IncompleteError):
            scan()


def test_a_section_with_more_values_than_any_needs_is_refused() -> None:
    """A trace has at most 128 routers; each byte of a longer one could be a value."""
    longest = encode_annotations(0, "x" * 5000, "0/A", [f"0/{number:0127d}" for number in range(128)], "m")
    assert len(decode_annotations(longest).trace) == 128
    with pytest.raises(SectionError, match="more than") as refusal:
        decode_annotations(ANNOTATION_DESCRIPTOR + encode([0, None, None, [None] * 10_000]))
    assert refusal.value.condition == "amqp:invalid-field"
