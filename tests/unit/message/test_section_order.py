"""A message that arrives in pieces is judged as a whole one is, wherever it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.message.section_order import BYTES_OF_A_SECTION, SectionOrder
from isthmus_router.message.sections import (
    MOST_DESCRIPTORS,
    MOST_SECTIONS,
    IncompleteError,
    SectionError,
    find_user_id,
)

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


def refusal(data: bytes, cuts: list[int]) -> str | None:
    """Why the message is refused when it arrives in pieces that end where `cuts` says; None if it is not."""
    ends = sorted({cut % len(data) for cut in cuts if data} | {len(data)})
    order, start = SectionOrder(), 0
    try:
        for end in ends:
            piece = memoryview(data[start:end] + b"\0\x53\x75")  # the buffer has more in it than the piece
            order.check(piece, end - start)
            start = end
        order.check_end()
    except SectionError as error:
        return str(error)
    return None


def is_refused_as_a_whole(data: bytes) -> bool:
    try:
        find_user_id(data, 0, len(data), complete=True)
    except (SectionError, IncompleteError):
        return True
    return False


@given(
    st.lists(st.sampled_from(SECTIONS), max_size=6).map(b"".join), st.lists(st.integers(0, 400), max_size=8)
)
def test_pieces_are_judged_as_the_whole(data: bytes, cuts: list[int]) -> None:
    assert (refusal(data, cuts) is not None) is is_refused_as_a_whole(data)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_garbage_is_judged_alike_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    assert refusal(data, cuts) == refusal(data, [])


def test_a_user_id_behind_the_body_is_refused() -> None:
    order = SectionOrder()
    order.check(DATA, len(DATA))
    with pytest.raises(SectionError, match="out of order"):
        order.check(SECTIONS[1], len(SECTIONS[1]))


def test_many_sections_need_many_bytes() -> None:
    """A large message may be sent as many sections of data; small ones without end cost too much."""
    large = b"\0\x53\x75\xb0" + BYTES_OF_A_SECTION.to_bytes(4) + bytes(BYTES_OF_A_SECTION)
    order = SectionOrder()
    for _ in range(3 * MOST_SECTIONS):
        order.check(large, len(large))
    order.check_end()
    small = DATA * (2 * MOST_SECTIONS)
    with pytest.raises(SectionError, match=f"more than {MOST_SECTIONS + len(small) // BYTES_OF_A_SECTION} "):
        SectionOrder().check(small, len(small))


def test_descriptors_without_end_are_refused() -> None:
    for descriptors in (b"\0" * 10_000, b"\0\x40" * 10_000):
        value = b"\0\x53\x77" + descriptors
        with pytest.raises(SectionError, match=f"more than {MOST_DESCRIPTORS} descriptors"):
            SectionOrder().check(value, len(value))
        with pytest.raises(SectionError, match=f"more than {MOST_DESCRIPTORS} descriptors"):
            find_user_id(value, 0, len(value), complete=True)
