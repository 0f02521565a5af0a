"""Waiting for a peer that may fall silent, with one timer, however much the peer sends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from isthmus_router.core.port import CallLater

_LOOKS = 10


def when_silent(
    later: CallLater, seconds: float, count: Callable[[], int | None], then: Callable[[], None]
) -> None:
    """Call `then` when `count` has not changed for `seconds`, or for a tenth longer. None: nobody waits any more."""

    def look(before: int | None, left: int) -> None:
        now = count()
        if now is None:
            return
        left = left - 1 if now == before else _LOOKS
        if left:
            later(seconds / _LOOKS, partial(look, now, left))
        else:
            then()

    later(seconds / _LOOKS, partial(look, count(), _LOOKS))
