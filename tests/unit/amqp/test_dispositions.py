"""Dispositions that would have the engine copy too much: which ones these are, in every form that the engine reads."""

from __future__ import annotations

import pytest
from tests.integration.support.raw import BEGIN, DISPOSITION, TRANSFER, frame

from isthmus_router.amqp.sockets.dispositions import MOST_COPIED_BYTES, copies_too_much
from isthmus_router.message.types import Described, Symbol, UInt, ULong

MANY = 10_000
WHOLE = b"\x00\x53\x77\xa1\x01x"


def state(size: int) -> Described:
    return Described(ULong(0x27), [None, None, {Symbol("x"): "y" * size}])


def names(first: int, last: int | None, size: int) -> bytes:
    return frame(DISPOSITION, [True, UInt(first), None if last is None else UInt(last), True, state(size)])


LARGE = names(0, MANY, 3000)


@pytest.mark.parametrize(
    ("data", "deliveries", "expected"),
    [
        (LARGE, MANY, True),
        (LARGE, 10, False),
        (names(0, 9, 3000), MANY, False),
        (names(0, None, 14_000), MANY, False),
        (names(2**32 - 5000, 5000, 3000), MANY, True),
        (names(0, MANY, 20), MANY, False),
        (names(0, 9, 3000) + LARGE, MANY, True),
        (LARGE[:-1], MANY, False),
        (frame(TRANSFER, [UInt(0)], WHOLE * 500), MANY, False),
        (
            frame(BEGIN, [None, UInt(0), UInt(9), UInt(9), UInt(9), None, None, {Symbol("x"): "y" * 3000}]),
            MANY,
            False,
        ),
        (b"", MANY, False),
        (b"\x00" * 100, MANY, False),
        (b"\xff" * 100, MANY, False),
    ],
)
def test_deliveries_times_bytes(data: bytes, deliveries: int, expected: bool) -> None:
    assert copies_too_much(data, deliveries) is expected


def body(
    role: bytes, first: bytes, last: bytes, *, head: bytes = b"\xd0" + b"\0" * 8, code: bytes = b"\x53\x15"
) -> bytes:
    content = b"\0" + code + head + role + first + last + b"\x41" + b"\x00" * 3000
    return (8 + len(content)).to_bytes(4) + b"\x02\x00\x00\x00" + content


FEW = b"\x52\x09"
ALL = b"\x70\x00\x01\x00\x00"


@pytest.mark.parametrize("code", [b"\x53\x15", b"\x80" + b"\0" * 7 + b"\x15"])
@pytest.mark.parametrize("head", [b"\xc0\0\0", b"\xd0" + b"\0" * 8])
@pytest.mark.parametrize("role", [b"\x40", b"\x41", b"\x42", b"\x56\x01"])
@pytest.mark.parametrize("first", [b"\x40", b"\x43", b"\x52\x00", b"\x70\0\0\0\0"])
@pytest.mark.parametrize(
    ("last", "expected"), [(FEW, False), (b"\x40", False), (b"\x43", False), (ALL, True)]
)
def test_every_encoding_of_a_range(
    code: bytes, head: bytes, role: bytes, first: bytes, last: bytes, expected: bool
) -> None:
    assert copies_too_much(body(role, first, last, head=head, code=code), MANY) is expected


@pytest.mark.parametrize(
    "malformed",
    [
        body(b"\xa1", FEW, FEW),
        body(b"\x41", b"\xa1", FEW),
        body(b"\x41", FEW, b"\xa1"),
        body(b"\x41", FEW, FEW, head=b"\x45"),
    ],
)
def test_what_is_in_no_valid_form_may_name_all(malformed: bytes) -> None:
    assert copies_too_much(malformed, MANY)


def test_a_long_header_does_not_count() -> None:
    content = body(b"\x41", FEW, ALL)[8:]
    head = (1020 + len(content)).to_bytes(4) + b"\xff\x00\x00\x00" + b"\0" * 1012
    assert copies_too_much(head + content, MANY)
    assert not copies_too_much(head + content, MOST_COPIED_BYTES // len(content))
