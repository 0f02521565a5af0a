"""Random schedules of joins, leaves and faults: the properties hold in every view and when all has settled.

`ISTHMUS_MEMBERSHIP_SEEDS=5000` runs more of them. A failure tells the seed, and the schedule as short as it gets.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from tests.unit.groups.membership.schedules import check, faulty, orderly

from isthmus_router.groups.membership import messages

SEEDS = int(os.environ.get("ISTHMUS_MEMBERSHIP_SEEDS", "200"))
CHUNKS = 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_member_that_lives_is_removed_while_others_come_leave_and_die(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS):
        check(seed, orderly(Random(seed)), strict=True)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_views_agree_and_partitions_merge_whatever_the_network_does(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS):
        check(seed, faulty(Random(seed)), strict=False)


def test_views_agree_where_frames_have_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in sites of hundreds of members with many addresses."""
    monkeypatch.setattr(messages, "MOST_STEP_VALUES", 0)
    for seed in range(0, SEEDS, CHUNKS):
        check(seed, faulty(Random(seed)), strict=False)


# Schedules that have failed once, and why.


def test_two_leaders_that_a_member_asks_to_merge_do_not_both_take_it() -> None:
    check(
        709,
        [
            (0.0, "start", 0),
            (0.0, "start", 1),
            (0.0, "start", 3),
            (0.0, "start", 4),
            (0.8474479288330143, "leave", 4),
        ],
        strict=True,
    )


def test_a_part_that_another_takes_is_not_asked_on_and_on() -> None:
    starts = [(0.0, "start", place) for place in (0, 2, 3, 4, 5)]
    check(1199, [*starts, (0.8274479288330143, "vanish", 4), (1.2881016006946129, "start", 1)], strict=True)


def test_a_part_that_never_got_the_view_in_which_it_was_merged_can_be_merged_again() -> None:
    both = (3, 4, 6), (0, 1, 2, 5)
    check(
        11177,
        [
            *((0.0, "start", place) for place in (0, 2, 3, 4, 5)),
            (1.188240780166284, "start", 1),
            (1.9025893446949573, "pause", 3, 4.099292208953782),
            (1.9092118363268662, "start", 6),
            (4.966545711559511, "cut", (0,), (6,)),
            (5.307265121804576, "vanish", 0),
            (5.309717310592657, "start", 0),
            (5.4165398026053175, "heal"),
            (6.574211199407707, "vanish", 0),
            (6.760847178207058, "cut", *both),
            (6.760847178207058, "cut", *reversed(both)),
            (9.132042116625197, "heal"),
            (9.409468789947056, "disorder", 0.3, 0.2, 0.05),
            (12.582213268087392, "disorder", 0.0, 0.0, 0.0),
        ],
        strict=False,
    )
