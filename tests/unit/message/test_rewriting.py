"""An annotation more and a longer reply-to, and nothing else changed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest
from proton import Message, symbol

from isthmus_router.message.rewriting import MOST_VALUES, Annotation, annotated
from isthmus_router.message.sections import SectionError
from isthmus_router.message.types import Symbol, UByte, ULong, encode

ORIGIN = Annotation("x-opt-isthmus.origin", "nyc/C")
PREFIX = "relay/trades/~/00/"


def section(code: int, value: object, *, long: bool) -> bytes:
    """With either form of its descriptor and, by its size, of its value."""
    return b"\x00" + (b"\x80" + code.to_bytes(8, "big") if long else b"\x53" + bytes((code,))) + encode(value)


def decoded(payload: bytes) -> Message:
    message = Message()
    message.decode(payload)
    return message


@pytest.mark.parametrize("seed", range(200))
def test_any_message(seed: int) -> None:
    chance = random.Random(seed)
    padding = "p" * chance.choice((0, 300))

    def some() -> bool:
        return chance.random() < 0.5

    head = b"".join(
        section(code, value, long=some())
        for code, value in ((0x70, [some(), UByte(7)]), (0x71, {Symbol("d"): padding}))
        if some()
    )
    own = {Symbol("x-opt-other"): padding, **({Symbol("x-opt-isthmus.origin"): "faked"} if some() else {})}
    annotations = section(0x72, own, long=some()) if some() else b""
    reply_to = chance.choice((None, "temp.1", padding + "/long"))
    fields = [f"id{padding}", b"user", "to", "subject", reply_to, ULong(7), Symbol("text/plain")]
    fields = fields[: chance.randrange(len(fields) + 1)]
    properties = section(0x73, fields, long=some()) if some() else b""
    tail = section(0x74, {"key": padding}, long=some()) + section(0x77, "body", long=some())
    rest = properties + tail
    prefix = PREFIX if some() else None

    after = annotated(head + annotations + rest, ORIGIN, prefix)

    assert after.startswith(head)
    found = decoded(after)
    expected = {"x-opt-isthmus.origin": "nyc/C"} | ({"x-opt-other": padding} if annotations else {})
    assert found.annotations == {symbol(key): value for key, value in expected.items()}
    assert after.count(b"x-opt-isthmus.origin") == 1
    if prefix is None or not properties or len(fields) < 5 or reply_to is None:
        assert after.endswith(rest)
    else:
        assert found.reply_to == PREFIX + reply_to
        assert (found.id, found.user_id, found.address, found.subject) == (
            fields[0],
            b"user",
            "to",
            "subject",
        )
        assert after.endswith(tail)
        if len(fields) == 7:
            assert (found.correlation_id, found.content_type) == (7, "text/plain")


def test_every_beginning_of_a_message_is_refused_or_untouched() -> None:
    whole = Message(
        body="body", reply_to="temp.1", durable=True, annotations={symbol("x-opt-other"): 1}
    ).encode()
    for size in range(len(whole)):
        part = whole[:size]
        try:
            after = annotated(part, ORIGIN, PREFIX)
        except SectionError:
            continue
        assert len(after) > size


def test_noise_raises_nothing_else() -> None:
    chance = random.Random(1)
    whole = bytearray(
        Message(body="body", reply_to="temp.1", annotations={symbol("x-opt-other"): [1, {"a": 2}]}).encode()
    )
    for _ in range(5000):
        noisy = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            noisy[chance.randrange(len(noisy))] = chance.randrange(256)
        with contextlib.suppress(SectionError):
            annotated(bytes(noisy), ORIGIN, PREFIX)


@pytest.mark.parametrize("name", ["x-opt-isthmus.origin", "x-opt-isthmus.gap", "x-opt-isthmus.state-request"])
@pytest.mark.parametrize("key", [Symbol, str, str.encode, lambda name: Symbol(name + "x" * 300)])
def test_what_only_routers_say_nobody_else_does(key: Callable[[str], object], name: str) -> None:
    faked = section(0x72, {key(name): "faked", Symbol("x-opt-other"): "kept"}, long=True)
    found = decoded(annotated(faked + section(0x77, "body", long=True), ORIGIN, None))
    assert found.annotations == {symbol("x-opt-isthmus.origin"): "nyc/C", symbol("x-opt-other"): "kept"}


ELSEWHERE = [section(0x72, {Symbol("x-opt-isthmus.gap"): "faked"}, long=long) for long in (False, True)]


@pytest.mark.parametrize("faked", ELSEWHERE)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (section(0x72, {Symbol("x-opt-other"): 1}, long=False), b""),
        (b"\x00\x53\x72\x40", b""),
        (section(0x73, [], long=False), b""),
        (section(0x72, {}, long=False) + section(0x70, [True], long=False), b""),
        (section(0x77, "body", long=False), b""),
        (section(0x74, {"key": 1}, long=False), section(0x77, "body", long=False)),
    ],
)
def test_a_second_section_of_annotations_is_refused(before: bytes, faked: bytes, after: bytes) -> None:
    with pytest.raises(SectionError):
        annotated(before + faked + after, ORIGIN, None)


def test_a_body_may_say_anything() -> None:
    whole = section(0x73, ["x-opt-isthmus.origin"], long=False) + section(0x77, ELSEWHERE[0], long=True)
    assert annotated(whole, ORIGIN, None) == ORIGIN.section + whole


def test_an_empty_message_gets_the_annotation() -> None:
    assert annotated(b"", ORIGIN, PREFIX) == ORIGIN.section


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(
            b"\0\x53\x73\xc0\x0c\x04\x40\x40\x40\x40\xa1\x06orders", id="a reply-to beyond the elements"
        ),
        pytest.param(
            b"\0\x53\x73\xc0\x24\x00\0\x53\x72\xc1\x1e\x02\xa3\x14x-opt-isthmus.origin\xa1\x04boss",
            id="an annotation in an empty list",
        ),
    ],
)
def test_what_some_receivers_would_find_is_refused(payload: bytes) -> None:
    with pytest.raises(SectionError, match="another size"):
        annotated(payload + b"\0\x53\x77\x40", ORIGIN, PREFIX)


NULLS = encode([None] * (MOST_VALUES + 1))


@pytest.mark.parametrize(
    "rest",
    [b"\0\x53\x77" + NULLS, section(0x74, {"key": 1}, long=True) + b"\0\x53\x76" + NULLS],
    ids=["a value", "a sequence"],
)
def test_a_body_of_many_values_is_not_checked_to_its_end(rest: bytes) -> None:
    faked = {Symbol("x-opt-isthmus.gap"): "faked", Symbol("x-opt-other"): "kept"}
    after = annotated(section(0x72, faked, long=False) + rest[:-1] + b"\xff", ORIGIN, None)
    assert after.endswith(rest[:-1] + b"\xff")
    assert b"isthmus.gap" not in after
    assert b"kept" in after


def test_a_reserved_name_behind_many_values_is_refused() -> None:
    before = section(0x71, {Symbol("key"): [None] * (MOST_VALUES + 1)}, long=True)
    with pytest.raises(SectionError, match=f"more than {MOST_VALUES} values"):
        annotated(before + section(0x72, {Symbol("x-opt-isthmus.gap"): 1}, long=False), ORIGIN, None)


def test_annotations_between_reserved_ones_stay() -> None:
    names = ["x-opt-isthmus.a", "1", "2", "x-opt-isthmus.b", "x-opt-isthmus.c", "3", "x-opt-isthmus."]
    faked = section(0x72, {Symbol(name): [name, {"x": 1}] for name in names}, long=True)
    found = decoded(annotated(faked, ORIGIN, None)).annotations
    assert list(found) == ["x-opt-isthmus.origin", "1", "2", "3"]
