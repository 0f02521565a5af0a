"""Bounds of the log."""

from __future__ import annotations

from isthmus_flowlog.collector.lines import MOST, SPAN_US, Lines


def test_there_are_so_many_lines_of_a_kind_in_a_span_of_time() -> None:
    lines = Lines()
    assert [lines.allow("a", now) for now in range(MOST + 2)] == [True] * MOST + [False] * 2
    assert lines.allow("b", MOST)
    assert not lines.allow("a", SPAN_US - 1)
    assert lines.allow("a", SPAN_US)
    assert lines.allow("a", SPAN_US // 2)
