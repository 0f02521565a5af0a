"""Totals of the router, which clients may ask for without pause."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus_router import view


@pytest.mark.parametrize("seconds", [0.0001, 0.02, 1.0])
def test_totals_are_counted_again_after_twenty_times_as_long_as_it_took(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """So counting takes a twentieth of the time, whoever asks and how often."""
    now = 1000.0
    counts: list[float] = []

    def count(_: Any) -> Any:
        nonlocal now
        now += seconds
        counts.append(now)
        return SimpleNamespace(number=len(counts))

    monkeypatch.setattr(view, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(view.totals, "counters", count)
    process: Any = None
    router = view.RouterView(process)
    asked = 0
    while len(counts) < 10:
        assert router.counters() == SimpleNamespace(number=len(counts))
        now += seconds
        asked += 1
    pauses = [after - before for before, after in pairwise(counts)]
    assert all(20 * seconds <= pause <= 23 * seconds for pause in pauses)
    assert asked > 150
