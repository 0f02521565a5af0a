"""How many frames of members that are not in the view are decoded."""

from __future__ import annotations

from isthmus_router.groups.frames import NOBODY, Kind, encode_frame
from isthmus_router.groups.identity import MemberId, member_id
from isthmus_router.transport.strangers import (
    AT_ONCE,
    MALFORMED_FRAMES,
    MOST_SENDERS,
    PER_SECOND,
    Strangers,
)


def sender(number: int) -> MemberId:
    return member_id(number.to_bytes(16, "big"))


ONE, OTHER = sender(1), sender(2)
DISCOVER, BATCH = (encode_frame(kind, ONE, NOBODY, b"") for kind in (Kind.DISCOVER, Kind.BATCH))


def count(strangers: Strangers, now: float, who: MemberId = ONE, frame: bytes = DISCOVER) -> int:
    """Of so many frames as come at once, those that it takes."""
    return sum(strangers.takes(now, who, frame) for _ in range(3 * AT_ONCE))


def test_each_sender_has_so_many_frames_at_once_and_so_many_per_second() -> None:
    strangers = Strangers()
    assert count(strangers, 10.0) == AT_ONCE
    assert count(strangers, 10.0, OTHER) == AT_ONCE
    assert abs(count(strangers, 10.5) - PER_SECOND // 2) <= 1
    assert count(strangers, 100.0) == AT_ONCE


def test_batches_of_another_part_of_the_group_take_nothing_from_its_request_to_merge() -> None:
    strangers = Strangers()
    assert count(strangers, 10.0, ONE, BATCH) == AT_ONCE
    assert strangers.takes(10.0, ONE, DISCOVER)


def test_malformed_frames_count_more_and_for_their_sender_alone() -> None:
    strangers = Strangers()
    taken = 0
    while strangers.takes(10.0, ONE, DISCOVER):
        strangers.malformed(ONE, DISCOVER)
        taken += 1
    assert AT_ONCE // MALFORMED_FRAMES <= taken <= AT_ONCE // MALFORMED_FRAMES + 1
    assert count(strangers, 10.0, OTHER) == AT_ONCE


def test_few_senders_are_remembered() -> None:
    strangers = Strangers()
    for number in range(1, 3 * MOST_SENDERS):
        assert strangers.takes(10.0, sender(number), DISCOVER)
        assert len(strangers._full_at) <= MOST_SENDERS
    assert strangers.takes(20.0, sender(1), DISCOVER)
    assert len(strangers._full_at) == 1
