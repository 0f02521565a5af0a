"""Schedules that failed once, as short as they get: kept, so that what they found stays mended."""

from __future__ import annotations

import pytest
from tests.unit.sites.schedules import Kind, Step, failure

SPLIT = Kind(faults=("cut member", "crash relay", "pause"), gaps_allowed=True)

FOUND = {
    "a part of a site that another site does not feed knows what it has missed when it comes to the others": (
        Kind(
            faults=("restart site", "leave", "restart"),
            gaps_allowed=True,
            seconds=5.0,
            messages=25,
            most_faults=4,
        ),
        {"nyc": 3, "sfo": 2},
        [
            Step(0.7348, "publish", "sfo0", "", 1.0),
            Step(0.7351, "publish", "sfo0", "", 1.0),
            Step(0.7366, "restart site", "sfo1", "nyc", 0.3),
            Step(0.7966, "publish", "sfo0", "", 1.0),
            Step(0.7967, "publish", "sfo0", "", 40.0),
            Step(0.8846, "publish", "sfo0", "", 1.0),
            Step(0.8898, "publish", "sfo0", "", 1.0),
            Step(0.8949, "publish", "sfo0", "", 1.0),
            Step(0.9202, "publish", "sfo0", "", 5.0),
            Step(1.9552, "leave", "nyc1", "sfo", 0.3),
            Step(3.2045, "publish", "sfo0", "", 1.0),
        ],
        135,
    ),
    "a member that begins to keep what is for other sites keeps no more than it may": (
        Kind(members=(1, 3), gaps_allowed=True, most_faults=4, seconds=5.0, messages=25, buffer=900),
        {"nyc": 3, "sfo": 1},
        [Step(1.1688, "cut member", "nyc2", "sfo", 4.0), Step(1.8243, "flood", "nyc0", "", 2.5782)],
        122,
    ),
    "who begins in a part of its own is told at most of what was before its time": (
        Kind(),
        {"nyc": 1, "sfo": 2},
        [
            Step(2.7758, "publish", "sfo1", "", 5.0),
            Step(2.9036, "crash relay", "sfo1", "sfo", 4.0),
            Step(6.0785, "pause", "sfo0", "sfo", 4.0),
        ],
        46,
    ),
    "who was cut off when a member of another site sent its first messages is told what it missed": (
        SPLIT,
        {"nyc": 2, "sfo": 2},
        [Step(0.5803, "cut member", "sfo0", "nyc", 4.0), Step(0.6036, "publish", "nyc0", "", 40.0)],
        76,
    ),
    "so is a relay that was cut off, and gets the next ones over the bridge": (
        SPLIT,
        {"nyc": 1, "sfo": 3},
        [Step(0.9476, "cut member", "sfo0", "sfo", 4.0), Step(2.6982, "publish", "nyc0", "", 1.0)],
        160,
    ),
    "so is one that joins the part of its site that went on": (
        Kind(),
        {"nyc": 2, "sfo": 1},
        [Step(3.8825, "pause", "nyc0", "sfo", 4.0), Step(8.0539, "publish", "sfo0", "", 5.0)],
        115,
    ),
    "what a new holder was given back of a stream is forgotten when it was relayed": (
        SPLIT,
        {"nyc": 2, "sfo": 2},
        [
            Step(0.8815, "crash relay", "sfo1", "sfo", 4.0),
            Step(1.6679, "crash relay", "nyc1", "sfo", 4.0),
            Step(3.5876, "publish", "nyc0", "", 1.0),
            Step(3.5938, "crash relay", "sfo1", "nyc", 1.0),
        ],
        45,
    ),
    "a relay goes on though what it asks others for was acknowledged to its predecessor": (
        Kind(),
        {"nyc": 2, "sfo": 2},
        [
            Step(4.1835, "pause", "sfo0", "nyc", 4.0),
            Step(8.2549, "publish", "sfo0", "", 1.0),
            Step(8.3167, "publish", "sfo0", "", 1.0),
            Step(8.3377, "publish", "sfo0", "", 1.0),
        ],
        173,
    ),
    "a member hears where the streams of new members of other sites begin, before they say anything": (
        SPLIT,
        {"nyc": 2, "sfo": 3},
        [
            Step(1.2549, "publish", "sfo1", "", 1.0),
            Step(1.3037, "pause", "nyc1", "nyc", 4.0),
            Step(3.6909, "publish", "sfo2", "", 1.0),
        ],
        134,
    ),
}


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found(found: str) -> None:
    assert failure(*FOUND[found]) is None
