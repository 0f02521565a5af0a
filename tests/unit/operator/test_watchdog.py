"""The watchdog tells a watch that is late from one that is dead."""

from __future__ import annotations

import pytest

from isthmus_operator.watchdog import Versions, missed

A = ("Router", "uid-a")


@pytest.mark.parametrize(
    ("suspects", "listed", "watched", "dead"),
    [
        ({}, {A: "2"}, {A: "1"}, []),
        ({A: "2"}, {A: "2"}, {A: "2"}, []),
        ({A: "2"}, {A: "3"}, {A: "1"}, []),
        ({A: "2"}, {}, {A: "1"}, []),
        ({A: "2"}, {A: "2"}, {A: "1"}, [A]),
        ({A: "2"}, {A: "2"}, {}, [A]),
    ],
)
def test_missed(suspects: Versions, listed: Versions, watched: Versions, dead: list[tuple[str, str]]) -> None:
    assert missed(suspects, listed, watched) == dead
