"""A message that arrives in pieces is judged as a whole one is, wherever it is cut."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.message import structure as structure_module
from isthmus_router.message.sections import MOST_SECTIONS, SectionError
from isthmus_router.message.structure import BYTES_OF_A_SECTION, MOST_DEPTH, Structure
from isthmus_router.message.types import encode

try:
    from isthmus_router.amqp.kernel.drain import no_user_in
except ImportError:  # no compiler
    no_user_in = None  # type: ignore[assignment]

DATA = b"\0\x53\x75\xa0\x01x"
SECTIONS = [
    b"\0\x53\x70\x45",
    b"\0\x53\x73\xc0\x07\x02\x40\xa0\x03own",
    b"\0\x53\x74\xc1\x01\0",
    DATA,
    b"\0\x53\x75\xb0\0\0\0\x28" + b"\0\x53\x73\x45" * 10,
    b"\0\x53\x76\xd0\0\0\0\x04\0\0\0\0",
    b"\0\x53\x77\x40",
    b"\0\x53\x77\0\xa3\x01x\xc0\x01\0",
    b"\0\x53\x78\xc1\x01\0",
    b"\0\x80\0\0\0\0\0\0\0\x73\x45",
    b"\0\x53\x40\x45",
    b"\0\x53\x77\0",
    b"\0\x53\x75\xb0\0\0\0\x28x",
]


def in_python() -> Any:
    """The same module as it is without a compiler."""
    source = Path(structure_module.__file__).with_name("structure.py")
    spec = importlib.util.spec_from_file_location("structure_in_python", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = (structure_module, in_python())
PYTHON = MODULES[1].Structure


def refusal(data: bytes, cuts: list[int]) -> str | None:
    """Why the message is refused when it arrives in pieces that end where `cuts` says; None if it is not."""
    answer = refusal_by(Structure, data, cuts)
    assert refusal_by(PYTHON, data, cuts) == answer
    return answer


@given(st.lists(st.sampled_from(SECTIONS), max_size=6).map(b"".join), st.integers(1, 400), st.integers(0, 20))
def test_the_first_values_of_a_whole_message_are_judged_as_pieces_are(
    data: bytes, cut: int, most: int
) -> None:
    for whole in (data, data[:cut]):
        for module in MODULES:
            try:
                reached = module.Structure().check_first(whole, 1 << 20)
            except SectionError:
                assert refusal(whole, []) is not None
                continue
            assert reached == len(whole)
            assert refusal(whole, []) is None
            assert module.Structure().check_first(whole, most) <= reached
            assert module.Structure().check_first(whole, 0) == 0


@given(st.data())
def test_elements_of_a_map_with_other_keys_are_found(data: st.DataObject) -> None:
    key = st.sampled_from(["x-a", "x-ab", "x", "b", "", "y-x-a", "x-a" * 200]).map(encode)
    value = st.sampled_from([None, "x-a", [1, {"x-a": 2}], b"x" * 300, 7]).map(encode)
    described = value.map(lambda encoded: b"\0" + encode("x-a") + encoded)
    pairs = data.draw(st.lists(st.tuples(key, value | described), max_size=8))
    elements = b"".join(first + second for first, second in pairs)
    kept = b"".join(
        first + second
        for first, second in pairs
        if not first[2 if first[0] < 0xB0 else 5 :].startswith(b"x-a")
    )
    for module in MODULES:
        whole = b"??" + elements + b"!!"
        runs = module.elements_without(whole, 2, 2 + len(elements), 2 * len(pairs), b"x-a")
        assert b"".join(whole[start:end] for start, end, _ in runs) == kept
        assert sum(length for *_, length in runs) % 2 == 0
        for count in (2 * len(pairs) + 1, 2 * len(pairs) + 2):
            with pytest.raises(SectionError):
                module.elements_without(whole, 2, 2 + len(elements), count, b"x-a")
        cut = data.draw(st.integers(0, len(elements)))
        if cut < len(elements):
            with pytest.raises(SectionError):
                module.elements_without(whole, 2, 2 + cut, 2 * len(pairs), b"x-a")


def refusal_by(kind: Any, data: bytes, cuts: list[int]) -> str | None:
    ends = sorted({cut % len(data) for cut in cuts if data} | {len(data)})
    structure, start = kind(), 0
    try:
        for end in ends:
            piece = memoryview(data[start:end] + b"\0\x53\x75")  # the buffer has more in it than the piece
            structure.check(piece, end - start)
            start = end
        structure.check_end()
    except SectionError as error:
        return str(error)
    return None


@given(
    st.lists(st.sampled_from(SECTIONS), max_size=6).map(b"".join), st.lists(st.integers(0, 400), max_size=8)
)
def test_pieces_are_judged_as_the_whole(data: bytes, cuts: list[int]) -> None:
    assert refusal(data, cuts) == refusal(data, [])


scalars = (
    st.none() | st.booleans() | st.integers(0, 2**31 - 1) | st.text(max_size=300) | st.binary(max_size=9)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


@given(
    st.dictionaries(st.text(max_size=3), values, max_size=3),
    values,
    st.lists(st.integers(0, 900), max_size=6),
)
def test_what_is_encoded_as_it_should_be_passes(
    properties: dict[str, object], body: object, cuts: list[int]
) -> None:
    message = b"\0\x53\x74" + encode(properties) + b"\0\x53\x77" + encode(body)
    assert refusal(message, cuts) is None


def by_elements(data: bytes, at: int) -> int:
    """Where a decoder that goes by the numbers of elements, and not by the sizes, ends the value at `at`."""
    code = data[at]
    if code in {0xC0, 0xC1, 0xD0, 0xD1}:
        wide = code >= 0xD0
        count = int.from_bytes(data[at + 5 : at + 9], "big") if wide else data[at + 2]
        at += 9 if wide else 3
        for _ in range(count):
            at = by_elements(data, at)
        return at
    if code == 0:
        return by_elements(data, by_elements(data, at + 1))
    if code >> 4 == 0xA:
        return at + 2 + data[at + 1]
    if code >> 4 == 0xB:
        return at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    width = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}[code >> 4]
    return at + 1 + width


@given(values, st.integers(0, 200), st.integers(0, 255))
def test_what_decoders_could_read_in_two_ways_is_refused(body: object, at: int, change: int) -> None:
    """One byte of a message is another one: if it passes, going by sizes and by elements ends at the same place."""
    value = bytearray(encode(body))
    value[at % len(value)] = change
    message = b"\0\x53\x77" + bytes(value)
    if refusal(message, []) is None and value[0] < 0xE0 and not any(code >= 0xE0 for code in value):
        assert by_elements(message, 3) == len(message)
    if no_user_in is not None and no_user_in(message):
        assert refusal(message, []) is None


FORGED = b"\0\x53\x73\xc0\x09\x02\x40\xa0\x05admin"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\0\x53\x73\xc0\x09\x01\x40\xa0\x05admin", id="more-bytes-than-elements"),
        pytest.param(b"\0\x53\x73\xc0\x09\x00\x40\xa0\x05admin", id="no-elements"),
        pytest.param(b"\0\x53\x70\xc0" + bytes((len(FORGED) + 1, 0)) + FORGED, id="in-the-header"),
        pytest.param(b"\0\x53\x72\xc1" + bytes((len(FORGED) + 1, 0)) + FORGED, id="in-annotations"),
        pytest.param(b"\0\x53\x77\xc0" + bytes((len(FORGED) + 1, 0)) + FORGED, id="in-the-body"),
        pytest.param(
            b"\0\x53\x77\xc0" + bytes((len(FORGED) + 4, 1, 0xC0, len(FORGED) + 1, 0)) + FORGED, id="in-a-list"
        ),
        pytest.param(b"\0\x53\x77\xe0" + bytes((len(FORGED) + 2, 0, 0xA0)) + FORGED, id="in-an-array"),
        pytest.param(b"\0\x53\x77\xe0" + bytes((len(FORGED) + 2, 1, 0x50)) + FORGED, id="behind-an-array"),
        pytest.param(b"\0\x53\x77\xe0\x05\x01\xc0\x02\x01\x40", id="an-array-of-lists"),
        pytest.param(b"\0\x53\x74\xc1\x02\x01\x40", id="a-key-without-a-value"),
        pytest.param(b"\0\x53\x73\xc1\x02\x02\x40\x40", id="properties-that-are-a-map"),
        pytest.param(b"\0\x53\x75\xc0\x02\x01\x40", id="data-that-are-a-list"),
    ],
)
def test_lists_whose_size_and_count_disagree_are_refused(message: bytes) -> None:
    assert refusal(message, []) is not None
    assert refusal(message, list(range(len(message)))) == refusal(message, [])
    assert no_user_in is None or not no_user_in(message)


def test_lists_within_each_other_have_a_bound() -> None:
    def nested(depth: int) -> bytes:
        value = b"\x45"
        for _ in range(depth):
            value = b"\xd0" + (len(value) + 4).to_bytes(4) + (1).to_bytes(4) + value
        return b"\0\x53\x77" + value

    assert refusal(nested(MOST_DEPTH), []) is None
    assert "within each other" in str(refusal(nested(MOST_DEPTH + 1), []))


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_garbage_is_judged_alike_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    assert refusal(data, cuts) == refusal(data, [])


def test_a_user_id_behind_the_body_is_refused() -> None:
    """Receivers may read sections in any order, and the last of two."""
    own = b"\0\x53\x73\xc0\x07\x02\x40\xa0\x03own"
    others, application, body = own.replace(b"own", b"not"), b"\0\x53\x74\xc1\x01\0", b"\0\x53\x77\x40"
    for data in (own + application + body, own + body, own, DATA + DATA):
        assert refusal(data, []) is None
    for data in (
        own + others + body,
        application + others + body,
        application + b"\0\x53\x70\x45" + others + body,
        own + body + others,
        b"\0\x53\x40\x45" + others + body,
        body + body,
        DATA + others,
    ):
        assert "out of order" in str(refusal(data, []))


def test_many_sections_need_many_bytes() -> None:
    """A large message may be sent as many sections of data; small ones without end cost too much."""
    large = b"\0\x53\x75\xb0" + BYTES_OF_A_SECTION.to_bytes(4) + bytes(BYTES_OF_A_SECTION)
    structure = Structure()
    for _ in range(3 * MOST_SECTIONS):
        structure.check(large, len(large))
    structure.check_end()
    small = DATA * (2 * MOST_SECTIONS)
    with pytest.raises(SectionError, match=f"more than {MOST_SECTIONS} sections"):
        Structure().check(small, len(small))


def test_what_is_in_the_middle_of_a_value_needs_no_look() -> None:
    structure = Structure()
    structure.check(b"\0\x53\x75\xb0" + (1000).to_bytes(4), 8)
    assert structure.passes(400)
    assert not structure.passes(601)
    structure.check(bytes(600), 600)
    structure.check_end()
