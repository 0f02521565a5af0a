"""Bodies of membership's frames: what is encoded is decoded, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.unit.groups.membership.simulation import Group

from isthmus_router.groups.frames import FrameError, Kind, encode_body, encode_frame
from isthmus_router.groups.identity import MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.history import LENGTH, Step
from isthmus_router.groups.membership.messages import Agree, Install, NotAMember, Propose
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId
from isthmus_router.message.types import DecodeError, decode_all, encode

ONE = MemberInfo(
    member_id(b"1" * 16), "one", (PhysicalAddress("10.0.0.1", 1), PhysicalAddress("aa", 0, tunnelled=True))
)
TWO = MemberInfo(member_id(b"2" * 16), "zwölf", ())
VIEW = View(ViewId(7, ONE.id), (ONE, TWO), (ViewId(5, ONE.id), ViewId(6, TWO.id)))
STEP = Step(VIEW.merged, VIEW)


def frame(body: bytes) -> bytes:
    return encode_frame(Kind.PROPOSE, ONE.id, TWO.id, body)


@pytest.mark.parametrize(
    ("encode", "decode", "message"),
    [
        (messages.encode_propose, messages.decode_propose, Propose(VIEW, (VIEW.id,))),
        (
            messages.encode_agree,
            messages.decode_agree,
            Agree(VIEW.id, True, ViewId(6, TWO.id), 9, (STEP,), b"state"),
        ),
        (messages.encode_agree, messages.decode_agree, Agree(VIEW.id, False, None, 9, (), b"")),
        (messages.encode_install, messages.decode_install, Install((STEP, STEP), b"")),
        (messages.encode_install, messages.decode_install, Install((STEP,), None)),
        (messages.encode_not_a_member, messages.decode_not_a_member, NotAMember(VIEW.id, VIEW.ids)),
        (messages.encode_not_a_member, messages.decode_not_a_member, NotAMember(None, ())),
        (messages.encode_view_id, messages.decode_view_id, VIEW.id),
        (messages.encode_view_id, messages.decode_view_id, None),
    ],
)
def test_what_is_encoded_is_decoded(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], message: Any
) -> None:
    assert decode(frame(encode(message))) == message


def long_steps(members: int, addresses: int, count: int = LENGTH) -> list[Step]:
    """Steps from view to view of so many members."""
    ids = [member_id(number.to_bytes(16)) for number in range(1, members + 1)]
    places = tuple(PhysicalAddress("10.0.0.1", port) for port in range(addresses))
    infos = tuple(MemberInfo(each, "name", places) for each in ids)
    return [
        Step((ViewId(number, ids[0]),), View(ViewId(number + 1, ids[0]), infos)) for number in range(count)
    ]


def test_the_values_of_a_step_are_counted_as_they_are_decoded() -> None:
    for step in (STEP, *long_steps(5, 3, 1)):
        encoded = encode(messages.encode_steps([step]))
        count = messages.count_values(step) + 1
        assert decode_all(encoded, most=count)
        with pytest.raises(DecodeError, match=f"more than {count - 1} values"):
            decode_all(encoded, most=count - 1)


@pytest.mark.parametrize(
    ("members", "addresses", "fit"),
    [(50, 2, LENGTH), (300, 2, LENGTH), (MOST_MEMBERS, 1, 3), (MOST_MEMBERS, 2, 2), (MOST_MEMBERS, 6, 1)],
)
def test_frames_have_the_last_steps_that_fit(members: int, addresses: int, fit: int) -> None:
    steps = tuple(long_steps(members, addresses))
    view = steps[-1].view
    merge = encode_body(messages.encode_steps(steps))
    assert messages.decode_steps(encode_frame(Kind.MERGE, ONE.id, TWO.id, merge)) == steps[-fit:]
    install = messages.encode_install(Install(steps, b"baseline"))
    assert messages.decode_install(encode_frame(Kind.INSTALL, ONE.id, TWO.id, install)) == Install(
        steps[-fit:], b"baseline"
    )
    agree = Agree(view.id, True, view.id, 9, steps, b"state")
    assert messages.decode_agree(
        encode_frame(Kind.AGREE, ONE.id, TWO.id, messages.encode_agree(agree))
    ) == agree._replace(steps=steps[-fit:])
    known = (view.id,) * 1_024
    propose = Propose(view, known)
    assert (
        messages.decode_propose(encode_frame(Kind.PROPOSE, ONE.id, TWO.id, messages.encode_propose(propose)))
        == propose
    )


def test_fields_that_a_later_version_appends_are_ignored() -> None:
    body = encode_body([*messages.encode_member(ONE), "more"], "more")
    assert messages.decode_join(frame(body)) == ONE


@pytest.mark.parametrize(
    "view",
    [
        [[1, ONE.id], [], []],
        [[1, TWO.id], [messages.encode_member(ONE)], []],
        [[1, ONE.id], [messages.encode_member(ONE), messages.encode_member(ONE)], []],
        [[-1, ONE.id], [messages.encode_member(ONE)], []],
        [[1, b"short"], [messages.encode_member(ONE)], []],
        [[1, ONE.id], [[ONE.id, "x" * 300, []]], []],
        [[1, ONE.id], [[ONE.id, "x", [["host", 70_000, False]]]], []],
        [[1, ONE.id], [[ONE.id, "x"]], []],
        "view",
    ],
)
def test_views_that_cannot_be_are_refused(view: object) -> None:
    with pytest.raises(FrameError):
        messages.decode_propose(frame(encode_body(view, [])))


@pytest.mark.parametrize("decode", [messages.decode_install, messages.decode_steps])
def test_there_is_no_install_nor_merge_of_nothing(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(FrameError):
        decode(frame(encode_body([], None)))


def test_frames_of_which_bytes_are_wrong_are_refused_or_taken_and_never_kill() -> None:
    random = Random(1)
    group = Group(1)
    for place in range(2):
        group.start(place)
        group.run(group.now + 2)
    membership = group.at[0].membership
    bodies = [
        messages.encode_propose(Propose(VIEW, ())),
        messages.encode_agree(Agree(VIEW.id, True, None, 9, (STEP,), b"state")),
        messages.encode_install(Install((STEP,), b"")),
        messages.encode_not_a_member(NotAMember(VIEW.id, VIEW.ids)),
        encode_body(messages.encode_steps([STEP])),
        encode_body(messages.encode_member(ONE)),
    ]
    kinds = [kind for kind in Kind if 20 <= kind < 40 and kind is not Kind.LEAVE]
    refused = 0
    for _ in range(5000):
        body = bytearray(random.choice(bodies))
        for _ in range(random.choice((0, 1, 1, 3))):
            body[random.randrange(len(body))] = random.randrange(256)
        sender = random.choice((ONE.id, TWO.id, group.at[1].id))
        data = frame(bytes(body[: random.choice((len(body), random.randrange(len(body))))]))
        try:
            membership.on_frame(group.now, random.choice(kinds), sender, data)
        except FrameError:
            refused += 1
    assert 1000 < refused < 5000
    group.run(group.now + 20)
    assert membership.view is not None
    assert sorted(membership.view.ids) == sorted(node.id for node in group.at.values())
