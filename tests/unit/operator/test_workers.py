"""When a namespace is looked at though nothing has triggered it."""

from __future__ import annotations

import pytest

from isthmus_operator.workers import RESYNC_SECONDS, until_next


@pytest.mark.parametrize("pause", [0.0, 600.0, 365 * 86400.0])
def test_what_is_due_late_does_not_put_the_resync_off(pause: float) -> None:
    assert RESYNC_SECONDS * 0.9 <= until_next(pause) <= RESYNC_SECONDS * 1.1


def test_what_is_due_before_the_resync_comes_in_time() -> None:
    assert until_next(0.1) == 0.1
